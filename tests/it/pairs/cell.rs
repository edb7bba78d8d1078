//! One cell of the matrix: a client's revision, a server's revision, a transport.

use moongate_testing::McpClient;
use moongate_testing::messages::MODERN;
use serde_json::{Value, json};

use crate::pairs::rig::{PairRig, ServerTransport};

/// Behind the revision of a client that uses HTTP+SSE.
pub(crate) const OVER_SSE: &str = " over HTTP+SSE";

/// One cell, with its gateway.
pub(crate) struct MatrixCell {
    pub(crate) client: &'static str,
    pub(crate) server: &'static str,
    pub(crate) transport: ServerTransport,
    pub(crate) rig: PairRig,
}

impl MatrixCell {
    pub(crate) async fn start(
        client: &'static str,
        server: &'static str,
        transport: ServerTransport,
    ) -> Self {
        let mut rig = PairRig::start(server, transport).await;
        let over_sse = client.strip_suffix(OVER_SSE);
        if over_sse.is_some() {
            rig.url = rig.url.replace("/mcp", "/sse");
        }
        let client = over_sse.unwrap_or(client);
        for (name, wanted) in [("main", server), ("own", server), ("aside", MODERN)] {
            assert_eq!(
                rig.status(name).await["revision"],
                wanted,
                "{name} is spoken to at another revision"
            );
        }
        MatrixCell {
            client,
            server,
            transport,
            rig,
        }
    }

    /// A client that can be asked nothing.
    pub(crate) async fn client(&self) -> McpClient {
        McpClient::connect(self.client, &self.rig.url, json!({})).await
    }

    /// A client that can be asked whatever its revision knows.
    pub(crate) async fn able(&self) -> McpClient {
        McpClient::connect(self.client, &self.rig.url, self.everything()).await
    }

    pub(crate) fn everything(&self) -> Value {
        let elicitation = if self.knows_urls(self.client) {
            json!({"form": {}, "url": {}})
        } else {
            json!({})
        };
        json!({"sampling": {"tools": {}}, "roots": {"listChanged": true},
            "elicitation": elicitation})
    }

    fn knows_urls(&self, revision: &str) -> bool {
        revision >= "2025-11-25"
    }

    pub(crate) fn modern_client(&self) -> bool {
        self.client >= MODERN
    }

    pub(crate) fn modern_server(&self) -> bool {
        self.server >= MODERN
    }

    /// A tool as this cell's client finds it listed: only what its revision looks for in tools, and
    /// the server's says for all of them at once, is added behind the server's own bytes.
    pub(crate) fn listed(&self, tool: &str) -> String {
        if self.client != "2025-11-25" || !self.modern_server() {
            return tool.to_owned();
        }
        format!(
            r#"{},"execution":{{"taskSupport":"optional"}}}}"#,
            tool.strip_suffix('}').unwrap()
        )
    }

    /// Whether the server's revision is this one or a later one.
    pub(crate) fn server_since(&self, revision: &str) -> bool {
        self.server >= revision
    }
}
