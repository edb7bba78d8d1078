//! A tap between an HTTP client and its server: it passes everything on, and keeps what it passed.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use tokio::net::TcpListener;

/// One request and its answer; the body grows while it is streamed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exchange {
    pub(crate) method: String,
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
    pub(crate) status: u16,
    pub(crate) answer_headers: Vec<String>,
    pub(crate) answer: String,
}

type SharedExchanges = Arc<Mutex<Vec<Exchange>>>;

/// A tap that runs until the test ends.
pub(crate) struct Tap {
    pub(crate) url: String,
    exchanges: SharedExchanges,
    /// How many exchanges, and how much of each answer, were there when the case began.
    mark: Vec<usize>,
}

impl Tap {
    /// Listens, and passes on to `target` (an address).
    pub(crate) async fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let exchanges = SharedExchanges::default();
        tokio::spawn(accept(listener, target, exchanges.clone()));
        Tap {
            url,
            exchanges,
            mark: Vec::new(),
        }
    }

    /// From here on a new case begins.
    pub(crate) fn mark(&mut self) {
        self.mark = self
            .exchanges
            .lock()
            .unwrap()
            .iter()
            .map(|e| e.answer.len())
            .collect();
    }

    /// The exchanges that began since the mark.
    pub(crate) fn fresh(&self) -> Vec<Exchange> {
        self.exchanges.lock().unwrap()[self.mark.len()..].to_vec()
    }

    /// What came since the mark on answers that were open before it.
    pub(crate) fn late(&self) -> String {
        let all = self.exchanges.lock().unwrap();
        all.iter()
            .zip(&self.mark)
            .map(|(exchange, seen)| &exchange.answer[*seen..])
            .collect()
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, exchanges: SharedExchanges) {
    let client: Client<HttpConnector, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).build_http();
    while let Ok((socket, _)) = listener.accept().await {
        let client = client.clone();
        let exchanges = exchanges.clone();
        let service = hyper::service::service_fn(move |request| {
            let client = client.clone();
            let exchanges = exchanges.clone();
            async move { Ok::<_, Infallible>(pass(client, target, exchanges, request).await) }
        });
        tokio::spawn(async move {
            // How a connection ends is its client's business.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
    }
}

type PassingBody =
    StreamBody<futures_util::stream::BoxStream<'static, Result<Frame<Bytes>, hyper::Error>>>;

async fn pass(
    client: Client<HttpConnector, Full<Bytes>>,
    target: SocketAddr,
    exchanges: SharedExchanges,
    request: Request<Incoming>,
) -> Response<PassingBody> {
    let (mut head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let at = {
        let mut all = exchanges.lock().unwrap();
        all.push(Exchange {
            method: head.method.to_string(),
            headers: shown(&head.headers),
            body: String::from_utf8(body.to_vec()).unwrap(),
            ..Exchange::default()
        });
        all.len() - 1
    };
    head.headers
        .insert(header::HOST, target.to_string().parse().unwrap());
    let path = head.uri.path_and_query().map_or("/mcp", |p| p.as_str());
    head.uri = format!("http://{target}{path}").parse().unwrap();
    let response = client
        .request(Request::from_parts(head, Full::new(body)))
        .await
        .unwrap();
    let (head, body) = response.into_parts();
    {
        let mut all = exchanges.lock().unwrap();
        (all[at].status, all[at].answer_headers) = (head.status.as_u16(), shown(&head.headers));
    }
    let recorded = stream::unfold(
        (body, exchanges, at),
        |(mut body, exchanges, at)| async move {
            let frame = body.frame().await?;
            if let Ok(Some(data)) = frame.as_ref().map(Frame::data_ref) {
                exchanges.lock().unwrap()[at]
                    .answer
                    .push_str(std::str::from_utf8(data).unwrap());
            }
            Some((frame, (body, exchanges, at)))
        },
    );
    Response::from_parts(head, StreamBody::new(Box::pin(recorded)))
}

/// The headers that mean something here, sorted.
fn shown(headers: &HeaderMap) -> Vec<String> {
    let hidden = [
        "host",
        "date",
        "content-length",
        "connection",
        "transfer-encoding",
        "user-agent",
    ];
    let all = headers
        .iter()
        .filter(|(name, _)| !hidden.contains(&name.as_str()));
    let mut lines: Vec<String> = all
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    lines.sort();
    lines
}
