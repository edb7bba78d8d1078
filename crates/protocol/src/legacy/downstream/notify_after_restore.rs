//! Notifications about everything that the client of a restored session may have missed.
//!
//! Owns their order. Does not know what changed. Invariant: they are queued once for each restored
//! session.

use crate::notifications;
use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_model::ItemKind;
use moongate_session::Session;

/// Queues notifications about everything that the client may have missed.
///
/// Changes without a subscriber are unknown, so the client must read all subscribed lists and
/// resources again. The lists come last, because the oldest notifications are the first to be
/// evicted.
pub(crate) fn queue_catch_up(session: &Session) {
    if !session.missed.take_catch_up() {
        return;
    }
    for uri in session.subscriptions.uris() {
        let params = JsonObject::new().with("uri", RawJson::string(&uri));
        session.get_stream.outbox.push(
            notifications::encode_notification("notifications/resources/updated", &params),
            Some(uri),
        );
    }
    for kind in [ItemKind::Tools, ItemKind::Prompts, ItemKind::Resources] {
        session.get_stream.outbox.push(
            notifications::encode_notification(
                notifications::list_changed_method(kind),
                &JsonObject::new(),
            ),
            None,
        );
    }
}
