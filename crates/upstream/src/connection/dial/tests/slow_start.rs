//! Servers that answer nothing until they have started.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{OddServer, refuse, refuse_revision};
use crate::testing::ServerSide;
use moongate_model::UpstreamState;

/// Answers each message of a connection once the server has started, which takes this time.
fn serve_late(
    start: Duration,
    serve: impl Fn(&ServerSide, &Value) + Send + Sync + 'static,
) -> impl Fn(&ServerSide, &Value) {
    let serve = Arc::new(serve);
    let begun: Mutex<Vec<Instant>> = Mutex::default();
    move |talk: &ServerSide, message: &Value| {
        let ready = {
            let mut begun = begun.lock();
            if begun.len() == talk.nth {
                begun.push(Instant::now());
            }
            begun[talk.nth] + start
        };
        let serve = serve.clone();
        let talk = talk.clone();
        let message = message.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(ready).await;
            serve(&talk, &message);
        });
    }
}

/// Serves as a server that knows nothing but the stateless revision.
fn serve_modern(refusal: i64) -> impl Fn(&ServerSide, &Value) + Send + Sync {
    move |talk, message| {
        let mut result = match message["method"].as_str().unwrap() {
            "server/discover" => {
                json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
            }
            "tools/list" => json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}),
            "initialize" if refusal == -32022 => {
                return refuse(
                    talk,
                    message,
                    refusal,
                    "no",
                    &json!({"supported": ["2026-07-28"]}),
                );
            }
            "initialize" => return refuse(talk, message, refusal, "no such method", &Value::Null),
            _ => return,
        };
        result["resultType"] = json!("complete");
        talk.answer(message, &result);
    }
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_that_starts_slowly_is_found() {
    for refusal in [-32022, -32601] {
        let odd = OddServer::ready(serve_late(Duration::from_secs(8), serve_modern(refusal))).await;
        assert_eq!(odd.upstream.revision(), Some("2026-07-28"), "{refusal}");
        assert_eq!(odd.count("initialize"), 1, "{refusal}");
        assert!(odd.took < Duration::from_secs(20), "{:?}", odd.took);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_starts_slowly_and_says_late_that_it_is_modern_gets_no_further_handshake() {
    let late = serve_late(Duration::from_secs(8), refuse_revision);
    let odd = OddServer::start(UpstreamState::BackingOff, |_| {}, late).await;
    assert_eq!(odd.count("initialize"), 1, "{:?}", odd.methods());
}
