//! Who calls the gateway of a row: the clients that meet the fault, and those that meanwhile use
//! the healthy server.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::{FaultyServer, KEY};
use crate::harness::{ERAS, HttpReply, McpClient, until, within};

/// A client of a rig's gateway.
pub(crate) struct RigClient {
    /// It.
    pub(crate) client: McpClient,
    pub(super) said: Arc<Mutex<Vec<u8>>>,
}

impl RigClient {
    /// A call of a faulty server's tool.
    pub(crate) async fn call(&self, bad: &FaultyServer, tool: &str, arguments: Value) -> HttpReply {
        self.request(
            "tools/call",
            json!({"name": format!("{}__{tool}", bad.name), "arguments": arguments}),
        )
        .await
    }

    /// A request, to its one outcome.
    pub(crate) async fn request(&self, method: &str, params: Value) -> HttpReply {
        let id = self.client.next_id.fetch_add(1, Ordering::Relaxed);
        let reply = self.client.request_as(id, method, params).await;
        self.said.lock().unwrap().extend_from_slice(&reply.body);
        assert_one_outcome(&reply, &json!(id));
        reply
    }

    /// Ends its session, if it has one.
    pub(crate) async fn leave(self) {
        if self.client.session.is_some() {
            let status = self.client.raw("DELETE", &[], "").await.status();
            assert!(status.is_success() || status == 404, "{status}");
        }
    }
}

/// U3.
pub(crate) fn assert_one_outcome(reply: &HttpReply, id: &Value) {
    let messages = reply.messages();
    let outcomes: Vec<_> = messages
        .iter()
        .filter(|message| message.get("method").is_none())
        .collect();
    assert_eq!(outcomes.len(), 1, "U3: {messages:?}");
    assert_eq!(outcomes[0]["id"], *id, "U3: {messages:?}");
    assert_ne!(
        outcomes[0].get("result").is_some(),
        outcomes[0].get("error").is_some(),
        "U3: {messages:?}"
    );
}

/// Calls of the healthy server for as long as the fault lasts, by clients of both eras.
#[derive(Default)]
pub(super) struct HealthyTraffic {
    stop: Arc<AtomicBool>,
    calls: Vec<tokio::task::JoinHandle<()>>,
    done: Vec<Arc<AtomicU64>>,
}

impl HealthyTraffic {
    pub(super) fn start(url: &str) -> Self {
        let mut healthy = HealthyTraffic::default();
        for era in ERAS {
            let url = url.to_owned();
            let stop = healthy.stop.clone();
            let done = Arc::new(AtomicU64::new(0));
            healthy.done.push(done.clone());
            healthy.calls.push(tokio::spawn(async move {
                let client = McpClient::with_key(&url, era, Some(KEY)).await;
                while !stop.load(Ordering::Relaxed) {
                    let n = done.load(Ordering::Relaxed);
                    let text = client.call("ok__echo", json!({"n": n})).await.text();
                    assert_eq!(text, format!("{{\"n\":{n}}}"), "U2");
                    done.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                RigClient {
                    client,
                    said: Arc::default(),
                }
                .leave()
                .await;
            }));
        }
        healthy
    }

    /// Ends it; gives how many calls there were, in the era that had the fewest.
    pub(super) async fn stop(&mut self) -> u64 {
        let begun = || {
            self.done
                .iter()
                .all(|done| done.load(Ordering::Relaxed) > 0)
                .then_some(())
        };
        until("U2: both clients of the healthy server were served", || {
            std::future::ready(begun())
        })
        .await;
        self.stop.store(true, Ordering::Relaxed);
        for calls in self.calls.drain(..) {
            within("U2: the last healthy call", calls)
                .await
                .expect("U2: a healthy call failed");
        }
        self.done
            .iter()
            .map(|done| done.load(Ordering::Relaxed))
            .min()
            .unwrap_or_default()
    }
}
