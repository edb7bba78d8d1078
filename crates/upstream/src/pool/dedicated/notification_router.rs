//! Routing of a dedicated connection's notifications: to the connection's own clients, or to the shared lists. Does not
//! subscribe (`notification_stream.rs`). Invariant: a notification on one client's connection reaches no other client,
//! except that a list changed.

use std::sync::Arc;

use crate::connection::UpstreamConnection;
use crate::connection_owner::ConnectionOwner;
use crate::event::Audience;
use crate::lists::dedicated::DedicatedChanges;
use crate::lists::dedicated::extra_items::ExtraItemsCollector;
use crate::lists::dedicated::relists::{ChangeReporter, DedicatedRelists};
use crate::server_context::ServerContext;
use crate::settings::{ServerSettings, SharingMode};
use moongate_jsonrpc::json::ByteString;
use moongate_model::{ItemKind, Notification};

/// Router of a dedicated connection's notifications.
pub(crate) struct NotificationRouter {
    server: Arc<ServerContext>,
    reporter: ChangeReporter,
    /// Collector of the items that the connection adds to lists that all clients share.
    extra_items: Option<ExtraItemsCollector>,
}

impl NotificationRouter {
    pub(crate) fn new(
        server: &Arc<ServerContext>,
        list_changes: &DedicatedChanges,
        key: &ByteString,
        owner: ConnectionOwner,
    ) -> Self {
        let extra_items = (server.settings.share == SharingMode::Auto)
            .then(|| ExtraItemsCollector::new(&list_changes.extra_items, key.clone()));
        let reporter = DedicatedRelists::reporter(&list_changes.relists, owner);
        NotificationRouter { server: server.clone(), reporter, extra_items }
    }

    /// Returns true if list changes must be subscribed to without any client's demand.
    pub(crate) fn wants_lists(&self) -> bool {
        self.extra_items.is_some()
    }

    /// Routes one notification of the connection.
    pub(crate) fn route(&self, notification: Notification) {
        match notification {
            Notification::ListChanged(kind) => match &self.extra_items {
                Some(collector) => collector.mark_changed(kind),
                None => self.reporter.report_changed(kind),
            },
            Notification::MaybeChanged(kind) => self.reporter.report_maybe_changed(kind),
            // The elicitation's id tells which of the owner's clients was sent to the page.
            Notification::ElicitationComplete(..) => self.server.publish(Audience::Everyone, notification),
            Notification::ResourceUpdated(..) | Notification::Log(..) | Notification::TaskStatus(_) => {
                self.server.publish(Audience::Owner(self.reporter.owner().clone()), notification);
            }
            // The others belong to a call, or have no known receiver.
            _ => {}
        }
    }

    /// Collects the items that the connection adds to the shared lists. Never returns.
    pub(crate) async fn collect_extra_items(&self, connection: &UpstreamConnection, settings: &ServerSettings) {
        match &self.extra_items {
            Some(collector) => {
                collector.run_collector(&*connection.server, settings, |kind| self.reporter.report_changed(kind)).await
            }
            None => std::future::pending().await,
        }
    }

    /// Records the end of the connection. Its extra items are no longer listed.
    pub(crate) fn end(&self) {
        let shorter = |kind: ItemKind| self.reporter.report_maybe_changed(kind);
        if let Some(collector) = &self.extra_items {
            collector.discard(shorter);
        }
    }
}
