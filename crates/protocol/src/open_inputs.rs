//! Input requests of one server that no client has answered yet, by the server's ids.
//!
//! Owns the way by which a server takes one back. Does not choose the call of a request
//! (`correlation.rs`). Invariant: a request is withdrawn once, and the table is bounded.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::stray_messages::StrayMessages;
use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::message::{RequestId, RpcMessage, RpcNotification};

/// Limit of requests on one connection. One beyond it cannot be taken back.
const OPEN_MAX: usize = 1024;

/// Requests of one connection.
#[derive(Default)]
pub(super) struct OpenInputs(Mutex<HashMap<ByteString, OpenInputEntry>>);

struct OpenInputEntry {
    /// Call that the request went to. `None` for a request that belongs to no call.
    call: Option<u64>,
    withdrawn: CancellationToken,
    /// Queue of that call, which informs its client.
    queue: StrayMessages,
    /// True once the call waits for its client.
    is_asked: bool,
}

/// Result of a withdrawal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Withdrawal {
    /// The request is unknown.
    NotOpen,
    /// The request is the reader's, which informs its client.
    Own,
    /// The request is another call's, which gets the notification.
    Passed,
}

/// Returns the key of a request: a copy of its id, whose message must not live as long.
pub(super) fn key_of(id: &RequestId) -> ByteString {
    ByteString::from(String::from_utf8_lossy(id.raw().bytes()).into_owned())
}

/// Returns the id of the request that a notification takes back.
pub(super) fn withdrawn_id(notification: &RpcNotification) -> Option<RequestId> {
    notification
        .params
        .get("requestId")
        .and_then(|raw| RequestId::from_raw(raw.clone()))
}

impl OpenInputs {
    /// Records that a request went to a call. The request may be withdrawn before the call reads
    /// it.
    pub(super) fn add_routed(&self, id: &RequestId, (call, queue): (u64, &StrayMessages)) {
        let mut open = self.0.lock();
        if open.len() < OPEN_MAX {
            let call = Some(call);
            let withdrawn = CancellationToken::new();
            let queue = queue.clone();
            open.insert(
                key_of(id),
                OpenInputEntry {
                    call,
                    withdrawn,
                    queue,
                    is_asked: false,
                },
            );
        }
    }

    /// Records that a call waits for its client. Returns the token that is cancelled if the server
    /// withdraws the request.
    pub(super) fn add_asked(
        &self,
        id: &RequestId,
        (call, queue): (Option<u64>, Option<&StrayMessages>),
    ) -> CancellationToken {
        let mut open = self.0.lock();
        let key = key_of(id);
        if let Some(entry) = open.get_mut(&key) {
            entry.is_asked = true;
            return entry.withdrawn.clone();
        }
        let withdrawn = CancellationToken::new();
        if let Some(queue) = queue.filter(|_| open.len() < OPEN_MAX) {
            let withdrawn = withdrawn.clone();
            let queue = queue.clone();
            open.insert(
                key,
                OpenInputEntry {
                    call,
                    withdrawn,
                    queue,
                    is_asked: true,
                },
            );
        }
        withdrawn
    }

    /// Removes a request that got its response, or goes to another call.
    pub(super) fn remove(&self, id: &RequestId) {
        self.0.lock().remove(&key_of(id));
    }

    /// Removes the requests that a call has not read before its end.
    pub(super) fn end_call(&self, queue: &StrayMessages) {
        let mut open = self.0.lock();
        if !open.is_empty() {
            open.retain(|_, entry| entry.is_asked || !entry.queue.is_same(queue));
        }
    }

    /// Returns the call that has the request which `notifications/cancelled` names.
    pub(super) fn call_of(&self, notification: &RpcNotification) -> Option<u64> {
        let id = withdrawn_id(notification)?;
        self.0.lock().get(&key_of(&id))?.call
    }

    /// Withdraws the request that `notifications/cancelled` names. `reader`: the queue of the call
    /// that read it.
    ///
    /// 2025-11-25/basic/utilities/cancellation.mdx, Cancellation Flow: "When a party wants to
    /// cancel an in-progress request, it sends a `notifications/cancelled` notification". Both
    /// sides send requests.
    pub(super) fn withdraw(
        &self,
        notification: RpcNotification,
        reader: Option<&StrayMessages>,
    ) -> Withdrawal {
        let Some(id) = withdrawn_id(&notification) else {
            return Withdrawal::NotOpen;
        };
        let open = self.0.lock();
        let Some(entry) = open
            .get(&key_of(&id))
            .filter(|entry| !entry.withdrawn.is_cancelled())
        else {
            return Withdrawal::NotOpen;
        };
        // First the token: the call's client hears only of what nobody waits for any more.
        entry.withdrawn.cancel();
        if reader.is_some_and(|reader| reader.is_same(&entry.queue)) {
            return Withdrawal::Own;
        }
        entry.queue.push(RpcMessage::Notification(notification));
        Withdrawal::Passed
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::FutureExt;

    use super::*;

    fn cancelled(id: &str) -> RpcNotification {
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        );
        let Ok(RpcMessage::Notification(notification)) = RpcMessage::parse(&Bytes::from(text))
        else {
            unreachable!()
        };
        notification
    }

    #[test]
    fn a_request_is_withdrawn_once_and_by_its_own_id() {
        let open = OpenInputs::default();
        let queue = StrayMessages::default();
        open.add_routed(&RequestId::number(7), (1, &queue));
        let token = open.add_asked(&RequestId::number(7), (None, Some(&queue)));
        assert_eq!(
            open.withdraw(cancelled(r#""7""#), None),
            Withdrawal::NotOpen
        );
        assert_eq!(open.withdraw(cancelled("8"), None), Withdrawal::NotOpen);
        assert!(!token.is_cancelled() && open.call_of(&cancelled("7")) == Some(1));
        assert_eq!(open.withdraw(cancelled("7"), None), Withdrawal::Passed);
        assert!(token.is_cancelled());
        assert_eq!(
            open.withdraw(cancelled("7"), None),
            Withdrawal::NotOpen,
            "a second time"
        );
        assert!(queue.next().now_or_never().is_some() && queue.next().now_or_never().is_none());
    }

    #[test]
    fn requests_that_a_call_left_unread_are_forgotten() {
        let open = OpenInputs::default();
        let queue = StrayMessages::default();
        for n in 0..OPEN_MAX as u64 + 5 {
            open.add_routed(&RequestId::number(n), (1, &queue));
        }
        let asked = open.add_asked(&RequestId::number(1), (None, Some(&queue)));
        assert_eq!(open.0.lock().len(), OPEN_MAX);
        open.end_call(&StrayMessages::default());
        assert_eq!(open.0.lock().len(), OPEN_MAX, "another call's");
        open.end_call(&queue);
        assert_eq!(open.0.lock().len(), 1);
        assert_eq!(
            open.withdraw(cancelled("1"), Some(&queue)),
            Withdrawal::Own,
            "its client has it"
        );
        open.remove(&RequestId::number(1));
        assert!(asked.is_cancelled() && open.call_of(&cancelled("1")).is_none());
    }
}
