//! Mock servers, as most tests want them.

use std::net::SocketAddr;
use std::path::Path;

use moongate_mock::{MockHandle, MockScript, Revision};
use serde_json::{Value, json};

/// A port that the system picks.
pub(crate) fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// A server with sessions and every feature.
pub(crate) fn legacy() -> MockScript {
    MockScript::standard().speaking(&Revision::LEGACY)
}

/// A server without sessions, with every feature.
pub(crate) fn modern() -> MockScript {
    MockScript::standard().speaking(&[Revision::V2026_07_28])
}

/// A tool that echoes.
pub(crate) fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

/// The same server with these tools and nothing else.
pub(crate) fn only(script: MockScript, tools: &[&str]) -> MockScript {
    MockScript {
        preset: moongate_mock::ContentPreset::Empty,
        tools: tools.iter().map(|name| tool(name)).collect(),
        ..script
    }
}

/// Serves a script over HTTP in this process.
pub(crate) async fn serve(script: MockScript) -> MockHandle {
    moongate_mock::serve_http(script, loopback()).await.unwrap()
}

/// Serves a script where another mock was: on its address, as after a restart.
pub(crate) async fn mock_at(script: MockScript, address: SocketAddr) -> MockHandle {
    super::until("the port is free", || {
        let script = script.clone();
        async move { moongate_mock::serve_http(script, address).await.ok() }
    })
    .await
}

/// What a recording child received so far, a message a line. The child may still be writing: a line
/// counts once it has its end.
pub(crate) fn record_of(dir: &Path, server: &str) -> String {
    let written = std::fs::read(dir.join(format!("{server}.record"))).unwrap_or_default();
    whole_lines(&written)
}

fn whole_lines(written: &[u8]) -> String {
    let end = written
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |last| last + 1);
    String::from_utf8(written[..end].to_vec()).unwrap()
}

#[test]
fn a_line_without_its_end_is_not_there_yet() {
    assert_eq!(
        whole_lines("{\"a\":1}\n{\"b\":\"\u{e9}".as_bytes()),
        "{\"a\":1}\n"
    );
    assert_eq!(whole_lines("{\"b\":\"\u{e9}".as_bytes()[..7].as_ref()), "");
    assert_eq!(whole_lines(b""), "");
}
