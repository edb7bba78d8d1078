//! Event loop of a connected server. Owns the order of its events, and the reason why the
//! connection ends. Does not connect (`supervisor`) or fetch lists itself (`refresh.rs`).
//! Invariant: a notification stream stays open until its successor is.

use std::sync::Arc;

use futures_util::StreamExt;
use tokio::time::Instant;

use crate::connection::UpstreamConnection;
use crate::connection::health_check::HealthCheck;
use crate::connection::reconnect_backoff;
use crate::connection::subscription_acknowledgement::wait_acknowledged;
use crate::event::Audience;
use crate::gateway_caller::gateway_caller;
use crate::lists::eras::KeptLists;
use crate::lists::fetch::SETTLE_TIME;
use crate::supervisor::refresh::{
    check_alive, on_notification, open_only_subscription, refresh_and_report, refresh_lists,
    refuses_everything, relist_interval, replace_subscription,
};
use crate::supervisor::refresh_state::RefreshState;
use crate::supervisor::state_report::{ListFailure, report_breaker, report_lists, report_ready};
use crate::supervisor::supervised_server::SupervisedServer;
use moongate_model::{ItemKind, Notification, NotificationStream, ServerStart, UpstreamState};

/// Refusals of all lists in a row after which the server is connected again.
const REFUSALS_MAX: u32 = 3;

/// Reason why a connection ended.
pub(crate) enum ConnectionEnd {
    /// The server is disconnected, or should be connected again.
    Disconnected(String),
    /// The idle timeout of a lazy server elapsed.
    Idle,
    /// The gateway stops the server.
    Stopped,
    /// Another connection became the shared one.
    Promoted,
    /// The server has the roots of a client that has left, or counts on roots that nobody has.
    Vacated,
}

/// Lists the server and runs its event loop. Returns the reason why that ended. `kept`: why the
/// lists so far may serve clients of the other era.
pub(crate) async fn run_connected(
    supervised: &SupervisedServer,
    connection: Arc<UpstreamConnection>,
    kept: KeptLists,
) -> ConnectionEnd {
    // In use before it is listed: items that are known from before can be called while the lists
    // are fetched again.
    supervised.breaker.reset();
    supervised.activity.mark_active();
    supervised.pool.set_shared(connection.clone());
    let speaks_both = supervised
        .pool
        .last_handshake()
        .is_some_and(|known| known.speaks_other_era == Some(true));
    supervised.lists.turn_to(connection.era, kept, speaks_both);
    // Calls that wait for a connection watch the status. This change wakes them.
    supervised
        .server
        .status
        .send_modify(|status| status.disconnected_since = None);
    let mut refresh = RefreshState::new(supervised.server.settings.options.backoff);
    let mut notifications = open_only_subscription(supervised, &connection, &mut refresh);
    let listed = tokio::select! {
        listed = refresh_lists(supervised, &connection, &mut notifications, &mut refresh,
            &ItemKind::ALL) => listed,
        reason = connection.link.closed() => Err(ListFailure { reason: reason.to_string(),
            is_down: true, is_refused: false }),
        () = supervised.server.stop.cancelled() => Ok(()),
    };
    refresh.on_listed(listed.is_ok(), || relist_interval(supervised));
    // A stop in the middle leaves lists that are incomplete. They must not be persisted as the
    // whole.
    if listed.is_ok() && !supervised.server.stop.is_cancelled() {
        supervised.persist_lists(&connection);
    }
    // Told only after clients can see the items.
    supervised.server.publish_lists_and_wait().await;
    report_lists(supervised, &connection, &listed);
    let end = tokio::select! {
        // `biased`: both branches may see the same break, and the first one knows its reason.
        biased;
        end = wait_for_end(supervised, &connection) => end,
        reason = event_loop(supervised, &connection, &mut notifications,
            refresh) => ConnectionEnd::Disconnected(reason),
    };
    drop(notifications);
    // Calls that start from here on find no shared connection. An idle or replaced one finishes the
    // calls it has.
    supervised.pool.clear_shared(&connection);
    if matches!(
        end,
        ConnectionEnd::Idle | ConnectionEnd::Promoted | ConnectionEnd::Vacated
    ) {
        // A call that outlasts its own timeout is not waited for.
        let _ = tokio::time::timeout(
            supervised.server.timeouts.call(),
            wait_calls_finished(&connection),
        )
        .await;
    }
    if supervised.pool.shared().is_none() {
        supervised
            .server
            .status
            .send_modify(|status| status.disconnected_since = Some(Instant::now()));
    }
    // A stop ends the session now, with all calls that still run in it.
    if supervised.server.stop.is_cancelled() {
        connection.server.close();
    }
    connection.link.close(Vec::new()).await;
    end
}

/// Waits for calls that got the connection just before it was taken out of use.
async fn wait_calls_finished(connection: &UpstreamConnection) {
    loop {
        // Sleeps first: a call that was just given the connection may not be counted yet.
        tokio::time::sleep(SETTLE_TIME).await;
        if connection.calls.is_idle() {
            return;
        }
    }
}

/// Waits for an event that ends the connection, independently of its event loop.
async fn wait_for_end(
    supervised: &SupervisedServer,
    connection: &UpstreamConnection,
) -> ConnectionEnd {
    let idle = async {
        match supervised.server.settings.options.start {
            ServerStart::Eager => std::future::pending().await,
            // Clients may use dedicated connections only. Those end with their clients.
            ServerStart::Lazy => {
                let idle_stop = supervised.server.settings.options.idle_stop.0;
                supervised
                    .activity
                    .wait_idle_for(idle_stop, || supervised.is_needed())
                    .await;
            }
        }
    };
    let health = HealthCheck::of(&supervised.server);
    let settled = async {
        // Repeated state changes are logged as one line with a count once the connection has proven
        // stable.
        tokio::time::sleep(reconnect_backoff::HEALTHY).await;
        if let Some(repeated) = supervised.log_policy.settle() {
            let state = supervised.server.state().name();
            tracing::info!(
                server = supervised.name(),
                state,
                repeated,
                "connection is stable again"
            );
        }
        // This branch only logs. It never ends the connection.
        std::future::pending::<ConnectionEnd>().await
    };
    tokio::select! {
        end = settled => end,
        end = list_other_face(supervised, connection) => end,
        reason = connection.link.closed() => ConnectionEnd::Disconnected(reason.to_string()),
        () = supervised.server.stop.cancelled() => ConnectionEnd::Stopped,
        reason = health.wait_failed(connection) => ConnectionEnd::Disconnected(reason),
        () = supervised.pool.eras.promoted() => ConnectionEnd::Promoted,
        () = supervised.pool.wait_roots_client_left(connection) => ConnectionEnd::Vacated,
        () = idle => ConnectionEnd::Idle,
    }
}

/// Opens the face in the other era for its lists, once this one offers nothing. Never ends the
/// connection.
///
/// Its clients would see no name to call, and without a call nothing else opens their face.
async fn list_other_face(
    supervised: &SupervisedServer,
    connection: &UpstreamConnection,
) -> ConnectionEnd {
    let mut status = supervised.server.status.subscribe();
    let is_empty = status
        .wait_for(|status| status.state == UpstreamState::Ready && !supervised.lists.has_items());
    let is_empty = is_empty.await.is_ok();
    // Over HTTP a handshake in the wrong era reaches the server that is in use, so the other era
    // must be known.
    if is_empty && (connection.link.is_multiplexed() || supervised.pool.speaks_other_era()) {
        supervised.pool.open_face(connection.era.other()).await;
    }
    std::future::pending().await
}

/// Lists to fetch now.
struct DueLists {
    kinds: Vec<ItemKind>,
    /// Lists of which the server announced a change.
    announced: Vec<ItemKind>,
}

impl DueLists {
    fn all() -> Self {
        DueLists::of(ItemKind::ALL.to_vec())
    }

    fn of(kinds: Vec<ItemKind>) -> Self {
        DueLists {
            kinds,
            announced: Vec::new(),
        }
    }

    fn announced(kinds: Vec<ItemKind>) -> Self {
        DueLists {
            announced: kinds.clone(),
            kinds,
        }
    }
}

/// Handles the events of the connection one by one. Returns the reason to connect again.
async fn event_loop(
    supervised: &SupervisedServer,
    connection: &Arc<UpstreamConnection>,
    notifications: &mut NotificationStream,
    mut refresh: RefreshState,
) -> String {
    loop {
        let reopen_at = refresh.reopen_at;
        let due = tokio::select! {
            () = supervised.breaker.changed() => {
                on_breaker_changed(supervised, &refresh);
                continue;
            }
            () = wait_learned(supervised) => {
                // Lists that failed are persisted once a fetch succeeds.
                if refresh.failures == 0 {
                    supervised.persist_lists(connection);
                }
                continue;
            }
            // After the end of the stream, its successor subscribes to what is wanted by then.
            () = supervised.lists.resources.changed(),
                if notifications.established.is_none() && reopen_at.is_none() => {
                replace_subscription(supervised, connection, notifications, &mut refresh);
                continue;
            }
            () = wait_acknowledged(notifications.established.clone(), refresh.open_deadline),
                if notifications.established.is_some() => {
                refresh.on_opened(!notifications.is_pending());
                notifications.assume_established();
                continue;
            }
            update = refresh.early_updates.next() => {
                supervised.server.publish(supervised.pool.shared_clients(), update);
                continue;
            }
            notification = notifications.stream.next(), if reopen_at.is_none() => {
                on_notification(supervised, notifications, &mut refresh, notification);
                continue;
            }
            () = tokio::time::sleep_until(refresh.settles_at), if !refresh.changed.is_empty() => {
                DueLists::announced(refresh.take_changed())
            }
            // Changes between two streams were announced to nobody. Only a new fetch finds them.
            () = tokio::time::sleep_until(reopen_at.unwrap_or(refresh.relist)),
                if reopen_at.is_some() => {
                *notifications = open_only_subscription(supervised, connection, &mut refresh);
                DueLists::all()
            }
            kinds = supervised.lists.dedicated.relists.next_batch() => DueLists::of(kinds),
            kinds = supervised.lists.relist_requests.wait_requested(),
                if refresh.failures == 0 => DueLists::of(kinds),
            () = supervised.pool.liveness_triggers.wait_refused(),
                if refresh.failures == 0 => match refuses_everything(supervised, connection,
                    &mut refresh).await {
                Some(reason) => return reason,
                None => continue,
            },
            () = supervised.pool.liveness_triggers.wait_down() => match check_alive(supervised,
                connection).await {
                Ok(()) => continue,
                Err(reason) => return reason,
            },
            // After a failure the time of the next attempt is fixed already.
            () = supervised.lists.wait_expired(),
                if refresh.failures == 0 => match supervised.lists.is_stale() {
                true => DueLists::all(),
                false => continue,
            },
            () = tokio::time::sleep_until(refresh.polls.next_poll_at()),
                if refresh.failures == 0 => due_polls(supervised, connection, &mut refresh),
            () = tokio::time::sleep_until(refresh.relist) => DueLists::all(),
        };
        let fetched = fetch_lists(supervised, connection, notifications, &mut refresh, due);
        if let Err(reason) = fetched.await {
            return reason;
        }
    }
}

fn on_breaker_changed(supervised: &SupervisedServer, refresh: &RefreshState) {
    // A server that could not be listed stays degraded for that reason.
    if refresh.failures == 0 {
        report_breaker(supervised);
    }
}

/// Waits until something is known of the server that its state has not, and logs it.
async fn wait_learned(supervised: &SupervisedServer) {
    tokio::select! {
        () = supervised.pool.seen_input_flag.wait_learned() => log_requests(supervised),
        () = supervised.pool.legacy_tools.changed() => {
            let server = supervised.name();
            tracing::info!(server, "tool cannot request input in the newest revision: it is called \
                                    in an earlier one from now on");
        }
        () = supervised.pool.asking_tools.changed() => {
            let server = supervised.name();
            tracing::debug!(server, "tool requests input: clients that cannot answer it get \
                                     dedicated connections from now on");
        }
        // By now the server offers something.
        () = supervised.lists.other_listed.notified() => report_ready(supervised),
    }
}

/// Logs what the server was seen to ask its clients for, and shows it in the status.
fn log_requests(supervised: &SupervisedServer) {
    let server = supervised.name();
    let requests = supervised.pool.seen_input_flag.seen_requests();
    if requests.input {
        tracing::info!(
            server,
            "server requests input: its clients get dedicated connections from now on"
        );
    }
    if requests.roots {
        tracing::info!(
            server,
            "server asks for roots: clients that declare them get dedicated connections from now on"
        );
        report_ready(supervised);
    }
}

/// Returns the lists to poll now.
fn due_polls(
    supervised: &SupervisedServer,
    connection: &UpstreamConnection,
    refresh: &mut RefreshState,
) -> DueLists {
    let capabilities = connection.server.describe(&gateway_caller()).capabilities;
    DueLists::of(refresh.polls.take_due(
        &supervised.server,
        supervised.lists.uses.take_shared(),
        &capabilities,
    ))
}

/// Fetches lists, and remembers which announced changes were none. Fails with the reason to connect
/// again.
async fn fetch_lists(
    supervised: &SupervisedServer,
    connection: &Arc<UpstreamConnection>,
    notifications: &mut NotificationStream,
    refresh: &mut RefreshState,
    due: DueLists,
) -> Result<(), String> {
    let DueLists { kinds, announced } = due;
    // A look at the polls, and none is due.
    if kinds.is_empty() {
        return Ok(());
    }
    let before = supervised.lists.load();
    // After a failure all lists are due: the state does not say which ones are missing.
    let kinds = if refresh.failures > 0 {
        ItemKind::ALL.to_vec()
    } else {
        kinds
    };
    if kinds.len() == ItemKind::ALL.len() {
        refresh.polls.restart();
    }
    let listed = refresh_and_report(supervised, connection, notifications, refresh, &kinds).await;
    // Owners learn of a change only now, so that they find it in the shared lists.
    publish_dedicated(supervised);
    supervised.lists.relist_requests.completed();
    refresh.on_listed(listed.is_ok(), || relist_interval(supervised));
    let after = supervised.lists.load();
    if kinds
        .iter()
        .any(|kind| !Arc::ptr_eq(before.get(*kind), after.get(*kind)))
    {
        supervised.lists.dedicated.relists.record_difference();
    }
    for kind in announced {
        refresh.record_announced(kind, !Arc::ptr_eq(before.get(kind), after.get(kind)));
    }
    match listed {
        // Over HTTP the server is connected again, in whatever era it speaks now. On a pipe that
        // would end a child and its calls.
        Err(ListFailure {
            reason,
            is_down: down,
            is_refused: refused,
        }) if !connection.link.is_multiplexed()
            && (down || refused && refresh.failures >= REFUSALS_MAX) =>
        {
            Err(reason)
        }
        _ => Ok(()),
    }
}

/// Publishes list changes of dedicated connections, for the lists that were just fetched on their
/// behalf.
fn publish_dedicated(supervised: &SupervisedServer) {
    for (owner, kind) in supervised.lists.dedicated.relists.completed() {
        supervised
            .server
            .publish(Audience::Owner(owner), Notification::ListChanged(kind));
    }
}

#[cfg(test)]
mod tests;
