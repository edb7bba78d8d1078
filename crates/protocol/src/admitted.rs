//! Proof that a client's messages passed admission.
//!
//! Owns the proof and the order of its checks. Does not know the limits (`listener/admission.rs`).
//! Invariant: a dialect and a client on a pipe take no messages without the proof.

use std::ops::Deref;

use moongate_jsonrpc::message::{MalformedMessage, RpcPayload};
use moongate_model::Principal;

/// Decoded body or line of a client: its messages, or the reason why they cannot be read.
pub type ClientPayload = Result<RpcPayload, MalformedMessage>;

/// Limits on what clients may start. The listener has the one implementation (`tests/tidy.rs`).
pub trait AdmissionPolicy {
    /// Refusal of requests.
    type Rejection;

    /// Checks that a principal may start some requests now.
    fn check(&self, principal: &Principal, requests: usize) -> Result<(), Self::Rejection>;
}

/// Messages that passed admission, or the request that carries them.
// Its field is private, and `admit` itself counts the requests and asks the policy. A caller in
// another crate that forgets admission has nothing to pass on, and one that never wrote a policy
// cannot make up an answer.
pub struct Admitted<T>(T);

impl Admitted<ClientPayload> {
    /// Admits a payload: by the policy if it starts requests. A refused payload comes back, since
    /// its requests need responses.
    pub fn admit<P: AdmissionPolicy>(
        payload: ClientPayload,
        principal: &Principal,
        policy: &P,
    ) -> Result<Self, Box<(ClientPayload, P::Rejection)>> {
        match payload.as_ref().map_or(0, RpcPayload::request_count) {
            0 => Ok(Self::starting_nothing(payload)),
            requests => match policy.check(principal, requests) {
                Ok(()) => Ok(Admitted(payload)),
                Err(rejection) => Err(Box::new((payload, rejection))),
            },
        }
    }

    /// Passes a payload without requests, to which no limit applies.
    ///
    /// Responses, cancellations and other notifications help calls to end that were admitted
    /// before. A limit that refused them would stay exceeded. Malformed messages only get an error.
    fn starting_nothing(payload: ClientPayload) -> Self {
        Admitted(payload)
    }
}

impl<T> Admitted<T> {
    /// Builds the request that carries the admitted messages.
    pub fn map<U>(self, build: impl FnOnce(T) -> U) -> Admitted<U> {
        Admitted(build(self.0))
    }

    /// Returns the admitted value, to serve it.
    pub(crate) fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Admitted<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Policy without room for any request.
    struct NoRoom;

    impl AdmissionPolicy for NoRoom {
        type Rejection = usize;
        fn check(&self, _: &Principal, requests: usize) -> Result<(), usize> {
            Err(requests)
        }
    }

    /// Admits a client's text, or returns the number of requests that were refused.
    fn admit(text: &'static str) -> Result<(), usize> {
        let payload = RpcPayload::parse_from_client(&Bytes::from_static(text.as_bytes()), 10);
        Admitted::admit(payload, &Principal::anonymous(), &NoRoom)
            .map_err(|refused| refused.1)
            .map(|_| ())
    }

    #[test]
    fn requests_need_room_and_all_else_needs_none() {
        const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        const BATCH: &str = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#;
        assert_eq!(admit(PING), Err(1));
        assert_eq!(admit(BATCH), Err(2));
        for ending in [
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            "{bad",
        ] {
            assert_eq!(admit(ending), Ok(()), "{ending}");
        }
    }
}
