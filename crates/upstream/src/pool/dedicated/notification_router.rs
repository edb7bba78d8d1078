//! Routing of a dedicated connection's notifications: to the connection's own clients, or to the
//! shared lists. Does not subscribe (`notification_stream.rs`). Invariant: a notification on one
//! client's connection reaches no other client, except that a list changed.

use std::sync::Arc;

use crate::connection::UpstreamConnection;
use crate::connection_owner::ConnectionOwner;
use crate::event::Audience;
use crate::lists::ListStore;
use crate::lists::dedicated::extra_items::ExtraItemsCollector;
use crate::lists::dedicated::face_lister::FaceLister;
use crate::lists::dedicated::relists::{ChangeReporter, DedicatedRelists};
use crate::server_context::ServerContext;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Notification, SharingMode};

/// Router of a dedicated connection's notifications.
pub(crate) struct NotificationRouter {
    server: Arc<ServerContext>,
    reporter: ChangeReporter,
    lists: ConnectionLists,
}

/// Meaning of a connection's lists for clients.
enum ConnectionLists {
    /// Lists of the clients of its era, who share it.
    OfEra(FaceLister),
    /// Its items are added to the lists that all clients of its era share.
    Added(ExtraItemsCollector),
    /// The server's shared lists are those of all its connections.
    Shared,
}

impl NotificationRouter {
    pub(crate) fn new(
        server: &Arc<ServerContext>,
        lists: &Arc<ListStore>,
        key: &ByteString,
        owner: ConnectionOwner,
    ) -> Self {
        let changes = &lists.dedicated;
        let own = match (&owner, server.settings.options.share) {
            (ConnectionOwner::Era(era), _) => {
                ConnectionLists::OfEra(FaceLister::new(server, lists, *era))
            }
            (_, SharingMode::Auto) => {
                ConnectionLists::Added(ExtraItemsCollector::new(&changes.extra_items, key.clone()))
            }
            _ => ConnectionLists::Shared,
        };
        let reporter = DedicatedRelists::reporter(&changes.relists, owner);
        NotificationRouter {
            server: server.clone(),
            reporter,
            lists: own,
        }
    }

    /// Returns true if list changes must be subscribed to without any client's demand.
    pub(crate) fn wants_lists(&self) -> bool {
        !matches!(self.lists, ConnectionLists::Shared)
    }

    /// Routes one notification of the connection.
    pub(crate) fn route(&self, notification: Notification) {
        match notification {
            Notification::ListChanged(kind) => match &self.lists {
                ConnectionLists::OfEra(lister) => lister.mark_changed(kind),
                ConnectionLists::Added(collector) => collector.mark_changed(kind),
                ConnectionLists::Shared => self.reporter.report_changed(kind),
            },
            Notification::MaybeChanged(kind) => match &self.lists {
                ConnectionLists::OfEra(lister) => lister.mark_changed(kind),
                _ => self.reporter.report_maybe_changed(kind),
            },
            // The elicitation's id says which of the owner's clients was sent to the page.
            Notification::ElicitationComplete(..) => {
                self.server.publish(Audience::Everyone, notification)
            }
            Notification::ResourceUpdated(..)
            | Notification::Log(..)
            | Notification::TaskStatus(_)
            | Notification::Extension(..) => {
                self.server
                    .publish(Audience::Owner(self.reporter.owner().clone()), notification);
            }
            // The others belong to a call, or have no known receiver.
            _ => {}
        }
    }

    /// Fetches the lists that the connection has for others. Never returns.
    pub(crate) async fn follow_lists(&self, connection: &UpstreamConnection) {
        match &self.lists {
            ConnectionLists::OfEra(lister) => lister.run_lister(connection).await,
            ConnectionLists::Added(collector) => {
                collector
                    .run_collector(&self.server, connection, |kind| {
                        self.reporter.report_changed(kind)
                    })
                    .await
            }
            ConnectionLists::Shared => std::future::pending().await,
        }
    }

    /// Records the end of the connection. Its extra items are no longer listed.
    pub(crate) fn end(&self) {
        match &self.lists {
            ConnectionLists::OfEra(lister) => lister.end(),
            ConnectionLists::Added(collector) => {
                collector.discard(|kind| self.reporter.report_maybe_changed(kind))
            }
            ConnectionLists::Shared => {}
        }
    }
}
