//! Token endpoint in memory, with the habits of real ones.
//!
//! Owns its answers and a record of requests. Does not store grants. Invariant: each refresh token
//! works once, except that of `Keeping`.

use std::net::SocketAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::{Url, form_urlencoded};

use crate::grant::{ClientAuthMethod, ClientIdentity, LoginGrant};
use crate::secret_text::SecretText;
use crate::settings::LoginTarget;

/// Behaviour of the token endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndpointMode {
    /// Each refresh token works once, and a new one comes with each access token.
    Rotating,
    /// The refresh token stays, and is in no response.
    Keeping,
    /// HTTP status 503.
    Down,
    /// The refresh is done, and its response is lost.
    Losing,
    /// The login was ended there.
    Ending,
    /// Each refresh works as with `Rotating`, but its response is held until the mode changes.
    Holding,
}

/// Token endpoint in memory.
pub(super) struct EndpointState {
    mode: EndpointMode,
    refresh: String,
    pub(super) requests: Vec<String>,
}

#[derive(Clone)]
pub(super) struct TokenServer {
    address: SocketAddr,
    pub(super) state: Arc<Mutex<EndpointState>>,
}

impl TokenServer {
    pub(super) async fn start(mode: EndpointMode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let state = EndpointState {
            mode,
            refresh: "refresh-0".to_owned(),
            requests: Vec::new(),
        };
        let server = TokenServer {
            address: listener.local_addr().unwrap(),
            state: Arc::new(Mutex::new(state)),
        };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().answer(stream));
            }
        });
        server
    }

    async fn answer(self, mut stream: TcpStream) {
        let form = read_form(&mut stream).await;
        let response = self.response(form);
        while self.state.lock().mode == EndpointMode::Holding {
            tokio::task::yield_now().await;
        }
        let _ = stream.write_all(response.as_bytes()).await;
        let _ = stream.shutdown().await;
    }

    /// Response to a refresh. Empty: the connection ends without one.
    fn response(&self, form: String) -> String {
        let sent = form_urlencoded::parse(form.as_bytes())
            .find(|(name, _)| name == "refresh_token")
            .map(|(_, value)| value.into_owned());
        let mut state = self.state.lock();
        state.requests.push(form);
        let number = state.requests.len();
        let is_current = sent.as_deref() == Some(state.refresh.as_str());
        if state.mode == EndpointMode::Down {
            return with_body("503 Service Unavailable", "{}");
        }
        if state.mode == EndpointMode::Ending || !is_current {
            return with_body("400 Bad Request", r#"{"error":"invalid_grant"}"#);
        }
        if state.mode != EndpointMode::Keeping {
            state.refresh = format!("refresh-{number}");
        }
        if state.mode == EndpointMode::Losing {
            return String::new();
        }
        let refresh = match state.mode {
            EndpointMode::Keeping => String::new(),
            _ => format!(r#","refresh_token":"{}""#, state.refresh),
        };
        let body = format!(
            r#"{{"access_token":"access-{number}","token_type":"Bearer","expires_in":3600,
                "scope":"less"{refresh}}}"#
        );
        with_body("200 OK", &body)
    }

    pub(super) fn set_mode(&self, mode: EndpointMode) {
        self.state.lock().mode = mode;
    }

    pub(super) fn count(&self) -> usize {
        self.state.lock().requests.len()
    }

    pub(super) fn target(&self) -> LoginTarget {
        LoginTarget {
            server: "linear".to_owned(),
            url: self.url("/mcp"),
        }
    }

    pub(super) fn url(&self, path: &str) -> Url {
        Url::parse(&format!("http://{}{path}", self.address)).unwrap()
    }

    /// Grant that is valid for an hour, and this many minutes old.
    pub(super) fn grant(&self, minutes: i64) -> LoginGrant {
        let obtained = Timestamp::now() - SignedDuration::from_mins(minutes);
        LoginGrant {
            issuer: self.url("/"),
            token_endpoint: self.url("/token"),
            revocation_endpoint: None,
            client: ClientIdentity {
                id: "client".to_owned(),
                secret: None,
                method: ClientAuthMethod::None,
                redirect: self.url("/oauth/callback/abc"),
            },
            scope_asked: Some("read write".to_owned()),
            resource: Some(self.url("/mcp").into()),
            access: SecretText::new("access-0"),
            refresh: Some(SecretText::new("refresh-0")),
            obtained,
            expires: Some(obtained + SignedDuration::from_hours(1)),
            renewal: 0,
            ended: false,
            step_ups: 0,
        }
    }
}

async fn read_form(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            if length.is_some_and(|length| length.parse() == Ok(body.len())) {
                return body.to_owned();
            }
        }
        if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
            return String::new();
        }
    }
}

fn with_body(status: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
}
