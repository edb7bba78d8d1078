//! Requests of one call: the first, and a retry for each input round.
//!
//! Owns the params and the number of rounds. Does not send them. Invariant: a call sends at most
//! [`ROUNDS_MAX`] retries.

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{Continuation, Error, InputResponses};

use crate::call_error;

/// Limit of input rounds in one call. A server beyond it is taken to loop.
const ROUNDS_MAX: usize = 10;

/// Params of one call, round by round.
pub(crate) struct RequestRounds {
    /// Params without the members that a round adds.
    params: JsonObject,
    /// Client's input from an earlier round.
    continuation: Option<Box<Continuation>>,
    retries: usize,
}

impl RequestRounds {
    pub(crate) fn new(params: JsonObject, continuation: Option<Box<Continuation>>) -> Self {
        RequestRounds {
            params,
            continuation,
            retries: 0,
        }
    }

    /// Borrows the params without the members of a round.
    pub(crate) fn params(&self) -> &JsonObject {
        &self.params
    }

    /// Takes the first request's params, if they continue an earlier call of the client.
    pub(crate) fn take_continued(&mut self) -> Option<JsonObject> {
        let resume = self.continuation.take()?;
        Some(self.with_round(resume.input_responses, resume.request_state))
    }

    /// Returns the params of the next round: the responses and the server's state
    /// (basic/patterns/mrtr.mdx). `server` is the name for errors.
    pub(crate) fn next_round(
        &mut self,
        responses: &InputResponses,
        state: Option<RawJson>,
        server: &str,
    ) -> Result<JsonObject, Error> {
        self.retries += 1;
        if self.retries > ROUNDS_MAX {
            let reason = format!("it asked for input more than {ROUNDS_MAX} times in one call");
            return Err(call_error::protocol_error(server, &reason));
        }
        let mut members = JsonObject::new();
        for (key, response) in responses {
            match response {
                Ok(result) => members.set(key.clone(), result.to_raw()),
                // This revision has no form for a client's error, so the call ends with it.
                Err(error) => return Err(Error::from_server(error.clone())),
            }
        }
        Ok(self.with_round((!members.is_empty()).then(|| members.to_raw()), state))
    }

    /// Returns the progress token in the params. All rounds send the same `_meta`.
    pub(crate) fn progress_token(&self) -> Option<u64> {
        self.params
            .get_object("_meta")?
            .get("progressToken")?
            .parse_as()
            .ok()
    }

    /// Adds one round's members to the params.
    fn with_round(&self, responses: Option<RawJson>, state: Option<RawJson>) -> JsonObject {
        let mut params = self.params.clone();
        if let Some(responses) = responses {
            params.set(ByteString::literal("inputResponses"), responses);
        }
        // 2026-07-28/basic/patterns/mrtr.mdx: "the client MUST echo back the exact value of that
        // field". Without one it "MUST NOT include one in the retry".
        if let Some(state) = state {
            params.set(ByteString::literal("requestState"), state);
        }
        params
    }
}
