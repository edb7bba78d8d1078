//! Need of a login at one server. Owns which servers can be logged in to, and which failures to
//! connect a login heals. Does not log in (`moongate-oauth`). Invariant: the status and the
//! settings decide, never a text.

use http::header::AUTHORIZATION;

use crate::settings::{ConnectTarget, ServerSettings};
use moongate_model::login_sentence;
use moongate_oauth::ServerAuth;
use moongate_protocol::ConnectError;
use moongate_transport::LinkError;

/// Failure to connect, or the end of a connection, as people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectFailure {
    /// Reason.
    pub(crate) reason: String,
    /// True if a login is the way out. The reason is then the sentence for it.
    pub(crate) needs_login: bool,
}

impl ConnectFailure {
    /// Creates a failure that no login heals.
    pub(crate) fn other(reason: String) -> Self {
        ConnectFailure {
            reason,
            needs_login: false,
        }
    }
}

impl ServerSettings {
    /// Returns true if `moongate login` can get the credential that the server demands. Where the
    /// config has a header or a command for it, they are what must be corrected.
    pub fn accepts_login(&self) -> bool {
        match &self.connect {
            // A bridge has a key or a login of its URL, but no name that `moongate login` knows.
            _ if self.is_gateway => false,
            // The host of its URL is not where the server is, so no login can be discovered.
            ConnectTarget::Http {
                socket: Some(_), ..
            } => false,
            ConnectTarget::Http { auth, .. } => {
                matches!(auth, ServerAuth::OAuth(_)) && self.connect.credential_key().is_none()
            }
            ConnectTarget::Stdio { .. }
            | ConnectTarget::Socket(_)
            | ConnectTarget::Misconfigured { .. } => false,
        }
    }

    /// Returns true if a login heals this failure to connect: the server answered 401, and nothing
    /// in the config is its credential. With 403 it knows who asks, and forbids it.
    pub fn needs_login(&self, error: &ConnectError) -> bool {
        let is_unauthorized = matches!(
            error,
            ConnectError::Link(LinkError::Status { status: 401, .. })
        );
        is_unauthorized && self.accepts_login()
    }

    /// Describes a failure to connect.
    pub(crate) fn describe_failure(&self, error: &ConnectError) -> ConnectFailure {
        if self.needs_login(error) {
            ConnectFailure {
                reason: login_sentence(&self.name),
                needs_login: true,
            }
        } else if self.is_login_for_bridge(error) {
            let advice = "if it takes logins, run `moongate login --url URL`";
            ConnectFailure::other(format!("{error}; {advice}"))
        } else {
            ConnectFailure::other(error.to_string())
        }
    }

    /// Returns true if a bridge without a key was refused, so that a login may help.
    fn is_login_for_bridge(&self, error: &ConnectError) -> bool {
        let is_unauthorized = matches!(
            error,
            ConnectError::Link(LinkError::Status { status: 401, .. })
        );
        let has_url = matches!(self.connect, ConnectTarget::Http { socket: None, .. });
        let is_bridge = self.is_gateway && has_url;
        is_bridge && is_unauthorized && self.connect.credential_key().is_none()
    }
}

impl ConnectTarget {
    /// Returns the key of the config that says what `Authorization` is. A request has one
    /// credential, so a server with this key has no login.
    pub fn credential_key(&self) -> Option<&'static str> {
        let ConnectTarget::Http {
            headers,
            forward_headers,
            ..
        } = self
        else {
            return None;
        };
        if headers.iter().any(|(name, _)| *name == AUTHORIZATION) {
            return Some("headers.Authorization");
        }
        // Each client sends its own credential, which the operator's must not replace.
        let is_forwarded = forward_headers.iter().any(|(_, to)| *to == AUTHORIZATION);
        is_forwarded.then_some("forward_headers")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderValue;
    use moongate_oauth::{CommandSettings, SecretText};

    use super::*;
    use crate::settings::{HttpTransport, NetworkSettings};

    fn status(status: u16) -> ConnectError {
        LinkError::Status {
            status,
            hint: String::new(),
            message: None,
            retry_after: None,
            challenge: None,
        }
        .into()
    }

    fn server(auth: ServerAuth) -> ServerSettings {
        let connect = ConnectTarget::Http {
            url: url::Url::parse("https://mcp.linear.app/mcp").unwrap(),
            socket: None,
            transport: HttpTransport::Auto,
            headers: Vec::new(),
            forward_headers: Vec::new(),
            network: NetworkSettings::default(),
            auth,
        };
        ServerSettings::new("linear", connect)
    }

    fn with_header(name: http::HeaderName) -> ServerSettings {
        let mut settings = server(ServerAuth::default());
        if let ConnectTarget::Http { headers, .. } = &mut settings.connect {
            headers.push((name, HeaderValue::from_static("x")));
        }
        settings
    }

    fn with_forwarded(to: http::HeaderName) -> ServerSettings {
        let mut settings = server(ServerAuth::default());
        let ConnectTarget::Http {
            forward_headers, ..
        } = &mut settings.connect
        else {
            unreachable!("the server has a URL");
        };
        let from = http::HeaderName::from_static("x-linear-token");
        forward_headers.push((from, to));
        settings
    }

    #[test]
    fn a_credential_that_clients_send_is_in_the_place_of_a_login() {
        let forwarded = with_forwarded(AUTHORIZATION);
        let key = forwarded.connect.credential_key();
        assert_eq!(key, Some("forward_headers"));
        assert!(!forwarded.accepts_login());
        assert!(!forwarded.describe_failure(&status(401)).needs_login);
        let other = with_forwarded(http::HeaderName::from_static("x-workspace"));
        assert_eq!(other.connect.credential_key(), None);
        assert!(other.accepts_login());
    }

    #[test]
    fn a_401_without_a_credential_in_the_config_needs_a_login() {
        let workspace = http::HeaderName::from_static("x-workspace");
        for settings in [server(ServerAuth::default()), with_header(workspace)] {
            let login = settings.describe_failure(&status(401));
            assert!(login.needs_login);
            assert_eq!(login.reason, "linear needs a login: moongate login linear");
            let forbidden = settings.describe_failure(&status(403));
            assert_eq!(
                forbidden,
                ConnectFailure::other("HTTP status 403".to_owned())
            );
            let unreachable = LinkError::Unreachable("refused".to_owned()).into();
            assert!(!settings.needs_login(&unreachable));
        }
        let command = ServerAuth::Command(CommandSettings {
            command: "gh".to_owned(),
            args: Vec::new(),
            env: vec![("A".to_owned(), SecretText::new("x"))],
            ttl: Duration::from_secs(600),
        });
        let bridge = ServerSettings {
            is_gateway: true,
            ..server(ServerAuth::default())
        };
        for settings in [server(command), with_header(AUTHORIZATION)] {
            let refused = settings.describe_failure(&status(401));
            assert_eq!(refused, ConnectFailure::other("HTTP status 401".to_owned()));
        }
        let refused = bridge.describe_failure(&status(401));
        assert!(!refused.needs_login, "it has no name to log in with");
        let advice = "run `moongate login --url URL`";
        assert!(refused.reason.contains(advice), "{}", refused.reason);
        let mut behind_socket = server(ServerAuth::default());
        if let ConnectTarget::Http { socket, .. } = &mut behind_socket.connect {
            *socket = Some("/run/mcp.sock".into());
        }
        assert!(!behind_socket.accepts_login());
        let reason = "x".to_owned();
        let unusable = ServerSettings::new("a", ConnectTarget::Misconfigured { reason });
        assert!(!unusable.accepts_login());
    }
}
