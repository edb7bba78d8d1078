//! Dedicated connections: of a session, of a principal, or of all clients in the other era. Owns
//! their checkout: from the table (`table.rs`), or by a task that dials one (`lifecycle.rs`). Does
//! not decide how often one is dialed (`backoff_table.rs`). Invariant: a connection of one client
//! is never used by another. Every open connection is in the table or about to close.
//!
//! A connection closes with its client's session, on a break, after an idle time, or when its
//! principal is revoked. An unused one closes to make room for another.

mod backoff_table;
mod lifecycle;
mod notification_router;
mod notification_stream;
mod session_row;
pub(crate) mod table;

use moongate_telemetry::Limit;
use std::sync::Arc;

use crate::connection::UpstreamConnection;
use crate::connection::health_check::HealthCheck;
use crate::connection::reconnect_backoff::ReconnectBackoff;
use crate::lists::ListStore;
use crate::pool::dedicated::lifecycle::{
    DedicatedLifecycle, DialParameters, cooldown_error, run_dedicated,
};
use crate::pool::dedicated::notification_router::NotificationRouter;
use crate::pool::dedicated::session_row::UpstreamSessionRow;
use crate::pool::dedicated::table::{DedicatedLookup, DedicatedPool, DedicatedRequest, UseGuard};
use crate::server_context::ServerContext;
use moongate_model::{Caller, Error, McpErrorKind};

/// Concurrency permit of a caller.
pub(crate) trait ReleasePermit: Send {
    /// Releases the permit while the caller waits for a connection.
    fn release(&mut self);
}

/// Parts of the server that a dedicated connection needs.
#[derive(Clone, Copy)]
pub(crate) struct DedicatedContext<'a> {
    pub(crate) server: &'a Arc<ServerContext>,
    pub(crate) lists: &'a Arc<ListStore>,
}

impl DedicatedPool {
    /// Returns the requested connection. Opens it if there is none.
    ///
    /// Callers share one dial and its result. A failed dial does not count in the circuit breaker.
    /// It may concern one client's capabilities or credentials, which must not keep others from
    /// connections that work. Each connection has its own backoff. A program that cannot be started
    /// cools down for all (`BackoffTable`).
    pub(crate) async fn checkout(
        &self,
        request: DedicatedRequest,
        caller: &Arc<Caller>,
        context: DedicatedContext<'_>,
        permit: &mut dyn ReleasePermit,
    ) -> Result<(Arc<UpstreamConnection>, UseGuard), Error> {
        if let Some(found) = self.try_get(&request.key) {
            return Ok(found);
        }
        // A caller that waits for a dial holds no concurrency permit: one slow client must not stop
        // the others.
        permit.release();
        let use_guard = self.get_or_begin(request, caller, context).await?;
        // `AttemptGuard` cancels it on every path, so that this wait ends.
        use_guard.0.settled.cancelled().await;
        match use_guard.0.opened.get() {
            Some(Ok(connection)) => Ok((connection.clone(), use_guard)),
            Some(Err(error)) => Err(error.clone()),
            None => Err(Error::internal("the attempt to connect was aborted")),
        }
    }

    async fn get_or_begin(
        &self,
        request: DedicatedRequest,
        caller: &Arc<Caller>,
        context: DedicatedContext<'_>,
    ) -> Result<UseGuard, Error> {
        let settings = context.server.live_settings();
        let name = &settings.name;
        let max = settings.live.max_connections;
        let connect_budget = self.connect_budget();
        loop {
            // Created before the lookup, so that no end of a dial is missed.
            let changed = connect_budget.changed();
            match self.look_up(&request, max, settings.options.backoff) {
                DedicatedLookup::Existing(use_guard) => return Ok(use_guard),
                DedicatedLookup::New(use_guard, backoff) => {
                    self.publish_count(name, context.server.metrics());
                    self.begin_dial(&use_guard, backoff, request, caller, context);
                    return Ok(use_guard);
                }
                DedicatedLookup::Busy(until) => {
                    let _ = tokio::time::timeout_at(until, changed).await;
                }
                // A connection that was lost a moment ago is most likely back soon, so the call
                // waits for it.
                DedicatedLookup::CoolingDown(cooldown) if cooldown.is_worth_waiting() => {
                    tokio::time::sleep_until(cooldown.until).await
                }
                DedicatedLookup::CoolingDown(cooldown) => {
                    return Err(cooldown_error(name, &cooldown));
                }
                DedicatedLookup::Full => {
                    context
                        .server
                        .metrics()
                        .calls
                        .refused
                        .inc(Limit::MaxConnections);
                    let message = format!(
                        "Server \"{name}\" has reached its limit of {max} dedicated connections, \
                         and all are in use (servers.{name}.max_connections)"
                    );
                    return Err(Error::new(McpErrorKind::Overloaded, message));
                }
            }
        }
    }

    /// Spawns the dial. Its task outlives the caller, so that later callers find the same dial.
    fn begin_dial(
        &self,
        use_guard: &UseGuard,
        backoff: ReconnectBackoff,
        request: DedicatedRequest,
        caller: &Arc<Caller>,
        context: DedicatedContext<'_>,
    ) {
        let server = context.server;
        let settings = server.live_settings();
        let common = server.common.clone();
        let DedicatedRequest {
            key,
            mut connect_identity,
            lifetime,
            owner,
        } = request;
        let row = UpstreamSessionRow::of(
            &settings,
            &common.session_store,
            &common.store,
            caller,
            lifetime,
        );
        connect_identity.persisted_session =
            row.as_ref().and_then(UpstreamSessionRow::take_persisted);
        let router = NotificationRouter::new(server, context.lists, &key, owner.clone());
        // Watched before the dial, so that no subscription during it is missed.
        let mut subscriptions = common.subscriptions.watch(owner, server.name.clone());
        subscriptions.always_lists = router.wants_lists();
        let lifecycle = DedicatedLifecycle {
            pool: self.clone(),
            key,
            entry: use_guard.0.clone(),
            lifetime,
            stop: server.stop.clone(),
            metrics: common.metrics.clone(),
            health: HealthCheck::of(server),
            row,
            subscriptions,
            router,
            settings: settings.clone(),
        };
        let timeouts = server.timeouts.clone();
        let parameters = DialParameters {
            settings,
            context: common,
            times: timeouts,
            connect_identity,
            backoff,
        };
        tokio::spawn(run_dedicated(lifecycle, parameters, caller.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    use super::*;
    use crate::all_servers::owner_subscriptions::SubscriptionTopic;
    use crate::connection::dial::ConnectIdentity;
    use crate::connection::idle_tracker::UNUSED_TIME;
    use crate::connection_owner::ConnectionOwner;
    use crate::pool::isolation::ConnectionLifetime;
    use crate::supervision_options::BackoffSettings;
    use crate::testing::memory::{MemoryServer, ServerBehaviour, call};
    use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
    use moongate_model::{Outcome, ServerStart, SharingMode, TaskState, TaskStatus};
    use moongate_protocol::Era;
    use moongate_testing as testing;

    fn key(text: &str) -> ByteString {
        ByteString::from(text)
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn claim_of(name: &str, lifetime: ConnectionLifetime) -> DedicatedRequest {
        DedicatedRequest {
            key: key(name),
            connect_identity: ConnectIdentity::for_all(None),
            lifetime,
            owner: ConnectionOwner::Era(Era::Legacy),
        }
    }

    /// A task that runs for some milliseconds more.
    fn running_task(ttl: u64) -> TaskState {
        TaskState {
            id: ByteString::literal("t"),
            status: TaskStatus::Working,
            ttl: Some(RawJson::number(ttl)),
            poll_interval: None,
            other_members: JsonObject::new(),
            input_requests: Vec::new(),
            outcome: None,
        }
    }

    fn request(leases: &DedicatedPool, name: &str) -> Option<UseGuard> {
        request_within(leases, name, 2)
    }

    /// Looks up a connection of a pool with this limit. `None`: all are in use.
    fn request_within(leases: &DedicatedPool, name: &str, limit: usize) -> Option<UseGuard> {
        match leases.look_up(
            &claim_of(name, ConnectionLifetime::Never),
            limit,
            BackoffSettings::default(),
        ) {
            DedicatedLookup::Existing(use_guard) | DedicatedLookup::New(use_guard, _) => {
                Some(use_guard)
            }
            DedicatedLookup::Full => None,
            DedicatedLookup::CoolingDown(_) | DedicatedLookup::Busy(_) => {
                panic!("there is no pause")
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_unused_longest_makes_room_and_none_that_is_in_use() {
        let leases = DedicatedPool::default();
        let first = request(&leases, "first").unwrap();
        let second = request(&leases, "second").unwrap();
        assert!(request(&leases, "third").is_none(), "both are in use");
        let again = request(&leases, "first").unwrap();
        drop(again);
        assert!(
            request(&leases, "third").is_none(),
            "its other call still has it"
        );
        let evicted = (first.0.evicted.clone(), second.0.evicted.clone());
        for use_guard in [second, first] {
            tokio::time::advance(SECOND).await;
            drop(use_guard);
        }
        let _third = request(&leases, "third").unwrap();
        assert!(
            evicted.1.is_cancelled() && !evicted.0.is_cancelled(),
            "the second was unused longest"
        );
        assert_eq!(leases.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_on_which_a_task_runs_makes_no_room() {
        let leases = DedicatedPool::default();
        let first = request(&leases, "first").unwrap();
        let second = request(&leases, "second").unwrap();
        first.track_task(&running_task(60_000));
        let evicted = (first.0.evicted.clone(), second.0.evicted.clone());
        drop(first);
        tokio::time::advance(SECOND).await;
        drop(second);
        let third = request(&leases, "third").unwrap();
        assert!(
            !evicted.0.is_cancelled() && evicted.1.is_cancelled(),
            "the first was unused longest, but runs a task"
        );
        assert!(
            request(&leases, "fourth").is_none(),
            "a task and a call have all there are"
        );
        tokio::time::advance(SECOND * 60).await;
        assert!(
            request(&leases, "fourth").is_some() && evicted.0.is_cancelled(),
            "the task's time is over"
        );
        drop(third);
    }

    #[tokio::test(start_paused = true)]
    async fn all_connections_of_a_server_together_keep_within_the_attempts_of_a_minute() {
        for way in [ServerBehaviour::Dies, ServerBehaviour::DiesLater] {
            let memory = MemoryServer::new(&[way]);
            let upstream = memory.upstream(|_| {});
            let running = tokio::spawn(upstream.clone().run());
            let began = Instant::now();
            while began.elapsed() < SECOND * 55 {
                let callers = (0..20).map(|n| testing::caller(n, Some(&format!("s{n}"))));
                let calls: Vec<_> = callers
                    .map(|caller| call(&upstream, &caller, "t"))
                    .collect();
                for call in calls {
                    let _ = call.await.unwrap();
                }
                tokio::time::sleep(SECOND).await;
            }
            assert!(
                (2..=15).contains(&memory.dialed()),
                "{way:?}: {} starts",
                memory.dialed()
            );
            upstream.stop().await;
            running.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_clients_of_a_healthy_server_are_connected_at_once() {
        let memory = MemoryServer::new(&[ServerBehaviour::Answers(Duration::from_millis(10))]);
        let upstream = memory.upstream(|_| {});
        let began = Instant::now();
        let callers = (0..100).map(|n| testing::caller(n, Some(&format!("s{n}"))));
        let calls: Vec<_> = callers
            .map(|caller| call(&upstream, &caller, "t"))
            .collect();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert!(
            memory.dialed() == 100 && began.elapsed() < SECOND * 5,
            "{:?}",
            began.elapsed()
        );
    }

    /// Returns the time until the call failed, and its error.
    async fn failed(call: JoinHandle<Result<Outcome, Error>>) -> (Duration, String) {
        let began = Instant::now();
        let error = call.await.unwrap().unwrap_err();
        (began.elapsed(), error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn callers_share_the_result_of_one_connection_attempt() {
        let memory = MemoryServer::new(&[ServerBehaviour::Mute]);
        let upstream = memory.upstream(|settings| settings.live.start_timeout.0 = SECOND * 5);
        let caller = testing::caller(1, Some("s"));
        let began = Instant::now();
        let calls: Vec<_> = (0..10).map(|_| call(&upstream, &caller, "t")).collect();
        for call in calls {
            let (_, received) = failed(call).await;
            assert!(received.contains("servers.a.start_timeout"), "{received}");
        }
        assert_eq!(began.elapsed(), SECOND * 5);
        assert_eq!(memory.dialed(), 1);
        assert_eq!(upstream.dedicated_count(), 0);
        assert_eq!(memory.open(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_its_connection_in_its_own_time() {
        let memory = MemoryServer::new(&[ServerBehaviour::Mute]);
        let upstream = memory.upstream(|settings| settings.live.timeout.0 = SECOND * 2);
        let (waited, received) = failed(call(&upstream, &testing::caller(1, Some("s")), "t")).await;
        assert_eq!(waited, SECOND * 2);
        assert!(received.contains("servers.a.timeout"), "{received}");
        // The next call finds the same dial.
        let (waited, _) = failed(call(&upstream, &testing::caller(1, Some("s")), "t")).await;
        assert_eq!(waited, SECOND * 2);
        assert_eq!(memory.dialed(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_wait_for_one_clients_connection_keep_nobody_else_out() {
        let memory = MemoryServer::new(&[
            ServerBehaviour::Mute,
            ServerBehaviour::Mute,
            ServerBehaviour::Answers(Duration::ZERO),
        ]);
        let upstream = memory.upstream(|settings| settings.live.max_concurrency = 2);
        let waiting: Vec<_> = ["a", "b"]
            .map(|session| call(&upstream, &testing::caller(1, Some(session)), "t"))
            .into();
        tokio::time::sleep(SECOND).await;
        let other = call(&upstream, &testing::caller(2, Some("c")), "t");
        tokio::time::sleep(SECOND).await;
        assert!(other.is_finished() && waiting.iter().all(|call| !call.is_finished()));
        other.await.unwrap().unwrap();
    }

    /// Returns the number of starts within a minute of calls, and their errors.
    async fn minute_of_calls(way: ServerBehaviour) -> (usize, Vec<String>) {
        let memory = MemoryServer::new(&[way]);
        let upstream = memory.upstream(|_| {});
        let caller = testing::caller(1, Some("s"));
        let began = Instant::now();
        let mut received = Vec::new();
        while began.elapsed() < SECOND * 60 {
            received.push(failed(call(&upstream, &caller, "t")).await.1);
            tokio::time::sleep(SECOND / 10).await;
        }
        assert_eq!(memory.open(), upstream.dedicated_count());
        (memory.dialed(), received)
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_dies_is_started_only_so_often() {
        for way in [
            ServerBehaviour::Dies,
            ServerBehaviour::DiesLater,
            ServerBehaviour::Unstartable,
        ] {
            let (started, received) = minute_of_calls(way).await;
            assert!((2..=8).contains(&started), "{way:?}: {started} starts");
            let resting = received
                .iter()
                .find(|received| received.contains("the next attempt"));
            assert!(
                resting.is_some_and(|received| received.starts_with("Server \"a\" ")),
                "{way:?}: {received:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_attempt_leaves_nothing_that_another_opens_unseen() {
        let memory = MemoryServer::new(&[
            ServerBehaviour::Mute,
            ServerBehaviour::Answers(Duration::ZERO),
        ]);
        let upstream = memory.upstream(|settings| {
            (settings.options.share, settings.live.start_timeout.0) =
                (SharingMode::Principal, SECOND);
        });
        let caller = testing::caller(1, None);
        let first = call(&upstream, &caller, "t");
        let second = call(&upstream, &caller, "t");
        first.await.unwrap().unwrap_err();
        let _ = second.await.unwrap();
        tokio::time::sleep(SECOND).await;
        assert_eq!(memory.open(), upstream.dedicated_count());
        tokio::time::sleep(SECOND * 10).await;
        call(&upstream, &caller, "t").await.unwrap().unwrap();
        assert_eq!(memory.open(), 1);
        assert_eq!(upstream.dedicated_count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_principal_that_goes_while_its_connection_opens_leaves_none() {
        let memory = MemoryServer::new(&[ServerBehaviour::Answers(SECOND)]);
        let upstream = memory.upstream(|settings| settings.options.share = SharingMode::Principal);
        let called = call(&upstream, &testing::caller(1, None), "t");
        // Half-way through the dial.
        tokio::time::sleep(SECOND / 2).await;
        upstream.revoke_principals(&|id| id == 1).await;
        let _ = called.await.unwrap();
        tokio::time::sleep(SECOND * 10).await;
        assert_eq!(memory.open(), 0);
        assert_eq!(upstream.dedicated_count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_abandoned_connection_attempt_serves_the_next_caller() {
        let memory = MemoryServer::new(&[ServerBehaviour::Answers(SECOND)]);
        let upstream = memory.upstream(|settings| settings.options.share = SharingMode::Principal);
        let caller = testing::caller(1, None);
        let called = call(&upstream, &caller, "t");
        tokio::time::sleep(SECOND / 2).await;
        // The first caller goes away. Its dial goes on.
        called.abort();
        call(&upstream, &caller, "t").await.unwrap().unwrap();
        assert_eq!(memory.dialed(), 1);
        assert_eq!(memory.open(), 1);
        assert_eq!(upstream.dedicated_count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_what_is_being_opened() {
        let memory = MemoryServer::new(&[ServerBehaviour::Mute]);
        let upstream = memory.upstream(|_| {});
        let called = call(&upstream, &testing::caller(1, Some("s")), "t");
        tokio::time::sleep(SECOND).await;
        upstream.stop().await;
        called.await.unwrap().unwrap_err();
        assert_eq!(memory.open(), 0);
        assert_eq!(upstream.dedicated_count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_started_on_use_is_stopped_whoever_has_its_connections() {
        let memory = MemoryServer::new(&[ServerBehaviour::Answers(Duration::ZERO)]);
        let upstream = memory.upstream(|settings| {
            (
                settings.options.share,
                settings.options.start,
                settings.options.idle_stop.0,
            ) = (SharingMode::Principal, ServerStart::Lazy, SECOND * 10);
        });
        let running = tokio::spawn(upstream.clone().run());
        let caller = testing::caller(1, None);
        call(&upstream, &caller, "t").await.unwrap().unwrap();
        assert_eq!(upstream.dedicated_count(), 1);
        let hanging = call(&upstream, &caller, "hang");
        tokio::time::sleep(SECOND * 30).await;
        assert_eq!(upstream.dedicated_count(), 1, "a call has it");
        hanging.abort();
        let topics = vec![SubscriptionTopic::Resource(
            upstream.name.clone(),
            ByteString::from("x:1"),
        )];
        let guard = upstream
            .server
            .common
            .subscriptions
            .subscribe(&caller, topics);
        tokio::time::sleep(SECOND * 60).await;
        assert_eq!(
            upstream.dedicated_count(),
            1,
            "somebody is subscribed to what is there"
        );
        drop(guard);
        tokio::time::sleep(SECOND * 60).await;
        assert_eq!(upstream.dedicated_count(), 0);
        assert_eq!(memory.open(), 0);
        call(&upstream, &caller, "t").await.unwrap().unwrap();
        running.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_unused_some_time_after_its_last_call_and_task() {
        let leases = DedicatedPool::default();
        let use_guard = match leases.look_up(
            &claim_of("a", ConnectionLifetime::Unused),
            2,
            BackoffSettings::default(),
        ) {
            DedicatedLookup::New(use_guard, _) => use_guard,
            _ => unreachable!(),
        };
        let began = Instant::now();
        let lease = use_guard.0.clone();
        let waiting = tokio::spawn({
            let leases = leases.clone();
            async move {
                leases
                    .evict_when_unused(&key("a"), &lease, UNUSED_TIME, || false)
                    .await
            }
        });
        tokio::time::sleep(UNUSED_TIME * 2).await;
        assert!(!waiting.is_finished(), "a call has it");
        use_guard.track_task(&running_task(1_200_000));
        drop(use_guard);
        tokio::time::sleep(UNUSED_TIME * 3).await;
        assert!(
            !waiting.is_finished() && leases.len() == 1,
            "a task runs there"
        );
        waiting.await.unwrap();
        assert!(began.elapsed() <= UNUSED_TIME * 8 && leases.len() == 0);
    }

    #[tokio::test]
    async fn connections_of_a_removed_principal_are_closed() {
        let leases = DedicatedPool::default();
        let gone = request_within(&leases, "principal 1", 3).unwrap();
        let other = request_within(&leases, "principal 2", 3).unwrap();
        let stateless = request_within(&leases, "principal 1, 0", 3).unwrap();
        leases.revoke_principals(&|id| id == 1).await;
        assert_eq!(leases.len(), 1);
        assert!(gone.0.evicted.is_cancelled() && stateless.0.evicted.is_cancelled());
        assert!(!other.0.evicted.is_cancelled());
    }
}
