//! `moongate explain`, from the config alone and from a running gateway.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Era, Gateway, Setup, legacy, only, serve};

/// Runs a command of the program in an empty environment. Returns its exit code, stdout and stderr.
async fn moongate(dir: &Path, line: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moongate"));
    command
        .args(line.split(' '))
        .current_dir(dir)
        .env("HOME", dir)
        .env_remove("XDG_CONFIG_HOME");
    command.env_remove("MOONGATE_CONFIG");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

const CONFIG: &str = r#"[gateway]
listen = "127.0.0.1:1"
admin = "127.0.0.1:2"
[servers.github]
url = "http://127.0.0.1:1/mcp"
prefix = "gh"
tools.deny = ["delete_*"]
[[auth.keys]]
name = "ci"
hash = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
tools = ["*", "!*__merge"]
[[auth.keys]]
name = "reader"
hash = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a09"
tools = ["*__get"]
[servers.sentry]
url = "http://127.0.0.1:1/mcp"
headers = { X = "${NOT_SET_ANYWHERE}" }
"#;

#[tokio::test]
async fn without_a_gateway_the_config_decides_and_its_line_is_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("moongate.toml"), CONFIG).unwrap();
    let (code, out, _) = moongate(dir.path(), "explain ci gh__delete_repo").await;
    assert_eq!(code, 1, "{out}");
    for part in [
        "no: ci may not call gh__delete_repo at /mcp (it looks unknown to ci)",
        "server github  not checked, since no gateway is running",
        "servers.github.tools.deny = [\"delete_*\"]  ./moongate.toml:7  <- decides: \"delete_*\" \
         matches delete_repo",
        "auth.keys[0].tools \"ci\" = [\"*\", \"!*__merge\"]  ./moongate.toml:11  allows: \"*\" \
         matches gh__delete_repo",
        "to change: moongate enable github delete_repo",
    ] {
        assert!(out.contains(part), "{part}\n{out}");
    }
    let (code, out, _) = moongate(dir.path(), "explain ci gh__merge --format json").await;
    let report: Value = serde_json::from_str(&out).unwrap();
    let deciding = report["rules"]
        .as_array()
        .unwrap()
        .iter()
        .find(|rule| rule["decides"] == true)
        .unwrap();
    assert_eq!(code, 1);
    assert_eq!(report["callable"], false);
    assert_eq!(report["running"], false);
    assert_eq!(deciding["key"], json!(["auth", "keys", "ci", "tools"]));
    assert_eq!(deciding["place"], "./moongate.toml:11");
    for (line, change) in [
        (
            "ci gh__merge",
            "remove \"!*__merge\" from auth.keys[0].tools (./moongate.toml:11)",
        ),
        (
            "reader gh__put",
            "add \"gh__put\" to auth.keys[1].tools (./moongate.toml:15)",
        ),
        (
            "ci sentry__get",
            "`moongate doctor sentry` says what to fix",
        ),
    ] {
        let (code, out, _) = moongate(dir.path(), &format!("explain {line}")).await;
        assert!(
            code == 1 && out.contains(&format!("to change: {change}\n")),
            "{line}: {out}"
        );
    }
    let (code, out, _) = moongate(dir.path(), "explain ci gh__get --endpoint /mcp").await;
    assert_eq!(code, 0, "{out}");
    assert!(
        out.contains("yes: ci may call gh__get at /mcp, if the server offers it"),
        "{out}"
    );
}

#[tokio::test]
async fn keys_and_endpoints_that_the_config_lacks_are_answered_with_those_it_has() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("moongate.toml"), CONFIG).unwrap();
    let (code, _, said) = moongate(dir.path(), "explain cd gh__get").await;
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("there is no key \"cd\"; known: ci, reader"),
        "{said}"
    );
    let (code, _, said) = moongate(dir.path(), "explain ci gh__get --endpoint gihub").await;
    let known = "there is no endpoint \"/mcp/gihub\"; known: /mcp/github, /mcp, /mcp/sentry";
    assert_eq!(code, 2, "{said}");
    assert!(said.contains(known), "{said}");
}

#[tokio::test]
async fn a_role_and_a_key_that_has_it_are_explained_by_the_line_of_the_role() {
    let dir = tempfile::tempdir().unwrap();
    let role = r#"[[auth.keys]]
name = "bot"
hash = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a0a"
role = "staff"
[[auth.roles]]
name = "staff"
tools = ["*__get"]
"#;
    std::fs::write(dir.path().join("moongate.toml"), format!("{CONFIG}{role}")).unwrap();
    for who in ["role:staff", "bot"] {
        let (code, out, _) = moongate(dir.path(), &format!("explain {who} gh__put")).await;
        assert_eq!(code, 1, "{out}");
        for part in [
            format!("no: {who} may not call gh__put at /mcp"),
            "auth.roles[0].tools \"staff\" = [\"*__get\"]  ./moongate.toml:25  <- decides"
                .to_owned(),
            "to change: add \"gh__put\" to auth.roles[0].tools (./moongate.toml:25)".to_owned(),
        ] {
            assert!(out.contains(&part), "{part}\n{out}");
        }
        let (code, out, _) = moongate(dir.path(), &format!("explain {who} gh__get")).await;
        assert_eq!(code, 0, "{out}");
    }
    let (code, _, said) = moongate(dir.path(), "explain role:stuff gh__get").await;
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("there is no role \"stuff\"; known: staff"),
        "{said}"
    );
}

/// Checks the answers of the admin API: of a name at the wrong endpoint, and without a tool.
async fn assert_api_explains(gateway: &Gateway) {
    let answer = gateway
        .admin("/api/v1/explain?principal=anybody&tool=a__echo&endpoint=a")
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["callable"], false);
    let rule = answer.json()["rules"][0].clone();
    assert!(
        rule.get("file").is_some() && rule.get("line").is_some(),
        "{rule}"
    );
    let answer = gateway.admin("/api/v1/explain?principal=anybody").await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["error"], "bad_query");
}

#[tokio::test]
async fn a_running_gateway_explains_what_its_calls_do() {
    let server = serve(only(legacy(), &["echo", "fail"])).await;
    let gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    let dir = tempfile::tempdir().unwrap();
    let admin = gateway.app.admin.unwrap();
    let run = async |line: &str| {
        moongate(
            dir.path(),
            &format!("explain anybody {line} --admin {admin}"),
        )
        .await
    };
    let (code, out, _) = run("a__echo").await;
    assert_eq!(code, 0, "{out}");
    assert!(
        out.contains("yes: anybody may call a__echo at /mcp\n  server a  ready"),
        "{out}"
    );
    assert!(out.contains("also at /mcp/a"), "{out}");
    gateway
        .client(Era::Modern)
        .await
        .call("a__echo", json!({"text": "x"}))
        .await
        .result();
    let (code, out, _) = run("a__nothing").await;
    assert_eq!(code, 1, "{out}");
    assert!(
        out.contains("<- decides: the server lists no tool nothing"),
        "{out}"
    );
    gateway
        .client(Era::Modern)
        .await
        .call("a__nothing", json!({}))
        .await
        .error();
    let (code, out, _) = run("a__ehco").await;
    assert_eq!(code, 1, "{out}");
    assert!(
        out.contains("the server lists no tool ehco; did you mean a__echo?"),
        "{out}"
    );
    let (code, _, said) = run("a__echo --endpoint aa").await;
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("no endpoint \"/mcp/aa\"; known: /mcp/a, /mcp"),
        "{said}"
    );
    assert_api_explains(&gateway).await;
}
