//! Holders of the memory of an answer. Owns the question whether an answer is somebody's.
//!
//! Does not end answers (`h2_stall.rs`, `stalled_writes.rs`). Invariant: an answer whose holders
//! are unknown is nobody's, so that it never ends for the sake of others.

use http::Response;
use http_body::Body;
use parking_lot::Mutex;

use moongate_jsonrpc::json::ByteString;
use moongate_protocol::body::AnsweringServer;
use moongate_telemetry::{MemoryHolder, SMALL_MESSAGE};

/// Client that an answer is for, and server whose messages it is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AnswerHolders {
    pub(super) client: Option<MemoryHolder>,
    pub(super) server: Option<ByteString>,
}

/// Holders of the answer that a connection writes.
#[derive(Debug, Default)]
pub(super) struct CurrentAnswer(Mutex<AnswerHolders>);

impl AnswerHolders {
    /// Returns the holders of a response. A small one has none: an end would free nothing.
    pub(super) fn of<B: Body>(
        client: impl FnOnce() -> Option<MemoryHolder>,
        response: &Response<B>,
    ) -> Self {
        let size = response.body().size_hint().exact().map(usize::try_from);
        if matches!(size, Some(Ok(size)) if size <= SMALL_MESSAGE) {
            return AnswerHolders::default();
        }
        let server = response
            .extensions()
            .get::<AnsweringServer>()
            .map(|AnsweringServer(name)| name.clone());
        AnswerHolders {
            client: client(),
            server,
        }
    }

    /// Returns true if the answer is for this client, or of this server.
    pub(super) fn include(&self, holder: &MemoryHolder) -> bool {
        match holder {
            MemoryHolder::Server(name) => self
                .server
                .as_ref()
                .is_some_and(|server| **server == **name),
            client => self.client.as_ref() == Some(client),
        }
    }
}

impl CurrentAnswer {
    pub(super) fn set(&self, holders: AnswerHolders) {
        *self.0.lock() = holders;
    }

    pub(super) fn get(&self) -> AnswerHolders {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_protocol::body::Body;

    fn response(size: usize) -> Response<Body> {
        let mut response = Response::new(Body::full(vec![b'x'; size]));
        response
            .extensions_mut()
            .insert(AnsweringServer(ByteString::literal("a")));
        response
    }

    #[test]
    fn an_answer_belongs_to_its_client_and_its_server() {
        let client = MemoryHolder::Principal(1);
        let other = MemoryHolder::Principal(2);
        let large = AnswerHolders::of(|| Some(client.clone()), &response(SMALL_MESSAGE + 1));
        assert!(large.include(&client) && large.include(&MemoryHolder::Server("a".into())));
        assert!(!large.include(&other) && !large.include(&MemoryHolder::Server("b".into())));
        let small = AnswerHolders::of(|| Some(client.clone()), &response(SMALL_MESSAGE));
        assert!(!small.include(&client) && !small.include(&MemoryHolder::Server("a".into())));
    }
}
