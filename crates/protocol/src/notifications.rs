//! Notifications in the wire form that all revisions share.
//!
//! Owns method names and params of notifications. Does not encode task statuses, which differ by
//! revision. Invariant: params of unknown notifications pass unchanged.

use bytes::Bytes;

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::{RpcNotification, encode_with, write_notification};
use moongate_model::{ItemKind, LogLevel, Notification, extends_protocol};

/// Limit in bytes for the params of a notification outside of calls. Larger ones are dropped.
// A connection queues 256 of them for its slowest subscriber: 16 MiB at the most.
pub(super) const NOTIFICATION_BYTES_MAX: usize = 64 * 1024;

/// Returns the method of the notification for a changed list.
pub(super) fn list_changed_method(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Tools => "notifications/tools/list_changed",
        ItemKind::Prompts => "notifications/prompts/list_changed",
        // Templates have no separate notification.
        ItemKind::Resources | ItemKind::Templates => "notifications/resources/list_changed",
    }
}

/// Decodes a server's notification.
pub(super) fn decode(notification: RpcNotification) -> Notification {
    let RpcNotification { method, params } = notification;
    match &*method {
        "notifications/progress" => Notification::Progress(params),
        "notifications/message" => Notification::Log(
            params
                .get_string("level")
                .and_then(|l| LogLevel::from_name(&l)),
            params,
        ),
        "notifications/tools/list_changed" => Notification::ListChanged(ItemKind::Tools),
        "notifications/prompts/list_changed" => Notification::ListChanged(ItemKind::Prompts),
        "notifications/resources/list_changed" => Notification::ListChanged(ItemKind::Resources),
        "notifications/resources/updated" => match params.get_string("uri") {
            Some(uri) => Notification::ResourceUpdated(uri, params),
            None => Notification::Other(method, params),
        },
        // 2025-11-25/client/elicitation.mdx, Completion Notifications for URL Mode Elicitation.
        "notifications/elicitation/complete" => match params.get_string("elicitationId") {
            Some(id) => Notification::ElicitationComplete(id, params),
            None => Notification::Other(method, params),
        },
        other if extends_protocol(other) => Notification::Extension(method, params),
        _ => Notification::Other(method, params),
    }
}

/// Encodes a notification. `None` for those that name something of this hop: progress, and
/// withdrawn input requests; for task statuses; and for those that nobody can use.
pub(super) fn encode(notification: &Notification) -> Option<(&str, JsonObject)> {
    Some(match notification {
        // These depend on the client's token, on its ids or on the revision.
        Notification::Progress(_)
        | Notification::InputWithdrawn(..)
        | Notification::TaskStatus(_) => return None,
        Notification::Other(..) => return None,
        Notification::Log(_, params) => ("notifications/message", params.clone()),
        Notification::ListChanged(kind) | Notification::MaybeChanged(kind) => {
            (list_changed_method(*kind), JsonObject::new())
        }
        Notification::ResourceUpdated(_, params) => {
            ("notifications/resources/updated", params.clone())
        }
        Notification::ElicitationComplete(_, params) => {
            ("notifications/elicitation/complete", params.clone())
        }
        Notification::RootsChanged => ("notifications/roots/list_changed", JsonObject::new()),
        Notification::Extension(method, params) => (method, params.clone()),
    })
}

/// Encodes progress with the token of this hop.
pub(super) fn encode_progress(mut params: JsonObject, token: &RawJson) -> Bytes {
    params.set(ByteString::literal("progressToken"), token.clone());
    encode_notification("notifications/progress", &params)
}

/// Encodes one notification as bytes.
pub(super) fn encode_notification(method: &str, params: &JsonObject) -> Bytes {
    encode_with(params.size_hint(), |out| {
        write_notification(out, method, params)
    })
}
