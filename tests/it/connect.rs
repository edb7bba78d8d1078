//! `moongate connect` where something goes wrong, or somebody else writes the client's file
//! meanwhile.

use serde_json::{Value, json};

use crate::harness::user_home::{RunOutput, UserHome};
use crate::harness::{Setup, legacy};

const AWAY: &str = "http://127.0.0.1:1/mcp";

fn backups(home: &UserHome) -> usize {
    let entries = std::fs::read_dir(home.path("")).unwrap();
    entries
        .filter(|entry| {
            entry
                .as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .contains(".moongate-")
        })
        .count()
}

#[tokio::test]
async fn undo_keeps_what_the_client_wrote_since() {
    let home = UserHome::new();
    let before = r#"{"numStartups": 1, "mcpServers": {"a": {"command": "a"}}}"#;
    home.write(".claude.json", before);
    let connect = ["connect", "claude-code", "--yes", "--endpoint", AWAY];
    let run = async |verb: &str| home.run(&[&connect[..], &[verb]].concat()).await;
    assert_eq!(run("--write").await.code, Some(0));
    let mut file: Value = serde_json::from_str(&home.read(".claude.json")).unwrap();
    file["numStartups"] = json!(2);
    file["mcpServers"]["b"] = json!({"command": "b"});
    home.write(".claude.json", &file.to_string());
    let undone = run("--undo").await;
    assert_eq!(undone.code, Some(0), "{}", undone.err);
    assert!(undone.err.contains("since then"), "{}", undone.err);
    let left: Value = serde_json::from_str(&home.read(".claude.json")).unwrap();
    let servers = json!({"a": {"command": "a"}, "b": {"command": "b"}});
    assert_eq!(left, json!({"numStartups": 2, "mcpServers": servers}));
    assert_eq!(backups(&home), 0);
    // A file that was not there, and that the client has used since.
    std::fs::remove_file(home.path(".claude.json")).unwrap();
    assert_eq!(run("--write").await.code, Some(0));
    let mut file: Value = serde_json::from_str(&home.read(".claude.json")).unwrap();
    file["numStartups"] = json!(3);
    home.write(".claude.json", &file.to_string());
    assert_eq!(run("--undo").await.code, Some(0));
    let left: Value = serde_json::from_str(&home.read(".claude.json")).unwrap();
    assert_eq!(left, json!({"numStartups": 3}));
    // What cannot be read cannot be changed.
    home.write(".claude.json", before);
    assert_eq!(run("--write").await.code, Some(0));
    home.write(".claude.json", "{\"half");
    let refused = run("--undo").await;
    assert_eq!(refused.code, Some(1), "{}", refused.err);
    assert!(refused.err.contains(".bak"), "{}", refused.err);
    assert_eq!(home.read(".claude.json"), "{\"half");
}

#[tokio::test]
async fn undo_needs_the_copy_from_before() {
    let home = UserHome::new();
    let file = ".cursor/mcp.json";
    home.write(file, r#"{"mcpServers": {"a": {"command": "a"}}}"#);
    let connect = ["connect", "cursor", "--yes", "--endpoint", AWAY];
    let run = async |verb: &str| home.run(&[&connect[..], &[verb]].concat()).await;
    assert_eq!(run("--write").await.code, Some(0));
    let written = home.read(file);
    for entry in std::fs::read_dir(home.path(".cursor")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "bak") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let refused = run("--undo").await;
    assert_eq!(refused.code, Some(1), "{}", refused.err);
    assert!(
        refused.err.contains(".bak is missing") && refused.err.contains("--remove"),
        "{}",
        refused.err
    );
    assert_eq!(home.read(file), written);
    assert_eq!(run("--remove").await.code, Some(0));
    let left: Value = serde_json::from_str(&home.read(file)).unwrap();
    assert_eq!(left, json!({"mcpServers": {"a": {"command": "a"}}}));
}

#[tokio::test]
async fn an_empty_file_behind_a_link_is_empty_again() {
    let home = UserHome::new();
    home.write("dot/mcp.json", "");
    std::fs::create_dir(home.path(".cursor")).unwrap();
    let link = home.path(".cursor/mcp.json");
    std::os::unix::fs::symlink("../dot/mcp.json", &link).unwrap();
    let connect = ["connect", "cursor", "--yes", "--endpoint", AWAY];
    let run = async |verb: &str| home.run(&[&connect[..], &[verb]].concat()).await;
    for verb in ["--undo", "--remove", "--undo"] {
        let written = run("--write").await;
        assert_eq!(written.code, Some(0), "{verb}: {}", written.err);
        assert!(home.read("dot/mcp.json").contains(AWAY), "{verb}");
        let back = run(verb).await;
        assert_eq!(back.code, Some(0), "{verb}: {}", back.err);
        assert_eq!(home.read("dot/mcp.json"), "", "{verb}: {}", back.err);
    }
    // A link whose file is gone leads to none again.
    std::fs::remove_file(home.path("dot/mcp.json")).unwrap();
    for verb in ["--undo", "--remove"] {
        let written = run("--write").await;
        assert_eq!(written.code, Some(0), "{verb}: {}", written.err);
        assert!(home.read("dot/mcp.json").contains(AWAY), "{verb}");
        let back = run(verb).await;
        assert_eq!(back.code, Some(0), "{verb}: {}", back.err);
        assert!(!home.path("dot/mcp.json").exists(), "{verb}: {}", back.err);
        assert!(link.is_symlink(), "{verb}");
    }
}

#[tokio::test]
async fn undo_and_remove_need_no_config() {
    let home = UserHome::new();
    let before = r#"{"mcpServers": {"a": {"command": "a"}}}"#;
    home.write(".cursor/mcp.json", before);
    for verb in ["--undo", "--remove"] {
        home.write("work/moongate.toml", "");
        assert_eq!(
            home.run(&["connect", "cursor", "--write", "--yes"])
                .await
                .code,
            Some(0)
        );
        home.write("work/moongate.toml", "[gateway\n");
        let done = home.run(&["connect", "cursor", verb, "--yes"]).await;
        assert_eq!(done.code, Some(0), "{verb}: {}", done.err);
        assert_eq!(
            home.read(".cursor/mcp.json"),
            before,
            "{verb}: {}",
            done.err
        );
    }
    let broken = home.run(&["connect", "cursor", "--write"]).await;
    assert_eq!(broken.code, Some(2), "{}", broken.err);
    assert!(broken.err.contains("--endpoint"), "{}", broken.err);
    assert!(
        !broken.err.contains("--url") && !broken.err.contains("--admin"),
        "{}",
        broken.err
    );
    home.write("work/moongate.toml", "[gateway]\nadmin = \"127.0.0.1:1\"\n");
    let away = home.run(&["status"]).await;
    assert!(
        away.err.contains("start it with `moongate`"),
        "{}",
        away.err
    );
}

#[tokio::test]
async fn a_key_is_made_only_for_a_client_that_gets_it() {
    let home = UserHome::new();
    let config = "[gateway]\nadmin = \"127.0.0.1:1\"\n";
    home.write("work/moongate.toml", config);
    home.write(
        ".kiro/settings/mcp.json",
        r#"{"mcpServers": {"moongate": {"url": "https://x.example/mcp"}}}"#,
    );
    home.write(".cursor/mcp.json", "{broken");
    for client in ["jetbrains", "kiro", "cursor"] {
        let args = [
            "connect",
            client,
            "--write",
            "--yes",
            "--key",
            "laptop",
            "--endpoint",
            AWAY,
        ];
        let refused = home.run_with(&args, "", "").await;
        assert_eq!(refused.code, Some(1), "{client}: {}", refused.err);
        assert_eq!(
            home.read("work/moongate.toml"),
            config,
            "{client}: {}",
            refused.err
        );
    }
    // One of two gets it.
    let args = [
        "connect",
        "kiro",
        "warp",
        "--write",
        "--yes",
        "--key",
        "laptop",
        "--endpoint",
        AWAY,
    ];
    let some = home.run_with(&args, "", "").await;
    assert_eq!(some.code, Some(1), "{}", some.err);
    assert_eq!(
        home.read("work/moongate.toml").matches("sha256:").count(),
        1,
        "{}",
        some.err
    );
    assert!(home.read(".warp/.mcp.json").contains("mg_"));
    // A name that is taken is refused before the client's file is written.
    let args = [
        "connect",
        "junie",
        "--write",
        "--yes",
        "--key",
        "laptop",
        "--endpoint",
        AWAY,
    ];
    let taken = home.run_with(&args, "", "").await;
    assert_eq!(taken.code, Some(1), "{}", taken.err);
    assert!(!home.path(".junie/mcp/mcp.json").exists(), "{}", taken.err);
}

#[tokio::test]
async fn a_bridge_is_checked_like_http() {
    let home = UserHome::new();
    let key = "name = \"ada\"\nkey = \"mg_a_key_that_is_long_enough_0123456789\"";
    let gateway = Setup::new()
        .stdio("std", &legacy())
        .with("auth.keys.1", key)
        .spawn()
        .await;
    let url = gateway.mcp();
    for more in [&["claude-desktop"][..], &["cursor", "--stdio"]] {
        let args = |url: &str| {
            [&["connect"], more, &["--write", "--yes", "--endpoint", url]]
                .concat()
                .join(" ")
        };
        let run = async |url: &str, key: &str| {
            home.run_with(&args(url).split(' ').collect::<Vec<_>>(), key, "")
                .await
        };
        let away = run(AWAY, "mg_k").await;
        assert_eq!(away.code, Some(0), "{more:?}: {}", away.err);
        assert!(away.err.contains("not checked"), "{more:?}: {}", away.err);
        let wrong = run(&url, "mg_wrong").await;
        assert_eq!(wrong.code, Some(1), "{more:?}: {}", wrong.err);
        assert!(
            wrong.err.contains("refuses the key"),
            "{more:?}: {}",
            wrong.err
        );
        let fine = run(&url, "mg_a_key_that_is_long_enough_0123456789").await;
        assert_eq!(fine.code, Some(0), "{more:?}: {}", fine.err);
        assert!(fine.err.contains("answers with"), "{more:?}: {}", fine.err);
    }
}

#[tokio::test]
async fn an_endpoint_is_a_name_a_path_or_a_url() {
    let home = UserHome::new();
    for (endpoint, url) in [
        ("coding", "http://127.0.0.1:8080/mcp/coding"),
        ("/mcp/coding", "http://127.0.0.1:8080/mcp/coding"),
        ("https://x.example/mcp", "https://x.example/mcp"),
    ] {
        let shown = home
            .run(&["connect", "cursor", "--endpoint", endpoint])
            .await;
        assert!(
            shown.out.contains(&format!("\"url\": {url:?}")),
            "{endpoint}: {}",
            shown.out
        );
    }
    for endpoint in ["ftp://x", "127.0.0.1:8080/mcp", "a b", "", "http://"] {
        let refused = home
            .run(&[
                "connect",
                "cursor",
                "--write",
                "--yes",
                "--endpoint",
                endpoint,
            ])
            .await;
        assert_eq!(refused.code, Some(2), "{endpoint}: {}", refused.err);
        assert!(
            refused.err.contains("--endpoint"),
            "{endpoint}: {}",
            refused.err
        );
    }
    assert!(!home.path(".cursor").exists());
}

#[tokio::test]
async fn a_difference_can_be_judged() {
    let home = UserHome::new();
    let text = r#"{"mcpServers": {"moongate": {"url": "http://127.0.0.1:1/mcp?token=s3cr3t", "headers": {"Authorization": "Bearer s3cr3t"}}}}"#;
    home.write(".cursor/mcp.json", text);
    let run = home
        .run(&["connect", "cursor", "--write", "--yes", "--endpoint", AWAY])
        .await;
    for part in ["http://127.0.0.1:1/mcp?***", "Bearer ${env:MOONGATE_KEY}"] {
        assert!(run.err.contains(part), "{part}: {}", run.err);
    }
    assert!(!run.err.contains("s3cr3t"), "{}", run.err);
    let vscode = home
        .run(&["connect", "vscode", "--write", "--yes", "--endpoint", AWAY])
        .await;
    assert!(vscode.err.contains("\"password\": true"), "{}", vscode.err);
}

#[tokio::test]
async fn a_new_key_is_shown_once_and_only_to_those_who_need_it() {
    let home = UserHome::new();
    home.write("work/moongate.toml", "[gateway]\nadmin = \"127.0.0.1:1\"\n");
    let run = async |words: &str| {
        let words = format!("connect {words} --write --yes --endpoint {AWAY}");
        home.run_with(&words.split(' ').collect::<Vec<_>>(), "", "")
            .await
    };
    let some = run("claude-code cursor gemini --key one").await;
    assert_eq!(
        some.out.matches("export MOONGATE_KEY=mg_").count(),
        1,
        "{}",
        some.out
    );
    let asks = run("vscode --key two").await;
    assert!(
        asks.out.starts_with("mg_") && !asks.out.contains("export"),
        "{}",
        asks.out
    );
    assert!(asks.err.contains("asks for the key"), "{}", asks.err);
    // Such a file gets the key itself, and a repository may share it.
    let project = run("warp --project --key three").await;
    assert!(
        project.err.contains("warning:") && home.read("work/.warp/.mcp.json").contains("mg_"),
        "{}",
        project.err
    );
    let variable = run("claude-code --project --key four").await;
    assert!(
        !variable.err.contains("warning:") && variable.out.contains("export"),
        "{}",
        variable.err
    );
}

#[tokio::test]
async fn a_first_key_holds_when_the_command_ends() {
    let home = UserHome::new();
    let setup = Setup::new().stdio("std", &legacy());
    let config = setup.file();
    let gateway = setup.spawn().await;
    let url = gateway.mcp();
    let config = config.to_str().unwrap();
    let args = [
        "connect",
        "warp",
        "--write",
        "--yes",
        "--endpoint",
        &url,
        "--config",
        config,
        "--key",
        "laptop",
    ];
    let made = home.run_with(&args, "", "").await;
    assert_eq!(made.code, Some(0), "{}", made.err);
    assert!(made.err.contains("checked: the gateway"), "{}", made.err);
    let without = home.run_with(&["tools", "--url", &url], "", "").await;
    assert!(
        without.code == Some(1) && without.err.contains("401"),
        "{without:?}"
    );
}

/// Config of a gateway that needs keys, and that does not run.
const KEYED: &str = "[gateway]\nlisten = \"127.0.0.1:1\"\nadmin \
                     = \"127.0.0.1:2\"\n[servers.nixos]\nurl = \
                     \"http://127.0.0.1:9/mcp\"\n[[auth.keys]]\nname = \"me\"\nhash = \
                     \"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n";

async fn without_key(home: &UserHome, words: &str) -> RunOutput {
    let words: Vec<&str> = std::iter::once("connect").chain(words.split(' ')).collect();
    home.run_with(&words, "", "").await
}

#[tokio::test]
async fn a_gateway_with_keys_gets_no_entry_without_one() {
    let home = UserHome::new();
    home.write("work/moongate.toml", KEYED);
    let shown = without_key(&home, "cursor warp").await;
    for part in [
        "Bearer ${env:MOONGATE_KEY}",
        "export MOONGATE_KEY=mg_your_key",
        "Bearer mg_your_key",
    ] {
        assert!(shown.out.contains(part), "{part}: {}", shown.out);
    }
    assert!(shown.err.contains("--write --key NAME"), "{}", shown.err);
    let some = without_key(&home, "codex warp cursor vscode --write --yes").await;
    assert_eq!(some.code, Some(1), "{}", some.err);
    assert!(
        some.err.contains("connect warp --write --key NAME"),
        "{}",
        some.err
    );
    assert!(
        !home.path(".warp").exists()
            && home
                .read(".cursor/mcp.json")
                .contains("${env:MOONGATE_KEY}")
    );
    assert!(
        home.read(".codex/config.toml")
            .contains("bearer_token_env_var = \"MOONGATE_KEY\""),
        "{}",
        some.err
    );
    assert!(
        home.read(".config/Code/User/mcp.json")
            .contains("${input:moongate-key}"),
        "{}",
        some.err
    );
    for part in [
        "Cursor, not checked, since MOONGATE_KEY is not set here",
        "export MOONGATE_KEY=mg_your_key",
    ] {
        assert!(some.err.contains(part), "{part}: {}", some.err);
    }
    let inline = without_key(&home, "kiro --write --yes --key-inline").await;
    assert_eq!(inline.code, Some(1), "{}", inline.err);
    assert!(!home.path(".kiro").exists(), "{}", inline.err);
    // Servers of a client stay where they are, too.
    let works = json!({ "command": env!("CARGO_BIN_EXE_moongate"), "args": ["mock"] });
    let servers = &*json!({ "mcpServers": { "a": works } }).to_string();
    home.write(".warp/.mcp.json", servers);
    let taken = home
        .run_with(&["import", "warp", "--take-over", "--yes"], "", "")
        .await;
    assert_eq!(taken.code, Some(1), "{}", taken.err);
    assert_eq!(home.read(".warp/.mcp.json"), servers, "{}", taken.err);
}

#[tokio::test]
async fn an_entry_keeps_its_key() {
    let home = UserHome::new();
    home.write("work/moongate.toml", KEYED);
    let clients = [".codex/config.toml", ".cursor/mcp.json", ".warp/.mcp.json"];
    let made = without_key(&home, "codex cursor warp --write --yes --key lap2").await;
    assert_eq!(made.code, Some(0), "{}", made.err);
    let before = clients.map(|file| home.read(file));
    let again = without_key(&home, "--all --write --yes").await;
    assert_eq!(
        again.err.matches("already has this entry").count(),
        3,
        "{}",
        again.err
    );
    assert_eq!(clients.map(|file| home.read(file)), before);
    // The rest of the entry is as asked. The key is not shown.
    let moved = without_key(&home, "codex cursor warp --write --yes --endpoint nixos").await;
    let key = made
        .out
        .trim()
        .strip_prefix("export MOONGATE_KEY=")
        .unwrap();
    assert_eq!(moved.code, Some(0), "{}", moved.err);
    assert!(!moved.err.contains(key), "{}", moved.err);
    assert!(before[2].contains(key), "{}", before[2]);
    let moved = clients.map(|file| home.read(file));
    assert_eq!(
        moved,
        before.map(|text| text.replace("/mcp\"", "/mcp/nixos\""))
    );
}

#[tokio::test]
async fn an_endpoint_that_the_config_does_not_have_is_refused() {
    let home = UserHome::new();
    home.write(
        "work/moongate.toml",
        &KEYED.replace(
            "[[auth",
            "[servers.off]\ncommand = \"x\"\nenabled = false\n[[auth",
        ),
    );
    assert_eq!(
        home.run(&[
            "connect",
            "cursor",
            "--write",
            "--yes",
            "--endpoint",
            "nixos"
        ])
        .await
        .code,
        Some(0)
    );
    let before = home.read(".cursor/mcp.json");
    for (endpoint, part) in [
        ("nix", "did you mean `nixos`?"),
        ("/mcp/nixso", "did you mean `nixos`?"),
        (
            "zig",
            "there is no such view or server; the config has nixos",
        ),
        ("off", "moongate enable off"),
    ] {
        let refused = home
            .run(&[
                "connect",
                "cursor",
                "--write",
                "--yes",
                "--endpoint",
                endpoint,
            ])
            .await;
        assert_eq!(refused.code, Some(2), "{endpoint}: {}", refused.err);
        assert!(refused.err.contains(part), "{endpoint}: {}", refused.err);
    }
    assert_eq!(home.read(".cursor/mcp.json"), before);
    // The way back needs no view.
    let removed = home
        .run(&[
            "connect",
            "cursor",
            "--remove",
            "--yes",
            "--endpoint",
            "nix",
        ])
        .await;
    assert_eq!(removed.code, Some(0), "{}", removed.err);
    assert!(removed.err.contains("removed"), "{}", removed.err);
}
