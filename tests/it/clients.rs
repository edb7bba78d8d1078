//! `moongate connect` and `moongate import`, with files of clients in a home of their own.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use moongate_clients::{ConnectMethod, clients};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::harness::{Process, Setup, legacy};

const KEY: &str = "mg_a_key_that_is_long_enough_0123456789";

/// User's home, with a directory to work in.
struct UserHome {
    dir: TempDir,
}

/// What a run left behind.
#[derive(Debug)]
struct RunOutput {
    code: Option<i32>,
    out: String,
    err: String,
}

impl UserHome {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        UserHome { dir }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn write(&self, below: &str, text: &str) {
        std::fs::create_dir_all(self.path(below).parent().unwrap()).unwrap();
        std::fs::write(self.path(below), text).unwrap();
    }

    fn read(&self, below: &str) -> String {
        std::fs::read_to_string(self.path(below)).unwrap()
    }

    async fn run(&self, args: &[&str]) -> RunOutput {
        self.run_with(args, KEY, "").await
    }

    async fn run_with(&self, args: &[&str], key: &str, stdin: &str) -> RunOutput {
        let mut command = Command::new(env!("CARGO_BIN_EXE_moongate"));
        command.args(args).current_dir(self.path("work")).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.dir.path()).env("XDG_CONFIG_HOME", self.path(".config"));
        if !key.is_empty() {
            command.env("MOONGATE_KEY", key);
        }
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.stderr(std::process::Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        // A command that reads nothing may have closed it.
        let _ = input.write_all(stdin.as_bytes()).await;
        drop(input);
        let output = crate::harness::within("the command ends", child.wait_with_output()).await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        RunOutput { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

async fn gateway() -> Process {
    let key = format!("name = \"ada\"\nkey = {KEY:?}");
    Setup::new().stdio("std", &legacy()).with("auth.keys.1", &key).spawn().await
}

#[tokio::test]
async fn every_client_is_connected_checked_and_restored() {
    let gateway = gateway().await;
    let home = UserHome::new();
    let url = gateway.mcp();
    for profile in clients().filter(|profile| profile.method == ConnectMethod::File) {
        let id = profile.id;
        let written = home.run(&["connect", id, "--write", "--yes", "--endpoint", &url]).await;
        assert_eq!(written.code, Some(0), "{id}: {}", written.err);
        assert!(written.err.contains("checked: the gateway answers with"), "{id}: {}", written.err);
        assert!(!written.err.contains(KEY) && written.out.is_empty(), "{id}: {written:?}");
        let again = home.run(&["connect", id, "--write", "--yes", "--endpoint", &url]).await;
        assert!(again.err.contains("has this entry already"), "{id}: {}", again.err);
        // Both ways back leave nothing of a file that was not there.
        let removed = home.run(&["connect", id, "--remove", "--yes", "--endpoint", &url]).await;
        assert_eq!((removed.code, removed.err.contains("removed")), (Some(0), true), "{id}: {}", removed.err);
        let undone = home.run(&["connect", id, "--undo", "--yes"]).await;
        assert_eq!((undone.code, undone.err.contains("is as it was")), (Some(0), true), "{id}: {}", undone.err);
    }
    let mut left = Vec::new();
    files_below(home.dir.path(), &mut left);
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
    let (file, before) = (".cursor/mcp.json", "{\n  // mine\n  \"mcpServers\": {}\n}\n");
    home.write(file, before);
    std::fs::set_permissions(home.path(file), std::fs::Permissions::from_mode(0o640)).unwrap();
    let url = gateway.mcp();
    let connect = ["connect", "cursor", "--endpoint", &url, "--yes"];
    let with = |more: &[&'static str]| [&connect[..], more].concat();
    assert_eq!(home.run(&with(&["--write"])).await.code, Some(0));
    let written = home.read(file);
    assert!(written.contains("// mine") && written.contains("${env:MOONGATE_KEY}"), "{written}");
    let mode = std::fs::metadata(home.path(file)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    // The key itself, on demand.
    assert_eq!(home.run(&with(&["--write", "--key-inline"])).await.code, Some(0));
    assert!(home.read(file).contains(KEY));
    assert_eq!(home.run(&with(&["--undo"])).await.code, Some(0));
    assert_eq!(home.read(file), written);
    assert_eq!(home.run(&with(&["--remove"])).await.code, Some(0));
    assert_eq!(home.read(file), before);
    let nothing = home.run(&with(&["--remove"])).await;
    assert_eq!((nothing.code, nothing.err.contains("has no entry")), (Some(0), true), "{}", nothing.err);
    let unasked = home.run(&["connect", "cursor", "--endpoint", &url, "--write"]).await;
    assert_eq!((unasked.code, unasked.err.contains("--yes")), (Some(1), true), "{}", unasked.err);
    assert_eq!(home.read(file), before);
}

#[tokio::test]
async fn a_wrong_key_and_a_gateway_that_is_away_are_told_apart() {
    let gateway = gateway().await;
    let home = UserHome::new();
    let url = gateway.mcp();
    let args = ["connect", "warp", "--write", "--yes", "--endpoint"];
    let wrong = home.run_with(&[&args[..], &[&url]].concat(), "mg_wrong", "").await;
    assert_eq!((wrong.code, wrong.err.contains("refuses the key")), (Some(1), true), "{}", wrong.err);
    let away = home.run(&[&args[..], &["http://127.0.0.1:1/mcp", "--name", "away"]].concat()).await;
    assert_eq!((away.code, away.err.contains("not checked")), (Some(0), true), "{}", away.err);
    let bridge = home.run(&["connect", "warp", "--write", "--yes", "--endpoint", &url, "--stdio"]).await;
    assert_eq!((bridge.code, bridge.err.contains("checked: the gateway")), (Some(0), true), "{}", bridge.err);
    assert!(home.read(".warp/.mcp.json").contains("\"stdio\""));
}

#[tokio::test]
async fn an_entry_of_somebody_else_is_replaced_only_by_force() {
    let home = UserHome::new();
    let file = ".kiro/settings/mcp.json";
    let text =
        r#"{"mcpServers":{"moongate":{"url":"https://x.example/mcp","headers":{"Authorization":"Bearer s3cr3t"}}}}"#;
    home.write(file, text);
    let args = ["connect", "kiro", "--yes", "--endpoint", "http://127.0.0.1:1/mcp"];
    for verb in ["--write", "--remove"] {
        let refused = home.run(&[&args[..], &[verb]].concat()).await;
        assert_eq!(refused.code, Some(1), "{}", refused.err);
        assert!(refused.err.contains("--force") && refused.err.contains("x.example"), "{}", refused.err);
        assert!(!refused.err.contains("s3cr3t") && !refused.err.contains(KEY), "{}", refused.err);
        assert_eq!(home.read(file), text);
    }
    assert_eq!(home.run(&[&args[..], &["--write", "--force"]].concat()).await.code, Some(0));
    assert!(!home.read(file).contains("x.example"));
    home.write(file, "{\"mcpServers\": ");
    let broken = home.run(&[&args[..], &["--write"]].concat()).await;
    assert_eq!((broken.code, home.read(file)), (Some(1), "{\"mcpServers\": ".to_owned()), "{}", broken.err);
}

#[tokio::test]
async fn without_write_a_client_s_needs_are_shown() {
    let home = UserHome::new();
    home.write(".cursor/other", "");
    let list = home.run(&["connect"]).await;
    let line = |id: &str| list.out.lines().find(|line| line.starts_with(id)).unwrap().to_owned();
    assert!(line("cursor").contains(".cursor/mcp.json") && line("zed").ends_with('-'), "{}", list.out);
    let shown = home.run_with(&["connect", "cursor", "vscode"], "", "").await;
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    for part in
        ["# Cursor", "cursor://anysphere", "http://127.0.0.1:8080/mcp", "# VS Code", "code --add-mcp '{\"name\""]
    {
        assert!(shown.out.contains(part), "{part}: {}", shown.out);
    }
    let one = home.run(&["connect", "codex", "--endpoint", "/mcp/coding"]).await;
    assert!(
        one.out.contains("http://127.0.0.1:8080/mcp/coding") && one.out.contains("export MOONGATE_KEY="),
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
        assert_eq!((wrong.code, wrong.err.contains(word)), (Some(2), true), "{args:?}: {}", wrong.err);
    }
    let chatgpt = home.run(&["connect", "chatgpt", "--write"]).await;
    assert_eq!((chatgpt.code, chatgpt.err.contains("no file")), (Some(1), true), "{}", chatgpt.err);
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
    let dry = home.run(&["import", "--dry-run"]).await;
    assert_eq!(dry.code, Some(0), "{}", dry.err);
    for part in ["notes", "docs", "there as docs", "this gateway"] {
        assert!(dry.out.contains(part), "{part}: {}", dry.out);
    }
    assert!(!dry.out.contains("s3cr3t") && dry.err.contains("Gemini CLI"), "{dry:?}");
    let target = ".config/moongate/moongate.toml";
    assert!(!home.path(target).exists());
    let some = home.run(&["import", "--only", "docs", "--yes"]).await;
    assert_eq!(some.code, Some(0), "{}", some.err);
    assert!(
        home.read(target).contains("[servers.docs]") && !home.read(target).contains("notes"),
        "{}",
        home.read(target)
    );
    let mode = std::fs::metadata(home.path(target)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let rest = home.run(&["import", "--yes"]).await;
    assert_eq!(rest.code, Some(0), "{}", rest.err);
    assert!(home.read(target).contains("s3cr3t") && !rest.err.contains("s3cr3t"), "{}", rest.err);
    let again = home.run(&["import", "--yes"]).await;
    assert!(again.err.contains("nothing new"), "{again:?}");
    let json = home.run(&["import", "--format", "json"]).await;
    let json: Value = serde_json::from_str(&json.out).unwrap();
    let states = json["servers"].as_array().unwrap().iter().map(|server| server["state"].clone());
    assert_eq!(states.collect::<Value>(), json!(["same", "same", "same", "own"]));
}

#[tokio::test]
async fn pasted_servers_go_into_the_config_that_is_there() {
    let home = UserHome::new();
    home.write("work/moongate.yaml", "# ours\nservers:\n  a: # first\n    url: https://a.example/mcp\n");
    for (text, part) in [
        ("claude mcp add -t http b https://b.example/mcp -H 'X-Key: k'", "b:"),
        ("npx -y some-mcp@1.0.0", "some:"),
        ("https://mcp.deepwiki.com/mcp", "deepwiki:"),
    ] {
        let ran = home.run_with(&["import", "-", "--yes"], "", text).await;
        assert_eq!(ran.code, Some(0), "{text}: {}", ran.err);
        assert!(home.read("work/moongate.yaml").contains(part), "{}", home.read("work/moongate.yaml"));
    }
    let config = home.read("work/moongate.yaml");
    assert!(config.contains("# ours") && config.contains("# first"), "{config}");
    let check = home.run(&["check"]).await;
    assert_eq!((check.code, check.err.contains("4 servers")), (Some(0), true), "{}", check.err);
    let unasked = home.run_with(&["import", "-"], "", "https://c.example/mcp").await;
    assert_eq!((unasked.code, unasked.err.contains("--yes")), (Some(1), true), "{}", unasked.err);
    let nonsense = home.run_with(&["import", "-", "--yes"], "", "hello").await;
    assert_eq!((nonsense.code, nonsense.err.contains("no client's config")), (Some(1), true), "{}", nonsense.err);
    assert_eq!(home.read("work/moongate.yaml"), config);
}

#[tokio::test]
async fn a_new_key_goes_to_the_client_and_its_hash_into_the_config() {
    let home = UserHome::new();
    let setup = Setup::new().stdio("std", &legacy());
    let config = setup.file();
    let gateway = setup.spawn().await;
    let url = gateway.mcp();
    let args = ["connect", "claude-code", "--write", "--yes", "--endpoint", &url, "--config", config.to_str().unwrap()];
    let made = home.run_with(&[&args[..], &["--key", "laptop"]].concat(), "", "").await;
    assert_eq!((made.code, made.err.contains("checked: the gateway")), (Some(0), true), "{}", made.err);
    let key = made.out.trim().strip_prefix("export MOONGATE_KEY=").unwrap();
    let written = std::fs::read_to_string(&config).unwrap();
    assert!(written.contains("sha256:") && written.contains("laptop") && !written.contains(key), "{written}");
    assert!(home.read(".claude.json").contains("Bearer ${MOONGATE_KEY}") && !made.err.contains(key), "{}", made.err);
    let again = home.run_with(&[&args[..], &["--key", "laptop"]].concat(), "", "").await;
    assert_eq!((again.code, again.err.contains("already")), (Some(1), true), "{}", again.err);
    let inline = home.run_with(&[&args[..], &["--key", "desk", "--key-inline"]].concat(), "", "").await;
    assert_eq!((inline.code, &*inline.out), (Some(0), ""), "{}", inline.err);
    assert!(home.read(".claude.json").contains("Bearer mg_"), "{}", inline.err);
}
