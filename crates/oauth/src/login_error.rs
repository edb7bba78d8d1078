//! Errors of logins.
//!
//! Owns their texts. Does not decide which one applies. Invariant: each says what happened, where,
//! and what to do. From outside, a text has only host names, checked issuers and our own words for
//! known codes.

use moongate_transport::fetcher::{FetchError, FetchFailure};

use crate::folder_error::FolderError;
use crate::token_endpoint::TokenFailure;

/// Reason why a login failed.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// A document that the login needs cannot be fetched.
    #[error("cannot log in to {server}: {failure}{}", fix_of(.failure))]
    Fetch {
        /// Server that the login is for.
        server: String,
        /// Host and kind of failure.
        failure: FetchError,
    },
    /// A host that has a document for the login is down or too busy.
    #[error("cannot log in to {server}: {host} is down or too busy; try again later")]
    Busy {
        /// Server that the login is for.
        server: String,
        /// Host.
        host: String,
    },
    /// The server does not say where to log in.
    #[error(
        "{host} does not say where to log in to {server}: if it takes a key, set \
         `servers.{server}.headers`; if you know its authorization server, set \
         `servers.{server}.auth.issuer`"
    )]
    NoLogin {
        /// Server that the login is for.
        server: String,
        /// Host of the server.
        host: String,
    },
    /// The metadata of the resource is about another server.
    #[error(
        "{host} publishes login metadata for another server than {server}: check \
         `servers.{server}.url`, and ask the server's operator"
    )]
    OtherResource {
        /// Server that the login is for.
        server: String,
        /// Host that published the metadata.
        host: String,
    },
    /// The server names an authorization server that cannot be used.
    #[error(
        "{server} names an authorization server without a plain https address: ask the \
         server's operator"
    )]
    InvalidIssuer {
        /// Server that the login is for.
        server: String,
    },
    /// The client of the config, or its secret, belongs to another authorization server.
    #[error(
        "{server} now names an authorization server at {found}, but the client in \
         `servers.{server}.auth` belongs to the one at {expected}, so nothing was sent to {found}; \
         if the change is intended, set `servers.{server}.auth.issuer` and a client of the new one"
    )]
    OtherIssuer {
        /// Server that the login is for.
        server: String,
        /// Host of the authorization server that the client belongs to.
        expected: String,
        /// Host of the authorization server that the server names.
        found: String,
    },
    /// The authorization server has no metadata.
    #[error(
        "{host}, the authorization server of {server}, publishes no metadata: ask the server's \
         operator"
    )]
    NoMetadata {
        /// Server that the login is for.
        server: String,
        /// Host of the authorization server.
        host: String,
    },
    /// The metadata of the authorization server belongs to another one.
    #[error(
        "{host}, the authorization server of {server}, publishes {}",
        describe_mix(.server, .published.as_deref())
    )]
    MixedMetadata {
        /// Server that the login is for.
        server: String,
        /// Host of the authorization server, or its issuer if the published one has that host, too.
        host: String,
        /// Issuer in its metadata, if there is one.
        published: Option<String>,
    },
    /// The authorization server does not list S256.
    #[error(
        "{host}, the authorization server of {server}, does not list PKCE with S256, without which \
         a login is not safe: ask its operator"
    )]
    NoPkce {
        /// Server that the login is for.
        server: String,
        /// Host of the authorization server.
        host: String,
    },
    /// An endpoint of the authorization server cannot be used.
    #[error(
        "{host}, the authorization server of {server}, has no usable `{member}` in its metadata: \
         ask its operator"
    )]
    Endpoint {
        /// Server that the login is for.
        server: String,
        /// Host of the authorization server.
        host: String,
        /// Name of the endpoint.
        member: &'static str,
    },
    /// The authorization server registers nobody, and the config has no client.
    #[error(
        "{issuer_host} does not register clients automatically: register Moongate there with the \
         redirect address {redirect}, then set `servers.{server}.auth.client_id`, and \
         `client_secret` if you get one"
    )]
    NoRegistration {
        /// Server that the login is for.
        server: String,
        /// Host of the authorization server.
        issuer_host: String,
        /// Exact issuer of the authorization server, for `auth.issuer`.
        issuer: String,
        /// Redirect address to register.
        redirect: url::Url,
    },
    /// The authorization server refused to register us.
    #[error(
        "{host} did not register Moongate for {server}: {reason}; register it there by hand with \
         the redirect address {redirect}, then set `servers.{server}.auth.client_id`"
    )]
    RegistrationRefused {
        /// Server that the login is for.
        server: String,
        /// Host of the authorization server.
        host: String,
        /// Exact issuer of the authorization server, for `auth.issuer`.
        issuer: String,
        /// Our words for the reason.
        reason: &'static str,
        /// Redirect address to register.
        redirect: url::Url,
    },
    /// The server asks for the same scope again and again.
    #[error(
        "{server} asks for scope that three logins did not grant: ask at {host} for the rights, \
         or set `servers.{server}.auth.scopes`"
    )]
    StepUpLimit {
        /// Server that the login is for.
        server: String,
        /// Host of the authorization server.
        host: String,
    },
    /// The answer did not come from an authorization server.
    #[error("this is not the address that a login ends on: copy the whole address of the page")]
    NotAnAnswer,
    /// The answer does not belong to a waiting login.
    #[error(
        "no login is waiting for this answer: it has another `state`, was used before, or is \
         older than 10 minutes; if the login does not finish, start it again"
    )]
    UnknownState,
    /// The answer came to the address of another authorization server.
    #[error(
        "the answer for {server} came to the address of another authorization server, so it was \
         refused: start the login again"
    )]
    OtherCallback {
        /// Server that the login is for.
        server: String,
    },
    /// The answer has a different issuer from the one that was asked, or none.
    #[error(
        "the answer for {server} is not from {host}, where the login started, or does not say so: \
         it was refused; start the login again"
    )]
    OtherSender {
        /// Server that the login is for.
        server: String,
        /// Host of the authorization server.
        host: String,
    },
    /// The authorization server refused the login.
    #[error("{host} refused the login for {server}: {reason}; try `moongate login {server}` again")]
    Refused {
        /// Server that the login is for.
        server: String,
        /// Host of the authorization server.
        host: String,
        /// Our words for the reason.
        reason: &'static str,
    },
    /// The token endpoint issued no token.
    #[error("the login at {server} failed: {failure}; try `moongate login {server}` again")]
    Token {
        /// Server that the login is for.
        server: String,
        /// Failure.
        failure: TokenFailure,
    },
    /// The login files cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The program is about to exit.
    #[error("the program exited before the login was stored: start the login again")]
    Interrupted,
}

/// Description of metadata with another issuer, with advice.
fn describe_mix(server: &str, published: Option<&str>) -> String {
    let Some(issuer) = published else {
        return "metadata without a valid issuer, which must not be used: ask the server's operator"
            .to_owned();
    };
    format!(
        "the metadata of another authorization server, so nothing was sent there: ask the \
         server's operator; only if you trust {issuer} with the login, its tokens and any \
         `client_secret`, all of which it then gets, set `servers.{server}.auth.issuer` to \
         \"{issuer}\""
    )
}

/// Advice for a failed fetch.
fn fix_of(failure: &FetchError) -> &'static str {
    match failure.kind {
        FetchFailure::Url | FetchFailure::Private => {
            "; if that is intended, add its host to `egress.allow`"
        }
        FetchFailure::Unreachable | FetchFailure::Timeout => "; try again later",
        _ => "; ask its operator",
    }
}

#[cfg(test)]
mod tests {
    use moongate_telemetry::logs::redact;

    use super::*;

    fn fetch_error(kind: FetchFailure) -> LoginError {
        LoginError::Fetch {
            server: "files".to_owned(),
            failure: FetchError {
                host: "auth.example.com".to_owned(),
                kind,
            },
        }
    }

    #[test]
    fn no_setting_is_suggested_for_a_metadata_address() {
        let text = fetch_error(FetchFailure::Metadata).to_string();
        assert!(text.contains("which is never fetched"), "{text}");
        assert!(!text.contains("egress"), "{text}");
        let text = fetch_error(FetchFailure::Private).to_string();
        assert!(text.contains("`egress.allow`"), "{text}");
    }

    #[test]
    fn the_redaction_of_logs_leaves_each_text_as_it_is() {
        let server = || "files".to_owned();
        let host = || "auth.example.com".to_owned();
        let issuer = || "https://auth.example.com".to_owned();
        let redirect = url::Url::parse("http://127.0.0.1:8080/login/callback").unwrap();
        for error in [
            fetch_error(FetchFailure::Url),
            fetch_error(FetchFailure::Metadata),
            LoginError::NoLogin {
                server: server(),
                host: host(),
            },
            LoginError::OtherIssuer {
                server: server(),
                expected: host(),
                found: host(),
            },
            LoginError::MixedMetadata {
                server: server(),
                host: host(),
                published: Some(issuer()),
            },
            LoginError::Endpoint {
                server: server(),
                host: host(),
                member: "token_endpoint",
            },
            LoginError::NoRegistration {
                server: server(),
                issuer_host: host(),
                issuer: issuer(),
                redirect: redirect.clone(),
            },
            LoginError::RegistrationRefused {
                server: server(),
                host: host(),
                issuer: issuer(),
                reason: "it gave an unknown error code",
                redirect,
            },
            LoginError::Refused {
                server: server(),
                host: host(),
                reason: "the login was declined (access_denied)",
            },
        ] {
            let text = error.to_string();
            assert_eq!(redact(&text), text);
        }
    }
}
