//! `moongate import --take-over`: which entries leave their clients' files, and which stay there.

use moongate_mock::MockHandle;
use serde_json::{Value, json};

use super::servers;
use crate::harness::user_home::{RunOutput, UserHome};
use crate::harness::{self, lasting_port, legacy, only, serve, until};

/// The program under test, which also has servers.
const PROGRAM: &str = env!("CARGO_BIN_EXE_moongate");

#[tokio::test]
async fn an_entry_stays_in_its_client_where_the_gateway_has_it_switched_off() {
    let home = UserHome::new();
    home.write(
        "work/moongate.toml",
        "[servers.docs]\nurl = \"https://docs.example/mcp\"\nenabled = false\n",
    );
    let works = json!({ "command": PROGRAM, "args": ["mock", "--demo"] }).to_string();
    let text = servers(&[
        ("docs", r#"{"url": "https://docs.example/mcp"}"#),
        ("x", &works),
    ]);
    home.write(".cursor/mcp.json", &text);
    let ran = home.run(&["import", "--take-over", "--yes"]).await;
    assert!(
        ran.out.contains("already added as docs") && ran.out.contains("switched off"),
        "{}",
        ran.out
    );
    let left = home.read(".cursor/mcp.json");
    assert!(
        left.contains("docs.example") && !left.contains("\"x\""),
        "{left}"
    );
}

/// A server that wants a token.
async fn locked_server() -> MockHandle {
    let mut script = harness::legacy();
    script.http.bearer = Some("k".to_owned());
    harness::serve(script).await
}

/// A client's file with servers that work, soon work, need a login, are not there, and cannot be
/// used.
fn mixed_servers(locked: &MockHandle) -> String {
    let fine = json!({ "command": PROGRAM, "args": ["mock", "--demo"] });
    let slow =
        json!({ "command": "sh", "args": ["-c", format!("sleep 2; exec {PROGRAM} mock --demo")] });
    let off = json!({ "command": PROGRAM, "args": ["mock"], "disabled": true });
    let entries = json!({
        "fine": fine, "slow": slow, "off": off, "odd": { "url": 5 }, "login": { "url": locked.url },
        "gone": { "url": "http://127.0.0.1:9/mcp" },
        "missing": { "command": "/nonexistent/program" },
    });
    json!({ "mcpServers": entries }).to_string()
}

/// What `--take-over` says of each server that stays, with a part of the reason.
const LEFT: [(&str, &str); 5] = [
    ("off", "switched off"),
    ("odd", "unusable"),
    ("login", "needs_login"),
    ("gone", "backing_off"),
    ("missing", "failed"),
];

/// Checks that servers which are ready left the client's file, and all others are there with their
/// reasons.
fn assert_only_ready_ones_left(home: &UserHome, ran: &RunOutput) {
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let after: Value = serde_json::from_str(&home.read(".cursor/mcp.json")).unwrap();
    let mut names: Vec<&str> = after["mcpServers"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["gone", "login", "missing", "moongate", "odd", "off"],
        "{}",
        ran.err
    );
    for (name, reason) in LEFT {
        let line = ran
            .err
            .lines()
            .find(|line| line.contains(&format!("`{name}` stays in this file")))
            .unwrap_or_default();
        assert!(line.contains(reason), "{name}: {}", ran.err);
    }
}

#[tokio::test]
async fn without_a_gateway_only_servers_that_work_in_a_trial_are_taken_over() {
    let home = UserHome::new();
    let locked = locked_server().await;
    home.write(
        "work/moongate.toml",
        "[gateway]\nlisten = \"127.0.0.1:1\"\nadmin = \"127.0.0.1:2\"\n",
    );
    home.write(".cursor/mcp.json", &mixed_servers(&locked));
    let ran = home.run(&["import", "--take-over", "--yes"]).await;
    assert_only_ready_ones_left(&home, &ran);
    for part in [
        "no gateway is running here",
        "waiting up to",
        "run it again once they are ready",
    ] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    // Nothing more is ready, so nothing more changes.
    let before = home.read(".cursor/mcp.json");
    let again = home.run(&["import", "--take-over", "--yes"]).await;
    assert_eq!(again.code, Some(0), "{}", again.err);
    assert_eq!(home.read(".cursor/mcp.json"), before, "{}", again.err);
}

#[tokio::test]
async fn a_gateway_that_runs_says_which_servers_are_taken_over() {
    let home = UserHome::new();
    let locked = locked_server().await;
    let [listen, admin] = [(); 2].map(|()| lasting_port());
    let config =
        format!("[gateway]\nlisten = \"127.0.0.1:{listen}\"\nadmin = \"127.0.0.1:{admin}\"\n");
    home.write("work/moongate.toml", &config);
    let _gateway = home.start(&["serve"]);
    until("the gateway answers", || async {
        (home.run(&["status"]).await.code == Some(0)).then_some(())
    })
    .await;
    home.write(".cursor/mcp.json", &mixed_servers(&locked));
    let ran = home.run(&["import", "--take-over", "--yes"]).await;
    assert_only_ready_ones_left(&home, &ran);
    assert!(
        !ran.err.contains("no gateway is running here"),
        "{}",
        ran.err
    );
}

#[tokio::test]
async fn a_gateway_with_another_config_is_not_asked() {
    let home = UserHome::new();
    let [listen, admin] = [(); 2].map(|()| lasting_port());
    let addresses =
        format!("[gateway]\nlisten = \"127.0.0.1:{listen}\"\nadmin = \"127.0.0.1:{admin}\"\n");
    let mock = serve(only(legacy(), &["echo"])).await;
    home.write(
        "work/other.toml",
        &format!("{addresses}[servers.gh]\nurl = {:?}\n", mock.url),
    );
    home.write("work/moongate.toml", &addresses);
    let _gateway = home.start(&["serve", "--config", "other.toml"]);
    until("the gateway answers", || async {
        (home.run(&["status"]).await.code == Some(0)).then_some(())
    })
    .await;
    let text =
        json!({ "mcpServers": { "gh": { "command": "/nonexistent/gh-server" } } }).to_string();
    home.write(".cursor/mcp.json", &text);
    let ran = home.run(&["import", "--take-over", "--yes"]).await;
    assert_eq!(home.read(".cursor/mcp.json"), text, "{}", ran.err);
    assert!(
        ran.err
            .contains("the gateway that runs there has another config"),
        "{}",
        ran.err
    );
}

#[tokio::test]
async fn a_client_whose_entry_reaches_a_part_keeps_its_servers() {
    let home = UserHome::new();
    home.write(
        "work/moongate.toml",
        "[gateway]\nlisten = \"127.0.0.1:1\"\nadmin = \"127.0.0.1:2\"\n",
    );
    let mock = serve(only(legacy(), &["echo"])).await;
    for part in [
        json!({ "url": "http://127.0.0.1:1/mcp/files" }),
        json!({ "command": "moongate", "args": ["stdio", "--config", "x"] }),
    ] {
        let text = json!({ "mcpServers": { "part": part, "a": { "url": mock.url } } }).to_string();
        home.write(".cursor/mcp.json", &text);
        let ran = home.run(&["import", "--take-over", "--yes"]).await;
        assert_eq!(home.read(".cursor/mcp.json"), text, "{}", ran.err);
        assert!(
            ran.err.contains("its entry `part` reaches only part"),
            "{}",
            ran.err
        );
    }
}

#[tokio::test]
async fn a_bridge_that_logs_in_becomes_its_url_and_its_client_keeps_it_until_it_is_ready() {
    let home = UserHome::new();
    home.write(
        "work/moongate.toml",
        "[gateway]\nlisten = \"127.0.0.1:1\"\nadmin = \"127.0.0.1:2\"\n",
    );
    let locked = locked_server().await;
    let bridge = json!({ "command": "/nonexistent/npx",
        "args": ["-y", "mcp-remote", locked.url, "--allow-http"] });
    let text = json!({ "mcpServers": { "tracker": bridge } }).to_string();
    home.write(".cursor/mcp.json", &text);
    let ran = home.run(&["import", "--take-over", "--yes"]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(home.read(".cursor/mcp.json"), text, "{}", ran.err);
    assert!(
        ran.out.contains("next step: `moongate login tracker`"),
        "{}",
        ran.out
    );
    assert!(
        ran.err
            .contains("tracker needs a login: moongate login tracker"),
        "{}",
        ran.err
    );
    let config = home.read("work/moongate.toml");
    assert!(
        config.contains(&format!("url = \"{}\"", locked.url)) && !config.contains("command ="),
        "{config}"
    );
}
