//! Changes of lists that a server tells outside of a subscription.
//!
//! 2026-07-28/basic/patterns/subscriptions.mdx wants them on the stream of `subscriptions/listen`. Some servers send them
//! on the stream of the call that changed a list, and say `listChanged: false`. Owns who hears of these. Does not list
//! anything. Invariant: a change that is not delivered in time becomes a change of every list.

use futures_util::{Stream, StreamExt, stream};
use tokio::sync::broadcast;

use crate::jsonrpc::Message;
use crate::link::Messages;
use crate::model::{Filter, Kind, Notice};
use crate::revision::notices;

/// Changes that wait for the slowest listener.
const WAITING_MAX: usize = 32;

/// Kinds of lists that have a notification.
const KINDS: [Kind; 3] = [Kind::Tools, Kind::Prompts, Kind::Resources];

/// Where such changes are told.
#[derive(Clone)]
pub(super) struct Changes(broadcast::Sender<Kind>);

impl Default for Changes {
    fn default() -> Self {
        Changes(broadcast::Sender::new(WAITING_MAX))
    }
}

impl Changes {
    /// Passes on that a list changed, whoever listens.
    pub(super) fn tell(&self, kind: Kind) {
        let _ = self.0.send(kind);
    }

    /// Reads what belongs to no request, to the end of the connection.
    pub(super) async fn read(self, mut messages: Messages) {
        while let Some(Ok(message)) = messages.next().await {
            if let Message::Notification(notification) = message
                && let Notice::Changed(kind) = notices::read(notification)
            {
                self.tell(kind);
            }
        }
    }

    /// What a listener hears; it never ends.
    pub(super) fn listen(&self, filter: &Filter) -> impl Stream<Item = Notice> + Send + use<> {
        let wanted = Filter { uris: Vec::new(), ..filter.clone() };
        let open = (self.0.subscribe(), Vec::new());
        stream::unfold(open, move |(mut changes, mut owed)| {
            let wanted = wanted.clone();
            async move {
                loop {
                    if let Some(notice) = owed.pop() {
                        return Some((notice, (changes, owed)));
                    }
                    match changes.recv().await {
                        Ok(kind) => owed.push(Notice::Changed(kind)),
                        Err(broadcast::error::RecvError::Lagged(_)) => owed.extend(KINDS.map(Notice::Changed)),
                        Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                    }
                    owed.retain(|notice| wanted.wants(notice));
                }
            }
        })
    }
}
