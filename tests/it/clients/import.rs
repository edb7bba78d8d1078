//! `moongate import`: which servers of clients and projects it takes, and where their secrets go.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::harness::user_home::UserHome;

#[tokio::test]
async fn servers_of_clients_are_imported_once() {
    let home = UserHome::new();
    home.write(
        ".cursor/mcp.json",
        r#"{"mcpServers": {"notes": {"command": "run-notes", "args": ["--token", "s3cr3t"]}}}"#,
    );
    home.write(
        ".codex/config.toml",
        "[mcp_servers.docs]\nurl = \"https://docs.example/mcp\"\nbearer_token_env_var = \"DOCS\"\n",
    );
    home.write(".gemini/settings.json", "{broken");
    home.write(
        "work/.vscode/mcp.json",
        r#"{"servers": {"same": {"type": "http", "url": "https://docs.example/mcp/"}, "us": {"url": "http://localhost:8080/mcp"}}}"#,
    );
    // The same file by another path, as in the home folder.
    std::fs::create_dir(home.path("work/.cursor")).unwrap();
    std::os::unix::fs::symlink(
        home.path(".cursor/mcp.json"),
        home.path("work/.cursor/mcp.json"),
    )
    .unwrap();
    let dry = home.run(&["import", "--dry-run"]).await;
    assert_eq!(dry.code, Some(0), "{}", dry.err);
    for part in ["notes", "docs", "same as docs", "this gateway"] {
        assert!(dry.out.contains(part), "{part}: {}", dry.out);
    }
    assert!(
        !dry.out.contains("s3cr3t") && dry.err.contains("Gemini CLI"),
        "{dry:?}"
    );
    let target = ".config/moongate/moongate.toml";
    assert!(!home.path(target).exists());
    let some = home.run(&["import", "--only", "docs", "--yes"]).await;
    assert_eq!(some.code, Some(0), "{}", some.err);
    assert!(
        home.read(target).contains("[servers.docs]") && !home.read(target).contains("notes"),
        "{}",
        home.read(target)
    );
    let mode = std::fs::metadata(home.path(target))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let rest = home.run(&["import", "--yes"]).await;
    assert_eq!(rest.code, Some(0), "{}", rest.err);
    assert!(
        home.read(target).contains("s3cr3t") && !rest.err.contains("s3cr3t"),
        "{}",
        rest.err
    );
    let again = home.run(&["import", "--yes"]).await;
    assert!(again.err.contains("nothing new"), "{again:?}");
    let json = home.run(&["import", "--format", "json"]).await;
    let json: Value = serde_json::from_str(&json.out).unwrap();
    let states = json["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|server| server["state"].clone());
    assert_eq!(
        states.collect::<Value>(),
        json!(["same", "same", "same", "own"])
    );
}

#[tokio::test]
async fn pasted_servers_go_into_the_config_that_is_there() {
    let home = UserHome::new();
    home.write(
        "work/moongate.yaml",
        "# ours\nservers:\n  a: # first\n    url: https://a.example/mcp\n",
    );
    for (text, part) in [
        (
            "claude mcp add -t http b https://b.example/mcp -H 'X-Key: k'",
            "b:",
        ),
        ("npx -y some-mcp@1.0.0", "some:"),
        ("https://mcp.deepwiki.com/mcp", "deepwiki:"),
    ] {
        let ran = home.run_with(&["import", "-", "--yes"], "", text).await;
        assert_eq!(ran.code, Some(0), "{text}: {}", ran.err);
        assert!(
            home.read("work/moongate.yaml").contains(part),
            "{}",
            home.read("work/moongate.yaml")
        );
    }
    let config = home.read("work/moongate.yaml");
    assert!(
        config.contains("# ours") && config.contains("# first"),
        "{config}"
    );
    let check = home.run(&["check"]).await;
    assert_eq!(check.code, Some(0), "{}", check.err);
    assert!(check.err.contains("4 servers"), "{}", check.err);
    let unasked = home
        .run_with(&["import", "-"], "", "https://c.example/mcp")
        .await;
    assert_eq!(unasked.code, Some(1), "{}", unasked.err);
    assert!(unasked.err.contains("--yes"), "{}", unasked.err);
    let nonsense = home.run_with(&["import", "-", "--yes"], "", "hello").await;
    assert_eq!(nonsense.code, Some(1), "{}", nonsense.err);
    assert!(
        nonsense.err.contains("not a client's config"),
        "{}",
        nonsense.err
    );
    assert_eq!(home.read("work/moongate.yaml"), config);
}

const SERVERS_WITH_SECRETS: &str = r#"{"mcpServers": {"a": {"url": "https://a.example/mcp", "headers": {"Authorization": "Bearer s3cr3t-a"}},
            "b": {"command": "b", "env": {"API_KEY": "s3cr3t b'", "LOG_LEVEL": "debug"}}}}"#;

#[tokio::test]
async fn keys_move_into_an_env_file_that_the_gateway_reads() {
    let home = UserHome::new();
    let target = ".config/moongate/moongate.toml";
    home.write(".cursor/mcp.json", SERVERS_WITH_SECRETS);
    home.write("work/.env", "# mine\nAPI_KEY=other");
    let file = home.path("work/.env");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let ran = home.run(&["import", "--env-file", ".env", "--yes"]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(
        !ran.err.contains("s3cr3t") && ran.err.contains("+ API_KEY_2=***"),
        "{}",
        ran.err
    );
    assert_eq!(
        home.read("work/.env"),
        "# mine\nAPI_KEY=other\nA_TOKEN=s3cr3t-a\nAPI_KEY_2=\"s3cr3t b'\"\n"
    );
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let config = home.read(target);
    for part in [
        "Bearer ${A_TOKEN}",
        "${API_KEY_2}",
        "debug",
        &format!("env_file = {:?}", file.to_str().unwrap()),
    ] {
        assert!(config.contains(part), "{part}: {config}");
    }
    assert!(!config.contains("s3cr3t"), "{config}");
    // Nothing more is to be done: the next start has the values.
    let check = home.run(&["check"]).await;
    assert_eq!(check.code, Some(0), "{}", check.err);
    assert!(check.err.contains("2 servers"), "{}", check.err);
    home.write(
        ".warp/.mcp.json",
        r#"{"mcpServers": {"c": {"command": "c", "env": {"C_TOKEN": "s3cr3t-c"}}}}"#,
    );
    let other = home
        .run(&["import", "--env-file", "other.env", "--yes"])
        .await;
    assert_eq!(other.code, Some(1), "{}", other.err);
    assert!(other.err.contains("`gateway.env_file`"), "{}", other.err);
    assert_eq!(home.read(target), config);
    let more = home.run(&["import", "--env-file", ".env", "--yes"]).await;
    assert_eq!(more.code, Some(0), "{}", more.err);
    assert!(
        home.read("work/.env").contains("C_TOKEN=s3cr3t-c"),
        "{}",
        more.err
    );
}

#[tokio::test]
async fn an_env_file_in_the_folder_of_the_config_is_named_without_the_folder() {
    let fresh = UserHome::new();
    fresh.write("work/moongate.toml", "");
    fresh.write(".cursor/mcp.json", SERVERS_WITH_SECRETS);
    let beside = fresh
        .run(&["import", "--env-file", "keys.env", "--yes"])
        .await;
    assert_eq!(beside.code, Some(0), "{}", beside.err);
    assert!(
        fresh
            .read("work/moongate.toml")
            .contains("env_file = \"keys.env\""),
        "{}",
        fresh.read("work/moongate.toml")
    );
    assert_eq!(
        std::fs::metadata(fresh.path("work/keys.env"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
}

/// Writes the files of Claude Code and of Continue, with servers of the user and of projects.
fn write_project_servers(home: &UserHome, site: &str) {
    let projects = json!({ site: { "mcpServers": { "p": { "command": "./p" } } } });
    let file = json!({ "mcpServers": { "u": { "command": "u" } }, "projects": projects });
    home.write(".claude.json", &file.to_string());
    let block = |name: &str| {
        format!(
            "name: x\nversion: 0.0.1\nschema: v1\nmcpServers:\n  - name: {name}\n    command: \
             run-{name}\n"
        )
    };
    home.write("work/.continue/mcpServers/one.yaml", &block("one"));
    home.write("work/.continue/mcpServers/two.yml", &block("two"));
    home.write(
        "work/.continue/mcpServers/three.json",
        r#"{"mcpServers": {"three": {"command": "run-three"}}}"#,
    );
    home.write("work/.continue/mcpServers/notes.txt", "mcpServers:");
    home.write(".continue/mcpServers/four.yaml", &block("four"));
}

#[tokio::test]
async fn servers_of_projects_are_imported() {
    let home = UserHome::new();
    let site = home.path("site").display().to_string();
    std::fs::create_dir(&site).unwrap();
    write_project_servers(&home, &site);
    let json = home.run(&["import", "--format", "json", "--yes"]).await;
    assert_eq!(json.code, Some(0), "{}", json.err);
    let json: Value = serde_json::from_str(&json.out).unwrap();
    let rows = json["servers"].as_array().unwrap().iter();
    let found: Vec<(&str, &str)> = rows
        .map(|row| {
            (
                row["name"].as_str().unwrap(),
                row["origin"].as_str().unwrap(),
            )
        })
        .collect();
    let claude = format!("Claude Code, {site}");
    let expected = [
        ("u", "Claude Code"),
        ("p", claude.as_str()),
        ("four", "Continue"),
        ("one", "Continue"),
        ("three", "Continue"),
        ("two", "Continue"),
    ];
    assert_eq!(found, expected);
    assert_eq!(json["servers"][1]["settings"]["cwd"], site.as_str());
    let written = home
        .run(&[
            "connect",
            "continue",
            "--project",
            "--write",
            "--yes",
            "--endpoint",
            "http://127.0.0.1:1/mcp",
        ])
        .await;
    assert_eq!(written.code, Some(0), "{}", written.err);
    let text = home.read("work/.continue/mcpServers/moongate.yaml");
    assert!(
        text.contains("schema: v1") && text.contains("streamable-http"),
        "{text}"
    );
    let removed = home
        .run(&[
            "connect",
            "continue",
            "--project",
            "--remove",
            "--yes",
            "--endpoint",
            "http://127.0.0.1:1/mcp",
        ])
        .await;
    assert_eq!(removed.code, Some(0), "{}", removed.err);
    assert!(
        !home
            .path("work/.continue/mcpServers/moongate.yaml")
            .exists(),
        "{}",
        removed.err
    );
}
