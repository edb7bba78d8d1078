//! `moongate connect` and `moongate import`, with files of clients in a home of their own.

mod bundle;
mod import;
mod take_over;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use moongate_clients::{ConnectMethod, clients};

use crate::harness::user_home::{KEY, UserHome};
use crate::harness::{Process, Setup, legacy};

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
            again.err.contains("already has this entry"),
            "{id}: {}",
            again.err
        );
        // Both ways back leave nothing of a file that was not there.
        let removed = home
            .run(&["connect", id, "--remove", "--yes", "--endpoint", &url])
            .await;
        assert_eq!(removed.code, Some(0), "{id}: {}", removed.err);
        assert!(removed.err.contains("removed"), "{id}: {}", removed.err);
        let undone = home.run(&["connect", id, "--undo", "--yes"]).await;
        assert_eq!(undone.code, Some(0), "{id}: {}", undone.err);
        assert!(undone.err.contains("is as it was"), "{id}: {}", undone.err);
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
    assert_eq!(nothing.code, Some(0), "{}", nothing.err);
    assert!(nothing.err.contains("has no entry"), "{}", nothing.err);
    let unasked = home
        .run(&["connect", "cursor", "--endpoint", &url, "--write"])
        .await;
    assert_eq!(unasked.code, Some(1), "{}", unasked.err);
    assert!(unasked.err.contains("--yes"), "{}", unasked.err);
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
    assert_eq!(wrong.code, Some(1), "{}", wrong.err);
    assert!(wrong.err.contains("refuses the key"), "{}", wrong.err);
    let away = home
        .run(&[&args[..], &["http://127.0.0.1:1/mcp", "--name", "away"]].concat())
        .await;
    assert_eq!(away.code, Some(0), "{}", away.err);
    assert!(away.err.contains("not checked"), "{}", away.err);
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
    assert_eq!(bridge.code, Some(0), "{}", bridge.err);
    assert!(
        bridge.err.contains("checked: the gateway"),
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
    assert_eq!(broken.code, Some(1), "{}", broken.err);
    assert_eq!(home.read(file), "{\"mcpServers\": ", "{}", broken.err);
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
        (
            &[
                "connect", "cursor", "--write", "--yes", "--name", "my__gate",
            ],
            "two underscores",
        ),
        (&["connect", "cursor", "--key-env", "NOT_SET"], "NOT_SET"),
        (&["import", "curser"], "did you mean `cursor`"),
    ] {
        let wrong = home.run(args).await;
        assert_eq!(wrong.code, Some(2), "{args:?}: {}", wrong.err);
        assert!(wrong.err.contains(word), "{args:?}: {}", wrong.err);
    }
    assert!(!home.path(".cursor/mcp.json").exists());
    let chatgpt = home.run(&["connect", "chatgpt", "--write"]).await;
    assert_eq!(chatgpt.code, Some(1), "{}", chatgpt.err);
    assert!(chatgpt.err.contains("no file"), "{}", chatgpt.err);
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
    assert_eq!(made.code, Some(0), "{}", made.err);
    assert!(made.err.contains("checked: the gateway"), "{}", made.err);
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
    assert_eq!(again.code, Some(1), "{}", again.err);
    assert!(again.err.contains("already"), "{}", again.err);
    let inline = home
        .run_with(
            &[&args[..], &["--key", "desk", "--key-inline"]].concat(),
            "",
            "",
        )
        .await;
    assert_eq!(inline.code, Some(0), "{}", inline.err);
    assert_eq!(inline.out, "", "{}", inline.err);
    assert!(
        home.read(".claude.json").contains("Bearer mg_"),
        "{}",
        inline.err
    );
}
