//! Health check of one connection. Owns the times of the pings. Does not encode pings (`protocol`).
//! A revision without a ping is not checked. Invariant: only traffic from the server proves it
//! alive. While calls are open, the server gets the full time of one of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::connection::UpstreamConnection;
use crate::server_context::ServerContext;
use crate::supervision_options::PingSettings;
use moongate_protocol::CallTimeouts;
use moongate_telemetry::Metrics;

/// Health check of the connections of one server.
pub(crate) struct HealthCheck {
    name: String,
    ping: PingSettings,
    times: Arc<CallTimeouts>,
    metrics: Arc<Metrics>,
}

impl HealthCheck {
    pub(crate) fn of(server: &ServerContext) -> Self {
        HealthCheck {
            name: server.settings.name.clone(),
            ping: server.settings.options.ping,
            times: server.timeouts.clone(),
            metrics: server.common.metrics.clone(),
        }
    }

    /// Waits until the server has missed `ping.misses` pings in a row. Returns the reason.
    pub(crate) async fn wait_failed(&self, connection: &UpstreamConnection) -> String {
        let ping = self.ping;
        if ping.interval.0.is_zero() {
            return std::future::pending().await;
        }
        let mut missed = 0;
        // Time since when calls were open and nothing arrived, as far as this loop looked.
        let mut waiting = None;
        // Clears the flag: only traffic from here on counts.
        connection.link.take_activity();
        loop {
            // A server that missed a ping is pinged again sooner.
            let silence = tokio::time::sleep(if missed == 0 {
                ping.interval.0
            } else {
                ping.timeout.0
            });
            tokio::select! {
                () = silence => {}
                () = connection.calls.wait_for_silence() => {
                    // A call that waits for its user may be silent for long.
                    if !connection.calls.may_be_silent() && self.is_wedged(connection).await {
                        let limit = ping.timeout.0;
                        let name = &self.name;
                        return format!(
                            "it sent nothing during an entire call, and then left a ping \
                             unanswered for {limit:?} (servers.{name}.ping)"
                        );
                    }
                    (missed, waiting) = (0, None);
                    continue;
                }
            }
            if connection.link.take_activity() {
                (missed, waiting) = (0, None);
                continue;
            }
            if connection.calls.is_idle() {
                waiting = None;
            } else if waiting.get_or_insert_with(Instant::now).elapsed()
                < self.grace_period(connection)
            {
                // A server may work on one request at a time. Silence during a long call isn't a
                // failure.
                continue;
            }
            // A revision without a ping leaves this check without evidence.
            let Some(answer) = connection.server.ping() else {
                return std::future::pending().await;
            };
            // Any traffic is evidence, not only the answer to the ping.
            if timeout(ping.timeout.0, answer).await.unwrap_or(false)
                || connection.link.take_activity()
            {
                (missed, waiting) = (0, None);
                continue;
            }
            missed += 1;
            self.metrics.servers.pings_missed.inc(&self.name);
            if missed >= ping.misses {
                let limit = ping.timeout.0;
                let name = &self.name;
                return format!(
                    "it left {missed} pings unanswered, each for {limit:?} (servers.{name}.ping)"
                );
            }
        }
    }

    /// Checks whether a server that was silent for the time of a whole call misses a ping, too. One
    /// ping is enough: the call was the first unanswered request.
    async fn is_wedged(&self, connection: &UpstreamConnection) -> bool {
        let until = Instant::now() + self.ping.timeout.0;
        connection.link.take_activity();
        let Some(answer) = connection.server.ping() else {
            return false;
        };
        if timeout_at(until, answer).await.unwrap_or(false) {
            return false;
        }
        // A ping that could not be sent must not shorten the wait.
        sleep_until(until).await;
        let is_wedged = !connection.link.take_activity();
        if is_wedged {
            self.metrics.servers.pings_missed.inc(&self.name);
        }
        is_wedged
    }

    /// Returns how long a server may be silent while calls are open: the longest time of one call.
    fn grace_period(&self, connection: &UpstreamConnection) -> Duration {
        let input = if connection.calls.may_be_silent() {
            self.times.input_timeout()
        } else {
            Duration::ZERO
        };
        self.times.call().saturating_add(input)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use futures_util::StreamExt as _;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use crate::testing::{ServerSide, dialing, settings};
    use crate::{NoSink, PingSettings, ServerSettings, Upstream};
    use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
    use moongate_model::{
        Call, Caller, ClientCapabilities, Error, ExchangeEvent, McpMethod, Outcome,
    };
    use moongate_model::{SharingMode, UpstreamState};
    use moongate_testing as testing;
    use moongate_units::DurationSetting;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Settings without a probe, whose silence would lead to a second connection.
    fn legacy_settings() -> ServerSettings {
        ServerSettings {
            protocol: Some("2025-11-25".to_owned()),
            ..settings()
        }
    }

    async fn start(
        settings: ServerSettings,
        serve: impl Fn(&ServerSide, &Value) + Send + Sync + 'static,
    ) -> Arc<Upstream> {
        let upstream = Upstream::new(settings, dialing(serve), Arc::new(NoSink));
        tokio::spawn(upstream.clone().run());
        let mut status = upstream.watch();
        status
            .wait_for(|status| status.state == UpstreamState::Ready)
            .await
            .unwrap();
        upstream
    }

    async fn call(upstream: &Arc<Upstream>, caller: &Arc<Caller>) -> Result<Outcome, Error> {
        let params = JsonObject::new().with("name", RawJson::string("t"));
        upstream
            .call(caller, Call::new(McpMethod::CallTool, params))
            .outcome()
            .await
    }

    /// Returns how many calls in a row get no answer. Each is made a moment after the last one
    /// ended.
    async fn unanswered(upstream: &Arc<Upstream>, caller: &Arc<Caller>) -> u32 {
        for calls in 0..20 {
            if call(upstream, caller).await.is_ok() {
                // The number of calls that failed before the connection was replaced.
                return calls;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it never connected again");
    }

    /// Server whose first connection goes silent once it is open and listed.
    fn wedged() -> impl Fn(&ServerSide, &Value) + Send + Sync + 'static {
        let listed = AtomicBool::new(false);
        move |talk, message| {
            let is_silent = talk.nth == 0 && listed.load(Ordering::Relaxed);
            listed.fetch_or(message["method"] == "tools/list", Ordering::Relaxed);
            if !is_silent && !talk.serve_legacy(message) && talk.nth > 0 {
                talk.answer(message, &json!({"content": []}));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_nobody_answers_are_no_sign_of_life() {
        let upstream = start(legacy_settings(), wedged()).await;
        let calls = unanswered(&upstream, &testing::caller(1, Some("s"))).await;
        assert!((1..10).contains(&calls), "{calls}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pipe_that_is_wedged_is_found_by_one_ping_after_a_missed_deadline() {
        let upstream = start(legacy_settings(), wedged()).await;
        let caller = testing::caller(1, Some("s"));
        let began = Instant::now();
        let limit = upstream.settings.live.timeout.0 + upstream.settings.options.ping.timeout.0;
        // Other calls stay open all the time. They make the server no less wedged.
        let others = tokio::spawn({
            let upstream = upstream.clone();
            let caller = caller.clone();
            async move {
                for _ in 0..40 {
                    let open = upstream.call(
                        &caller,
                        Call::new(
                            McpMethod::CallTool,
                            JsonObject::new().with("name", RawJson::string("t")),
                        ),
                    );
                    let _ = tokio::time::timeout(Duration::from_secs(10), open.outcome()).await;
                }
            }
        });
        assert!(call(&upstream, &caller).await.is_err());
        // The gateway must find it by then, although other calls keep opening.
        tokio::time::sleep_until(began + limit + Duration::from_secs(1)).await;
        let restarts = upstream.server.metrics().servers.restarts.series("a");
        assert_eq!(restarts.get(), 1, "it is not found within {limit:?}");
        others.abort();
        tokio::time::sleep(MINUTE).await;
        assert!(
            call(&upstream, &caller).await.is_ok(),
            "it is connected again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_one_thing_after_the_other_keeps_its_connection() {
        // Each call takes half of its time. Nothing is checked meanwhile, pings included.
        let slow = Arc::new(tokio::sync::Mutex::new(()));
        let half = settings().live.timeout.0 / 2;
        let upstream = start(settings(), move |talk, message| {
            let talk = talk.clone();
            let message = message.clone();
            let slow = slow.clone();
            if message["method"] != "tools/call" && message["method"] != "ping" {
                talk.serve_legacy(&message);
                return;
            }
            tokio::spawn(async move {
                let _busy = slow.lock().await;
                if message["method"] == "ping" {
                    return talk.answer(&message, &json!({}));
                }
                tokio::time::sleep(half).await;
                talk.answer(&message, &json!({"content": []}));
            });
        })
        .await;
        let caller = testing::caller(1, Some("s"));
        let each = futures_util::future::join_all((0..4).map(|_| call(&upstream, &caller))).await;
        assert!(
            each.iter().any(Result::is_ok) && each.iter().any(Result::is_err),
            "some have no time"
        );
        // Long enough for every ping that could go wrong.
        tokio::time::sleep(MINUTE * 10).await;
        assert_eq!(upstream.server.metrics().servers.restarts.get("a"), 0);
        assert!(call(&upstream, &caller).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_of_one_clients_is_looked_after_too() {
        let mut mine = legacy_settings();
        mine.options.share = SharingMode::Session;
        // The first connection is the shared one, which is well.
        let upstream = start(mine, |talk, message| {
            if !talk.serve_legacy(message) && talk.nth != 1 {
                talk.answer(message, &json!({"content": []}));
            }
        })
        .await;
        let calls = unanswered(&upstream, &testing::caller(1, Some("s"))).await;
        assert!((1..10).contains(&calls), "{calls}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stateless_pipe_is_asked_what_every_server_has_to_answer() {
        let upstream = start(settings(), |talk, message| {
            match message["method"].as_str().unwrap() {
                // The first connection answers its handshake and then goes silent, even to the ping.
                "server/discover" if talk.nth > 0 || message["id"] == 1 => talk.answer(
                    message,
                    &json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": {}}),
                ),
                "tools/call" if talk.nth > 0 => {
                    talk.answer(message, &json!({"resultType": "complete", "content": []}))
                }
                _ => {}
            }
        })
        .await;
        // An idle connection: the loss is found without any call.
        let idle = testing::caller(1, None);
        tokio::time::sleep(MINUTE * 5).await;
        assert!(call(&upstream, &idle).await.is_ok());
        tokio::time::sleep(MINUTE * 60).await;
        assert_eq!(
            upstream.server.metrics().servers.restarts.get("a"),
            1,
            "the second is well"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_has_its_time_whether_pings_are_answered_or_not() {
        // The call is almost as long as its limit allows.
        for (timeout, pings) in [(MINUTE * 30, false), (MINUTE * 300, true)] {
            let mut slow = settings();
            slow.live.timeout.0 = timeout;
            let upstream = start(slow, move |talk, message| {
                match message["method"].as_str().unwrap() {
                    "ping" if pings => talk.answer(message, &json!({})),
                    "tools/call" => {
                        let talk = talk.clone();
                        let message = message.clone();
                        tokio::spawn(async move {
                            tokio::time::sleep(timeout - MINUTE).await;
                            talk.answer(&message, &json!({"content": []}));
                        });
                    }
                    _ => drop(talk.serve_legacy(message)),
                }
            })
            .await;
            assert!(
                call(&upstream, &testing::caller(1, Some("s")))
                    .await
                    .is_ok()
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_waits_for_a_users_answer_and_for_nothing_else_is_not_given_up() {
        let upstream = start(settings(), |talk, message| {
            match message["method"].as_str() {
            Some("tools/call") => talk.send(json!({
                "jsonrpc": "2.0", "id": "q", "method": "elicitation/create",
                "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
            })),
            // The user's response. The call has its own id.
            None if message["id"] == "q" => {
                for id in 1..20 {
                    talk.answer(&json!({"id": id}), &json!({"content": []}));
                }
            }
            _ => drop(talk.serve_legacy(message)),
        }
        })
        .await;
        let can = ClientCapabilities {
            elicit_form: true,
            ..ClientCapabilities::default()
        };
        let caller = Arc::new(Caller {
            capabilities: can,
            ..(*testing::caller(1, Some("s"))).clone()
        });
        let params = JsonObject::new().with("name", RawJson::string("t"));
        let mut exchange = upstream.call(&caller, Call::new(McpMethod::CallTool, params));
        let Some(ExchangeEvent::InputRequired(ask)) = exchange.next().await else {
            panic!("it does not ask")
        };
        // Longer than a call, shorter than the limit for a user's response.
        tokio::time::sleep(MINUTE * 9).await;
        let answer = JsonObject::new().with("action", RawJson::string("decline"));
        ask.responder
            .send(vec![(ByteString::literal("request"), Ok(answer))])
            .unwrap();
        assert!(exchange.outcome().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_zero_ping_interval_disables_health_checks() {
        // An interval of zero switches pings off.
        let ping = PingSettings {
            interval: DurationSetting(Duration::ZERO),
            ..PingSettings::default()
        };
        let mut settings = legacy_settings();
        settings.options.ping = ping;
        let upstream = start(settings, wedged()).await;
        let caller = testing::caller(1, Some("s"));
        for _ in 0..9 {
            assert!(call(&upstream, &caller).await.is_err());
            tokio::time::sleep(MINUTE).await;
        }
        assert_eq!(upstream.server.metrics().servers.restarts.get("a"), 0);
    }
}
