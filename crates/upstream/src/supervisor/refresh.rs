//! Fetches of a connected server's lists, and its notification stream meanwhile. Owns what a failed
//! fetch says about the server. Does not decide when to fetch (`connected.rs`). Invariant: a list
//! that fails keeps its last good items.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::Instant;

use crate::connection::UpstreamConnection;
use crate::connection::subscription_acknowledgement::{
    EarlyUpdates, no_notifications, wait_acknowledged,
};
use crate::event::Audience;
use crate::gateway_caller::gateway_caller;
use crate::lists::fetch::{self, ItemList};
use crate::pool::liveness_triggers::is_refused;
use crate::supervisor::refresh_state::RefreshState;
use crate::supervisor::state_report::{ListFailure, report_lists};
use crate::supervisor::supervised_server::SupervisedServer;
use moongate_model::{
    Error, ItemKind, McpErrorKind, Notification, NotificationStream, SubscriptionFilter,
    UpstreamState,
};

/// Longest interval between fetches of the lists, even from servers that announce changes.
pub(super) const RELIST_INTERVAL: Duration = Duration::from_secs(300);
/// Shortest interval between scheduled fetches, whatever the setting says.
const RELIST_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Interval that means "never" (a year): `Instant` has no infinity.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Longest time that a fetch of the lists waits for the acknowledgement of a new stream.
pub(super) const ACKNOWLEDGE_WAIT: Duration = Duration::from_millis(250);
/// Delay before a list is fetched again after a broken connection.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Returns the interval between scheduled fetches of the lists.
pub(super) fn relist_interval(supervised: &SupervisedServer) -> Duration {
    let relist = supervised.server.peek_live_settings().live.relist.0;
    // A server that announces changes needs only a safety net, so that a short setting does not
    // load it.
    let capabilities = supervised
        .pool
        .description()
        .map(|description| description.capabilities);
    if capabilities.is_some_and(|capabilities| fetch::unannounced_lists(&capabilities).is_empty()) {
        return RELIST_INTERVAL.max(relist);
    }
    if relist.is_zero() {
        NEVER
    } else {
        relist.max(RELIST_INTERVAL_MIN)
    }
}

/// Opens a notification stream of the shared connection that has none.
pub(super) fn open_only_subscription(
    supervised: &SupervisedServer,
    connection: &UpstreamConnection,
    refresh: &mut RefreshState,
) -> NotificationStream {
    let notifications = open_subscription(supervised, connection);
    refresh.begin_opening(true);
    refresh.early_updates =
        EarlyUpdates::of_stream(&notifications, &*connection.server, &gateway_caller());
    notifications
}

/// Opens a notification stream of the shared connection.
fn open_subscription(
    supervised: &SupervisedServer,
    connection: &UpstreamConnection,
) -> NotificationStream {
    let filter = SubscriptionFilter {
        uris: supervised.lists.resources.uris(),
        ..SubscriptionFilter::all()
    };
    connection.server.subscribe(&gateway_caller(), filter)
}

/// Replaces the stream by one with the current resources. The new stream is acknowledged before the
/// old one ends.
pub(super) fn replace_subscription(
    supervised: &SupervisedServer,
    connection: &UpstreamConnection,
    notifications: &mut NotificationStream,
    refresh: &mut RefreshState,
) {
    refresh.begin_opening(false);
    let before = std::mem::replace(notifications, no_notifications());
    *notifications = open_subscription(supervised, connection).take_over_from(before);
}

/// Handles one notification of the server, or the end of the stream (`None`).
pub(super) fn on_notification(
    supervised: &SupervisedServer,
    notifications: &mut NotificationStream,
    refresh: &mut RefreshState,
    notification: Option<Notification>,
) {
    let Some(notification) = refresh.on_notification(notifications, notification) else {
        return;
    };
    match notification {
        Notification::ElicitationComplete(..) | Notification::TaskStatus(_) => {
            supervised.server.publish(Audience::Everyone, notification);
        }
        Notification::ResourceUpdated(..) | Notification::Log(..) | Notification::Extension(..) => {
            supervised
                .server
                .publish(supervised.pool.shared_clients(), notification);
        }
        // Anything else belongs to a call.
        _ => {}
    }
}

/// Fetches lists of a connected server again, and publishes what came of it.
pub(super) async fn refresh_and_report(
    supervised: &SupervisedServer,
    connection: &Arc<UpstreamConnection>,
    notifications: &mut NotificationStream,
    refresh: &mut RefreshState,
    kinds: &[ItemKind],
) -> Result<(), ListFailure> {
    let before = supervised.lists.load_eras();
    let listed = tokio::select! {
        listed = refresh_lists(supervised, connection, notifications, refresh, kinds) => listed,
        () = supervised.server.stop.cancelled() => Ok(()),
    };
    // Told only after clients can see the items.
    if !supervised.lists.load_eras().holds_same(&before) {
        supervised.server.publish_lists_and_wait().await;
    }
    // An open breaker has its own reason for the degraded state. A good fetch must not clear it.
    let degraded = supervised.server.state() == UpstreamState::Degraded
        && supervised.breaker.open_state().is_none();
    match &listed {
        Ok(()) if degraded => report_lists(supervised, connection, &listed),
        Ok(()) => {}
        Err(ListFailure { reason, .. }) => {
            if let Some(repeated) = supervised
                .log_policy
                .record(UpstreamState::Degraded, reason)
            {
                tracing::warn!(
                    server = supervised.name(),
                    repeated,
                    "lists not refreshed: {reason}"
                );
            }
        }
    }
    if listed.is_ok() && !supervised.server.stop.is_cancelled() {
        supervised.persist_lists(connection);
    }
    listed
}

/// Checks whether a server that a call found disconnected is reachable. A pipe knows by itself.
/// Over HTTP a list shows it.
pub(super) async fn check_alive(
    supervised: &SupervisedServer,
    connection: &Arc<UpstreamConnection>,
) -> Result<(), String> {
    if connection.link.is_multiplexed() {
        return Ok(());
    }
    let live = supervised.server.live_settings();
    let first = tokio::time::timeout(
        live.live.connect_timeout.0,
        list_once(supervised, connection, ItemKind::Tools),
    )
    .await;
    if first.is_ok_and(|listed| !is_down(&listed)) {
        return Ok(());
    }
    // A slow first answer proves nothing, so the second attempt gets the full time of a list.
    let limit = live.live.list_timeout.0;
    tokio::time::sleep(RETRY_DELAY).await;
    match tokio::time::timeout(limit, list_once(supervised, connection, ItemKind::Tools)).await {
        Ok(Err(error)) if error.kind == McpErrorKind::ServerDown => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {limit:?}")),
        _ => Ok(()),
    }
}

/// Fetches one list. Retries once where a connection broke.
async fn list_with_retry(
    supervised: &SupervisedServer,
    connection: &UpstreamConnection,
    kind: ItemKind,
) -> Result<ItemList, Error> {
    let listed = list_once(supervised, connection, kind).await;
    if connection.link.is_multiplexed() || !is_down(&listed) {
        return listed;
    }
    // One broken HTTP connection does not mean that the server is down.
    tokio::time::sleep(RETRY_DELAY).await;
    list_once(supervised, connection, kind).await
}

async fn list_once(
    supervised: &SupervisedServer,
    connection: &UpstreamConnection,
    kind: ItemKind,
) -> Result<ItemList, Error> {
    fetch::list_all(
        &*connection.server,
        kind,
        &supervised.server.settings.options.lists,
    )
    .await
}

fn is_down(listed: &Result<ItemList, Error>) -> bool {
    listed
        .as_ref()
        .is_err_and(|error| error.kind == McpErrorKind::ServerDown)
}

/// Checks whether a server that refused a call refuses everything. Returns the reason to connect
/// again.
pub(super) async fn refuses_everything(
    supervised: &SupervisedServer,
    connection: &UpstreamConnection,
    refresh: &mut RefreshState,
) -> Option<String> {
    if connection.link.is_multiplexed() || !refresh.begin_refusal_check() {
        return None;
    }
    let listing = list_once(supervised, connection, ItemKind::Tools);
    let listed = tokio::time::timeout(
        supervised.server.peek_live_settings().live.list_timeout.0,
        listing,
    )
    .await;
    listed
        .ok()?
        .err()
        .filter(is_refused)
        .map(|error| error.to_string())
}

/// Waits for a future and reads the notification stream meanwhile: the stream opens only while it
/// is read.
async fn while_subscribed<T>(
    supervised: &SupervisedServer,
    notifications: &mut NotificationStream,
    refresh: &mut RefreshState,
    done: impl Future<Output = T>,
) -> T {
    let mut done = std::pin::pin!(done);
    loop {
        tokio::select! {
            // A stream that has ended would yield its end again and again.
            notification = notifications.stream.next(),
                if refresh.reopen_at.is_none() => on_notification(supervised, notifications,
                    refresh, notification),
            update = refresh.early_updates.next() => supervised.server.publish(supervised.pool.shared_clients(), update),
            done = &mut done => return done,
        }
    }
}

/// Fetches lists and publishes each one that succeeds. A list that fails keeps its last good items.
pub(super) async fn refresh_lists(
    supervised: &SupervisedServer,
    connection: &UpstreamConnection,
    notifications: &mut NotificationStream,
    refresh: &mut RefreshState,
    kinds: &[ItemKind],
) -> Result<(), ListFailure> {
    // Subscribe before listing, so that no change falls in between. Lists fetched before the
    // acknowledgement are fetched twice.
    if refresh.is_only_stream && notifications.is_pending() {
        let opened = wait_acknowledged(
            notifications.established.clone(),
            Instant::now() + ACKNOWLEDGE_WAIT,
        );
        while_subscribed(supervised, notifications, refresh, opened).await;
    }
    let capabilities = connection.server.describe(&gateway_caller()).capabilities;
    let mut failure: Option<ListFailure> = None;
    let mut answered = false;
    for kind in kinds.iter().copied() {
        let list = if fetch::offers_list(&capabilities, kind) {
            let limit = supervised.server.peek_live_settings().live.list_timeout.0;
            let listing =
                tokio::time::timeout(limit, list_with_retry(supervised, connection, kind));
            match while_subscribed(supervised, notifications, refresh, listing).await {
                Ok(Ok(list)) => {
                    refresh.on_list_fetched(kind, notifications);
                    answered = true;
                    list
                }
                Ok(Err(error)) => {
                    let is_down = error.kind == McpErrorKind::ServerDown;
                    let reason = format!("{}: {error}", kind.list_method());
                    failure = Some(ListFailure {
                        reason,
                        is_down,
                        is_refused: true,
                    });
                    // The other lists would fail for the same reason, each after its own timeout.
                    if is_down {
                        break;
                    }
                    continue;
                }
                Err(_) => {
                    let method = kind.list_method();
                    let name = supervised.name();
                    let reason = format!(
                        "{method} took longer than {limit:?} (servers.{name}.list_timeout)"
                    );
                    failure = Some(ListFailure {
                        reason,
                        is_down: false,
                        is_refused: false,
                    });
                    continue;
                }
            }
        } else {
            ItemList::default()
        };
        let list = ItemList {
            era: Some(connection.era),
            ..list
        };
        supervised.lists.record_listed(kind, &capabilities, list);
    }
    match failure {
        // A server that answered one list does not refuse everything.
        Some(failure) => Err(ListFailure {
            is_refused: failure.is_refused && !answered,
            ..failure
        }),
        None => Ok(()),
    }
}
