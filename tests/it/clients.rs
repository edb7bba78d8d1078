//! `moongate connect` and `moongate import`, with files of clients in a home of their own.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use moongate_clients::{ConnectMethod, clients};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::harness::user_home::{KEY, UserHome};
use crate::harness::{Process, Setup, legacy, serve};

async fn gateway() -> Process {
    let key = format!("name = \"ada\"\nkey = {KEY:?}");
    Setup::new()
        .stdio("std", &legacy())
        .with("auth.keys.1", &key)
        .spawn()
        .await
}

#[tokio::test]
async fn every_client_is_connected_checked_and_restored() {
    let gateway = gateway().await;
    let home = UserHome::new();
    let url = gateway.mcp();
    for profile in clients().filter(|profile| profile.method == ConnectMethod::File) {
        let id = profile.id;
        let written = home
            .run(&["connect", id, "--write", "--yes", "--endpoint", &url])
            .await;
        assert_eq!(written.code, Some(0), "{id}: {}", written.err);
        assert!(
            written.err.contains("checked: the gateway answers with"),
            "{id}: {}",
            written.err
        );
        assert!(
            !written.err.contains(KEY) && written.out.is_empty(),
            "{id}: {written:?}"
        );
        let again = home
            .run(&["connect", id, "--write", "--yes", "--endpoint", &url])
            .await;
        assert!(
            again.err.contains("has this entry already"),
            "{id}: {}",
            again.err
        );
        // Both ways back leave nothing of a file that was not there.
        let removed = home
            .run(&["connect", id, "--remove", "--yes", "--endpoint", &url])
            .await;
        assert_eq!(
            (removed.code, removed.err.contains("removed")),
            (Some(0), true),
            "{id}: {}",
            removed.err
        );
        let undone = home.run(&["connect", id, "--undo", "--yes"]).await;
        assert_eq!(
            (undone.code, undone.err.contains("is as it was")),
            (Some(0), true),
            "{id}: {}",
            undone.err
        );
    }
    let mut left = Vec::new();
    files_below(&home.path(""), &mut left);
    assert!(left.is_empty(), "{left:?}");
}

fn files_below(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[tokio::test]
async fn a_file_keeps_its_comments_its_mode_and_its_bytes() {
    let gateway = gateway().await;
    let home = UserHome::new();
    let file = ".cursor/mcp.json";
    let before = "{\n  // mine\n  \"mcpServers\": {}\n}\n";
    home.write(file, before);
    std::fs::set_permissions(home.path(file), std::fs::Permissions::from_mode(0o640)).unwrap();
    let url = gateway.mcp();
    let connect = ["connect", "cursor", "--endpoint", &url, "--yes"];
    let with = |more: &[&'static str]| [&connect[..], more].concat();
    assert_eq!(home.run(&with(&["--write"])).await.code, Some(0));
    let written = home.read(file);
    assert!(
        written.contains("// mine") && written.contains("${env:MOONGATE_KEY}"),
        "{written}"
    );
    let mode = std::fs::metadata(home.path(file))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
    // The key itself, on demand.
    assert_eq!(
        home.run(&with(&["--write", "--key-inline"])).await.code,
        Some(0)
    );
    assert!(home.read(file).contains(KEY));
    assert_eq!(home.run(&with(&["--undo"])).await.code, Some(0));
    assert_eq!(home.read(file), written);
    assert_eq!(home.run(&with(&["--remove"])).await.code, Some(0));
    assert_eq!(home.read(file), before);
    let nothing = home.run(&with(&["--remove"])).await;
    assert_eq!(
        (nothing.code, nothing.err.contains("has no entry")),
        (Some(0), true),
        "{}",
        nothing.err
    );
    let unasked = home
        .run(&["connect", "cursor", "--endpoint", &url, "--write"])
        .await;
    assert_eq!(
        (unasked.code, unasked.err.contains("--yes")),
        (Some(1), true),
        "{}",
        unasked.err
    );
    assert_eq!(home.read(file), before);
}

#[tokio::test]
async fn a_wrong_key_and_a_gateway_that_is_away_are_told_apart() {
    let gateway = gateway().await;
    let home = UserHome::new();
    let url = gateway.mcp();
    let args = ["connect", "warp", "--write", "--yes", "--endpoint"];
    let wrong = home
        .run_with(&[&args[..], &[&url]].concat(), "mg_wrong", "")
        .await;
    assert_eq!(
        (wrong.code, wrong.err.contains("refuses the key")),
        (Some(1), true),
        "{}",
        wrong.err
    );
    let away = home
        .run(&[&args[..], &["http://127.0.0.1:1/mcp", "--name", "away"]].concat())
        .await;
    assert_eq!(
        (away.code, away.err.contains("not checked")),
        (Some(0), true),
        "{}",
        away.err
    );
    assert!(
        away.err.contains("start it with `moongate`"),
        "{}",
        away.err
    );
    let bridge = home
        .run(&[
            "connect",
            "warp",
            "--write",
            "--yes",
            "--endpoint",
            &url,
            "--stdio",
        ])
        .await;
    assert_eq!(
        (bridge.code, bridge.err.contains("checked: the gateway")),
        (Some(0), true),
        "{}",
        bridge.err
    );
    assert!(home.read(".warp/.mcp.json").contains("\"stdio\""));
}

#[tokio::test]
async fn an_entry_of_somebody_else_is_replaced_only_by_force() {
    let home = UserHome::new();
    let file = ".kiro/settings/mcp.json";
    let text = r#"{"mcpServers":{"moongate":{"url":"https://x.example/mcp","headers":{"Authorization":"Bearer s3cr3t"}}}}"#;
    home.write(file, text);
    let args = [
        "connect",
        "kiro",
        "--yes",
        "--endpoint",
        "http://127.0.0.1:1/mcp",
    ];
    for verb in ["--write", "--remove"] {
        let refused = home.run(&[&args[..], &[verb]].concat()).await;
        assert_eq!(refused.code, Some(1), "{}", refused.err);
        assert!(
            refused.err.contains("--force") && refused.err.contains("x.example"),
            "{}",
            refused.err
        );
        assert!(
            !refused.err.contains("s3cr3t") && !refused.err.contains(KEY),
            "{}",
            refused.err
        );
        assert_eq!(home.read(file), text);
    }
    assert_eq!(
        home.run(&[&args[..], &["--write", "--force"]].concat())
            .await
            .code,
        Some(0)
    );
    assert!(!home.read(file).contains("x.example"));
    home.write(file, "{\"mcpServers\": ");
    let broken = home.run(&[&args[..], &["--write"]].concat()).await;
    assert_eq!(
        (broken.code, home.read(file)),
        (Some(1), "{\"mcpServers\": ".to_owned()),
        "{}",
        broken.err
    );
}

#[tokio::test]
async fn without_write_a_client_s_needs_are_shown() {
    let home = UserHome::new();
    home.write(".cursor/other", "");
    let list = home.run(&["connect"]).await;
    let line = |id: &str| {
        list.out
            .lines()
            .find(|line| line.starts_with(id))
            .unwrap()
            .to_owned()
    };
    assert!(
        line("cursor").contains(".cursor/mcp.json") && line("zed").ends_with('-'),
        "{}",
        list.out
    );
    let shown = home
        .run_with(&["connect", "cursor", "vscode"], "", "")
        .await;
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    for part in [
        "# Cursor",
        "cursor://anysphere",
        "http://127.0.0.1:8080/mcp",
        "# VS Code",
        "code --add-mcp '{\"name\"",
    ] {
        assert!(shown.out.contains(part), "{part}: {}", shown.out);
    }
    let one = home
        .run(&["connect", "codex", "--endpoint", "/mcp/coding"])
        .await;
    assert!(
        one.out.contains("http://127.0.0.1:8080/mcp/coding")
            && one.out.contains("export MOONGATE_KEY="),
        "{}",
        one.out
    );
    for (args, word) in [
        (&["connect", "curser"][..], "did you mean `cursor`"),
        (&["connect", "cursor", "--name", "a b"], "--name"),
        (&["connect", "cursor", "--key-env", "NOT_SET"], "NOT_SET"),
        (&["import", "curser"], "did you mean `cursor`"),
    ] {
        let wrong = home.run(args).await;
        assert_eq!(
            (wrong.code, wrong.err.contains(word)),
            (Some(2), true),
            "{args:?}: {}",
            wrong.err
        );
    }
    let chatgpt = home.run(&["connect", "chatgpt", "--write"]).await;
    assert_eq!(
        (chatgpt.code, chatgpt.err.contains("no file")),
        (Some(1), true),
        "{}",
        chatgpt.err
    );
}

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
    assert_eq!(
        (check.code, check.err.contains("4 servers")),
        (Some(0), true),
        "{}",
        check.err
    );
    let unasked = home
        .run_with(&["import", "-"], "", "https://c.example/mcp")
        .await;
    assert_eq!(
        (unasked.code, unasked.err.contains("--yes")),
        (Some(1), true),
        "{}",
        unasked.err
    );
    let nonsense = home.run_with(&["import", "-", "--yes"], "", "hello").await;
    assert_eq!(
        (nonsense.code, nonsense.err.contains("no client's config")),
        (Some(1), true),
        "{}",
        nonsense.err
    );
    assert_eq!(home.read("work/moongate.yaml"), config);
}

#[tokio::test]
async fn a_new_key_goes_to_the_client_and_its_hash_into_the_config() {
    let home = UserHome::new();
    let setup = Setup::new().stdio("std", &legacy());
    let config = setup.file();
    let gateway = setup.spawn().await;
    let url = gateway.mcp();
    let args = [
        "connect",
        "claude-code",
        "--write",
        "--yes",
        "--endpoint",
        &url,
        "--config",
        config.to_str().unwrap(),
    ];
    let made = home
        .run_with(&[&args[..], &["--key", "laptop"]].concat(), "", "")
        .await;
    assert_eq!(
        (made.code, made.err.contains("checked: the gateway")),
        (Some(0), true),
        "{}",
        made.err
    );
    let key = made
        .out
        .trim()
        .strip_prefix("export MOONGATE_KEY=")
        .unwrap();
    let written = std::fs::read_to_string(&config).unwrap();
    assert!(
        written.contains("sha256:") && written.contains("laptop") && !written.contains(key),
        "{written}"
    );
    assert!(
        home.read(".claude.json").contains("Bearer ${MOONGATE_KEY}") && !made.err.contains(key),
        "{}",
        made.err
    );
    let again = home
        .run_with(&[&args[..], &["--key", "laptop"]].concat(), "", "")
        .await;
    assert_eq!(
        (again.code, again.err.contains("already")),
        (Some(1), true),
        "{}",
        again.err
    );
    let inline = home
        .run_with(
            &[&args[..], &["--key", "desk", "--key-inline"]].concat(),
            "",
            "",
        )
        .await;
    assert_eq!((inline.code, &*inline.out), (Some(0), ""), "{}", inline.err);
    assert!(
        home.read(".claude.json").contains("Bearer mg_"),
        "{}",
        inline.err
    );
}

/// Entry of a server that works.
fn working(flags: &[&str]) -> String {
    let args: Vec<&str> = std::iter::once("mock")
        .chain(flags.iter().copied())
        .collect();
    json!({ "command": env!("CARGO_BIN_EXE_moongate"), "args": args }).to_string()
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
    let cursor = "{\n  // mine\n  \"mcpServers\": {\n    \"My Notes\": NOTES,\n    \"docs\": {\"url\": \
                  \"DOCS\"},\n    \"odd\": {\"url\": 5}\n  }\n}\n";
    let cursor = &*cursor
        .replace("NOTES", &working(&["--demo"]))
        .replace("DOCS", &docs);
    home.write(".cursor/mcp.json", cursor);
    let warp = format!(
        "{{\"mcpServers\": {{\"gate\": {{\"url\": \"{}\"}}, \"w\": {}}}}}",
        gateway.mcp(),
        working(&["--stdio"])
    );
    home.write(".warp/.mcp.json", &warp);
    let project = &*format!(
        "{{\"mcpServers\": {{\"shared\": {}}}}}",
        working(&["--demo", "--stdio"])
    );
    home.write("work/.mcp.json", project);
    let dry = home.run(&["import", "--take-over", "--dry-run"]).await;
    assert!(
        dry.err.contains("`My Notes` would be replaced") && !dry.err.contains("odd"),
        "{}",
        dry.err
    );
    assert_eq!(home.read(".cursor/mcp.json"), cursor);
    let unasked = home.run(&["import", "--take-over"]).await;
    assert_eq!(
        (unasked.code, unasked.err.contains("--yes")),
        (Some(1), true),
        "{}",
        unasked.err
    );
    assert_eq!(home.read(".cursor/mcp.json"), cursor);
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
    // Nobody has a server that `--only` left out, so its second entry stays.
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
    assert_eq!(
        (
            none.code,
            home.read(".kiro/settings/mcp.json").contains("both")
        ),
        (Some(0), true),
        "{}",
        none.err
    );
    let again = home.run(&["import", "--take-over", "--yes"]).await;
    assert_eq!(
        (again.code, home.read(".cursor/mcp.json")),
        (Some(0), after),
        "{}",
        again.err
    );
    for (client, file, before) in [
        ("cursor", ".cursor/mcp.json", cursor),
        ("warp", ".warp/.mcp.json", &warp),
    ] {
        let undone = home.run(&["connect", client, "--undo", "--yes"]).await;
        assert_eq!(
            (undone.code, &*home.read(file)),
            (Some(0), before),
            "{}",
            undone.err
        );
    }
    let pasted = home
        .run_with(
            &["import", "-", "--take-over", "--yes"],
            "",
            "https://a.example/mcp",
        )
        .await;
    assert_eq!(
        (pasted.code, pasted.err.contains("--take-over")),
        (Some(2), true),
        "{}",
        pasted.err
    );
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
    assert_eq!(
        (refused.code, refused.err.contains("was not imported")),
        (Some(1), true),
        "{}",
        refused.err
    );
    assert_eq!(home.read(file), text);
    // The import itself is done.
    assert!(
        home.read(".config/moongate/moongate.toml")
            .contains("[servers.a]")
    );
}

#[tokio::test]
async fn keys_move_into_an_env_file_that_the_gateway_reads() {
    let home = UserHome::new();
    let target = ".config/moongate/moongate.toml";
    home.write(
        ".cursor/mcp.json",
        r#"{"mcpServers": {"a": {"url": "https://a.example/mcp", "headers": {"Authorization": "Bearer s3cr3t-a"}},
            "b": {"command": "b", "env": {"API_KEY": "s3cr3t b'", "LOG_LEVEL": "debug"}}}}"#,
    );
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
    assert_eq!(
        (check.code, check.err.contains("2 servers")),
        (Some(0), true),
        "{}",
        check.err
    );
    home.write(
        ".warp/.mcp.json",
        r#"{"mcpServers": {"c": {"command": "c", "env": {"C_TOKEN": "s3cr3t-c"}}}}"#,
    );
    let other = home
        .run(&["import", "--env-file", "other.env", "--yes"])
        .await;
    assert_eq!(
        (other.code, other.err.contains("`gateway.env_file`")),
        (Some(1), true),
        "{}",
        other.err
    );
    assert_eq!(home.read(target), config);
    let more = home.run(&["import", "--env-file", ".env", "--yes"]).await;
    assert_eq!(
        (
            more.code,
            home.read("work/.env").contains("C_TOKEN=s3cr3t-c")
        ),
        (Some(0), true),
        "{}",
        more.err
    );
    // A file beside the config is named without its folder.
    let fresh = UserHome::new();
    fresh.write("work/moongate.toml", "");
    fresh.write(".cursor/mcp.json", &home.read(".cursor/mcp.json"));
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

#[tokio::test]
async fn servers_of_projects_are_imported() {
    let home = UserHome::new();
    let site = home.path("site").display().to_string();
    std::fs::create_dir(&site).unwrap();
    let projects = json!({ &site: { "mcpServers": { "p": { "command": "./p" } } } });
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
    assert_eq!(
        (
            removed.code,
            home.path("work/.continue/mcpServers/moongate.yaml")
                .exists()
        ),
        (Some(0), false),
        "{}",
        removed.err
    );
}

/// Reads a bundle as Claude Desktop would: checks it, takes it apart, and prints the manifest.
const UNPACK: &str = "import os, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as archive:
    assert archive.testzip() is None
    for file in archive.infolist():
        archive.extract(file, sys.argv[2])
        os.chmod(os.path.join(sys.argv[2], file.filename), file.external_attr >> 16 & 0o777)
    print(archive.read('manifest.json').decode())
";

#[tokio::test]
async fn a_bundle_has_a_bridge_that_works() {
    let gateway = gateway().await;
    let home = UserHome::new();
    let bundle = [
        "connect",
        "claude-desktop",
        "--bundle",
        "out.mcpb",
        "--endpoint",
    ];
    let written = home.run(&[&bundle[..], &[&gateway.mcp()]].concat()).await;
    assert_eq!(
        (written.code, written.err.contains("out.mcpb")),
        (Some(0), true),
        "{}",
        written.err
    );
    let out = home.path("work/out.mcpb");
    let dir = home.path("unpacked");
    let unpacked = Command::new("python3")
        .args(["-c", UNPACK])
        .arg(out)
        .arg(&dir)
        .output()
        .await
        .unwrap();
    assert!(
        unpacked.status.success(),
        "{}",
        String::from_utf8_lossy(&unpacked.stderr)
    );
    let text = String::from_utf8(unpacked.stdout).unwrap();
    assert!(!text.contains(KEY), "{text}");
    let manifest: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&manifest["manifest_version"], &manifest["server"]["type"]),
        (&json!("0.3"), &json!("binary"))
    );
    assert_eq!(manifest["user_config"]["key"]["sensitive"], true);
    assert_eq!(
        manifest["user_config"]["url"]["default"],
        json!(gateway.mcp())
    );
    // What the client does with the manifest and the answers of its user.
    let filled = |text: &Value| {
        let text = text
            .as_str()
            .unwrap()
            .replace("${__dirname}", dir.to_str().unwrap());
        text.replace("${user_config.url}", &gateway.mcp())
            .replace("${user_config.key}", KEY)
    };
    let start = &manifest["server"]["mcp_config"];
    let mut bridge = Command::new(filled(&start["command"]));
    bridge
        .args(start["args"].as_array().unwrap().iter().map(filled))
        .env_clear();
    bridge.envs(
        start["env"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name, filled(value))),
    );
    bridge
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true);
    let mut child = bridge.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"}}});
    input
        .write_all(format!("{hello}\n").as_bytes())
        .await
        .unwrap();
    let mut lines =
        tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(child.stdout.take().unwrap()));
    let answer = crate::harness::within("the bridge answers", lines.next_line())
        .await
        .unwrap()
        .unwrap();
    assert!(
        answer.contains("\"result\"") && answer.contains("serverInfo"),
        "{answer}"
    );
    for (args, why) in [
        (
            &["connect", "cursor", "--bundle", "x.mcpb"][..],
            "Claude Desktop",
        ),
        (
            &[
                "connect",
                "claude-desktop",
                "--bundle",
                "x.mcpb",
                "--endpoint",
                "unix:/x",
            ],
            "--endpoint",
        ),
        (
            &["connect", "claude-desktop", "--bundle", "none/x.mcpb"],
            "cannot write",
        ),
    ] {
        let refused = home.run(args).await;
        assert_eq!(
            (refused.code, refused.err.contains(why)),
            (Some(1), true),
            "{args:?}: {}",
            refused.err
        );
    }
    let left = std::fs::read_dir(home.path("work")).unwrap().count();
    assert_eq!(left, 1, "only the bundle is there");
}
