//! The answers of the upstream, made once: only the request's id is put in between.

use super::wire::{ECHO_TOOLS, ProtocolEra, raw_value, text_size};
use bytes::{BufMut, Bytes, BytesMut};
use memchr::memmem;

/// What to answer to one message.
pub(crate) enum AnswerKind {
    Json(Bytes),
    Sse(Bytes),
    /// The answer to `initialize`: over HTTP it opens a session.
    Session(Bytes),
    /// A refusal of what this era does not know: HTTP 400.
    Refused(Bytes),
    /// A notification: nothing to say.
    Accepted,
}

/// Everything after the id, for each kind of answer.
pub(crate) struct AnswerTemplates {
    era: ProtocolEra,
    calls: Vec<(&'static str, Bytes)>,
    list: Bytes,
    hello: Bytes,
    empty: Bytes,
    unknown: Bytes,
    refused: Bytes,
}

impl AnswerTemplates {
    pub(crate) fn new(era: ProtocolEra, tools: usize) -> Self {
        let kind = if era == ProtocolEra::Modern {
            r#""resultType":"complete","#
        } else {
            ""
        };
        let caching = if era == ProtocolEra::Modern {
            r#","ttlMs":3600000,"cacheScope":"public""#
        } else {
            ""
        };
        let call = |tool| {
            let text = "x".repeat(text_size(tool));
            format!(
                r#","result":{{{kind}"content":[{{"type":"text","text":"{text}"}}],"isError":false}}}}"#
            )
        };
        let tools: Vec<String> = (0..tools.max(ECHO_TOOLS.len())).map(tool).collect();
        let list = format!(
            r#","result":{{{kind}"tools":[{}]{caching}}}}}"#,
            tools.join(",")
        );
        let hello = match era {
            ProtocolEra::Legacy => concat!(
                r#","result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"#,
                r#""serverInfo":{"name":"bench","version":"1"}}}"#
            ),
            ProtocolEra::Modern => concat!(
                r#","result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"#,
                r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1"}},"#,
                r#""ttlMs":3600000,"cacheScope":"public"}}"#
            ),
        };
        let refused = match era {
            ProtocolEra::Legacy => r#","error":{"code":-32601,"message":"Method not found"}}"#,
            ProtocolEra::Modern => concat!(
                r#","error":{"code":-32022,"message":"Unsupported protocol version","#,
                r#""data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}}"#
            ),
        };
        Self {
            era,
            calls: ECHO_TOOLS
                .iter()
                .map(|tool| (*tool, Bytes::from(call(tool))))
                .collect(),
            list: Bytes::from(list),
            hello: Bytes::from_static(hello.as_bytes()),
            empty: Bytes::from(format!(r#","result":{{{}}}}}"#, kind.trim_end_matches(','))),
            unknown: Bytes::from_static(
                br#","error":{"code":-32601,"message":"Method not found"}}"#,
            ),
            refused: Bytes::from_static(refused.as_bytes()),
        }
    }

    pub(crate) fn has_sessions(&self) -> bool {
        self.era == ProtocolEra::Legacy
    }

    /// Answers one message; `events` says whether a tool may choose an event stream.
    pub(crate) fn answer(&self, message: &[u8], events: bool) -> AnswerKind {
        let Some(id) = raw_value(message, "\"id\"") else {
            return AnswerKind::Accepted;
        };
        match (
            raw_value(message, "\"method\"").unwrap_or_default(),
            self.era,
        ) {
            (b"\"tools/call\"", _) => self.call(id, message, events),
            (b"\"tools/list\"", _) => AnswerKind::Json(whole(id, &self.list)),
            (b"\"initialize\"", ProtocolEra::Legacy) => AnswerKind::Session(whole(id, &self.hello)),
            (b"\"server/discover\"", ProtocolEra::Modern) => {
                AnswerKind::Json(whole(id, &self.hello))
            }
            (b"\"initialize\"", ProtocolEra::Modern)
            | (b"\"server/discover\"", ProtocolEra::Legacy) => {
                AnswerKind::Refused(whole(id, &self.refused))
            }
            (b"\"ping\"", _) => AnswerKind::Json(whole(id, &self.empty)),
            _ => AnswerKind::Json(whole(id, &self.unknown)),
        }
    }

    fn call(&self, id: &[u8], message: &[u8], events: bool) -> AnswerKind {
        let name = memmem::find(message, b"\"echo")
            .and_then(|at| message.get(at + 1..))
            .unwrap_or_default();
        let name = name.split(|byte| *byte == b'"').next().unwrap_or_default();
        match self.calls.iter().find(|(tool, _)| tool.as_bytes() == name) {
            Some((tool, tail)) if events && tool.ends_with("_sse") => {
                AnswerKind::Sse(event(id, tail))
            }
            Some((_, tail)) => AnswerKind::Json(whole(id, tail)),
            None => AnswerKind::Json(whole(id, &self.unknown)),
        }
    }
}

const HEAD: &[u8] = br#"{"jsonrpc":"2.0","id":"#;
const EVENT: &[u8] = b"event: message\ndata: ";

fn whole(id: &[u8], tail: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(HEAD.len() + id.len() + tail.len());
    out.put_slice(HEAD);
    out.put_slice(id);
    out.put_slice(tail);
    out.freeze()
}

fn event(id: &[u8], tail: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(EVENT.len() + HEAD.len() + id.len() + tail.len() + 2);
    out.put_slice(EVENT);
    out.put_slice(HEAD);
    out.put_slice(id);
    out.put_slice(tail);
    out.put_slice(b"\n\n");
    out.freeze()
}

/// The definition of the tool at `index`, about the size that real servers have.
fn tool(index: usize) -> String {
    let name = ECHO_TOOLS
        .get(index)
        .map_or_else(|| format!("tool_{index:04}"), |name| (*name).to_owned());
    format!(
        concat!(
            r#"{{"name":"{name}","title":"Tool {index}","description":"Looks up one item by its text in the given "#,
            r#"scope, and returns what it found as plain text. Use it when the item is known by name.","#,
            r#""inputSchema":{{"type":"object","properties":{{"text":{{"type":"string","description":"What to look "#,
            r#"for"}},"scope":{{"type":"string","enum":["all","open","closed"],"default":"all"}},"#,
            r#""limit":{{"type":"integer","minimum":1,"maximum":100}}}},"required":["text"]}},"#,
            r#""annotations":{{"readOnlyHint":true,"openWorldHint":false}}}}"#
        ),
        name = name,
        index = index
    )
}
