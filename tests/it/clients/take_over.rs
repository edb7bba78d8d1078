//! `moongate import --take-over`: which entries of clients the gateway replaces.

use serde_json::json;

use super::gateway;
use crate::harness::user_home::UserHome;
use crate::harness::{legacy, serve};

/// Entry of a server that works.
fn working(flags: &[&str]) -> String {
    let args: Vec<&str> = std::iter::once("mock")
        .chain(flags.iter().copied())
        .collect();
    json!({ "command": env!("CARGO_BIN_EXE_moongate"), "args": args }).to_string()
}

/// Cursor's file: a program, this server, and an entry that is none.
fn cursor_file(docs: &str) -> String {
    let text = "{\n  // mine\n  \"mcpServers\": {\n    \"My Notes\": NOTES,\n    \"docs\": {\"url\": \
                \"DOCS\"},\n    \"odd\": {\"url\": 5}\n  }\n}\n";
    text.replace("NOTES", &working(&["--demo"]))
        .replace("DOCS", docs)
}

/// Warp's file: the gateway, and a program.
fn warp_file(gateway: &str) -> String {
    format!(
        "{{\"mcpServers\": {{\"gate\": {{\"url\": \"{}\"}}, \"w\": {}}}}}",
        gateway,
        working(&["--stdio"])
    )
}

/// Shows what would be replaced, and replaces nothing without `--yes`.
async fn assert_nothing_is_replaced_unasked(home: &UserHome, cursor: &str) {
    let dry = home.run(&["import", "--take-over", "--dry-run"]).await;
    assert!(
        dry.err.contains("`My Notes` would be replaced") && !dry.err.contains("odd"),
        "{}",
        dry.err
    );
    assert_eq!(home.read(".cursor/mcp.json"), cursor);
    let unasked = home.run(&["import", "--take-over"]).await;
    assert_eq!(unasked.code, Some(1), "{}", unasked.err);
    assert!(unasked.err.contains("--yes"), "{}", unasked.err);
    assert_eq!(home.read(".cursor/mcp.json"), cursor);
}

/// Takes over one of two servers: nobody has the other one, so its second entry stays.
async fn assert_servers_left_out_stay(home: &UserHome) {
    home.write(
        ".kiro/settings/mcp.json",
        "{\"mcpServers\": {\"b\": {\"command\": \"both\"}}}",
    );
    home.write(
        ".junie/mcp/mcp.json",
        "{\"mcpServers\": {\"j\": {\"command\": \"both\"}}}",
    );
    let none = home
        .run(&["import", "--take-over", "--yes", "--only", "b"])
        .await;
    assert_eq!(none.code, Some(0), "{}", none.err);
    assert!(
        home.read(".kiro/settings/mcp.json").contains("both"),
        "{}",
        none.err
    );
}

async fn assert_undo_restores(home: &UserHome, client: &str, file: &str, before: &str) {
    let undone = home.run(&["connect", client, "--undo", "--yes"]).await;
    assert_eq!(undone.code, Some(0), "{}", undone.err);
    assert_eq!(home.read(file), before, "{}", undone.err);
}

async fn assert_pasted_text_is_not_taken_over(home: &UserHome) {
    let pasted = home
        .run_with(
            &["import", "-", "--take-over", "--yes"],
            "",
            "https://a.example/mcp",
        )
        .await;
    assert_eq!(pasted.code, Some(2), "{}", pasted.err);
    assert!(pasted.err.contains("--take-over"), "{}", pasted.err);
}

#[tokio::test]
async fn imported_servers_of_a_client_give_way_to_the_gateway() {
    let home = UserHome::new();
    let gateway = gateway().await;
    let docs_server = serve(legacy()).await;
    let docs = docs_server.url.clone();
    let address = gateway
        .mcp()
        .trim_start_matches("http://")
        .trim_end_matches("/mcp")
        .to_owned();
    let config = format!(
        "[gateway]\nlisten = {address:?}\nadmin = \"127.0.0.1:2\"\n[servers.docs]\nurl = {docs:?}\n"
    );
    home.write("work/moongate.toml", &config);
    let cursor = &*cursor_file(&docs);
    home.write(".cursor/mcp.json", cursor);
    let warp = warp_file(&gateway.mcp());
    home.write(".warp/.mcp.json", &warp);
    let project = &*format!(
        "{{\"mcpServers\": {{\"shared\": {}}}}}",
        working(&["--demo", "--stdio"])
    );
    home.write("work/.mcp.json", project);
    assert_nothing_is_replaced_unasked(&home, cursor).await;
    let taken = home.run(&["import", "--take-over", "--yes"]).await;
    assert_eq!(taken.code, Some(0), "{}", taken.err);
    for part in [
        "connect cursor --undo",
        "checked: the gateway answers",
        "Warp keeps its entry",
        "others may use this file",
    ] {
        assert!(taken.err.contains(part), "{part}: {}", taken.err);
    }
    let after = home.read(".cursor/mcp.json");
    assert!(
        after.contains("// mine") && after.contains("odd") && after.contains(&gateway.mcp()),
        "{after}"
    );
    assert!(
        !after.contains("Notes") && !after.contains(&docs),
        "{after}"
    );
    let warp_after = home.read(".warp/.mcp.json");
    assert!(
        warp_after.contains("gate")
            && !warp_after.contains("moongate")
            && !warp_after.contains("\"w\""),
        "{warp_after}"
    );
    assert_eq!(home.read("work/.mcp.json"), project);
    assert_servers_left_out_stay(&home).await;
    let again = home.run(&["import", "--take-over", "--yes"]).await;
    assert_eq!(again.code, Some(0), "{}", again.err);
    assert_eq!(home.read(".cursor/mcp.json"), after, "{}", again.err);
    for (client, file, before) in [
        ("cursor", ".cursor/mcp.json", cursor),
        ("warp", ".warp/.mcp.json", &warp),
    ] {
        assert_undo_restores(&home, client, file, before).await;
    }
    assert_pasted_text_is_not_taken_over(&home).await;
}

#[tokio::test]
async fn an_entry_that_was_not_imported_is_never_replaced() {
    let home = UserHome::new();
    let file = ".kiro/settings/mcp.json";
    let text = &*format!(
        "{{\"mcpServers\": {{\"moongate\": {{\"url\": 5}}, \"a\": {}}}}}",
        working(&[])
    );
    home.write(file, text);
    let refused = home.run(&["import", "kiro", "--take-over", "--yes"]).await;
    assert_eq!(refused.code, Some(1), "{}", refused.err);
    assert!(refused.err.contains("was not imported"), "{}", refused.err);
    assert_eq!(home.read(file), text);
    // The import itself is done.
    assert!(
        home.read(".config/moongate/moongate.toml")
            .contains("[servers.a]")
    );
}
