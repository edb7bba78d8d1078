//! Tools: their list, their calls, and that nothing of either is respelled.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::pairs::cell::MatrixCell;
use crate::pairs::rig::{ODD_RESULT, ODD_TOOL};

/// Spellings that a parser would not give back.
const ARGUMENTS: &str = r#"{"z":1.0, "a":1e5,"E":1E+2,"big":123456789012345678901234567890,"neg":-0.0,"esc":"\u00e9\/\u0041","deep":{"b":[ ],"a":null},"":0}"#;

pub(crate) async fn tools_list(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    let first = client.prepare("tools/list").id("5").send().await;
    let second = client.prepare("tools/list").id("5").send().await;
    assert_eq!(
        first.bytes, second.bytes,
        "the list is spelled differently the second time"
    );
    let names: Vec<&str> = first.result()["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["name"].as_str().unwrap())
        .collect();
    for name in [
        "main__echo",
        "main__add",
        "main__region",
        "main__odd",
        "own__echo",
        "aside__echo",
    ] {
        assert_eq!(
            names.iter().filter(|n| **n == name).count(),
            1,
            "{name} in {names:?}"
        );
    }
    assert!(names.is_sorted(), "{names:?}");
    let odd = cell
        .listed(ODD_TOOL)
        .replace(r#""name":"odd""#, r#""name":"main__odd""#);
    assert!(
        first.raw_result().contains(&odd),
        "respelled: {}",
        first.raw_result()
    );
    assert!(first.result()["nextCursor"].is_null());
    for member in ["resultType", "ttlMs", "cacheScope", "_meta"] {
        assert_eq!(
            first.result().get(member).is_some(),
            cell.modern_client(),
            "{member}"
        );
    }
}

pub(crate) async fn arguments_byte_for_byte(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    let members = format!(r#""name":"main__echo","arguments":{ARGUMENTS}"#);
    let answer = client
        .prepare("tools/call")
        .id(r#""\u0069d""#)
        .members(&members)
        .send()
        .await;
    let text: Value = serde_json::from_str(ARGUMENTS).unwrap();
    assert_eq!(answer.text(), ARGUMENTS);
    let received = cell.rig.main.calls("echo").pop().unwrap();
    assert!(
        received.contains(&format!(r#""arguments":{ARGUMENTS}"#)),
        "respelled: {received}"
    );
    if cell.server_since("2025-06-18") {
        assert!(
            answer
                .raw_result()
                .contains(&format!(r#""structuredContent":{ARGUMENTS}"#)),
            "{answer:?}"
        );
        assert_eq!(answer.result()["structuredContent"], text);
    }
    assert!(
        cell.rig.aside.calls("echo").is_empty(),
        "it went to the other server too"
    );
}

pub(crate) async fn both_servers_are_called_by_their_names(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    assert_eq!(
        client
            .exchange_tool("aside__echo", json!({"who": "aside"}))
            .await
            .text(),
        r#"{"who":"aside"}"#
    );
    assert_eq!(
        client
            .exchange_tool("main__add", json!({"a": 2, "b": 40}))
            .await
            .text(),
        "42"
    );
    assert_eq!(cell.rig.aside.calls("add").len(), 0);
}

pub(crate) async fn unknown_tool(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    for name in ["main__nope", "echo", "nobody__echo", ""] {
        let answer = client.exchange_tool(name, json!({})).await;
        assert_eq!(answer.code(), -32602, "{name}: {answer:?}");
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
    }
    let answer = client
        .exchange("tools/call", json!({"arguments": {}}))
        .await;
    assert_eq!(answer.code(), -32602);
}

pub(crate) async fn tool_error_is_a_result(cell: Arc<MatrixCell>) {
    let answer = cell
        .client()
        .await
        .exchange_tool("main__fail", json!({"text": "no luck"}))
        .await;
    assert_eq!(answer.result()["isError"], true);
    assert_eq!(answer.text(), "no luck");
}

pub(crate) async fn rpc_errors_pass(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    let answer = client
        .exchange_tool("main__error", json!({"code": -32050, "message": "wörds"}))
        .await;
    assert_eq!(answer.code(), -32050);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.error()["message"], "wörds");
    // The data of the server's own error comes along.
    let answer = client
        .exchange(
            "resources/read",
            json!({"uri": "moongate:main:mock://nope"}),
        )
        .await;
    let code = if cell.modern_client() || cell.modern_server() {
        -32602
    } else {
        -32002
    };
    assert_eq!(answer.code(), code, "{answer:?}");
    assert_eq!(answer.error()["data"], json!({"uri": "mock://nope"}));
    for retired in [-32002, -32042] {
        let answer = client
            .exchange_tool("main__error", json!({"code": retired}))
            .await;
        // 2026-07-28/basic/index.mdx, Error Codes: "MUST NOT emit these codes". A server of that
        // revision answers for its codes itself.
        let is_translated = cell.modern_client() && !cell.modern_server();
        assert_eq!(answer.code(), if is_translated { -32602 } else { retired });
    }
}

pub(crate) async fn unknown_members_survive(cell: Arc<MatrixCell>) {
    let answer = cell
        .client()
        .await
        .exchange_tool("main__odd", json!({}))
        .await;
    let raw = answer.raw_result();
    let odd = ODD_RESULT;
    let content = &odd[odd.find(r#""content""#).unwrap()..odd.find(r#","isError""#).unwrap()];
    let rest = &odd[odd.find(r#""x-result""#).unwrap()..odd.len() - 1];
    // The mock adds to `_meta` at its modern revision, and spells it again.
    let trace = if cell.modern_server() {
        r#"{"e":"é"}"#
    } else {
        r#"{"e":"\u00e9"}"#
    };
    let trace = format!(r#""com.example/trace":{trace}"#);
    for part in [content, rest, &trace] {
        assert!(raw.contains(part), "{part} is not in {raw}");
    }
}

pub(crate) async fn large_results(cell: Arc<MatrixCell>) {
    let answer = cell
        .client()
        .await
        .exchange_tool("main__big", json!({"bytes": 100_000}))
        .await;
    assert_eq!(answer.text().len(), 100_000);
    assert!(answer.text().bytes().all(|b| b == b'x'));
    if cell.modern_client() {
        assert_eq!(answer.result()["resultType"], "complete");
    }
}

pub(crate) async fn meta_passes_and_nothing_leaks(cell: Arc<MatrixCell>) {
    let client = cell.able().await;
    let own = r#""com.example/k":{"n":1.0, "e":"\u00e9"},"traceparent":"00-1-2-03""#;
    let members = r#""name":"main__whoami","arguments":{}"#;
    let answer = client
        .prepare("tools/call")
        .members(members)
        .meta(own)
        .send()
        .await;
    let me: Value = serde_json::from_str(answer.text()).unwrap();
    let received = cell.rig.main.calls("whoami").pop().unwrap();
    assert!(
        received.contains(r#""com.example/k":{"n":1.0, "e":"\u00e9"}"#),
        "respelled: {received}"
    );
    assert_eq!(me["meta"]["traceparent"], "00-1-2-03");
    let mut reserved: Vec<&str> = me["meta"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    reserved.retain(|key| key.starts_with("io.modelcontextprotocol/") || *key == "progressToken");
    reserved.sort_unstable();
    if cell.modern_server() {
        // A legacy client that set no level gets all log messages, as it would directly.
        let level = if cell.modern_client() {
            None
        } else {
            Some("logLevel")
        };
        let names = ["clientCapabilities", "clientInfo"]
            .into_iter()
            .chain(level)
            .chain(["protocolVersion"]);
        let names: Vec<String> = names
            .map(|name| format!("io.modelcontextprotocol/{name}"))
            .collect();
        assert_eq!(reserved, names);
        assert_eq!(
            me["meta"]["io.modelcontextprotocol/clientInfo"],
            json!({"name": "pairs", "version": "1"})
        );
        assert_eq!(me["capabilities"], cell.everything());
    } else {
        assert!(
            reserved.is_empty(),
            "these are another revision's: {reserved:?}"
        );
    }
    let members = answer.result();
    if cell.modern_client() {
        assert_eq!(members["resultType"], "complete");
        assert_eq!(
            members["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
            "moongate"
        );
    } else {
        for member in ["resultType", "ttlMs", "cacheScope", "_meta"] {
            assert!(
                members.get(member).is_none(),
                "{member} is another revision's: {answer:?}"
            );
        }
    }
}

pub(crate) async fn mirrored_arguments(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    let region = json!({"name": "main__region", "arguments": {"region": "eu-süd"}});
    let ask = || client.prepare("tools/call").params(&region);
    if cell.modern_client() {
        let answer = ask().send().await;
        assert_eq!(
            answer.code(),
            -32020,
            "the header Mcp-Param-Region is missing"
        );
        assert_eq!(answer.status, 400, "the header Mcp-Param-Region is missing");
        let answer = ask().header("mcp-param-region", "us").send().await;
        assert_eq!(answer.code(), -32020, "the header says something else");
        assert_eq!(answer.status, 400, "the header says something else");
    }
    // "eu-süd" in the sentinel format.
    let encoded = "=?base64?ZXUtc8O8ZA==?=";
    let answer = if cell.modern_client() {
        ask().header("mcp-param-region", encoded)
    } else {
        ask()
    }
    .send()
    .await;
    assert_eq!(answer.text(), "eu-süd");
    let has_headers = cell.modern_server() && cell.transport.is_http();
    if let Some(handle) = cell.rig.main.handle.as_ref().filter(|_| has_headers) {
        let seen = handle.last_request("tools/call").unwrap();
        assert_eq!(seen.header("mcp-param-region"), Some(encoded));
        assert_eq!(
            seen.header("mcp-name"),
            Some("region"),
            "the header has the server's own name"
        );
    }
}
