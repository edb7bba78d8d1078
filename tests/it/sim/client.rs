//! A client of either era that does what chance says, and checks what it is given.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::sim::listener_stub::{ConnectionBroken, ListenerStub};
use crate::sim::plans::{KEYS, SimCarrier};
use crate::sim::rng::Rng;
use crate::sim::server::ServerEra;
use crate::sim::world::SimWorld;

/// Longer than any call may take, its wait for a turn and its questions included.
const PATIENCE: Duration = Duration::from_secs(3600);

pub(crate) struct SimClient {
    pub(crate) era: ServerEra,
    /// Which principal, by its key.
    pub(crate) who: usize,
    /// Its name, which all of its nonces begin with.
    pub(crate) name: String,
    world: Arc<SimWorld>,
    listener: ListenerStub,
    session: Option<String>,
    next: u64,
    /// Whether it can be asked.
    able: bool,
}

/// How a request ended.
enum SimRequestEnd {
    Answer(Value),
    Status(u16),
    /// The client left before, or its connection did.
    Left,
}

/// A request that is being answered.
struct SimRequest<'a> {
    id: u64,
    nonce: &'a str,
    end: Option<Value>,
    /// Ids of the events that came, the last one last.
    events: Vec<String>,
    rng: Rng,
}

impl SimClient {
    pub(crate) fn new(
        world: &Arc<SimWorld>,
        listener: ListenerStub,
        era: ServerEra,
        who: usize,
        number: u64,
        able: bool,
    ) -> Self {
        // No principal's canary is in another's.
        let name = format!("canary-{}-{number}", ["anna", "bert"][who]);
        SimClient {
            era,
            who,
            name,
            world: world.clone(),
            listener,
            session: None,
            next: 1,
            able,
        }
    }

    /// Some things that clients do, one after the other.
    pub(crate) async fn live(&mut self, mut rng: Rng) {
        for _ in 0..2 + rng.below(6) {
            tokio::time::sleep(rng.time(Duration::from_secs(5))).await;
            if self.era == ServerEra::Legacy && self.session.is_none() {
                self.initialize().await;
                if self.session.is_none() {
                    continue;
                }
            }
            match rng.below(12) {
                0 => self.list().await,
                1 if self.era == ServerEra::Legacy => self.leave().await,
                2 => {
                    // Several at once, under ids of their own.
                    let mut calls = Vec::new();
                    for _ in 0..3 {
                        let id = self.id();
                        let rng = rng.fork();
                        calls.push((id, rng));
                    }
                    let client = &*self;
                    let calls = calls.into_iter().map(|(id, rng)| client.call(id, rng));
                    let lost = futures_util::future::join_all(calls).await;
                    self.forget_if(lost.contains(&true));
                }
                3 => {
                    self.world.count("a client listened");
                    self.listen(rng.fork()).await;
                }
                _ => {
                    let id = self.id();
                    let lost = self.call(id, rng.fork()).await;
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
        let Ok(response) = self.send("POST", &body, &[]).await else {
            return self.world.count("a client's connection broke");
        };
        match response.status().as_u16() {
            // The table is full of the other principal's, which make no room.
            503 => return self.world.count("a session was refused"),
            401 if self.world.is_locked() => return self.world.count("a client was locked out"),
            200 => {}
            status => {
                let why = response
                    .into_body()
                    .collect()
                    .await
                    .map(|body| body.to_bytes())
                    .unwrap_or_default();
                let slow = memchr::memmem::find(&why, b"limits.read_timeout").is_some();
                assert!(slow, "a session cannot be opened: {status} {why:?}");
                return self.world.count("a client was too slow");
            }
        }
        self.session = Some(
            response.headers()["mcp-session-id"]
                .to_str()
                .unwrap()
                .to_owned(),
        );
        drop(response.into_body().collect().await);
        let done = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.tell(&done).await;
    }

    /// Ends its session.
    pub(crate) async fn leave(&mut self) {
        if self.session.is_some() {
            drop(self.send("DELETE", &Value::Null, &[]).await);
            self.session = None;
        }
    }

    /// Says what has no answer.
    async fn tell(&self, message: &Value) {
        if let Ok(response) = self.send("POST", message, &[]).await {
            drop(response.into_body().collect().await);
        }
    }

    async fn list(&mut self) {
        let id = self.id();
        if let SimRequestEnd::Answer(answer) =
            self.request(id, "tools/list", json!({}), Rng::new(0)).await
        {
            let slow = answer["error"]["message"]
                .as_str()
                .is_some_and(|why| why.contains("limits.read_timeout"));
            assert!(slow || answer["result"]["tools"].is_array(), "{answer}");
        }
    }

    /// Hears what servers say by themselves, for a while.
    async fn listen(&mut self, mut rng: Rng) {
        let response = match self.era {
            ServerEra::Legacy => self.send("GET", &Value::Null, &[]).await,
            ServerEra::Modern => {
                let params =
                    json!({"notifications": {"toolsListChanged": true}, "_meta": self.meta()});
                let body = json!({"jsonrpc": "2.0", "id": self.id(),
                    "method": "subscriptions/listen", "params": params});
                self.send(
                    "POST",
                    &body,
                    &[("mcp-method", "subscriptions/listen".to_owned())],
                )
                .await
            }
        };
        let Ok(response) = response else { return };
        let mut body = response.into_body();
        let hearing = async {
            while let Some(Ok(frame)) = body.frame().await {
                self.check(&frame.into_data().unwrap_or_default());
            }
        };
        let _ = tokio::time::timeout(rng.time(Duration::from_secs(60)), hearing).await;
    }

    /// One call; true if the session turned out to be gone.
    async fn call(&self, id: u64, mut rng: Rng) -> bool {
        let kind = &self.world.kinds[rng.pick(self.world.kinds.len())];
        let server = kind.name;
        // A question on a pipe names no call. All calls of a principal's stateless clients are one
        // client's there.
        let any = kind.era == ServerEra::Legacy && kind.carrier != SimCarrier::Http;
        let principal = self
            .name
            .rsplit_once('-')
            .map_or("", |(principal, _)| principal);
        let nonce = format!("{}-{id}-{}", self.name, rng.below(u64::MAX));
        let mut params = json!({"name": format!("{server}__echo"), "arguments": {"nonce": nonce}});
        params["_meta"] = json!({"progressToken": nonce});
        for round in 0..4 {
            match self
                .request(id * 10 + round, "tools/call", params.clone(), rng.fork())
                .await
            {
                SimRequestEnd::Left => return false,
                SimRequestEnd::Status(404) => return true,
                SimRequestEnd::Status(401) if self.world.is_locked() => {
                    self.world.count("a client was locked out");
                    return true;
                }
                SimRequestEnd::Status(status) => panic!(
                    "P3: {nonce} of {} ended with status {status} alone{}",
                    self.name,
                    if self.world.is_locked() {
                        ", after a key was taken away"
                    } else {
                        ""
                    }
                ),
                SimRequestEnd::Answer(answer) => {
                    let result = &answer["result"];
                    if result["resultType"] != "input_required" {
                        self.judge(&answer, &nonce);
                        return false;
                    }
                    assert_eq!(self.era, ServerEra::Modern, "{answer}");
                    let asked = result["inputRequests"].as_object().unwrap();
                    let mut answers = json!({});
                    for (key, question) in asked {
                        let about = question["params"]["message"].as_str().unwrap();
                        let fits = about == nonce || any && about.starts_with(principal);
                        assert!(fits, "P6: {nonce} was asked about {about}");
                        answers[key] = json!({"action": "accept", "content": {"name": about}});
                    }
                    if rng.one_in(4) {
                        self.world.count("a client never came back with its answer");
                        return false;
                    }
                    tokio::time::sleep(rng.time(Duration::from_secs(100))).await;
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
        assert_eq!(
            result["content"][0]["text"], nonce,
            "P3: another call's answer: {answer}"
        );
        self.world.count("a call succeeded");
    }

    /// Adds what each modern request carries; gives the headers that name what it is for.
    fn add_meta(&self, method: &str, params: &mut Value) -> Vec<(&'static str, String)> {
        let mut more = Vec::new();
        if self.era == ServerEra::Modern {
            let token = params["_meta"]["progressToken"].clone();
            params["_meta"] = self.meta();
            if !token.is_null() {
                params["_meta"]["progressToken"] = token;
            }
            more.push(("mcp-method", method.to_owned()));
            more.extend(
                params["name"]
                    .as_str()
                    .map(|name| ("mcp-name", name.to_owned())),
            );
        }
        more
    }

    /// A request, to its one outcome, or until the client has enough.
    async fn request(
        &self,
        id: u64,
        method: &str,
        mut params: Value,
        mut rng: Rng,
    ) -> SimRequestEnd {
        let more = self.add_meta(method, &mut params);
        let nonce = params["arguments"]["nonce"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let leaves = rng.one_in(8).then(|| rng.time(Duration::from_secs(20)));
        let cancels = (self.era == ServerEra::Legacy && rng.one_in(8))
            .then(|| rng.time(Duration::from_secs(20)));
        let cancelled = AtomicBool::new(false);
        let asked = SimRequest {
            id,
            nonce: &nonce,
            end: None,
            events: Vec::new(),
            rng: rng.fork(),
        };
        let asking = async {
            match self.send("POST", &body, &more).await {
                Ok(response) => self.read(response, asked).await,
                Err(ConnectionBroken) => SimRequestEnd::Left,
            }
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
                cancelled.store(true, Ordering::Relaxed);
                let params = json!({"requestId": id});
                self.tell(
                    &json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                    "params": params}),
                )
                .await;
            }
            std::future::pending::<()>().await;
        };
        let end = tokio::select! {
            biased;
            end = tokio::time::timeout(PATIENCE, asking) => {
                end.unwrap_or_else(|_| panic!("P3: {method} of {} has no outcome: \
                    {nonce}", self.name))
            }
            () = leaving => {
                self.world.count("a client left");
                SimRequestEnd::Left
            }
            () = cancelling => SimRequestEnd::Left,
        };
        match end {
            // What was cancelled has no answer.
            SimRequestEnd::Status(200 | 202) if cancelled.load(Ordering::Relaxed) => {
                SimRequestEnd::Left
            }
            end => end,
        }
    }

    /// Reads a response to its end; where its connection breaks, what follows is asked for.
    async fn read(&self, mut response: Response<Body>, mut asked: SimRequest<'_>) -> SimRequestEnd {
        let status = response.status().as_u16();
        loop {
            let broke = self.read_one(response, &mut asked).await;
            match asked.end.take() {
                _ if [401, 404].contains(&status) => return SimRequestEnd::Status(status),
                Some(answer) => return SimRequestEnd::Answer(answer),
                None if !broke => return SimRequestEnd::Status(status),
                None => self.world.count("a client's connection broke"),
            }
            let Some(last) = asked.events.last().filter(|_| !asked.rng.one_in(4)) else {
                return SimRequestEnd::Left;
            };
            let last = [("last-event-id", last.clone())];
            tokio::time::sleep(asked.rng.time(Duration::from_secs(30))).await;
            response = match self.send("GET", &Value::Null, &last).await {
                Ok(response) => response,
                Err(ConnectionBroken) => return SimRequestEnd::Left,
            };
            match response.status().as_u16() {
                200 => self.world.count("a client resumed a stream"),
                // It is not kept any more, or the session is not; or there are too many streams.
                400 | 401 | 404 | 503 => return SimRequestEnd::Left,
                status => panic!("P3: {} may not resume {}: {status}", self.name, asked.nonce),
            }
        }
    }

    /// Whether the connection broke before the end.
    async fn read_one(&self, response: Response<Body>, asked: &mut SimRequest<'_>) -> bool {
        let events = response
            .headers()
            .get("content-type")
            .is_some_and(|kind| kind == "text/event-stream");
        let mut body = response.into_body();
        let mut read = Vec::new();
        loop {
            let data = match body.frame().await {
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                Some(Err(_)) => return true,
                None => break,
            };
            if !self.world.is_calm() && asked.rng.one_in(60) {
                self.world.count("a client stopped reading");
                tokio::time::sleep(asked.rng.time(Duration::from_secs(50))).await;
            }
            self.check(&data);
            read.extend_from_slice(&data);
            while events && let Some(at) = memchr::memmem::find(&read, b"\n\n") {
                let event: Vec<u8> = read.drain(..at + 2).collect();
                let event = String::from_utf8(event).unwrap();
                if let Some(id) = event.lines().find_map(|line| line.strip_prefix("id: ")) {
                    assert!(
                        !asked.events.iter().any(|had| had == id),
                        "P4: {} had the event {id}",
                        asked.nonce
                    );
                    asked.events.push(id.to_owned());
                }
                let data = event
                    .lines()
                    .find_map(|line| line.strip_prefix("data: "))
                    .filter(|data| !data.is_empty());
                if let Some(data) = data {
                    self.heard(serde_json::from_str(data).unwrap(), asked).await;
                }
            }
        }
        if !events && !read.is_empty() {
            self.heard(serde_json::from_slice(&read).unwrap(), asked)
                .await;
        }
        false
    }

    async fn heard(&self, message: Value, asked: &mut SimRequest<'_>) {
        let id = asked.id;
        let nonce = asked.nonce;
        let method = message["method"].as_str().unwrap_or_default();
        match method {
            "" => {
                assert!(
                    asked.end.is_none(),
                    "P3: {nonce} has two outcomes: {message}"
                );
                assert!(
                    message["id"] == id || message["id"].is_null(),
                    "P1: {message} for {id}"
                );
                asked.end = Some(message);
            }
            "notifications/progress" => {
                assert_eq!(
                    message["params"]["progressToken"], nonce,
                    "progress of another call"
                );
                assert_eq!(
                    message["params"]["message"], nonce,
                    "progress of another call"
                );
            }
            "elicitation/create" => {
                // On a pipe nobody can say which of one client's calls it is about; it is this
                // client's.
                let about = message["params"]["message"].as_str().unwrap_or_default();
                assert!(
                    about.starts_with(&format!("{}-", self.name)),
                    "P6: {nonce} was asked about {about}"
                );
                if asked.rng.one_in(4) {
                    return self.world.count("a client did not answer");
                }
                let content = json!({"action": "accept", "content": {"name": about}});
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": content});
                self.tell(&answer).await;
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
        if self.era == ServerEra::Legacy && self.session.is_none() {
            self.initialize().await;
        }
        let id = self.id();
        let nonce = format!("{}-{id}-works", self.name);
        let mut params = json!({"name": format!("{server}__echo"), "arguments": {"nonce": nonce}});
        let more = self.add_meta("tools/call", &mut params);
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        let Ok(response) = self.send("POST", &body, &more).await else {
            return false;
        };
        let asked = SimRequest {
            id,
            nonce: &nonce,
            end: None,
            events: Vec::new(),
            rng: Rng::new(0),
        };
        match self.read(response, asked).await {
            SimRequestEnd::Answer(answer) => {
                answer["result"]["content"][0]["text"] == nonce.as_str()
            }
            _ => false,
        }
    }

    fn capabilities(&self) -> Value {
        if self.able {
            json!({"elicitation": {"form": {}}})
        } else {
            json!({})
        }
    }

    fn meta(&self) -> Value {
        json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": self.name, "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": self.capabilities()})
    }

    async fn send(
        &self,
        verb: &str,
        body: &Value,
        more: &[(&str, String)],
    ) -> Result<Response<Body>, ConnectionBroken> {
        let revision = if self.era == ServerEra::Legacy {
            "2025-11-25"
        } else {
            "2026-07-28"
        };
        let accept = if verb == "GET" {
            "text/event-stream"
        } else {
            "application/json, text/event-stream"
        };
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
        let body = if body.is_null() {
            Bytes::new()
        } else {
            Bytes::from(body.to_string())
        };
        self.listener.send(request.body(body).unwrap()).await
    }
}
