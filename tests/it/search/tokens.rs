//! Tokens that the tools of search mode cost in a conversation, as a tokeniser of models counts
//! them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::{CLIENTS, able, searching};
use crate::harness::{legacy, only};

/// Counts the tokens of a text by the encoding o200k_base.
fn tokens(text: &str) -> usize {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = root.join("tests/search/tokens.mjs");
    let packages = root.join("target/search/npm");
    let how = "The tokeniser is fetched by this line: tests/search/setup.sh";
    assert!(packages.join("node_modules").exists(), "{how}");
    let mut command = Command::new("node");
    let mut child = command
        .arg(script)
        .arg(packages)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node runs");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .expect(how)
}

#[tokio::test]
async fn four_tools_cost_450_tokens_and_eight_850() {
    for (script, most) in [(only(legacy(), &["echo"]), 450), (legacy(), 850)] {
        let (_mock, gateway) = searching(script, &[]).await;
        let client = able(&gateway, CLIENTS[1]).await;
        let answer = client.exchange("tools/list", json!({})).await;
        let text = answer.result()["tools"].to_string();
        let cost = tokens(&text);
        assert!(
            (300..=most).contains(&cost),
            "{cost} tokens, and at most {most} are good: {text}"
        );
    }
}
