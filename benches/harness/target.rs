//! Where requests go and how they look: one target is one way to call, its requests written
//! beforehand.

use super::wire::{MODERN_META, ProtocolEra, text_size};
use std::net::SocketAddr;

/// The first id; all ids have as many digits, so that a request's length never changes.
pub(crate) const FIRST_ID: u64 = 100_000_000;
const LAST_ID: u64 = 999_999_999;

/// What is asked for again and again.
#[derive(Clone, Debug)]
pub(crate) enum RepeatedRequest {
    Call { tool: &'static str, exposed: String },
    List { tools: usize },
}

/// One way to call.
#[derive(Clone, Debug)]
pub(crate) struct LoadTarget {
    pub(crate) address: SocketAddr,
    pub(crate) path: String,
    pub(crate) era: ProtocolEra,
    pub(crate) op: RepeatedRequest,
    pub(crate) key: Option<&'static str>,
    /// Answers with one body whatever it is asked: no handshake.
    pub(crate) fixed: bool,
}

/// A request as sent, with the place of its id.
pub(crate) struct BenchRequest {
    pub(crate) bytes: Vec<u8>,
    id_at: usize,
    next_id: u64,
    /// Lists keep their id, so that a fixed body can answer them.
    keep_id: bool,
}

impl BenchRequest {
    /// Writes the next id in and returns it.
    pub(crate) fn advance(&mut self) -> u64 {
        let id = self.next_id;
        if self.keep_id {
            return id;
        }
        self.next_id = if id >= LAST_ID { FIRST_ID } else { id + 1 };
        let mut rest = id;
        for digit in self.bytes.iter_mut().skip(self.id_at).take(9).rev() {
            *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
        }
        id
    }
}

impl LoadTarget {
    /// The request that is measured.
    pub(crate) fn template(&self, session: Option<&str>) -> BenchRequest {
        let (method, name, fields) = match &self.op {
            RepeatedRequest::List { .. } => ("tools/list", None, String::new()),
            RepeatedRequest::Call { tool, exposed } => {
                let text = "y".repeat(text_size(tool));
                let fields = format!(r#""name":"{exposed}","arguments":{{"text":"{text}"}}"#);
                ("tools/call", Some(exposed.as_str()), fields)
            }
        };
        let params = match (self.era, fields.as_str()) {
            (ProtocolEra::Legacy, _) => format!("{{{fields}}}"),
            (ProtocolEra::Modern, "") => format!(r#"{{"_meta":{MODERN_META}}}"#),
            (ProtocolEra::Modern, _) => format!(r#"{{{fields},"_meta":{MODERN_META}}}"#),
        };
        let start = r#"{"jsonrpc":"2.0","id":"#;
        let body = format!(r#"{start}{FIRST_ID},"method":"{method}","params":{params}}}"#);
        let mut headers = format!("MCP-Protocol-Version: {}\r\n", self.era.version());
        if let Some(session) = session {
            headers.push_str(&format!("Mcp-Session-Id: {session}\r\n"));
        }
        if self.era == ProtocolEra::Modern {
            headers.push_str(&format!("Mcp-Method: {method}\r\n"));
            if let Some(name) = name {
                headers.push_str(&format!("Mcp-Name: {name}\r\n"));
            }
        }
        let bytes = self.post(&headers, &body);
        let id_at = bytes.len() - body.len() + start.len();
        BenchRequest {
            bytes,
            id_at,
            next_id: FIRST_ID,
            keep_id: matches!(self.op, RepeatedRequest::List { .. }),
        }
    }

    /// The handshake of a legacy client: its first request.
    pub(crate) fn initialize(&self) -> Vec<u8> {
        let body = concat!(
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
            r#""capabilities":{},"clientInfo":{"name":"load","version":"1"}}}"#
        );
        self.post("", body)
    }

    /// The handshake of a legacy client: its last message.
    pub(crate) fn initialized(&self, session: Option<&str>) -> Vec<u8> {
        let headers = self.session_headers(session);
        self.post(
            &headers,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        )
    }

    /// Ends a session.
    pub(crate) fn delete(&self, session: &str) -> Vec<u8> {
        let (path, address, key) = (&self.path, self.address, self.key_header());
        let headers = self.session_headers(Some(session));
        format!("DELETE {path} HTTP/1.1\r\nHost: {address}\r\n{key}{headers}\r\n").into_bytes()
    }

    fn session_headers(&self, session: Option<&str>) -> String {
        let session = session
            .map(|id| format!("Mcp-Session-Id: {id}\r\n"))
            .unwrap_or_default();
        format!("{session}MCP-Protocol-Version: {}\r\n", self.era.version())
    }

    fn key_header(&self) -> String {
        self.key
            .map(|key| format!("Authorization: Bearer {key}\r\n"))
            .unwrap_or_default()
    }

    fn post(&self, headers: &str, body: &str) -> Vec<u8> {
        let (path, address, key, length) =
            (&self.path, self.address, self.key_header(), body.len());
        format!(
            concat!(
                "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n",
                "Accept: application/json, text/event-stream\r\n{}{}Content-Length: {}\r\n\r\n{}"
            ),
            path, address, key, headers, length, body
        )
        .into_bytes()
    }
}
