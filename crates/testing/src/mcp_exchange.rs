//! Exchanges of a client that spells its revision exactly, over Streamable HTTP and HTTP+SSE.
//!
//! Opens sessions, and sends requests, notifications and responses. Returns answers that are
//! judged. Invariant: no header is sent that the revision does not name.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::http_sse::HttpSseStream;
use crate::mcp_request::McpRequest;
use crate::{Era, EventStream, McpClient, RpcAnswer, messages};

/// Name of these clients in `clientInfo`.
const CLIENT_NAME: &str = "pairs";

impl McpClient {
    /// Creates a client that is ready to call: with a session where its revision has them.
    pub async fn connect(revision: &'static str, url: &str, capabilities: Value) -> Self {
        let mut client = McpClient::new(revision, url, capabilities);
        // The path says which transport it is.
        if url.contains("/sse") {
            let stream = EventStream::of(client.raw("GET", &[], "").await);
            client.http_sse = Some(Arc::new(HttpSseStream::open(url, stream).await));
            let params = json!({"protocolVersion": revision, "capabilities": client.capabilities,
                "clientInfo": {"name": CLIENT_NAME, "version": "1"}});
            assert_eq!(
                client.exchange("initialize", params).await.result()["protocolVersion"],
                revision
            );
            assert_eq!(
                client.notify("notifications/initialized", json!({})).await,
                202
            );
            return client;
        }
        if client.era() == Era::Legacy {
            let answer = client.negotiate(revision).await;
            assert_eq!(
                answer.result()["protocolVersion"],
                revision,
                "the gateway speaks another revision"
            );
            client.session = Some(
                answer.headers["mcp-session-id"]
                    .to_str()
                    .unwrap()
                    .to_owned(),
            );
            assert_eq!(
                client.notify("notifications/initialized", json!({})).await,
                202
            );
        }
        client
    }

    /// Sends `initialize` with a version. Keeps no session.
    pub async fn negotiate(&self, version: &str) -> RpcAnswer {
        let body = messages::initialize(1, version, CLIENT_NAME, &self.capabilities);
        EventStream::of(self.raw("POST", &[], body).await)
            .finish("1")
            .await
    }

    /// Prepares a request with its own id.
    pub fn prepare(&self, method: &str) -> McpRequest<'_> {
        McpRequest::new(
            self,
            method,
            self.next_id.fetch_add(1, Ordering::Relaxed).to_string(),
        )
    }

    /// Sends a request and judges its answer.
    pub async fn exchange(&self, method: &str, params: Value) -> RpcAnswer {
        self.prepare(method).params(&params).send().await
    }

    /// Calls a tool and judges its answer.
    pub async fn exchange_tool(&self, name: &str, arguments: Value) -> RpcAnswer {
        self.exchange("tools/call", json!({"name": name, "arguments": arguments}))
            .await
    }

    /// Sends a notification and returns the HTTP status.
    pub async fn notify(&self, method: &str, params: Value) -> u16 {
        if let (Some(stream), "notifications/cancelled") = (&self.http_sse, method) {
            stream.forget(&params["requestId"].to_string());
        }
        let version = ("mcp-protocol-version", self.revision.to_owned());
        let headers = if self.era() == Era::Modern {
            vec![version]
        } else {
            Vec::new()
        };
        self.raw("POST", &headers, messages::notification(method, params))
            .await
            .status()
            .as_u16()
    }

    /// Answers a request of the server (legacy) and returns the HTTP status.
    pub async fn respond(&self, id: &Value, outcome: &Value) -> u16 {
        let member = if outcome["code"].is_number() {
            "error"
        } else {
            "result"
        };
        let body = json!({"jsonrpc": "2.0", "id": id, member: outcome});
        self.raw("POST", &[], body.to_string())
            .await
            .status()
            .as_u16()
    }

    /// Opens the session's own stream (legacy), and waits for its first bytes.
    pub async fn open_server_stream(&self) -> EventStream {
        if let Some(stream) = &self.http_sse {
            return stream.listen();
        }
        let mut stream = EventStream::of(self.raw("GET", &[], "").await);
        assert_eq!(stream.status, 200);
        assert!(stream.is_events(), "no event stream: {:?}", stream.headers);
        assert!(stream.has_begun().await, "the stream ended at once");
        stream
    }

    /// Ends the session (legacy) and returns the HTTP status.
    pub async fn delete_session(&self) -> u16 {
        if let Some(stream) = &self.http_sse {
            stream.close();
            return 204;
        }
        self.raw("DELETE", &[], "").await.status().as_u16()
    }
}
