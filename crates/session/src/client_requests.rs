//! Requests to a session's client, and the elicitations that it has open.
//!
//! Owns the ids under which servers' requests go to the client. Does not send them. Invariant: an
//! id is used once in a session's life, so a late response never matches another request.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::recent_ids::RecentIds;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::{RequestId, RpcError};
use moongate_model::InputProgress;

/// Maximum number of server requests that may wait for the client's response, for each session.
// A server may ask without end while its user is away. Each request holds memory until then.
const PENDING_MAX: usize = 64;
/// Maximum number of open URL elicitations. The oldest is dropped for another.
const ELICITATIONS_MAX: usize = 64;
/// Prefix of our request ids to clients. String ids cannot be confused with the client's own
/// numbers.
const REQUEST_ID_PREFIX: &str = "ask-";

/// Client's response to a server's request.
type ClientResponse = Result<JsonObject, RpcError>;

/// Requests of servers to one client.
pub struct ClientRequests {
    next_number: AtomicU64,
    pending: Mutex<HashMap<u64, PendingRequest>>,
    elicitations: RecentIds<ELICITATIONS_MAX>,
}

/// Request that the client has.
struct PendingRequest {
    sender: oneshot::Sender<ClientResponse>,
    /// Way of the client's progress to the server.
    progress: Option<InputProgress>,
}

impl ClientRequests {
    /// Creates an empty table. Ids continue after sleep, from `next_number`.
    pub(super) fn new(next_number: u64) -> Self {
        let next_number = AtomicU64::new(next_number);
        ClientRequests {
            next_number,
            pending: Mutex::default(),
            elicitations: RecentIds::default(),
        }
    }

    pub(super) fn next_number(&self) -> u64 {
        self.next_number.load(Ordering::Relaxed)
    }

    /// Registers a server's request. Returns the id that it goes to the client under.
    ///
    /// Returns `None` if too many wait already. The client's progress has the same id as its token.
    pub fn expect_response(
        &self,
        progress: Option<InputProgress>,
    ) -> Option<(RequestId, oneshot::Receiver<ClientResponse>)> {
        let mut pending = self.pending.lock();
        // Requests whose sender stopped waiting free their places.
        pending.retain(|_, request| !request.sender.is_closed());
        if pending.len() >= PENDING_MAX {
            return None;
        }
        // 2025-11-25/basic/index.mdx, Requests: "The request ID MUST NOT have been previously used
        // by the requestor within the same session." The numbers therefore survive sleep.
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        pending.insert(number, PendingRequest { sender, progress });
        Some((
            RequestId::string(&format!("{REQUEST_ID_PREFIX}{number}")),
            receiver,
        ))
    }

    /// Delivers the client's response to a server's request. Returns false if nobody waits for it.
    pub fn deliver_response(&self, id: &RequestId, outcome: ClientResponse) -> bool {
        self.take(id)
            .is_some_and(|request| request.sender.send(outcome).is_ok())
    }

    /// Withdraws a server's request. Returns true if the client still has it open, and is to hear
    /// of that.
    pub fn withdraw(&self, id: &RequestId) -> bool {
        self.take(id).is_some()
    }

    /// Passes the client's progress on to the server of the request that the token names. Returns
    /// false if there is none, or its server asked for no progress.
    pub fn report_progress(&self, token: &RawJson, params: JsonObject) -> bool {
        let Some(number) = request_number(token) else {
            return false;
        };
        let pending = self.pending.lock();
        let open = pending
            .get(&number)
            .filter(|request| !request.sender.is_closed());
        let Some(InputProgress(pass_on)) = open.and_then(|request| request.progress.clone()) else {
            return false;
        };
        // Released first: what the server's side does is not known here.
        drop(pending);
        pass_on(params);
        true
    }

    fn take(&self, id: &RequestId) -> Option<PendingRequest> {
        self.pending.lock().remove(&request_number(id.raw())?)
    }

    /// Records that a URL elicitation was opened, by its id.
    pub fn elicitation_opened(&self, id: &str) {
        self.elicitations.add(id);
    }

    /// Removes a URL elicitation. Returns true if this session's user had it open.
    pub fn elicitation_completed(&self, id: &ByteString) -> bool {
        self.elicitations.remove(id)
    }

    /// Drops the requests, so that their servers stop waiting.
    pub(super) fn clear(&self) {
        self.pending.lock().clear();
    }

    /// Returns true if no server waits for a response, and no elicitation is open.
    pub(super) fn is_empty(&self) -> bool {
        let mut pending = self.pending.lock();
        // Requests whose sender stopped waiting keep no session awake.
        pending.retain(|_, request| !request.sender.is_closed());
        pending.is_empty() && self.elicitations.is_empty()
    }
}

/// Returns the number of a request by its id. An id of another form is not ours: what names it came
/// too late, or never had a request.
fn request_number(id: &RawJson) -> Option<u64> {
    id.as_text()?.strip_prefix(REQUEST_ID_PREFIX)?.parse().ok()
}
