//! A server of either era, which does what chance says, over whatever carries its messages.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::sim::http::EventLog;
use crate::sim::plans::{ServerPlan, SimCarrier};
use crate::sim::rng::Rng;
use crate::sim::world::SimWorld;

/// Which revision a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerEra {
    Legacy,
    Modern,
}

/// What is between a server and one client of it, whatever carries it.
#[derive(Default)]
pub(crate) struct ClientTalk {
    /// Questions that wait for their answers.
    asked: Mutex<HashMap<String, oneshot::Sender<Value>>>,
    cancelled: Mutex<HashSet<String>>,
    /// Ids of requests.
    seen: Mutex<HashSet<String>>,
    /// Who is told of changes, and as which subscription.
    listeners: Mutex<Vec<(OutputSink, Value)>>,
}

/// Where what a server says goes.
#[derive(Clone)]
pub(crate) enum OutputSink {
    Pipe(mpsc::Sender<Vec<u8>>),
    Events(Arc<EventLog>),
}

/// A server's part in one pipe, or in one request over HTTP.
pub(crate) struct SimServer {
    pub(crate) world: Arc<SimWorld>,
    pub(crate) kind: ServerPlan,
    pub(crate) out: OutputSink,
    /// Ends what it is doing, and what carries it.
    pub(crate) broken: CancellationToken,
    pub(crate) talk: Arc<ClientTalk>,
}

impl ClientTalk {
    /// Whether a request has an id of its own here.
    pub(crate) fn is_new(&self, id: &Value) -> bool {
        self.seen.lock().unwrap().insert(id.to_string())
    }

    /// Takes anything but a request: an answer, or a notification.
    pub(crate) fn hear(&self, message: Value) {
        if message["method"] == "notifications/cancelled" {
            self.cancelled
                .lock()
                .unwrap()
                .insert(message["params"]["requestId"].to_string());
        } else if message["method"].is_null() {
            let question = message["id"].as_str().unwrap_or_default();
            if let Some(waits) = self.asked.lock().unwrap().remove(question) {
                // Who asked may have been cancelled.
                let _ = waits.send(message);
            }
        }
    }

    pub(crate) fn listens(&self, out: &OutputSink, subscription: &Value) {
        self.listeners
            .lock()
            .unwrap()
            .push((out.clone(), subscription.clone()));
    }
}

impl SimServer {
    /// Takes a line of a pipe.
    pub(crate) fn receive(self: &Arc<Self>, line: &[u8], rng: &mut Rng) {
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            return self.world.fail(format!(
                "{} got what is no JSON: {}",
                self.kind.name,
                String::from_utf8_lossy(line)
            ));
        };
        let id = message["id"].clone();
        if message["method"].is_null() || id.is_null() {
            return self.talk.hear(message);
        }
        if !self.talk.is_new(&id) {
            self.world.fail(format!(
                "P1: {} got the id {id} twice on a connection",
                self.kind.name
            ));
        }
        let server = self.clone();
        let rng = rng.fork();
        self.world
            .spawn("a request to a server over a pipe", async move {
                let _ = server
                    .broken
                    .run_until_cancelled(server.request(&message, rng))
                    .await;
            });
    }

    /// Does what a request wants.
    pub(crate) async fn request(&self, message: &Value, mut rng: Rng) {
        let id = &message["id"];
        let params = &message["params"];
        let method = message["method"].as_str().unwrap_or_default();
        let modern = self.kind.era == ServerEra::Modern;
        let capabilities = json!({"tools": {"listChanged": true}});
        let result = match method {
            "server/discover" if modern => {
                json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities})
            }
            "initialize" if !modern => {
                json!({"protocolVersion": self.revision(), "capabilities": capabilities,
                "serverInfo": {"name": self.kind.name, "version": "1"}})
            }
            "ping" if !modern => json!({}),
            "tools/list" => {
                if !self.world.is_calm() && rng.one_in(12) {
                    return self.error(id, "not now").await;
                }
                let changing = format!("changing_{}", self.world.version(self.kind.name));
                let tools = ["echo", &changing]
                    .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
                json!({ "tools": tools })
            }
            "subscriptions/listen" if modern => {
                let params = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": id},
                    "notifications": params["notifications"]});
                let told = json!({"jsonrpc": "2.0",
                    "method": "notifications/subscriptions/acknowledged", "params": params});
                self.talk.listens(&self.out, id);
                return self.say(&told).await;
            }
            "tools/call" => return self.call(id, params, rng).await,
            _ => {
                return self
                    .answer(
                        id,
                        json!({"code": -32601, "message": "no such method"}),
                        "error",
                    )
                    .await;
            }
        };
        if !self.world.is_calm() {
            tokio::time::sleep(rng.time(Duration::from_secs(3))).await;
        }
        self.result(id, result).await;
    }

    /// A call: its arguments say whose it is, and are its result.
    async fn call(&self, id: &Value, params: &Value, mut rng: Rng) {
        let arguments = params["arguments"].clone();
        let nonce = arguments["nonce"].as_str().unwrap_or_default().to_owned();
        let again = !params["inputResponses"].is_null();
        if !again && !self.world.runs(&nonce) {
            self.world
                .fail(format!("a call reached {} twice: {nonce}", self.kind.name));
        }
        if self.world.is_calm() || again {
            return self.echo(id, &arguments).await;
        }
        let world = &self.world;
        match rng.below(24) {
            0 => return world.count("a call was never answered"),
            1 => {
                world.count("a call was answered late, although it was cancelled");
                tokio::time::sleep(Duration::from_secs(31) + rng.time(Duration::from_secs(20)))
                    .await;
                return self.echo(id, &arguments).await;
            }
            2 => {
                world.count("a call was answered twice");
                self.echo(id, &arguments).await;
            }
            3 => return self.break_down(rng).await,
            4 => return self.error(id, "no").await,
            5 => {
                world.count("a list changed");
                world.change(self.kind.name);
                self.tell_of_change().await;
            }
            6 => {
                world.count("a server said what is no message");
                self.out.write(b"Listening...\n".to_vec()).await;
            }
            7 => {
                let other = json!(id.as_u64().unwrap_or_default() + rng.below(4));
                if other != *id {
                    world.count("a server answered another id");
                    // It begins like an id that may be open, and equals none: what is in it is
                    // nobody's.
                    self.answer(
                        &json!(format!("{other}x")),
                        json!({"content": []}),
                        "result",
                    )
                    .await;
                }
            }
            8..=11 => {
                self.tell_of_progress(params, &nonce, rng.below(20)).await;
            }
            12..=14 if self.kind.carrier != SimCarrier::HttpSse => {
                return self.ask(id, &arguments, &nonce, rng).await;
            }
            _ => {}
        }
        tokio::time::sleep(rng.time(Duration::from_secs(10))).await;
        if rng.one_in(2)
            && self
                .talk
                .cancelled
                .lock()
                .unwrap()
                .contains(&id.to_string())
        {
            return;
        }
        self.echo(id, &arguments).await;
    }

    /// Ends in the middle of what it does, or of a line.
    async fn break_down(&self, mut rng: Rng) {
        self.world.count("a server broke down");
        tokio::time::sleep(rng.time(Duration::from_secs(2))).await;
        if rng.one_in(2) {
            // In the middle of a line.
            self.out.write(br#"{"jsonrpc":"2.0","id":"#.to_vec()).await;
            tokio::task::yield_now().await;
        }
        self.broken.cancel();
    }

    async fn tell_of_progress(&self, params: &Value, nonce: &str, steps: u64) {
        self.world.count("a call told of its progress");
        for n in 0..steps {
            let params = json!({"progressToken": params["_meta"]["progressToken"],
                "progress": n, "message": nonce});
            self.say(
                &json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": params}),
            )
            .await;
        }
    }

    /// Asks the user for something that names the call.
    async fn ask(&self, id: &Value, arguments: &Value, nonce: &str, mut rng: Rng) {
        let params = json!({"mode": "form", "message": nonce,
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}});
        if self.kind.era == ServerEra::Modern {
            self.world.count("a modern server asked");
            let questions = json!({"q": {"method": "elicitation/create", "params": params}});
            let result = json!({"resultType": "input_required", "inputRequests": questions,
                "requestState": nonce});
            return self.answer(id, result, "result").await;
        }
        self.world.count("a legacy server asked");
        let question = format!("question about {nonce}");
        let (answer, answered) = oneshot::channel();
        self.talk
            .asked
            .lock()
            .unwrap()
            .insert(question.clone(), answer);
        self.say(
            &json!({"jsonrpc": "2.0", "id": question, "method": "elicitation/create",
            "params": params}),
        )
        .await;
        let wait = Duration::from_secs(1) + rng.time(Duration::from_secs(200));
        if let Ok(Ok(answer)) = tokio::time::timeout(wait, answered).await
            && let Some(name) = answer["result"]["content"]["name"].as_str()
        {
            self.world.count("a legacy server was answered");
            if name != nonce {
                self.world.fail(format!(
                    "P6: the question of {nonce} was answered for {name}"
                ));
            }
        }
        self.echo(id, arguments).await;
    }

    async fn echo(&self, id: &Value, arguments: &Value) {
        let text = arguments["nonce"].as_str().unwrap_or_default();
        self.result(id, json!({"content": [{"type": "text", "text": text}]}))
            .await;
    }

    async fn result(&self, id: &Value, mut result: Value) {
        if self.kind.era == ServerEra::Modern {
            result["resultType"] = json!("complete");
        }
        self.answer(id, result, "result").await;
    }

    async fn error(&self, id: &Value, message: &str) {
        self.answer(id, json!({"code": -32000, "message": message}), "error")
            .await;
    }

    async fn answer(&self, id: &Value, outcome: Value, member: &str) {
        self.say(&json!({"jsonrpc": "2.0", "id": id, member: outcome}))
            .await;
    }

    async fn say(&self, message: &Value) {
        self.out.write(format!("{message}\n").into_bytes()).await;
    }

    /// Tells whoever listens that a list changed.
    async fn tell_of_change(&self) {
        let told = |params| {
            json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed",
            "params": params})
        };
        if self.kind.era == ServerEra::Legacy && self.kind.carrier != SimCarrier::Http {
            return self.say(&told(json!({}))).await;
        }
        let listeners = self.talk.listeners.lock().unwrap().clone();
        for (out, subscription) in listeners {
            let params = match subscription {
                Value::Null => json!({}),
                id => json!({"_meta": {"io.modelcontextprotocol/subscriptionId": id}}),
            };
            out.write(format!("{}\n", told(params)).into_bytes()).await;
        }
    }

    fn revision(&self) -> &'static str {
        if self.kind.carrier == SimCarrier::HttpSse {
            "2024-11-05"
        } else {
            "2025-11-25"
        }
    }
}

impl OutputSink {
    async fn write(&self, bytes: Vec<u8>) {
        match self {
            // Nobody is left to hear it when the pipe broke.
            OutputSink::Pipe(pipe) => drop(pipe.send(bytes).await),
            OutputSink::Events(events) => events.write(bytes),
        }
    }
}
