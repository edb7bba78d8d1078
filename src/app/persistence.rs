//! Restore of persisted state after a restart. Owns the order in which parts take over what the
//! previous process left.
//!
//! Does not write state. Invariant: no client learns that its session is unknown before the
//! persisted state is known. The start waits for a store only for a bounded time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use moongate_broker::{Broker, LostSecret};
use moongate_gateway::Gateway;
use moongate_listener::SharedListenerState;
use moongate_model::PrincipalStanding;
use moongate_session::store::{StateStore, StorePhase, StoreTable, StoredState};
use moongate_session::{Sessions, StateSealer};
use moongate_upstream::UpstreamRuntime;

/// Time that the start waits for the store. A store that opens later is restored then.
const OPEN_TIMEOUT: Duration = Duration::from_millis(250);
/// Time that the start waits for a store without which the gateway must not run.
const REQUIRED_OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Name of the stored key that seals clients' state.
const SEAL: &[u8] = b"seal";

/// Parts of the gateway that outlive a restart.
pub(super) struct PersistentState {
    store: StateStore,
    sessions: Arc<Sessions>,
    seal: Arc<StateSealer>,
    gateway: Arc<Gateway>,
    shared: Arc<UpstreamRuntime>,
    /// State with the methods that know principals, also those that have not come yet.
    listener_state: SharedListenerState,
    /// Maximum age of a server's cached lists that were not confirmed.
    catalog_age: Duration,
    /// Broker with people's logins, if the config has one.
    broker: Option<Arc<Broker>>,
}

impl PersistentState {
    /// Collects the parts from a gateway that is about to serve.
    pub(super) fn from_parts(
        listener_state: &SharedListenerState,
        gateway: &Arc<Gateway>,
        shared: &Arc<UpstreamRuntime>,
        catalog_age: Duration,
    ) -> Self {
        let downstream = listener_state.load().downstream.clone();
        PersistentState {
            store: shared.store.clone(),
            sessions: downstream.sessions.clone(),
            seal: downstream.seal.clone(),
            gateway: gateway.clone(),
            shared: shared.clone(),
            listener_state: listener_state.clone(),
            catalog_age,
            broker: None,
        }
    }

    /// Adds the logins of people.
    pub(super) fn with_broker(self, broker: Option<Arc<Broker>>) -> Self {
        PersistentState { broker, ..self }
    }

    /// Restores the state, in the background if the store is not open in time.
    ///
    /// Fails if the store is required and cannot be used, or if it has logins whose secret is gone.
    pub(super) async fn begin(self, required: bool) -> anyhow::Result<()> {
        let mut phase = self.store.phase();
        let time = if required {
            REQUIRED_OPEN_TIMEOUT
        } else {
            OPEN_TIMEOUT
        };
        // After the time the start goes on, with what the phase says by then.
        let _ = timeout(time, phase.wait_for(|phase| *phase != StorePhase::Opening)).await;
        let now = phase.borrow().clone();
        match now {
            StorePhase::Disabled(Some(why)) if required => {
                anyhow::bail!("the state cannot be kept: {why} (gateway.state, gateway.state_dir)")
            }
            StorePhase::Opening | StorePhase::Locked => {
                tokio::spawn(self.restore_when_open(now == StorePhase::Locked));
            }
            settled => {
                PersistentState::log_phase(&settled);
                let mut contents = self.store.take_contents();
                // Before all else: a start that fails here leaves the rest as it is.
                self.restore_logins(contents.as_mut())?;
                self.restore(contents);
            }
        }
        Ok(())
    }

    async fn restore_when_open(self, locked: bool) {
        if locked {
            tracing::warn!(
                "state file is open in another process; this one takes over when that one ends \
                 (gateway.state_dir)"
            );
        }
        let mut phase = self.store.phase();
        let settled = phase
            .wait_for(|phase| !matches!(phase, StorePhase::Opening | StorePhase::Locked))
            .await;
        let Ok(settled) = settled.map(|phase| phase.clone()) else {
            return;
        };
        PersistentState::log_phase(&settled);
        let mut contents = self.store.take_contents();
        if let Err(error) = self.restore_logins(contents.as_mut()) {
            // Too late to refuse the start. Nobody can log in, and nobody who did gets in.
            tracing::error!("people's logins not restored: {error}");
        }
        self.restore(contents);
    }

    fn log_phase(phase: &StorePhase) {
        if let StorePhase::Disabled(Some(why)) = phase {
            tracing::warn!(
                "state not kept: a restart forgets lists and sessions: {why} (gateway.state)"
            );
        }
    }

    /// Restores the logins of people, without contents too: they are in memory then.
    fn restore_logins(&self, contents: Option<&mut StoredState>) -> Result<(), LostSecret> {
        match &self.broker {
            Some(broker) => broker.restore(contents),
            None => Ok(()),
        }
    }

    /// Restores all but the logins, which come first: sessions are kept for those who have one.
    fn restore(&self, contents: Option<StoredState>) {
        if let Some(contents) = contents {
            self.restore_contents(contents);
        }
        // Without a store, too: requests with an unknown session wait for this.
        self.sessions.mark_restored();
    }

    fn restore_contents(&self, mut contents: StoredState) {
        let secrets = contents.take(StoreTable::Secrets);
        let key = secrets
            .iter()
            .find(|(name, _)| &name[..] == SEAL)
            .and_then(|(_, key)| key[..].try_into().ok());
        let key = key.unwrap_or_else(|| {
            // A new store: clients that hold states of an earlier process get an error for them.
            let key: [u8; 32] = moongate_random::random_bytes();
            self.store
                .put(StoreTable::Secrets, SEAL, Bytes::copy_from_slice(&key));
            key
        });
        self.seal.restore(&key, &[]);
        self.gateway
            .restore_slow_starts(contents.take(StoreTable::SlowStarts), &self.store);
        self.gateway.restore(
            contents.take(StoreTable::Catalog),
            self.catalog_age,
            &self.store,
        );
        // Sessions first: the next rows are kept only for sessions that exist.
        let auth = self.listener_state.load().auth.clone();
        self.sessions
            .load_persisted(&mut contents, |owner, login_end| {
                if let Some(login_end) = login_end.and_then(timestamp_of_second) {
                    auth.principals().await_person(owner, login_end);
                }
                // The method decides: one with a list of its logins knows who is revoked.
                !matches!(auth.standing(owner), PrincipalStanding::Unknown)
            });
        let (used, orphaned): (Vec<_>, Vec<_>) = contents
            .take(StoreTable::UpstreamSessions)
            .into_iter()
            .partition(|(key, _)| {
                moongate_upstream::client_session_digest(key)
                    .is_some_and(|owner| self.sessions.is_persisted(&owner))
            });
        self.shared.restore(used);
        // Rows of sessions that are no longer persisted would stay for ever.
        for (key, _) in orphaned {
            self.store.remove(StoreTable::UpstreamSessions, key);
        }
    }
}

fn timestamp_of_second(second: u64) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_second(i64::try_from(second).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::{HeaderMap, Request, StatusCode};
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::app::GatewayCore;
    use moongate_config::LoadOptions;
    use moongate_protocol::SUPPORTED;
    use moongate_telemetry::Metrics;
    use moongate_transport::reaper::Reaper;

    /// Gateway without servers, and its one client.
    struct GatewayFixture {
        core: GatewayCore,
        session: String,
    }

    impl GatewayFixture {
        async fn open() -> Self {
            let options = LoadOptions {
                revisions: &SUPPORTED,
                ..LoadOptions::default()
            };
            let plan = moongate_config::load(&options).unwrap().plan;
            let core = GatewayCore::new(
                &plan,
                Arc::new(UpstreamRuntime::new(
                    Arc::new(Metrics::new()),
                    Reaper::disabled(),
                )),
            );
            let mut fixture = GatewayFixture {
                core,
                session: String::new(),
            };
            let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
            let (status, headers, _) = fixture.send("POST", &[], hello).await;
            assert_eq!(status, StatusCode::OK);
            fixture.session = headers["mcp-session-id"].to_str().unwrap().to_owned();
            fixture
        }

        async fn send(
            &self,
            verb: &str,
            headers: &[(&str, &str)],
            body: &'static str,
        ) -> (StatusCode, HeaderMap, Body) {
            let accept = "application/json, text/event-stream";
            let mut request = Request::builder()
                .method(verb)
                .uri("/mcp")
                .header("accept", accept);
            request = request.header("content-type", "application/json");
            if !self.session.is_empty() {
                request = request.header("mcp-session-id", &self.session);
            }
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let routes = moongate_listener::router(self.core.shared_state.clone(), true);
            let answer = routes
                .oneshot(request.body(Body::from(body)).unwrap())
                .await
                .unwrap();
            let (head, body) = answer.into_parts();
            (head.status, head.headers, body)
        }

        async fn ping(&self) -> StatusCode {
            self.send("POST", &[], r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#)
                .await
                .0
        }

        /// Lets a minute pass without use. Returns the number of persisted sessions that are not in
        /// memory then.
        async fn rest(&self) -> i64 {
            tokio::time::advance(Duration::from_secs(61)).await;
            let listener_state = self.core.shared_state.load_full();
            listener_state.downstream.sessions.expire_idle();
            listener_state.downstream.sessions.sleep_unused(&|_| false);
            listener_state
                .downstream
                .metrics
                .clients
                .sessions_asleep
                .get()
        }
    }

    async fn event(body: &mut Body) -> String {
        let frame = body.frame().await.unwrap().unwrap();
        String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
    }

    /// Reads until the client was asked to relist everything.
    async fn all_lists(stream: &mut Body) -> String {
        let mut received = String::new();
        while received.matches("list_changed").count() < 3 {
            received += &event(stream).await;
        }
        received
    }

    #[tokio::test(start_paused = true)]
    async fn no_client_sees_that_its_session_slept() {
        let fixture = GatewayFixture::open().await;
        let (status, _, mut stream) = fixture.send("GET", &[], "").await;
        assert_eq!(status, StatusCode::OK);
        let first = event(&mut stream).await;
        let id = first
            .lines()
            .find_map(|line| line.strip_prefix("id: "))
            .unwrap()
            .to_owned();
        assert_eq!(fixture.rest().await, 0, "a stream is open");
        // The client leaves without a DELETE, as real clients do.
        drop(stream);
        assert_eq!(fixture.rest().await, 1);
        assert_eq!(fixture.ping().await, StatusCode::OK, "it wakes");
        assert_eq!(fixture.rest().await, 1, "it wakes, and sleeps again");
        // The client resumes its stream, and relists what it may have missed.
        let (status, _, mut stream) = fixture.send("GET", &[("last-event-id", &id)], "").await;
        assert_eq!(status, StatusCode::OK);
        let received = all_lists(&mut stream).await;
        drop(stream);
        // The next stream continues behind those events.
        let last = received
            .lines()
            .filter_map(|line| line.strip_prefix("id: "))
            .next_back()
            .unwrap()
            .to_owned();
        for _ in 0..2 {
            assert_eq!(
                fixture.rest().await,
                1,
                "what was read is forgotten in time"
            );
        }
        let (status, _, mut stream) = fixture.send("GET", &[("last-event-id", &last)], "").await;
        assert_eq!(status, StatusCode::OK);
        assert!(
            !all_lists(&mut stream)
                .await
                .contains(&format!("id: {last}\ndata")),
            "no number is used twice"
        );
        drop(stream);
        assert_eq!(fixture.rest().await, 1);
        let (status, _, _) = fixture.send("DELETE", &[], "").await;
        assert_eq!(status, StatusCode::NO_CONTENT);
        assert_eq!(fixture.ping().await, StatusCode::NOT_FOUND);
    }
}
