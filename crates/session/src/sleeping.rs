//! Sleeping sessions: the small part of an idle session that stays in memory, and its way back.
//!
//! Owns the choice of the sessions that sleep. Does not know how a session is found again
//! (`persisted.rs`). Invariant: sleep loses nothing that a client could still get. A session that
//! holds such a thing stays awake.

use std::sync::Arc;
use std::time::Duration;

use moongate_jsonrpc::json::ByteString;

use crate::Sessions;
use crate::persisted::{PersistedEntry, SessionRecord};
use crate::session::Session;
use crate::session_row::{SessionDigest, digest};
use crate::sleep_state::SleepState;

/// Idle time without stream, call or input request after which a session sleeps.
// A model that thinks for half a minute between two calls must not pay for a restore each time.
const SLEEP_TIME: Duration = Duration::from_secs(60);
/// Maximum memory of a sleeping session, in bytes. A session that would need more stays awake.
const ASLEEP_MAX: usize = 1024;
/// Memory of one entry besides its contents: its slot in the table, small allocations and the
/// token.
const ENTRY_COST: usize =
    2 * size_of::<(SessionDigest, PersistedEntry)>() + size_of::<SleepState>() + 160;

impl Sessions {
    /// Puts idle sessions to sleep, except those that must stay. Returns their number. Both clocks
    /// count: time during which the machine was suspended makes nobody idle.
    pub fn sleep_unused(&self, must_stay: &dyn Fn(&ByteString) -> bool) -> usize {
        let now = self.clock.now_ms();
        let unused: Vec<Arc<Session>> = self
            .table
            .lock()
            .values()
            .filter(|session| session.is_unused(now))
            .cloned()
            .collect();
        let mut asleep = 0;
        for session in unused {
            // Called without the table's lock, because `must_stay` looks through all servers.
            // Asked again in `put_to_sleep`: without the lock, both answers may be out of date.
            if must_stay(&session.identity.id) || session.get_stream.has_unread() {
                continue;
            }
            asleep += usize::from(self.put_to_sleep(&session, now));
        }
        if asleep > 0 {
            let mut table = self.table.lock();
            // A hash table keeps its capacity after removals.
            table.shrink_to_fit();
            self.record_counts(&table);
        }
        asleep
    }

    fn put_to_sleep(&self, session: &Arc<Session>, now: u64) -> bool {
        let mut table = self.table.lock();
        // Only the table and this function hold the session. Other lookups wait for the table's
        // lock.
        let known = table
            .get(&session.identity.id)
            .is_some_and(|known| Arc::ptr_eq(known, session));
        if !known
            || Arc::strong_count(session) > 2
            || !session.is_unused(now)
            || session.get_stream.has_unread()
        {
            return false;
        }
        let Some(position) = session.resumption.resume_position() else {
            return false;
        };
        let sleep_state = SleepState {
            ended: session.lifetime.ended.clone(),
            headers: session.identity.caller().forwarded_headers.clone(),
            next_request: session.client_requests.next_number(),
            resume_position: position,
            pending_catch_up: session.missed.is_catch_up_pending()
                || session.get_stream.has_retained(),
            used_ms: session.lifetime.used_ms(),
        };
        // Taken under the lock of the table, so that no request changes the session meanwhile.
        let record = session.record();
        // A large entry would save no memory.
        if ENTRY_COST + record.size() + sleep_state.size() > ASLEEP_MAX {
            return false;
        }
        session.persist();
        let entry = PersistedEntry {
            record,
            sleep_state: Some(Box::new(sleep_state)),
        };
        self.persisted.add(digest(&session.identity.id), entry);
        table.remove(&session.identity.id);
        true
    }
}

impl SessionRecord {
    /// Returns the bytes on the heap.
    fn size(&self) -> usize {
        let info = self.info.as_ref().map_or(0, |info| info.bytes().len());
        let subscriptions = self.subscriptions.iter();
        let subscriptions: usize = subscriptions
            .map(|text| text.len() + size_of::<String>())
            .sum();
        self.capabilities.bytes().len() + info + subscriptions + self.heap_bytes()
    }
}

impl Session {
    /// Returns true if the session may sleep and has been idle for long enough.
    fn is_unused(&self, now: u64) -> bool {
        self.lifetime.is_idle_for(SLEEP_TIME, now) && self.can_sleep()
    }

    /// Returns true if nothing is open, unread or subscribed.
    fn can_sleep(&self) -> bool {
        self.shared_stream.is_none()
            && !self.is_ended()
            && self.client_requests.is_empty()
            && self.calls.is_empty()
            && self.subscriptions.is_empty()
            && self.missed.is_empty()
            && self.get_stream.outbox.is_empty()
            && self.resumption.resume_position().is_some()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::{FutureExt, StreamExt, stream};
    use moongate_model::Caller;

    use super::*;
    use crate::persisted::RestoredFrom;
    use crate::store::StateStore;
    use crate::{GET_STREAM, ReplaySettings, SessionSettings, SubscribeOutcome};
    use moongate_jsonrpc::json::RawJson;
    use moongate_model::{
        Notification, NotificationStream, Principal, PrincipalStanding, SubscriptionFilter,
    };
    use moongate_telemetry::Metrics;
    use moongate_testing as testing;

    const IDLE: Duration = Duration::from_secs(600);

    fn sessions() -> Sessions {
        let replay = ReplaySettings {
            bytes: 1000,
            total: 1000,
            events: 10,
            time: Duration::from_secs(30),
        };
        let settings = SessionSettings {
            max: 10,
            idle: IDLE,
            outbox: 1000,
            outbox_total: 1000,
            subscriptions: 10,
            replay,
        };
        let sessions =
            Sessions::persistent(settings, Arc::new(Metrics::new()), StateStore::memory());
        sessions.mark_restored();
        sessions
    }

    fn open(sessions: &Sessions) -> ByteString {
        let mut caller = (*testing::caller(1, None)).clone();
        caller.forwarded_headers =
            vec![(ByteString::literal("x-tenant"), ByteString::literal("t"))];
        sessions
            .open(caller, ByteString::literal("files"), None)
            .unwrap()
            .identity
            .id
            .clone()
    }

    fn find(sessions: &Sessions, id: &ByteString) -> Arc<Session> {
        sessions
            .find(
                id,
                &testing::caller(1, None).principal,
                &ByteString::literal("files"),
            )
            .unwrap()
    }

    fn listener(heard: Vec<Notification>) -> NotificationStream {
        let stream = stream::iter(heard).chain(stream::pending()).boxed();
        NotificationStream {
            acknowledged: SubscriptionFilter::default(),
            stream,
            established: None,
        }
    }

    async fn rest(sessions: &Sessions) -> usize {
        tokio::time::advance(SLEEP_TIME).await;
        sessions.expire_idle();
        sessions.sleep_unused(&|_| false)
    }

    fn wake(sessions: &Sessions, id: &ByteString) -> Option<(Arc<Session>, RestoredFrom)> {
        let caller = (*testing::caller(1, None)).clone();
        let record =
            sessions.persisted_record(id, &caller.principal, &ByteString::literal("files"))?;
        sessions.restore_session(id, caller, ByteString::literal("files"), &record)
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_nobody_uses_sleeps_and_comes_back_as_it_was() {
        let sessions = sessions();
        let id = open(&sessions);
        let session = sessions
            .find(
                &id,
                &testing::caller(1, None).principal,
                &ByteString::literal("files"),
            )
            .unwrap();
        session.retain_notifications(listener(Vec::new()));
        session.resumption.add(GET_STREAM, b"{}", false);
        let position = session.resumption.get_stream_position();
        let asked = session.client_requests.expect_response(None).unwrap().0;
        let ended = session.lifetime.ended.clone();
        assert_eq!(rest(&sessions).await, 0, "somebody holds it");
        drop(session);
        assert_eq!(
            sessions.sleep_unused(&|_| true),
            0,
            "it has a connection of its own"
        );
        assert_eq!(sessions.sleep_unused(&|_| false), 1);
        assert!(
            sessions
                .find(
                    &id,
                    &testing::caller(1, None).principal,
                    &ByteString::literal("files")
                )
                .is_none()
        );
        assert!(sessions.table.lock().is_empty());
        sessions.expire_idle();
        assert_eq!(sessions.metrics.clients.sessions.get(), 1);
        assert_eq!(sessions.metrics.clients.sessions_asleep.get(), 1);
        // Neither another principal nor another endpoint finds it.
        let other = testing::caller(2, None).principal.clone();
        assert!(
            sessions
                .persisted_record(&id, &other, &ByteString::literal("files"))
                .is_none()
        );
        let (awake, woken) = wake(&sessions, &id).unwrap();
        assert!(
            woken == RestoredFrom::FromMemory
                && awake.missed.take_catch_up()
                && !awake.missed.take_catch_up()
        );
        assert_eq!(awake.resumption.get_stream_position(), position);
        assert_eq!(awake.identity.caller().forwarded_headers.len(), 1);
        assert_ne!(
            awake.client_requests.expect_response(None).unwrap().0,
            asked,
            "no id is used twice"
        );
        assert!(!ended.is_cancelled());
        sessions.close(&awake);
        assert!(ended.is_cancelled(), "who waits for its end hears of it");
    }

    #[tokio::test(start_paused = true)]
    async fn undelivered_responses_keep_a_session_in_memory() {
        let sessions = sessions();
        type Keep = dyn Fn(&Arc<Session>);
        let keeps: [&Keep; 6] = [
            &|session| {
                session
                    .get_stream
                    .outbox
                    .push(Bytes::from_static(b"{}"), None);
            },
            &|session| {
                session.retain_notifications(listener(vec![Notification::ListChanged(
                    moongate_model::ItemKind::Tools,
                )]))
            },
            &|session| {
                assert!(matches!(
                    session.subscribe(&ByteString::literal("a://1")),
                    SubscribeOutcome::New(_)
                ))
            },
            &|session| session.client_requests.elicitation_opened("page"),
            &|session| {
                drop(
                    session
                        .resumption
                        .begin(&moongate_jsonrpc::message::RequestId::number(1)),
                )
            },
            // Larger than an entry may be.
            &|session| {
                let large = RawJson::string(&"x".repeat(ASLEEP_MAX));
                let caller = (*session.identity.shared_caller()).clone();
                session.identity.replace_caller(Caller {
                    client_info: Some(large),
                    ..caller
                });
            },
        ];
        for (n, keep) in keeps.iter().enumerate() {
            let id = open(&sessions);
            keep(&find(&sessions, &id));
            assert_eq!(rest(&sessions).await, 0, "{n}");
            assert_eq!(rest(&sessions).await, 0, "{n}");
            let session = find(&sessions, &id);
            if n == 1 {
                let mut kept = session.get_stream.take_retained().unwrap();
                assert!(
                    kept.stream.next().now_or_never().flatten().is_some(),
                    "what it heard is still there"
                );
            }
            sessions.close(&session);
        }
        // An open call, and a server's request.
        let id = open(&sessions);
        let session = find(&sessions, &id);
        let busy = session.begin_activity();
        let question = session.client_requests.expect_response(None).unwrap().1;
        drop(session);
        assert_eq!(rest(&sessions).await, 0);
        drop(busy);
        assert_eq!(rest(&sessions).await, 0);
        drop(question);
        assert_eq!(rest(&sessions).await, 1);
    }

    fn is_not_first(principal: &Principal, _: &str) -> bool {
        principal.id != 1
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleeping_session_ends_with_its_time_its_key_and_for_others() {
        let sessions = sessions();
        let id = open(&sessions);
        assert_eq!(rest(&sessions).await, 1);
        tokio::time::advance(IDLE - SLEEP_TIME - Duration::from_secs(1)).await;
        assert_eq!(sessions.expire_idle(), 0);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(wake(&sessions, &id).is_none(), "its time is over");
        assert_eq!(sessions.expire_idle(), 1);
        let id = open(&sessions);
        assert_eq!(rest(&sessions).await, 1);
        // A login that was not used yet keeps what its principal left.
        let removed = sessions.retain(|_| PrincipalStanding::Unseen, is_not_first);
        assert_eq!(removed, 0);
        let removed = sessions.retain(
            |key| PrincipalStanding::Seen(testing::principal(key[0].into())),
            is_not_first,
        );
        assert_eq!(removed, 1);
        assert!(wake(&sessions, &id).is_none());
        // The longest idle of the sleeping sessions makes room.
        let first = open(&sessions);
        tokio::time::advance(Duration::from_secs(5)).await;
        for _ in 0..9 {
            open(&sessions);
        }
        assert_eq!(rest(&sessions).await, 10);
        open(&sessions);
        assert!(wake(&sessions, &first).is_none());
        assert_eq!(sessions.metrics.clients.sessions.get(), 10);
    }

    fn open_for(sessions: &Sessions, principal: u32) -> Arc<Session> {
        let caller = (*testing::caller(principal, None)).clone();
        sessions
            .open(caller, ByteString::literal("files"), None)
            .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn sleeping_sessions_count_when_the_largest_principal_is_evicted() {
        let sessions = sessions();
        let first = open(&sessions);
        tokio::time::advance(Duration::from_secs(5)).await;
        for _ in 0..8 {
            open(&sessions);
        }
        assert_eq!(rest(&sessions).await, 9);
        // The other principal's only session is awake and idle, and the table is full.
        let only = open_for(&sessions, 2).identity.id.clone();
        drop(open_for(&sessions, 3));
        assert!(
            sessions
                .find(
                    &only,
                    &testing::caller(2, None).principal,
                    &ByteString::literal("files")
                )
                .is_some()
        );
        assert!(
            wake(&sessions, &first).is_none(),
            "the longest unused of the one that has the most"
        );
        assert_eq!(sessions.table.lock().len(), 2);
    }
}
