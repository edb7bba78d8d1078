//! A server of either era over a pipe in memory, which does what chance says.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::dice::Dice;
use crate::world::World;

/// Which revision a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

struct Connection {
    world: Arc<World>,
    name: String,
    era: Era,
    out: mpsc::Sender<Vec<u8>>,
    broken: CancellationToken,
    /// Questions that wait for their answers.
    asked: Mutex<HashMap<String, oneshot::Sender<Value>>>,
    cancelled: Mutex<HashSet<String>>,
}

/// Serves one pipe until it breaks.
pub(crate) async fn serve(world: Arc<World>, name: String, era: Era, stream: DuplexStream, mut dice: Dice) {
    let (reader, mut writer) = tokio::io::split(stream);
    let (out, mut lines) = mpsc::channel::<Vec<u8>>(64);
    let broken = CancellationToken::new();
    let connection = Arc::new(Connection {
        world,
        name,
        era,
        out,
        broken: broken.clone(),
        asked: Mutex::default(),
        cancelled: Mutex::default(),
    });
    let writing = async {
        while let Some(line) = lines.recv().await {
            if writer.write_all(&line).await.is_err() {
                break;
            }
        }
    };
    let reading = async {
        let mut reader = BufReader::new(reader).lines();
        let mut seen = HashSet::new();
        while let Ok(Some(line)) = reader.next_line().await {
            connection.receive(&line, &mut seen, &mut dice);
            if !connection.world.is_calm() && dice.one_in(60) {
                connection.world.count("a server stopped reading");
                tokio::time::sleep(dice.time(Duration::from_secs(50))).await;
            }
        }
    };
    tokio::select! {
        () = writing => {}
        () = reading => {}
        () = broken.cancelled() => {}
    }
    broken.cancel();
}

impl Connection {
    fn receive(self: &Arc<Self>, line: &str, seen: &mut HashSet<String>, dice: &mut Dice) {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            return self.world.fail(format!("{} got what is no JSON: {line}", self.name));
        };
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let id = message["id"].clone();
        match (method.as_str(), id.is_null()) {
            ("", _) => {
                let question = id.as_str().unwrap_or_default().to_owned();
                if let Some(waits) = self.asked.lock().unwrap().remove(&question) {
                    // Who asked may have been cancelled.
                    let _ = waits.send(message);
                }
            }
            ("notifications/cancelled", _) => {
                self.cancelled.lock().unwrap().insert(message["params"]["requestId"].to_string());
            }
            (_, true) => {}
            _ => {
                if !seen.insert(id.to_string()) {
                    self.world.fail(format!("P1: {} got the id {id} twice on a connection", self.name));
                }
                let (connection, dice) = (self.clone(), dice.fork());
                tokio::spawn(async move {
                    let broken = connection.broken.clone();
                    let answering = connection.request(&method, id, &message["params"], dice);
                    let _ = broken.run_until_cancelled(answering).await;
                });
            }
        }
    }

    async fn request(&self, method: &str, id: Value, params: &Value, mut dice: Dice) {
        let modern = self.era == Era::Modern;
        let capabilities = json!({"tools": {"listChanged": true}});
        let result = match method {
            "server/discover" if modern => json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities}),
            "initialize" if !modern => json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
                "serverInfo": {"name": self.name, "version": "1"}}),
            "ping" if !modern => json!({}),
            "tools/list" => {
                if !self.world.is_calm() && dice.one_in(12) {
                    return self.error(&id, "not now").await;
                }
                let changing = format!("changing_{}", self.world.version(&self.name));
                let tools = ["echo", &changing].map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
                json!({ "tools": tools })
            }
            "subscriptions/listen" if modern => {
                let params = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": id},
                    "notifications": params["notifications"]});
                let told =
                    json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params});
                return self.say(&told).await;
            }
            "tools/call" => return self.call(&id, params, dice).await,
            _ => return self.answer(&id, json!({"code": -32601, "message": "no such method"}), "error").await,
        };
        if !self.world.is_calm() {
            tokio::time::sleep(dice.time(Duration::from_secs(3))).await;
        }
        self.result(&id, result).await;
    }

    /// A call: its arguments say whose it is, and are its result.
    async fn call(&self, id: &Value, params: &Value, mut dice: Dice) {
        let arguments = params["arguments"].clone();
        let nonce = arguments["nonce"].as_str().unwrap_or_default().to_owned();
        let again = !params["inputResponses"].is_null();
        if !again && !self.world.runs(&nonce) {
            self.world.fail(format!("a call reached {} twice: {nonce}", self.name));
        }
        if self.world.is_calm() || again {
            return self.echo(id, &arguments).await;
        }
        let world = &self.world;
        match dice.below(24) {
            0 => return world.count("a call was never answered"),
            1 => {
                world.count("a call was answered late, although it was cancelled");
                tokio::time::sleep(Duration::from_secs(31) + dice.time(Duration::from_secs(20))).await;
                return self.echo(id, &arguments).await;
            }
            2 => {
                world.count("a call was answered twice");
                self.echo(id, &arguments).await;
            }
            3 => {
                world.count("a server broke down");
                tokio::time::sleep(dice.time(Duration::from_secs(2))).await;
                if dice.one_in(2) {
                    // In the middle of a line.
                    let _ = self.out.send(br#"{"jsonrpc":"2.0","id":"#.to_vec()).await;
                    tokio::task::yield_now().await;
                }
                return self.broken.cancel();
            }
            4 => return self.error(id, "no").await,
            5 => {
                world.count("a list changed");
                world.change(&self.name);
                let mut told = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                if self.era == Era::Modern {
                    // Its subscription is the fifth request of a connection, mostly; whose it is not is ignored.
                    told["params"] = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": dice.below(8)}});
                }
                self.say(&told).await;
            }
            6 => {
                world.count("a server said what is no message");
                let _ = self.out.send(b"Listening...\n".to_vec()).await;
            }
            7 => {
                let other = json!(id.as_u64().unwrap_or_default() + dice.below(4));
                if other != *id {
                    world.count("a server answered another id");
                    // Under an id that may be open: what is in it is nobody's, so that it must be told apart.
                    self.answer(&json!(other.to_string()), json!({"content": []}), "result").await;
                }
            }
            8..=11 => {
                world.count("a call told of its progress");
                for n in 0..dice.below(20) {
                    let params =
                        json!({"progressToken": params["_meta"]["progressToken"], "progress": n, "message": nonce});
                    self.say(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})).await;
                }
            }
            12..=14 => return self.ask(id, &arguments, &nonce, dice).await,
            _ => {}
        }
        tokio::time::sleep(dice.time(Duration::from_secs(10))).await;
        if dice.one_in(2) && self.cancelled.lock().unwrap().contains(&id.to_string()) {
            return;
        }
        self.echo(id, &arguments).await;
    }

    /// Asks the user for something that names the call.
    async fn ask(&self, id: &Value, arguments: &Value, nonce: &str, mut dice: Dice) {
        let params = json!({"mode": "form", "message": nonce,
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}});
        if self.era == Era::Modern {
            self.world.count("a modern server asked");
            let questions = json!({"q": {"method": "elicitation/create", "params": params}});
            let result = json!({"resultType": "input_required", "inputRequests": questions, "requestState": nonce});
            return self.answer(id, result, "result").await;
        }
        self.world.count("a legacy server asked");
        let question = format!("question about {nonce}");
        let (answer, answered) = oneshot::channel();
        self.asked.lock().unwrap().insert(question.clone(), answer);
        self.say(&json!({"jsonrpc": "2.0", "id": question, "method": "elicitation/create", "params": params})).await;
        let wait = Duration::from_secs(1) + dice.time(Duration::from_secs(200));
        if let Ok(Ok(answer)) = tokio::time::timeout(wait, answered).await
            && let Some(name) = answer["result"]["content"]["name"].as_str()
        {
            self.world.count("a legacy server was answered");
            if name != nonce {
                self.world.fail(format!("P6: the question of {nonce} was answered for {name}"));
            }
        }
        self.echo(id, arguments).await;
    }

    async fn echo(&self, id: &Value, arguments: &Value) {
        let text = arguments["nonce"].as_str().unwrap_or_default();
        self.result(id, json!({"content": [{"type": "text", "text": text}]})).await;
    }

    async fn result(&self, id: &Value, mut result: Value) {
        if self.era == Era::Modern {
            result["resultType"] = json!("complete");
        }
        self.answer(id, result, "result").await;
    }

    async fn error(&self, id: &Value, message: &str) {
        self.answer(id, json!({"code": -32000, "message": message}), "error").await;
    }

    async fn answer(&self, id: &Value, outcome: Value, member: &str) {
        self.say(&json!({"jsonrpc": "2.0", "id": id, member: outcome})).await;
    }

    async fn say(&self, message: &Value) {
        // Nobody is left to hear it when the pipe broke.
        let _ = self.out.send(format!("{message}\n").into_bytes()).await;
    }
}
