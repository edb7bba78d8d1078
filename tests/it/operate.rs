//! What an operator without `admin.allow_commands` must not be able to do, and who an operator is.
//!
//! Each test is one attack, at the default config. What the admin API can do is in `admin_add.rs`
//! and `admin_edit.rs`.

use std::process::Output;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::harness::{
    EditedGateway, Era, JSON, McpClient, Setup, legacy, modern, only, serve, until,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_moongate");
const CLIENT_KEY: &str = "key-of-the-client-bob-0123456789";

/// Runs a command with the config of a setup.
async fn run(setup: &Setup, args: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    let command = command.args(args);
    let file = setup.path("moongate.toml");
    let command = command
        .arg("--config")
        .arg(file)
        .env_remove("MOONGATE_CONFIG")
        .env("HOME", setup.path("home"));
    command.output().await.unwrap()
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

async fn is_refused(edited: &EditedGateway, method: &str, path: &str, body: Value) {
    let before = edited.text();
    let reply = edited.send(method, path, &[], &body).await;
    assert_eq!(reply.status, 403, "{body}");
    assert_eq!(reply.json()["error"], "commands_not_allowed", "{body}");
    assert_eq!(edited.text(), before);
}

#[tokio::test]
async fn commands_of_everybody_are_refused_at_the_load() {
    const COMMANDS: &str = "allow_commands = true";
    let setup = Setup::new().with("admin", COMMANDS);
    let refused = setup.load().unwrap_err().to_string();
    assert!(refused.contains("every user of this machine"), "{refused}");
    let check = text(&run(&setup, &["check"]).await);
    assert!(
        check.contains("moongate key new NAME --admin --write"),
        "{check}"
    );
    let doctor = text(&run(&setup, &["doctor"]).await);
    assert!(
        doctor.contains("MG-C13") && doctor.contains("moongate key new NAME --admin --write"),
        "{doctor}"
    );
    // The advice mends it.
    let made = run(&setup, &["key", "new", "me", "--admin", "--write"]).await;
    assert!(made.status.success(), "{}", text(&made));
    assert!(run(&setup, &["check"]).await.status.success());
    let socket = |mode: &str| {
        let gateway =
            format!("admin = \"unix:/run/moongate-admin.sock\"\nsocket_mode = \"{mode}\"");
        Setup::new()
            .with("admin", COMMANDS)
            .with("gateway", &gateway)
            .load()
            .map(drop)
    };
    assert!(socket("0600").is_ok());
    for mode in ["0660", "0606", "0777"] {
        assert!(
            socket(mode).unwrap_err().to_string().contains("0600"),
            "{mode}"
        );
    }
    let without = Setup::new()
        .with("admin", COMMANDS)
        .with("gateway", "admin = false")
        .load();
    assert!(without.is_ok(), "nobody reaches what is not there");
}

#[tokio::test]
async fn a_reload_does_not_let_everybody_write_commands() {
    let (_server, edited) = EditedGateway::with_echo().await;
    let before = edited.text();
    // The listener stays as it is until the restart, whatever the file says about it.
    let hidden = before.replace("admin = \"127.0.0.1:0\"", "admin = false")
        + "[admin]\nallow_commands = true\n";
    for text in [before.clone() + "[admin]\nallow_commands = true\n", hidden] {
        std::fs::write(edited.setup.path("moongate.toml"), &text).unwrap();
        let reload = edited.send("POST", "/reload", &[], &json!({})).await;
        assert_eq!(
            reload.json()["outcome"],
            "refused",
            "{}",
            reload.text_body()
        );
        is_refused(
            &edited,
            "PATCH",
            "/servers/a",
            json!({ "set": { "command": "sh" } }),
        )
        .await;
    }
}

#[tokio::test]
async fn the_key_of_a_client_reaches_no_server_whoever_forwards_it() {
    for (script, era) in [(legacy(), Era::Legacy), (modern(), Era::Modern)] {
        let server = serve(only(script, &["echo"])).await;
        let table = format!(
            "url = {:?}\nforward_headers = \
             {{ Authorization = \"Authorization\", authorization = \"X-Copy\", \
             MCP-Protocol-Version = \"X-Revision\" }}",
            server.url
        );
        let key = format!("name = \"bob\"\nkey = {CLIENT_KEY:?}");
        let gateway = Setup::new()
            .with("servers.a", &table)
            .with("auth.keys", &key)
            .start()
            .await;
        gateway.ready(&["a"]).await;
        let client = McpClient::with_key(&gateway.url("/mcp"), era, Some(CLIENT_KEY)).await;
        client
            .call("a__echo", json!({ "text": "x" }))
            .await
            .result();
        let received = format!("{:?}", server.recorded_requests());
        assert!(
            received.contains("x-revision") && !received.contains(CLIENT_KEY),
            "{received}"
        );
    }
    let forwarding =
        "url = \"http://127.0.0.1:9/mcp\"\nforward_headers = { Authorization = \"X\" }";
    let key = format!("name = \"bob\"\nkey = {CLIENT_KEY:?}");
    let loaded = Setup::new()
        .with("servers.a", forwarding)
        .with("auth.keys", &key)
        .load()
        .unwrap();
    assert!(
        loaded
            .warnings
            .iter()
            .any(|warning| warning.message.contains("never passed on")),
        "check says it"
    );
}

#[tokio::test]
async fn forwarded_headers_need_the_permission() {
    let (server, edited) = EditedGateway::with_echo().await;
    let forwarding = json!({ "X-Api-Key": "X-Api-Key" });
    is_refused(
        &edited,
        "PATCH",
        "/servers/a",
        json!({ "set": { "forward_headers": forwarding } }),
    )
    .await;
    let new = json!({ "url": server.url, "forward_headers": forwarding });
    is_refused(
        &edited,
        "POST",
        "/servers",
        json!({ "servers": { "b": new } }),
    )
    .await;
}

/// Adds and previews a server: both say that it needs the permission.
async fn assert_permission_is_needed(edited: &EditedGateway, settings: Value) {
    is_refused(
        edited,
        "POST",
        "/servers",
        json!({ "servers": { "evil": settings } }),
    )
    .await;
    let text = json!({ "mcpServers": { "evil": settings } }).to_string();
    let shown = edited
        .send(
            "POST",
            "/servers/preview",
            &[],
            &json!({ "text": text, "probe": true }),
        )
        .await;
    assert_eq!(
        shown.json()["servers"][0]["needs_command"],
        true,
        "{}",
        shown.text_body()
    );
}

#[tokio::test]
async fn no_variable_goes_where_the_owner_does_not_send_it() {
    let server = serve(only(legacy(), &["echo"])).await;
    let other = serve(only(legacy(), &["echo"])).await;
    let table = format!(
        "url = {:?}\nheaders = {{ X-Known = \"${{PATH}}\" }}",
        server.url
    );
    let edited = EditedGateway::start(Setup::new().with("servers.a", &table)).await;
    edited.ready("a").await;
    let path = std::env::var("PATH").unwrap();
    let is_sent = || format!("{:?}", other.recorded_requests()).contains(&path);
    for settings in [
        json!({ "url": other.url, "headers": { "X": "${PATH}" } }),
        json!({ "url": other.url, "headers": { "X": "${NO_SUCH_VARIABLE:-${PATH}}" } }),
        json!({ "url": format!("{}?q=${{env:PATH}}", other.url) }),
        json!({ "url": server.url, "title": "${PATH}" }),
        json!({ "url": server.url, "headers": { "X": "${HOME}" } }),
        json!({ "url": server.url, "headers": { "X": "${PATH}" }, "proxy": "http://127.0.0.1:9" }),
        json!({ "tcp": "${PATH}:9" }),
        json!({ "url": other.url, "enabled": false, "headers": { "X": "${PATH}" } }),
    ] {
        assert_permission_is_needed(&edited, settings).await;
    }
    assert!(!is_sent());
    // To the same origin it goes already.
    let same = json!({ "url": server.url, "headers": { "X-Other": "${PATH}" } });
    let added = edited
        .send(
            "POST",
            "/servers",
            &[],
            &json!({ "servers": { "b": same } }),
        )
        .await;
    assert_eq!(added.status, 201, "{}", added.text_body());
    // Removed and added again, the old one would lead elsewhere.
    for name in ["a", "b"] {
        assert_eq!(
            edited
                .send("DELETE", &format!("/servers/{name}"), &[], &Value::Null)
                .await
                .status,
            200
        );
    }
    let moved = json!({ "url": other.url, "headers": { "X-Known": "${PATH}" } });
    is_refused(
        &edited,
        "POST",
        "/servers",
        json!({ "servers": { "a": moved } }),
    )
    .await;
    assert!(!is_sent());
}

#[tokio::test]
async fn an_undo_brings_back_nothing_that_the_owner_removed() {
    let server = serve(only(legacy(), &["echo"])).await;
    let setup = Setup::new()
        .http("a", &server.url)
        .stdio("p", &only(legacy(), &["echo"]));
    let edited = EditedGateway::start(setup).await;
    edited.ready("p").await;
    let undo = async || edited.send("POST", "/config/undo", &[], &json!({})).await;
    // The page takes back its own removal, also of a program.
    assert_eq!(
        edited
            .send("DELETE", "/servers/p", &[], &Value::Null)
            .await
            .status,
        200
    );
    assert_eq!(undo().await.status, 200);
    edited.ready("p").await;
    let removed = run(&edited.setup, &["remove", "p"]).await;
    assert!(removed.status.success(), "{}", text(&removed));
    let is_listed = async |name: &str| {
        let servers = edited.gateway.admin("/api/v1/status").await.json()["servers"].clone();
        servers
            .as_array()
            .unwrap()
            .iter()
            .any(|server| server["name"] == name)
    };
    until("the program is gone", async || {
        (!is_listed("p").await).then_some(())
    })
    .await;
    is_refused(&edited, "POST", "/config/undo", json!({})).await;
    // An edit of an operator above it changes nothing about that.
    assert_eq!(
        edited
            .patch("a", json!({ "set": { "title": "A" } }))
            .await
            .status,
        200
    );
    assert_eq!(undo().await.status, 200, "its own edit");
    is_refused(&edited, "POST", "/config/undo", json!({})).await;
    let history = edited.get("/config").await["undo"].clone();
    assert_eq!(history[0]["via"], "command", "{history}");
    assert_eq!(history[0]["by"], Value::Null, "{history}");
    // What only takes away may be taken back by anybody.
    assert!(
        run(&edited.setup, &["add", "c", &server.url])
            .await
            .status
            .success()
    );
    until("the server is there", async || {
        is_listed("c").await.then_some(())
    })
    .await;
    edited.ready("c").await;
    let undone = undo().await;
    assert_eq!(undone.status, 200, "{}", undone.text_body());
    assert!(!edited.text().contains("servers.c"));
}

#[tokio::test]
async fn a_key_that_the_owner_revoked_does_not_come_back_by_an_undo() {
    let (server, edited) = EditedGateway::with_echo().await;
    assert!(
        run(&edited.setup, &["key", "new", "leaked", "--write"])
            .await
            .status
            .success()
    );
    until("the key is needed", async || {
        (!edited.get("/keys").await["clients"][0].is_null()).then_some(())
    })
    .await;
    let with_key = edited.text();
    // Its removal by a command is an edit of the owner.
    let removed = edited
        .send("DELETE", "/keys/leaked", &[], &Value::Null)
        .await;
    assert_eq!(removed.status, 200, "{}", removed.text_body());
    let state = edited.setup.path("state/edits.json");
    let mut history: Value =
        serde_json::from_str(&std::fs::read_to_string(&state).unwrap()).unwrap();
    history["edits"][1]["author"] = json!({ "via": "command" });
    std::fs::write(&state, history.to_string()).unwrap();
    is_refused(&edited, "POST", "/config/undo", json!({})).await;
    // So is one of a version that noted no author.
    history["edits"][1]
        .as_object_mut()
        .unwrap()
        .remove("author");
    std::fs::write(&state, history.to_string()).unwrap();
    is_refused(&edited, "POST", "/config/undo", json!({})).await;
    assert_ne!(edited.text(), with_key);
    drop(server);
}

#[tokio::test]
async fn no_server_is_at_the_metadata_service_of_a_cloud_whoever_added_it() {
    let entries = [
        ("http", "url = \"http://169.254.169.254/mcp\""),
        ("https", "url = \"https://[fd20:ce::254]/mcp\""),
        (
            "sse",
            "url = \"http://192.0.0.192/sse\"\ntransport = \"sse\"",
        ),
        ("ws", "url = \"ws://168.63.129.16/mcp\""),
        ("tcp", "tcp = \"[::ffff:169.254.1.1]:80\""),
        ("name", "url = \"http://metadata.google.internal/mcp\""),
        (
            "proxied",
            "url = \"http://100.100.100.200/mcp\"\nproxy = \"http://127.0.0.1:9\"",
        ),
        (
            "tunneled",
            "url = \"https://[64:ff9b::a9fe:a9fe]/mcp\"\nproxy = \"http://127.0.0.1:9\"",
        ),
        (
            "proxy",
            "url = \"http://127.0.0.1:9/mcp\"\nproxy = \"http://2852039166:3128\"",
        ),
    ];
    let mut setup = Setup::new();
    for (name, lines) in entries {
        setup = setup.with(&format!("servers.{name}"), lines);
    }
    let allowed =
        "url = \"http://169.254.169.254:9/mcp\"\nallow_metadata = true\nconnect_timeout = \"1s\"";
    let gateway = setup.with("servers.allowed", allowed).start().await;
    for (name, _) in entries {
        let status = gateway.state(name, "backing_off").await;
        assert!(
            status["reason"]
                .as_str()
                .unwrap()
                .contains("cloud metadata service"),
            "{name}: {status}"
        );
    }
    // What it answers, if anything does, is no matter of ours.
    let status = gateway.status("allowed").await;
    assert!(
        !status["reason"].as_str().unwrap().contains("metadata"),
        "{status}"
    );
    let (_server, edited) = EditedGateway::with_echo().await;
    is_refused(
        &edited,
        "PATCH",
        "/servers/a",
        json!({ "set": { "allow_metadata": true } }),
    )
    .await;
    // Off, it is not looked at; on, it is not dialled.
    let off =
        json!({ "servers": { "off": { "url": "http://169.254.169.254/mcp", "enabled": false } } });
    let added = edited.send("POST", "/servers", &[], &off).await;
    assert_eq!(added.status, 201, "{}", added.text_body());
    let switched = edited.patch("off", json!({ "enabled": true })).await;
    assert_eq!(switched.status, 200, "{}", switched.text_body());
    let status = edited.state("off", "backing_off").await;
    assert!(
        status["reason"]
            .as_str()
            .unwrap()
            .contains("metadata service"),
        "{status}"
    );
}

#[tokio::test]
async fn a_change_names_its_operator() {
    let server = serve(only(legacy(), &["echo"])).await;
    let edited = EditedGateway::with_key(Setup::new().http("a", &server.url)).await;
    edited.ready("a").await;
    assert_eq!(
        edited
            .patch("a", json!({ "set": { "title": "A" } }))
            .await
            .status,
        200
    );
    let history = edited.get("/config").await["undo"].clone();
    assert_eq!(history[0]["via"], "api", "{history}");
    assert_eq!(history[0]["by"], "ann", "{history}");
    let log = edited.gateway.log();
    let line = log
        .lines()
        .find(|line| line.contains("config changed by an operator"))
        .unwrap();
    assert!(
        line.contains("ann") && line.contains("changed title of a"),
        "{line}"
    );
    assert!(text(&run(&edited.setup, &["undo", "--list"]).await).contains("ann"));
    assert_eq!(
        edited
            .send("POST", "/config/undo", &[], &json!({}))
            .await
            .status,
        200
    );
    let undone = edited
        .gateway
        .log()
        .lines()
        .rfind(|line| line.contains("changed by an operator"))
        .unwrap()
        .to_owned();
    assert!(
        undone.contains("ann") && undone.contains("undid"),
        "{undone}"
    );
}

#[tokio::test]
async fn the_last_key_can_be_revoked_without_opening_the_endpoint() {
    let (_server, edited) = EditedGateway::with_echo().await;
    let before = edited.text();
    let initialize = async |key: Option<&str>| {
        let key = key.map(|key| format!("Bearer {key}"));
        let headers: Vec<(&str, &str)> = key
            .iter()
            .map(|key| ("authorization", key.as_str()))
            .chain([JSON])
            .collect();
        let body = moongate_testing::messages::initialize(1, "2025-11-25", "test", &json!({}));
        crate::harness::HttpClient::new()
            .send("POST", &edited.gateway.mcp(), &headers, body)
            .await
            .status
    };
    let made = edited
        .send("POST", "/keys", &[], &json!({ "name": "ci" }))
        .await
        .json();
    let key = made["key"].as_str().unwrap().to_owned();
    let removed = edited
        .send("DELETE", "/keys/ci?closed=true", &[], &Value::Null)
        .await;
    let answer = removed.json();
    assert_eq!(removed.status, 200, "{answer}");
    assert_eq!(answer["last_key"], true, "{answer}");
    assert_eq!(answer["open"], false, "{answer}");
    assert_eq!(initialize(None).await, 401);
    assert_eq!(initialize(Some(&key)).await, 401);
    assert!(
        edited.text().contains("required = true"),
        "{}",
        edited.text()
    );
    // A key made in its place opens it for that key alone.
    let next = edited
        .send("POST", "/keys", &[], &json!({ "name": "next" }))
        .await
        .json();
    assert_eq!(initialize(next["key"].as_str()).await, 200);
    assert_eq!(initialize(None).await, 401);
    assert_eq!(initialize(Some(&key)).await, 401);
    for _ in 0..3 {
        assert_eq!(
            edited
                .send("POST", "/config/undo", &[], &json!({}))
                .await
                .status,
            200
        );
    }
    assert_eq!(edited.text(), before);
    // Without the flag the answer says what it means.
    edited
        .send("POST", "/keys", &[], &json!({ "name": "ci" }))
        .await;
    let opened = edited
        .send("DELETE", "/keys/ci", &[], &Value::Null)
        .await
        .json();
    assert_eq!(opened["last_key"], true, "{opened}");
    assert_eq!(opened["open"], true, "{opened}");
}
