//! A client of either era that does what chance says, and checks what it is given.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::dice::Dice;
use crate::server::Era;
use crate::world::{KEYS, World};

/// Longer than any call may take, its wait for a turn and its questions included.
const PATIENCE: Duration = Duration::from_secs(3600);

pub(crate) struct Client {
    pub(crate) era: Era,
    /// Which principal, by its key.
    pub(crate) who: usize,
    /// Its name, which all of its nonces begin with.
    pub(crate) name: String,
    world: Arc<World>,
    routes: Router,
    session: Option<String>,
    next: u64,
    /// Whether it can be asked.
    able: bool,
}

/// How a request ended.
enum End {
    Answer(Value),
    Status(u16),
    /// The client left before.
    Left,
}

impl Client {
    pub(crate) fn new(world: &Arc<World>, routes: &Router, era: Era, who: usize, number: u64, able: bool) -> Self {
        // No principal's canary is in another's.
        let name = format!("canary-{}-{number}", ["anna", "bert"][who]);
        let (world, routes) = (world.clone(), routes.clone());
        Client { era, who, name, world, routes, session: None, next: 1, able }
    }

    /// Some things that clients do, one after the other.
    pub(crate) async fn live(&mut self, mut dice: Dice) {
        for _ in 0..4 + dice.below(8) {
            tokio::time::sleep(dice.time(Duration::from_secs(5))).await;
            if self.era == Era::Legacy && self.session.is_none() {
                self.initialize().await;
                if self.session.is_none() {
                    continue;
                }
            }
            match dice.below(12) {
                0 => self.list().await,
                1 if self.era == Era::Legacy => self.leave().await,
                2 => {
                    // Several at once, under ids of their own.
                    let mut calls = Vec::new();
                    for _ in 0..3 {
                        let (id, dice) = (self.id(), dice.fork());
                        calls.push((id, dice));
                    }
                    let client = &*self;
                    let calls = calls.into_iter().map(|(id, dice)| client.call(id, dice));
                    let lost = futures_util::future::join_all(calls).await;
                    self.forget_if(lost.contains(&true));
                }
                3 => {
                    self.world.count("a client listened");
                    self.listen(dice.fork()).await;
                }
                _ => {
                    let id = self.id();
                    let lost = self.call(id, dice.fork()).await;
                    self.forget_if(lost);
                }
            }
        }
        self.leave().await;
    }

    fn forget_if(&mut self, lost: bool) {
        if lost {
            self.session = None;
        }
    }

    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    async fn initialize(&mut self) {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": self.capabilities(),
            "clientInfo": {"name": self.name, "version": "1"}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        let response = self.send("POST", &body, &[]).await;
        if response.status() == 503 {
            // The table is full of the other principal's, which make no room.
            return self.world.count("a session was refused");
        }
        assert_eq!(response.status(), 200, "a session can be opened");
        self.session = Some(response.headers()["mcp-session-id"].to_str().unwrap().to_owned());
        let done = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.send("POST", &done, &[]).await;
    }

    /// Ends its session.
    pub(crate) async fn leave(&mut self) {
        if self.session.is_some() {
            self.send("DELETE", &Value::Null, &[]).await;
            self.session = None;
        }
    }

    async fn list(&mut self) {
        let id = self.id();
        if let End::Answer(answer) = self.request(id, "tools/list", json!({}), Dice::new(0)).await {
            assert!(answer["result"]["tools"].is_array(), "{answer}");
        }
    }

    /// Hears what servers say by themselves, for a while.
    async fn listen(&mut self, mut dice: Dice) {
        let response = match self.era {
            Era::Legacy => self.send("GET", &Value::Null, &[]).await,
            Era::Modern => {
                let params = json!({"notifications": {"toolsListChanged": true}, "_meta": self.meta()});
                let body =
                    json!({"jsonrpc": "2.0", "id": self.id(), "method": "subscriptions/listen", "params": params});
                self.send("POST", &body, &[("mcp-method", "subscriptions/listen".to_owned())]).await
            }
        };
        let mut body = response.into_body();
        let hearing = async {
            while let Some(Ok(frame)) = body.frame().await {
                self.check(&frame.into_data().unwrap_or_default());
            }
        };
        let _ = tokio::time::timeout(dice.time(Duration::from_secs(60)), hearing).await;
    }

    /// One call; true if the session turned out to be gone.
    async fn call(&self, id: u64, mut dice: Dice) -> bool {
        let server = ["s0", "s1", "s2"][usize::try_from(dice.below(3)).unwrap()];
        let nonce = format!("{}-{id}-{}", self.name, dice.below(u64::MAX));
        let mut params = json!({"name": format!("{server}__echo"), "arguments": {"nonce": nonce}});
        params["_meta"] = json!({"progressToken": nonce});
        for round in 0..4 {
            match self.request(id * 10 + round, "tools/call", params.clone(), dice.fork()).await {
                End::Left => return false,
                End::Status(404) => return true,
                End::Status(status) => {
                    // What has no answer was cancelled.
                    assert!([200, 202].contains(&status), "{nonce}: status {status}");
                    return false;
                }
                End::Answer(answer) => {
                    let result = &answer["result"];
                    if result["resultType"] != "input_required" {
                        self.judge(&answer, &nonce);
                        return false;
                    }
                    assert_eq!(self.era, Era::Modern, "{answer}");
                    let asked = result["inputRequests"].as_object().unwrap();
                    let mut answers = json!({});
                    for (key, question) in asked {
                        assert_eq!(
                            question["params"]["message"],
                            nonce.as_str(),
                            "P6: the question is of another call"
                        );
                        answers[key] = json!({"action": "accept", "content": {"name": nonce}});
                    }
                    if dice.one_in(4) {
                        self.world.count("a client never came back with its answer");
                        return false;
                    }
                    tokio::time::sleep(dice.time(Duration::from_secs(100))).await;
                    self.world.count("a client came back with its answer");
                    params["requestState"] = result["requestState"].clone();
                    params["inputResponses"] = answers;
                }
            }
        }
        false
    }

    fn judge(&self, answer: &Value, nonce: &str) {
        let result = &answer["result"];
        if answer["error"].is_object() || result["isError"] == true {
            return self.world.count("a call failed");
        }
        assert_eq!(result["content"][0]["text"], nonce, "P3: another call's answer");
        self.world.count("a call succeeded");
    }

    /// A request, to its one outcome, or until the client has enough.
    async fn request(&self, id: u64, method: &str, mut params: Value, mut dice: Dice) -> End {
        let mut more = Vec::new();
        if self.era == Era::Modern {
            let token = params["_meta"]["progressToken"].clone();
            params["_meta"] = self.meta();
            if !token.is_null() {
                params["_meta"]["progressToken"] = token;
            }
            more.push(("mcp-method", method.to_owned()));
            more.extend(params["name"].as_str().map(|name| ("mcp-name", name.to_owned())));
        }
        let nonce = params["arguments"]["nonce"].as_str().unwrap_or_default().to_owned();
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let leaves = dice.one_in(8).then(|| dice.time(Duration::from_secs(20)));
        let cancels = (self.era == Era::Legacy && dice.one_in(8)).then(|| dice.time(Duration::from_secs(20)));
        let answering = dice.fork();
        let asking = async {
            let response = self.send("POST", &body, &more).await;
            self.read(response, id, &nonce, answering).await
        };
        let leaving = async {
            match leaves {
                Some(after) => tokio::time::sleep(after).await,
                None => std::future::pending().await,
            }
        };
        let cancelling = async {
            if let Some(after) = cancels {
                tokio::time::sleep(after).await;
                self.world.count("a client cancelled");
                let params = json!({"requestId": id});
                let body = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
                self.send("POST", &body, &[]).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            end = tokio::time::timeout(PATIENCE, asking) => {
                end.unwrap_or_else(|_| panic!("P3: {method} of {} has no outcome: {nonce}", self.name))
            }
            () = leaving => {
                self.world.count("a client left");
                End::Left
            }
            () = cancelling => End::Left,
        }
    }

    /// Reads a response to its end.
    async fn read(&self, response: Response<Body>, id: u64, nonce: &str, mut dice: Dice) -> End {
        let status = response.status().as_u16();
        let events = response.headers().get("content-type").is_some_and(|kind| kind == "text/event-stream");
        let mut body = response.into_body();
        let (mut read, mut end) = (Vec::new(), None);
        while let Some(Ok(frame)) = body.frame().await {
            let data = frame.into_data().unwrap_or_default();
            self.check(&data);
            read.extend_from_slice(&data);
            while events && let Some(at) = memchr::memmem::find(&read, b"\n\n") {
                let event: Vec<u8> = read.drain(..at + 2).collect();
                let event = String::from_utf8(event).unwrap();
                let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")).filter(|d| !d.is_empty())
                else {
                    continue;
                };
                self.heard(serde_json::from_str(data).unwrap(), id, nonce, &mut end, &mut dice).await;
            }
        }
        if !events && !read.is_empty() {
            self.heard(serde_json::from_slice(&read).unwrap(), id, nonce, &mut end, &mut dice).await;
        }
        match end {
            _ if status == 404 => End::Status(404),
            Some(answer) => End::Answer(answer),
            None => End::Status(status),
        }
    }

    async fn heard(&self, message: Value, id: u64, nonce: &str, end: &mut Option<Value>, dice: &mut Dice) {
        let method = message["method"].as_str().unwrap_or_default();
        match method {
            "" => {
                assert!(end.is_none(), "P3: {nonce} has two outcomes: {message}");
                assert!(message["id"] == id || message["id"].is_null(), "P1: {message} for {id}");
                *end = Some(message);
            }
            "notifications/progress" => {
                assert_eq!(message["params"]["progressToken"], nonce, "progress of another call");
                assert_eq!(message["params"]["message"], nonce, "progress of another call");
            }
            "elicitation/create" => {
                // On a pipe nobody can say which of one client's calls it is about; it is this client's.
                let about = message["params"]["message"].as_str().unwrap_or_default();
                assert!(about.starts_with(&format!("{}-", self.name)), "P6: {nonce} was asked about {about}");
                if dice.one_in(4) {
                    return self.world.count("a client did not answer");
                }
                let content = json!({"action": "accept", "content": {"name": about}});
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": content});
                self.send("POST", &answer, &[]).await;
            }
            _ => {}
        }
    }

    /// P6: no principal sees what is another's.
    fn check(&self, data: &Bytes) {
        let other = ["canary-bert", "canary-anna"][self.who];
        assert!(
            memchr::memmem::find(data, other.as_bytes()).is_none(),
            "P6: {} was given what is another's: {}",
            self.name,
            String::from_utf8_lossy(data)
        );
    }

    /// A call that nothing disturbs any more; true if it succeeded.
    pub(crate) async fn works(&mut self, server: &str) -> bool {
        if self.era == Era::Legacy && self.session.is_none() {
            self.initialize().await;
        }
        let id = self.id();
        let nonce = format!("{}-{id}-works", self.name);
        let mut params = json!({"name": format!("{server}__echo"), "arguments": {"nonce": nonce}});
        let mut more = Vec::new();
        if self.era == Era::Modern {
            params["_meta"] = self.meta();
            more = vec![("mcp-method", "tools/call".to_owned()), ("mcp-name", format!("{server}__echo"))];
        }
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        let response = self.send("POST", &body, &more).await;
        match self.read(response, id, &nonce, Dice::new(0)).await {
            End::Answer(answer) => answer["result"]["content"][0]["text"] == nonce.as_str(),
            _ => false,
        }
    }

    fn capabilities(&self) -> Value {
        if self.able { json!({"elicitation": {"form": {}}}) } else { json!({}) }
    }

    fn meta(&self) -> Value {
        json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": self.name, "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": self.capabilities()})
    }

    async fn send(&self, verb: &str, body: &Value, more: &[(&str, String)]) -> Response<Body> {
        let revision = if self.era == Era::Legacy { "2025-11-25" } else { "2026-07-28" };
        let accept = if verb == "GET" { "text/event-stream" } else { "application/json, text/event-stream" };
        let mut request = Request::builder()
            .method(verb)
            .uri("/mcp")
            .header("host", "localhost")
            .header("accept", accept)
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", KEYS[self.who]))
            .header("mcp-protocol-version", revision);
        for (name, value) in more {
            request = request.header(*name, value);
        }
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        self.routes.clone().oneshot(request.body(body).unwrap()).await.unwrap_or_else(|never| match never {})
    }
}
