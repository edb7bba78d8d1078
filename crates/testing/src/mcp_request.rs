//! Single requests, with all their bytes chosen by the test.
//!
//! Puts a request together from JSON text, with the `_meta` and the headers that its revision
//! demands. Invariant: members that a test writes are sent as they are written.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{Era, EventStream, McpClient, RpcAnswer};

/// A request that is being put together.
pub struct McpRequest<'a> {
    client: &'a McpClient,
    method: String,
    id: String,
    members: String,
    meta: String,
    headers: Vec<(&'static str, String)>,
}

impl<'a> McpRequest<'a> {
    pub(crate) fn new(client: &'a McpClient, method: &str, id: String) -> Self {
        let members = String::new();
        let meta = String::new();
        McpRequest {
            client,
            method: method.to_owned(),
            id,
            members,
            meta,
            headers: Vec::new(),
        }
    }

    /// Sets the id, as JSON text.
    pub fn id(mut self, id: &str) -> Self {
        id.clone_into(&mut self.id);
        self
    }

    /// Sets members of the params, as JSON text without the braces.
    pub fn members(mut self, members: &str) -> Self {
        members.clone_into(&mut self.members);
        self
    }

    /// Sets the params.
    pub fn params(self, params: &Value) -> Self {
        let text = params.to_string();
        self.members(text.trim_start_matches('{').strip_suffix('}').unwrap())
    }

    /// Sets members of `_meta`, as JSON text without the braces.
    pub fn meta(mut self, members: &str) -> Self {
        members.clone_into(&mut self.meta);
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Writes the request as JSON text.
    pub fn body(&self) -> String {
        let mut meta = self.meta.clone();
        if self.client.era() == Era::Modern {
            let separator = if meta.is_empty() { "" } else { "," };
            meta = format!(
                r#""io.modelcontextprotocol/protocolVersion":"{}","io.modelcontextprotocol/clientInfo":{{"name":"pairs","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{}{separator}{meta}"#,
                self.client.revision, self.client.capabilities,
            );
        }
        let mut params = self.members.clone();
        if !meta.is_empty() {
            let separator = if params.is_empty() { "" } else { "," };
            params = format!(r#"{params}{separator}"_meta":{{{meta}}}"#);
        }
        format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"{}","params":{{{params}}}}}"#,
            self.id, self.method
        )
    }

    /// Lists the headers that mirror the body (2026-07-28/basic/transports/streamable-http.mdx,
    /// Request Metadata).
    fn mirrored_headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = self.headers.clone();
        if self.client.era() == Era::Modern {
            add_header(&mut headers, "mcp-protocol-version", self.client.revision);
            add_header(&mut headers, "mcp-method", &self.method);
            let params: Value =
                serde_json::from_str(&format!("{{{}}}", self.members)).unwrap_or_default();
            let key = match self.method.as_str() {
                "tools/call" | "prompts/get" => "name",
                "resources/read" => "uri",
                "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
                _ => "",
            };
            if let Some(value) = params[key].as_str() {
                add_header(&mut headers, "mcp-name", value);
            }
        }
        headers
    }

    /// Sends the request and reads the whole answer.
    pub async fn send(self) -> RpcAnswer {
        let id = self.id.clone();
        self.open().await.finish(&id).await
    }

    /// Sends the request and reads nothing yet.
    pub async fn open(self) -> EventStream {
        let body = self.body();
        let Some(stream) = &self.client.http_sse else {
            return EventStream::of(
                self.client
                    .raw("POST", &self.mirrored_headers(), body)
                    .await,
            );
        };
        let relayed = stream.expect(&body, &self.id);
        let response = self.client.raw("POST", &[], body).await;
        if response.status() == 202 {
            return relayed;
        }
        stream.forget(&self.id);
        EventStream::of(response)
    }

    /// Sends the request and answers all input requests: in a POST (legacy), or with a retry
    /// (modern).
    pub async fn answering(self, reply: impl Fn(&str, &Value) -> Value) -> (RpcAnswer, Vec<Value>) {
        match self.client.era() {
            Era::Legacy => self.answering_in_posts(reply).await,
            Era::Modern => self.answering_in_retries(reply).await,
        }
    }

    async fn answering_in_posts(
        self,
        reply: impl Fn(&str, &Value) -> Value,
    ) -> (RpcAnswer, Vec<Value>) {
        let client = self.client;
        let id = self.id.clone();
        let mut stream = self.open().await;
        let mut messages = Vec::new();
        let mut asked = Vec::new();
        while let Some(message) = stream.next_message().await {
            if message.value.get("id").is_some() && !message.method().is_empty() {
                let outcome = reply(message.method(), &message.value["params"]);
                assert_eq!(client.respond(&message.value["id"], &outcome).await, 202);
                asked.push(message.value);
            } else {
                messages.push(message);
            }
        }
        (stream.into_answer(messages, &id), asked)
    }

    async fn answering_in_retries(
        mut self,
        reply: impl Fn(&str, &Value) -> Value,
    ) -> (RpcAnswer, Vec<Value>) {
        let mut asked = Vec::new();
        let original = self.members.clone();
        for round in 1..10 {
            let client = self.client;
            let method = self.method.clone();
            let meta = self.meta.clone();
            let headers = self.headers.clone();
            let answer = self.send().await;
            let end = &answer.end().value["result"];
            if end["resultType"] != "input_required" {
                return (answer, asked);
            }
            let mut responses = json!({});
            for (key, request) in end["inputRequests"].as_object().into_iter().flatten() {
                responses[key] = reply(request["method"].as_str().unwrap(), &request["params"]);
                asked.push(request.clone());
            }
            let state = end["requestState"]
                .as_str()
                .map(|s| format!(r#","requestState":{}"#, json!(s)));
            let members = format!(
                r#"{original},"inputResponses":{responses}{}"#,
                state.unwrap_or_default()
            );
            self = McpRequest {
                client,
                method,
                id: format!("\"round {round}\""),
                members,
                meta,
                headers,
            };
        }
        panic!("asked for input ten times");
    }
}

/// Adds a header unless the request has it already.
fn add_header(headers: &mut Vec<(&'static str, String)>, name: &'static str, value: &str) {
    if !headers.iter().any(|(given, _)| *given == name) {
        headers.push((name, encode_header(value)));
    }
}

fn encode_header(value: &str) -> String {
    let plain = value.bytes().all(|b| (0x20..=0x7E).contains(&b)) && value.trim() == value;
    if plain {
        value.to_owned()
    } else {
        format!("=?base64?{}?=", STANDARD.encode(value))
    }
}
