//! `moongate import`, and pasted servers of `moongate add`, with entries that are odd.

mod take_over;

use serde_json::{Value, json};

use crate::harness::user_home::UserHome;

const CONFIG: &str = ".config/moongate/moongate.toml";

/// Entries that no config can have, each with a part of the reason.
const UNUSABLE: [(&str, &str, &str); 9] = [
    (
        "folder",
        r#"{"command": "a", "cwd": "${workspaceFolder}"}"#,
        "open in an editor",
    ),
    (
        "argument",
        r#"{"command": "b", "args": ["${workspaceFolder}/x"]}"#,
        "open in an editor",
    ),
    (
        "variable",
        r#"{"command": "c", "env": {"X": "${workspaceFolderBasename}"}}"#,
        "open in an editor",
    ),
    (
        "asks",
        r#"{"command": "d", "args": ["${command:x}"]}"#,
        "is not a variable name",
    ),
    ("empty", "{}", "needs one of"),
    ("no-url", r#"{"url": ""}"#, "does not start with"),
    ("hole", r#"{"url": "<YOUR URL>"}"#, "does not start with"),
    (
        "both",
        r#"{"url": "http://x.example/mcp", "command": "a"}"#,
        "both",
    ),
    (
        "break",
        r#"{"url": "http://y.example/mcp", "headers": {"A": "b\nc"}}"#,
        "headers",
    ),
];

fn servers(entries: &[(&str, &str)]) -> String {
    let entries: Vec<String> = entries
        .iter()
        .map(|(name, entry)| format!("{name:?}: {entry}"))
        .collect();
    format!("{{\"mcpServers\": {{{}}}}}", entries.join(", "))
}

#[tokio::test]
async fn unusable_entries_do_not_keep_the_others_out() {
    let home = UserHome::new();
    let mut entries: Vec<(&str, &str)> = UNUSABLE
        .iter()
        .map(|(name, entry, _)| (*name, *entry))
        .collect();
    // To a client, a reference without an end is plain text.
    entries.push((
        "fine",
        r#"{"command": "fine", "env": {"KEY": "${NOT_SET}", "X": "${abc"}}"#,
    ));
    let text = servers(&entries);
    home.write(".cursor/mcp.json", &text);
    home.write(".codex/config.toml", "[mcp_servers.odd]\nurl = 5\n");
    let dry = home.run(&["import", "--format", "json", "--dry-run"]).await;
    let rows: Value = serde_json::from_str(&dry.out).unwrap();
    let row = |name: &str| {
        rows["servers"]
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["name"] == name)
            .unwrap()
    };
    for (name, _, why) in UNUSABLE {
        let row = row(name);
        assert_eq!(row["state"], "broken", "{row}");
        assert!(row["notes"].to_string().contains(why), "{row}");
    }
    assert_eq!(row("odd")["state"], "broken");
    assert_eq!(row("fine")["state"], "new");
    let ran = home.run(&["import", "--yes"]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(
        ran.out.matches("unusable").count(),
        UNUSABLE.len() + 1,
        "{}",
        ran.out
    );
    assert!(
        home.read(CONFIG).contains("[servers.fine]") && !home.read(CONFIG).contains("odd"),
        "{}",
        home.read(CONFIG)
    );
    // The same servers, pasted.
    home.write("work/moongate.toml", "");
    let pasted = home.run_with(&["add", "-", "--no-probe"], "", &text).await;
    assert_eq!(pasted.code, Some(1), "{}", pasted.err);
    assert!(pasted.err.contains("were not added"), "{}", pasted.err);
    assert!(
        home.read("work/moongate.toml").contains("[servers.fine]"),
        "{}",
        pasted.err
    );
}

#[tokio::test]
async fn keys_that_moved_out_are_not_imported_again() {
    let home = UserHome::new();
    let entry =
        r#"{"command": "db", "args": ["--x"], "env": {"DB_URL": "postgres://u:s3cr3t$$@h/d"}}"#;
    home.write(".cursor/mcp.json", &servers(&[("postgres", entry)]));
    assert_eq!(
        home.run(&["import", "--env-file", ".env", "--yes"])
            .await
            .code,
        Some(0)
    );
    let config = home.read(CONFIG);
    assert!(config.contains("${DB_URL}"), "{config}");
    let again = home.run(&["import", "--yes"]).await;
    assert!(
        again.out.contains("already added as postgres") && again.err.contains("nothing new"),
        "{again:?}"
    );
    assert_eq!(home.read(CONFIG), config);
}

#[tokio::test]
async fn a_server_that_two_clients_have_is_there_only_after_the_import() {
    let home = UserHome::new();
    home.write("work/moongate.toml", "[gateway]\nadmin = \"127.0.0.1:1\"\n");
    home.write(
        ".cursor/mcp.json",
        &servers(&[("gh", r#"{"url": "https://gh.example/mcp"}"#)]),
    );
    home.write(
        ".kiro/settings/mcp.json",
        &servers(&[("github", r#"{"url": "https://gh.example/mcp"}"#)]),
    );
    let dry = home.run(&["import", "--dry-run"]).await;
    assert!(
        dry.out.contains("same as gh") && !dry.out.contains("already added as"),
        "{}",
        dry.out
    );
    assert_eq!(home.run(&["import", "--yes"]).await.code, Some(0));
    let again = home.run(&["import", "--dry-run"]).await;
    assert!(
        again.out.contains("already added as gh") && !again.out.contains("same as"),
        "{}",
        again.out
    );
}

#[tokio::test]
async fn an_entry_with_a_key_that_the_config_lacks_differs() {
    let home = UserHome::new();
    let config = "[servers.docs]\nurl = \"https://docs.example/mcp\"\n";
    home.write("work/moongate.toml", config);
    let entry =
        r#"{"url": "https://docs.example/mcp", "headers": {"Authorization": "Bearer s3cr3t"}}"#;
    home.write(".cursor/mcp.json", &servers(&[("docs", entry)]));
    let ran = home.run(&["import", "--take-over", "--yes"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("nothing new"), "{ran:?}");
    for part in [
        "differs from docs",
        "`docs` lacks `headers.Authorization`",
        "moongate import --only docs-2",
    ] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    assert!(
        !ran.out.contains("s3cr3t") && home.read("work/moongate.toml") == config,
        "{ran:?}"
    );
    assert!(
        home.read(".cursor/mcp.json").contains("docs.example"),
        "its client keeps it"
    );
    let json = home.run(&["import", "--format", "json"]).await;
    let json: Value = serde_json::from_str(&json.out).unwrap();
    let row = &json["servers"][0];
    assert_eq!(row["state"], "differs");
    assert_eq!(row["same_as"], "docs");
    assert_eq!(row["lacks"], json!(["headers.Authorization"]));
    let chosen = home.run(&["import", "--only", "docs-2", "--yes"]).await;
    assert_eq!(chosen.code, Some(0), "{}", chosen.err);
    assert!(
        home.read("work/moongate.toml").starts_with(config),
        "the entry stays as it is"
    );
    assert!(
        home.read("work/moongate.toml").contains("[servers.docs-2]"),
        "{}",
        home.read("work/moongate.toml")
    );
    let again = home.run(&["import", "--yes"]).await;
    assert!(
        again.out.contains("already added as docs-2") && again.err.contains("nothing new"),
        "{again:?}"
    );
}

#[tokio::test]
async fn a_client_without_a_file_says_so() {
    let home = UserHome::new();
    for (client, part) in [
        ("jetbrains", "in a readable file"),
        ("chatgpt", "in a readable file"),
        ("cursor", "looked for"),
        ("cursor", ".cursor/mcp.json"),
    ] {
        let ran = home.run(&["import", client]).await;
        assert_eq!(ran.code, Some(1), "{client}: {}", ran.err);
        assert!(ran.err.contains(part), "{client}: {}", ran.err);
    }
    home.write(".cursor/mcp.json", "{}");
    let none = home.run(&["import", "cursor"]).await;
    assert_eq!(none.code, Some(0), "{}", none.err);
    assert!(none.err.contains("nothing new"), "{}", none.err);
}

#[tokio::test]
async fn all_files_of_a_client_are_read() {
    let home = UserHome::new();
    let extension =
        ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json";
    home.write(extension, &servers(&[("one", r#"{"command": "one"}"#)]));
    home.write(
        ".cline/data/settings/cline_mcp_settings.json",
        &servers(&[("two", r#"{"command": "two"}"#)]),
    );
    let ran = home.run(&["import", "cline", "--dry-run"]).await;
    assert!(
        ran.out.contains("one") && ran.out.contains("two"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn a_dry_run_shows_the_change_and_a_broken_config_is_one_error() {
    let home = UserHome::new();
    home.write("work/moongate.toml", "");
    home.write(
        ".cursor/mcp.json",
        &servers(&[("a", r#"{"command": "a", "env": {"KEY": "s3cr3t"}}"#)]),
    );
    let dry = home
        .run(&["import", "--dry-run", "--env-file", ".env"])
        .await;
    assert_eq!(dry.code, Some(0), "{}", dry.err);
    assert!(
        dry.err.contains("+ [servers.a]") && dry.err.contains("+ KEY=***"),
        "{}",
        dry.err
    );
    assert_eq!(home.read("work/moongate.toml"), "");
    assert!(!home.path("work/.env").exists());
    home.write("work/moongate.toml", "[servers\n");
    for args in [
        &["import", "--yes"][..],
        &["add", "-"],
        &["add", "x", "https://x.example/mcp", "--no-probe"],
    ] {
        let broken = home.run_with(args, "", "https://x.example/mcp").await;
        assert_eq!(broken.code, Some(2), "{args:?}: {}", broken.err);
        assert!(
            !broken.err.contains("error: error:"),
            "{args:?}: {}",
            broken.err
        );
    }
}

#[tokio::test]
async fn what_is_lost_is_said_and_settings_take_one_line() {
    let home = UserHome::new();
    home.write(
        ".config/goose/config.yaml",
        "GOOSE_MODEL: x\nGOOSE_MODE: y\nextensions:\n  \
        developer: {type: builtin}\n  a:\n    type: stdio\n    cmd: run\n    args: [y, no]\n",
    );
    home.write(
        ".config/zed/settings.json",
        r#"{"theme": "x", "context_servers": {"ext": {"settings": {}}}}"#,
    );
    home.write(
        ".config/Code/User/mcp.json",
        r#"{"servers": {"v": {"command": "v", "envFile": "/x/.env"}}}"#,
    );
    home.write(
        ".config/opencode/opencode.json",
        r#"{"mcp": {"gh": {"type": "local", "command": ["gh"]}}, "tools": {"gh_rm": false}}"#,
    );
    let ran = home.run(&["import", "--yes"]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for part in [
        "`developer`",
        "`ext`",
        "`servers.v.envFile`",
        "only works in",
    ] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    assert_eq!(
        ran.err.matches("do not apply to Moongate").count(),
        1,
        "{}",
        ran.err
    );
    assert!(
        !ran.err.contains("GOOSE_MODE") && !ran.err.contains("`tools`"),
        "{}",
        ran.err
    );
    let config = home.read(CONFIG);
    assert!(
        config.contains("args = [\"y\", \"no\"]") && config.contains("deny = [\"rm\"]"),
        "{config}"
    );
}

#[tokio::test]
async fn codex_spelling_of_a_token_is_taken() {
    let home = UserHome::new();
    home.write("work/moongate.toml", "[gateway]\nadmin = \"127.0.0.1:1\"\n");
    let args = [
        "add",
        "x",
        "--url",
        "https://x.example/mcp",
        "--bearer-token-env-var",
        "TOK",
        "--no-probe",
    ];
    let ran = home.run(&args).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(
        home.read("work/moongate.toml").contains("Bearer ${TOK}"),
        "{}",
        home.read("work/moongate.toml")
    );
}

#[tokio::test]
async fn a_server_of_many_projects_is_one_row_and_folders_that_are_gone_are_skipped() {
    let home = UserHome::new();
    let entry = json!({ "mcpServers": { "docs": { "url": "https://docs.example/mcp" } } });
    let folders: Vec<String> = (0..40)
        .map(|n| home.path(&format!("p{n}")).display().to_string())
        .collect();
    let mut projects: serde_json::Map<String, Value> = folders
        .iter()
        .map(|at| (at.clone(), entry.clone()))
        .collect();
    let gone = json!({ "mcpServers": { "old": { "command": "old" } } });
    projects.insert(home.path("gone").display().to_string(), gone);
    for folder in &folders {
        std::fs::create_dir(folder).unwrap();
    }
    home.write(".claude.json", &json!({ "projects": projects }).to_string());
    let listed = home.run(&["import", "claude-code", "--dry-run"]).await;
    assert_eq!(
        listed
            .out
            .lines()
            .filter(|line| line.starts_with("docs"))
            .count(),
        1,
        "{}",
        listed.out
    );
    assert!(
        listed.out.contains("and 39 more projects") && !listed.out.contains("old"),
        "{}",
        listed.out
    );
}
