//! What goes over the wire: protocol eras, the tools, and cheap scans that find an id without
//! parsing.

use clap::ValueEnum;
use memchr::{memchr, memmem};

/// Tools that every upstream has; more are added to reach the wanted number.
pub(crate) const ECHO_TOOLS: [&str; 4] = ["echo64", "echo64_sse", "echo10k", "echo10k_sse"];
/// The `_meta` object that a modern client sends with each request.
pub(crate) const MODERN_META: &str = concat!(
    r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"load","version":"1"},"#,
    r#""io.modelcontextprotocol/clientCapabilities":{}}"#
);

/// The two families of protocol revisions: with sessions, or stateless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProtocolEra {
    Legacy,
    Modern,
}

impl ProtocolEra {
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Legacy => "2025-11-25",
            Self::Modern => "2026-07-28",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

/// The number of bytes of text in a call of this tool, both ways.
pub(crate) fn text_size(tool: &str) -> usize {
    if tool.starts_with("echo10k") {
        10 * 1024
    } else {
        64
    }
}

/// The raw value of the first `"key"` in a message: a number as it stands, a string with its
/// quotes.
pub(crate) fn raw_value<'a>(message: &'a [u8], quoted_key: &str) -> Option<&'a [u8]> {
    let mut at = memmem::find(message, quoted_key.as_bytes())? + quoted_key.len();
    while matches!(message.get(at)?, b' ' | b':' | b'\t') {
        at += 1;
    }
    let rest = message.get(at..)?;
    if rest.first() == Some(&b'"') {
        let end = memchr(b'"', rest.get(1..)?)?;
        return rest.get(..end + 2);
    }
    let end = rest
        .iter()
        .position(|byte| matches!(byte, b',' | b'}' | b' ' | b'\n'))?;
    rest.get(..end)
}

/// The message in a body: the body itself, or the data of the last event of an SSE stream.
pub(crate) fn message_in(body: &[u8], sse: bool) -> &[u8] {
    if !sse {
        return body;
    }
    body.split(|byte| *byte == b'\n')
        .filter_map(|line| line.strip_prefix(b"data:"))
        .map(<[u8]>::trim_ascii)
        .rfind(|data| !data.is_empty())
        .unwrap_or_default()
}
