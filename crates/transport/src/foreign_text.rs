//! Texts that aren't messages, since a server writes in another way than MCP does.
//!
//! Owns the recognition of such a text, and its description for people. Does not read it.
//! Invariant: a text of MCP is never described.

/// Returns what is wrong with a text that isn't a message, if it is a known mistake.
pub(super) fn describe_foreign(text: &[u8]) -> Option<&'static str> {
    let start = text.trim_ascii_start();
    if start.len() >= 15 && start[..15].eq_ignore_ascii_case(b"content-length:") {
        return Some(
            "it frames its messages with Content-Length headers, as the Language Server Protocol \
             does; MCP has one message per line",
        );
    }
    is_utf16(text).then_some("it writes UTF-16, but MCP is UTF-8")
}

/// True for UTF-16: a byte order mark, or a zero byte next to nearly each ASCII letter.
fn is_utf16(text: &[u8]) -> bool {
    if text.starts_with(&[0xff, 0xfe]) || text.starts_with(&[0xfe, 0xff]) {
        return true;
    }
    let first = &text[..text.len().min(200)];
    let zeros = first.iter().filter(|byte| **byte == 0).count();
    first.len() >= 8 && zeros * 3 >= first.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    fn mistake_in(text: &[u8]) -> &'static str {
        describe_foreign(text).unwrap_or_default()
    }

    #[test]
    fn known_mistakes_are_named() {
        assert!(mistake_in(b"Content-Length: 52\r").contains("Language Server Protocol"));
        assert!(mistake_in(b"content-length:52").contains("Language Server Protocol"));
        assert!(mistake_in(&utf16(r#"{"jsonrpc":"2.0","id":1}"#)).contains("UTF-16"));
        assert!(mistake_in(b"\xff\xfe{\0").contains("UTF-16"));
        for text in [
            &b"{\"jsonrpc\":\"2.0\"}"[..],
            b"Listening on 8080",
            b"",
            b"\0",
            b"Content-Type: x",
        ] {
            assert_eq!(mistake_in(text), "");
        }
    }
}
