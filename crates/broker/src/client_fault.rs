//! Reasons to refuse a client.
//!
//! Owns the error that each one gives a client. Does not show pages. Invariant: a client that may
//! succeed later is never called unknown, because it would discard its registration.

use crate::oauth_error::{OAuthCode, OAuthError};

/// Reason to refuse a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClientFault {
    /// The id is neither registered here nor the URL of a document.
    Unknown,
    /// The host of its document is not in `allow_clients`.
    NotAllowed {
        /// Host.
        host: String,
    },
    /// Its document cannot be read.
    Unreadable {
        /// Host.
        host: String,
        /// Reason, in our own words.
        why: &'static str,
    },
    /// Too many documents are being fetched.
    Busy,
    /// The logins of the previous process are not loaded yet.
    NotReady,
}

impl ClientFault {
    /// Returns the error for a client that asks for a token.
    pub(crate) fn error(&self) -> OAuthError {
        match self {
            ClientFault::Unknown => {
                OAuthError::new(OAuthCode::InvalidClient, "The client is unknown")
            }
            ClientFault::NotAllowed { .. } => OAuthError::new(
                OAuthCode::UnauthorizedClient,
                "The host of the client's document is not in allow_clients",
            ),
            ClientFault::Unreadable { .. } => OAuthError::new(
                OAuthCode::TemporarilyUnavailable,
                "The client's document cannot be read",
            ),
            ClientFault::Busy | ClientFault::NotReady => {
                OAuthError::new(OAuthCode::TemporarilyUnavailable, "Try again later")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_client_that_can_never_succeed_is_unknown() {
        let host = || "client.test".to_owned();
        for (fault, status) in [
            (ClientFault::Unknown, 401),
            (ClientFault::NotAllowed { host: host() }, 400),
            (
                ClientFault::Unreadable {
                    host: host(),
                    why: "it is down",
                },
                503,
            ),
            (ClientFault::Busy, 503),
            (ClientFault::NotReady, 503),
        ] {
            assert_eq!(fault.error().code.status().as_u16(), status, "{fault:?}");
        }
    }
}
