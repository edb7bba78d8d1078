//! News of a connection beside the main one.
//!
//! Owns where they go: to the connection's own clients, and to everybody's lists. Does not listen (`ears`). Invariant: what
//! is told on one client's connection reaches no other client, except that a list changed.

use crate::json::ByteString;
use crate::model::{ItemKind, Notification};
use crate::upstream::dial::UpstreamConnection;
use crate::upstream::extra_items::ExtraItemsCollector;
use crate::upstream::relist_scheduler::{ChangeReporter, RelistScheduler};
use crate::upstream::subscriptions::ConnectionOwner;
use crate::upstream::{EventSink, ServerSettings, SharingMode, Upstream, UpstreamEvent};

/// Where news of such a connection go.
pub(super) struct DedicatedNotifier {
    reporter: ChangeReporter,
    sink: EventSink,
    /// Where all clients are to share what is listed: what this connection adds to it.
    extra_items: Option<ExtraItemsCollector>,
}

impl DedicatedNotifier {
    pub(super) fn new(upstream: &Upstream, key: &ByteString, owner: ConnectionOwner) -> Self {
        let extra_items = (upstream.settings.share == SharingMode::Auto)
            .then(|| ExtraItemsCollector::new(&upstream.extra_items, key.clone()));
        DedicatedNotifier {
            reporter: RelistScheduler::reporter(&upstream.relist_scheduler, owner),
            sink: upstream.sink.clone(),
            extra_items,
        }
    }

    /// Tells whether lists are to be heard of, whoever listens to them.
    pub(super) fn wants_lists(&self) -> bool {
        self.extra_items.is_some()
    }

    pub(super) fn publish(&self, server: &str, notice: Notification) {
        match notice {
            Notification::ListChanged(kind) => match &self.extra_items {
                Some(adding) => adding.mark_changed(kind),
                None => self.reporter.changed(kind),
            },
            Notification::MaybeChanged(kind) => self.reporter.maybe_changed(kind),
            // Which of its owner's clients was sent to that page is known by the elicitation's id.
            Notification::ElicitationComplete(id, params) => {
                (self.sink)(server, UpstreamEvent::ElicitationCompleted(id, params))
            }
            notice @ (Notification::ResourceUpdated(..) | Notification::Log(..)) => {
                (self.sink)(server, UpstreamEvent::ToOwner(self.reporter.owner().clone(), Box::new(notice)));
            }
            _ => {}
        }
    }

    /// Takes the lists that change there, for as long as the connection is watched.
    pub(super) async fn collect_extra_items(&self, active: &UpstreamConnection, settings: &ServerSettings) {
        match &self.extra_items {
            Some(adding) => adding.run_collector(active, settings, |kind| self.reporter.changed(kind)).await,
            None => std::future::pending().await,
        }
    }

    /// Notes that the connection has ended: what it added is listed no longer.
    pub(super) fn end(&self) {
        let shorter = |kind: ItemKind| self.reporter.maybe_changed(kind);
        if let Some(adding) = &self.extra_items {
            adding.discard(shorter);
        }
    }
}
