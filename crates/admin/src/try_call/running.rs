//! Running calls of operators, and the requests of their servers that wait for an answer.
//!
//! Owns the table and its caps. Does not start calls or write events. Invariant: a call leaves the
//! table with its entry, and a server that asks gets an answer or a refusal.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use moongate_jsonrpc::json::{ByteString, JsonObject};
use moongate_jsonrpc::message::{RpcError, code};
use moongate_model::{InputKind, InputRequest, InputRequired, InputResponses};

/// Calls at once.
const CALLS_MAX: usize = 4;
/// Requests for input that wait at once, in one call.
const ASKS_MAX: usize = 16;

/// Table of the calls that operators make.
pub struct OperatorCalls {
    slots: Arc<Semaphore>,
    // Ids may be guessed: each route that takes one asks for an operator.
    next: AtomicU64,
    // Never locked across an await: `Drop` of an entry takes this lock as well.
    running: Arc<Mutex<HashMap<String, RunningTry>>>,
}

struct RunningTry {
    cancelled: CancellationToken,
    asks: HashMap<String, OpenAsk>,
    rounds: Vec<InputRound>,
}

/// Request of a server that waits for an operator.
struct OpenAsk {
    request: InputRequest,
    key: ByteString,
    round: u64,
}

/// Requests that came together. Their answers go back together.
struct InputRound {
    number: u64,
    missing: usize,
    responses: InputResponses,
    responder: oneshot::Sender<InputResponses>,
}

/// Answer of an operator.
pub(super) struct TryAnswer<'a> {
    pub(super) ask: &'a str,
    pub(super) result: JsonObject,
}

/// Place of a call in the table. Dropping it removes the call.
pub(super) struct TryEntry {
    pub(super) id: String,
    pub(super) cancelled: CancellationToken,
    running: Arc<Mutex<HashMap<String, RunningTry>>>,
    next_ask: u64,
    // Dropped after the entry has left the table, so the table never exceeds the cap.
    _slot: OwnedSemaphorePermit,
}

impl Default for OperatorCalls {
    fn default() -> Self {
        let slots = Arc::new(Semaphore::new(CALLS_MAX));
        OperatorCalls {
            slots,
            next: AtomicU64::new(1),
            running: Arc::default(),
        }
    }
}

impl OperatorCalls {
    /// Adds a call, or returns `None` if too many are running.
    pub(super) fn enter(&self) -> Option<TryEntry> {
        let slot = self.slots.clone().try_acquire_owned().ok()?;
        // Relaxed: the number only has to be unique.
        let id = format!("t-{}", self.next.fetch_add(1, Ordering::Relaxed));
        let cancelled = CancellationToken::new();
        let running = RunningTry {
            cancelled: cancelled.clone(),
            asks: HashMap::new(),
            rounds: Vec::new(),
        };
        self.running.lock().insert(id.clone(), running);
        Some(TryEntry {
            id,
            cancelled,
            running: self.running.clone(),
            next_ask: 1,
            _slot: slot,
        })
    }

    /// Hands an answer to the server that waits for it. Returns false if none does.
    pub(super) fn answer(&self, id: &str, TryAnswer { ask, result }: TryAnswer<'_>) -> bool {
        let mut running = self.running.lock();
        let Some(call) = running.get_mut(id) else {
            return false;
        };
        // Removed first: a second answer from another tab finds nothing, and is refused.
        let Some(OpenAsk { key, round, .. }) = call.asks.remove(ask) else {
            return false;
        };
        let Some(at) = call.rounds.iter().position(|other| other.number == round) else {
            return false;
        };
        let open = &mut call.rounds[at];
        open.responses.push((key, Ok(result)));
        open.missing -= 1;
        // The server gets the answers of a round together, so the first ones wait here.
        if open.missing > 0 {
            return true;
        }
        let InputRound {
            responses,
            responder,
            ..
        } = call.rounds.swap_remove(at);
        // Fails if the call has just ended. People must learn that nobody read their answer.
        responder.send(responses).is_ok()
    }

    /// Finds a request that waits for an answer.
    pub(crate) fn find_ask(&self, id: &str, ask: &str) -> Option<InputRequest> {
        Some(self.running.lock().get(id)?.asks.get(ask)?.request.clone())
    }

    /// Cancels a call. Returns false if there is none with this id.
    pub(super) fn cancel(&self, id: &str) -> bool {
        // Cancelled only: the entry and its slot stay until the stream has ended.
        self.running
            .lock()
            .get(id)
            .map(|call| call.cancelled.cancel())
            .is_some()
    }
}

impl TryEntry {
    /// Records the requests of a round. Returns those that an operator can answer, with their ids,
    /// and the methods of those that were refused.
    pub(super) fn open_round(
        &mut self,
        asked: InputRequired,
    ) -> (Vec<(String, InputRequest)>, Vec<ByteString>) {
        let mut running = self.running.lock();
        let Some(call) = running.get_mut(&self.id) else {
            return (Vec::new(), Vec::new());
        };
        // Open requests of all rounds count: a server could otherwise start rounds without end.
        if call.asks.len().saturating_add(asked.requests.len()) > ASKS_MAX {
            // Dropping the responder refuses the whole round.
            return (
                Vec::new(),
                asked
                    .requests
                    .into_iter()
                    .map(|(_, request)| request.method)
                    .collect(),
            );
        }
        // That of its first request. A round without open ones is not kept, so no number occurs
        // twice.
        let number = self.next_ask;
        let mut open = Vec::new();
        let mut refused = Vec::new();
        let mut responses = Vec::new();
        for (key, request) in asked.requests {
            if !matches!(request.kind, InputKind::ElicitForm | InputKind::ElicitUrl) {
                let message = format!(
                    "Method not found: {}: not supported here, because the page has no model and \
                     no roots",
                    request.method
                );
                responses.push((
                    key,
                    Err(RpcError {
                        code: code::METHOD_NOT_FOUND,
                        message: message.into(),
                        data: None,
                    }),
                ));
                refused.push(request.method);
                continue;
            }
            let id = format!("a-{}", self.next_ask);
            self.next_ask += 1;
            call.asks.insert(
                id.clone(),
                OpenAsk {
                    request: request.clone(),
                    key,
                    round: number,
                },
            );
            open.push((id, request));
        }
        if open.is_empty() {
            // Fails if the call has ended, which needs no response.
            let _ = asked.responder.send(responses);
        } else {
            let round = InputRound {
                number,
                missing: open.len(),
                responses,
                responder: asked.responder,
            };
            call.rounds.push(round);
        }
        (open, refused)
    }
}

impl Drop for TryEntry {
    fn drop(&mut self) {
        self.running.lock().remove(&self.id);
    }
}
