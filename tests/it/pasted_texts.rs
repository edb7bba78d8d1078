//! Texts that somebody pastes or names, made to cost more than they may: nesting, aliases,
//! repetition, odd files. Each is answered, and the gateway goes on.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::user_home::UserHome;
use crate::harness::{EditedGateway, HttpReply, Setup};

async fn preview(edited: &EditedGateway, text: &str) -> HttpReply {
    edited
        .send("POST", "/servers/preview", &[], &json!({ "text": text }))
        .await
}

/// A server whose URL nests defaults of references.
fn deep_default(levels: usize) -> String {
    let url = format!(
        "http://127.0.0.1:1/{}{}",
        "${A:-".repeat(levels),
        "}".repeat(levels)
    );
    format!("[servers.a]\nurl = \"{url}\"\n")
}

/// Texts that every reader has to refuse without calling itself too often.
fn nested_texts() -> Vec<String> {
    let names = ["a"; 79].join(".");
    let braces = format!("{}{}", "{".repeat(50_000), "}".repeat(50_000));
    vec![
        deep_default(5_000),
        // Each part is within the parser's own limits, and together they are 6,000 levels.
        format!(
            "[servers.a]\nx = {}1{}\n",
            format!("{{ {names} = ").repeat(75),
            "}".repeat(75)
        ),
        format!("{}1{}", "{\"servers\":".repeat(20_000), "}".repeat(20_000)),
        format!("servers: {}\n", "[".repeat(20_000)),
        format!("servers:\n  {}a\n", "- ".repeat(20_000)),
        // One hole after another in the text of a registry's server.
        json!({ "name": "a/b", "packages": [{ "registryType": "npm", "identifier": "b",
            "packageArguments": [{ "value": "{x}".repeat(60_000) }] }] })
        .to_string(),
        format!(
            "{{\"servers\": {{\"a\": {{\"command\": \"a\", \"args\": {}1{}}}}}}}",
            "[".repeat(100),
            "]".repeat(100)
        ),
        json!({ "servers": { "a": { "command": "a", "tools": { "deny": [braces] } } } })
            .to_string(),
    ]
}

#[tokio::test]
async fn nested_texts_are_refused_and_the_gateway_goes_on() {
    let edited = EditedGateway::start(Setup::new()).await;
    for text in nested_texts() {
        let reply = preview(&edited, &text).await;
        assert!(reply.status < 500, "{}: {}", &text[..60], reply.text_body());
    }
    let deep = preview(&edited, &deep_default(5_000)).await.json();
    // A reference makes it a server that needs a permission here, so nothing is expanded.
    assert_eq!(deep["servers"][0]["needs_command"], true, "{deep}");
    assert_eq!(
        preview(&edited, "https://docs.example.com/mcp")
            .await
            .json()["servers"][0]["state"],
        "new"
    );
}

#[tokio::test]
async fn nested_configs_are_errors_of_check_and_import() {
    let home = UserHome::new();
    for (at, text) in nested_texts().into_iter().enumerate() {
        let ending = if text.starts_with('{') {
            "json"
        } else if text.starts_with('[') {
            "toml"
        } else {
            "yaml"
        };
        let file = format!("work/deep-{at}.{ending}");
        home.write(&file, &text);
        for args in [["check", &file[5..]], ["import", &file[5..]]] {
            let ran = home.run(&args).await;
            assert!(ran.code.is_some_and(|code| code <= 2), "{args:?}: {ran:?}");
        }
    }
    let variable = format!("MOONGATE_{}", ["A"; 30_000].join("__"));
    let checked = home.run_in(&["check"], &[(variable.as_str(), "1")]).await;
    assert_eq!(checked.code, Some(2), "{}", checked.err);
    assert!(
        checked.err.contains("more than 16 levels"),
        "{}",
        checked.err
    );
}

#[tokio::test]
async fn aliases_and_repetition_end_early() {
    let edited = EditedGateway::start(Setup::new()).await;
    let level = |name: &str, of: &str| format!("{name}: &{name} [{}]\n", [of; 10].join(", "));
    let bomb = [
        ("a", "x"),
        ("b", "*a"),
        ("c", "*b"),
        ("d", "*c"),
        ("e", "*d"),
        ("f", "*e"),
    ];
    let mut bomb: String = bomb.iter().map(|(name, of)| level(name, of)).collect();
    bomb.push_str("servers: {s: {url: \"http://127.0.0.1:1/mcp\", headers: {X: *f}}}\n");
    let refused = preview(&edited, &bomb).await.json();
    assert!(
        refused["problems"].to_string().contains("aliases"),
        "{refused}"
    );
    let repeated = format!(
        "{{\"servers\": {{{}}}}}",
        ["\"a\": {\"url\": \"http://a.example/mcp\"}"; 4_000].join(",")
    );
    assert!(preview(&edited, &repeated).await.status < 500);
    // Forty secrets in a row, each with a variable of its own.
    let args: Vec<String> = (0..6_000).map(|n| format!("--token=t{n}")).collect();
    let many = json!({ "servers": { "a": { "command": "a", "args": args } } }).to_string();
    let found = preview(&edited, &many).await.json();
    assert_eq!(
        found["servers"][0]["secrets"].as_array().map(Vec::len),
        Some(6_000)
    );
    let lines = "npx -y some-mcp@1\n".repeat(5_000);
    let refused = preview(&edited, &lines).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["error"], "too_many_servers");
}

#[tokio::test]
async fn a_config_on_one_line_is_checked_and_its_problems_end() {
    let home = UserHome::new();
    let entry = |n: usize| {
        (
            format!("s{n}"),
            json!({ "command": "npx", "args": ["server"], "env": { "A_KEY": "s3cr3t" } }),
        )
    };
    let servers: Value = (0..1_500)
        .map(entry)
        .collect::<serde_json::Map<_, _>>()
        .into();
    home.write(
        "work/many.json",
        &json!({ "mcpServers": servers }).to_string(),
    );
    let checked = home.run(&["check", "many.json"]).await;
    assert_eq!(checked.code, Some(0), "{}", checked.err);
    assert!(
        checked.err.contains("1500 servers") && checked.err.contains("more problems"),
        "{}",
        checked.err.len()
    );
    assert!(!checked.err.contains("s3cr3t"));
    let odd: String = (0..3_000).map(|n| format!("\"k{n}\": 1,")).collect();
    home.write(
        "work/odd.json",
        &format!("{{\"gateway\": {{{odd}\"x\": 1}}}}"),
    );
    let checked = home.run(&["check", "odd.json"]).await;
    assert_eq!(checked.code, Some(2), "{}", checked.err);
    assert!(
        checked.err.contains("there are 2901 more problems"),
        "{}",
        checked.err
    );
    assert!(checked.err.len() < 100_000, "{}", checked.err.len());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn denied_tools_of_many_servers_fit_into_little_memory() {
    let home = UserHome::new();
    let servers: serde_json::Map<_, _> = (0..1_500)
        .map(|n| (format!("a{n}"), json!({ "url": "https://a.example/mcp" })))
        .collect();
    let text = json!({ "mcpServers": servers, "permissions": { "deny": vec!["*"; 20_000] } });
    home.write("work/denied.json", &text.to_string());
    // A rule for each pair would take many gigabytes, and the program would abort.
    let mut limited = tokio::process::Command::new("bash");
    limited.args([
        "-c",
        "ulimit -v 3000000 && exec \"$@\"",
        "limited",
        env!("CARGO_BIN_EXE_moongate"),
    ]);
    limited
        .args(["check", "denied.json"])
        .current_dir(home.path("work"))
        .env("HOME", home.path(""));
    let checked = limited.output().await.unwrap();
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
}

/// Configs that name a pipe, a device or a sparse file, each with a part of the reason.
#[cfg(unix)]
fn naming_odd_files(pipe: &Path, sparse: &Path) -> [(String, &'static str); 5] {
    let pipe = pipe.display();
    let tls = format!("[gateway]\ntls = {{ cert = \"{pipe}\", key = \"/dev/zero\" }}\n");
    [
        (
            format!("[gateway]\nenv_file = \"{pipe}\"\n"),
            "not a regular file",
        ),
        (
            format!(
                "[servers.a]\nurl = \"http://a.example/\"\nheaders = \
                 {{ X = \"${{file:{pipe}}}\" }}\n"
            ),
            "not a regular file",
        ),
        (
            "[servers.a]\nurl = \"https://a.example/\"\nca = \"/dev/zero\"\n".to_owned(),
            "not a regular file",
        ),
        (
            format!(
                "[servers.a]\nurl = \"https://a.example/\"\nca = \"{}\"\n",
                sparse.display()
            ),
            "larger than 1 MiB",
        ),
        (tls, "not a regular file"),
    ]
}

#[cfg(unix)]
#[tokio::test]
async fn odd_files_neither_hang_nor_fill_a_command() {
    let home = UserHome::new();
    let pipe = home.path("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let sparse = home.path("work/sparse.json");
    std::fs::File::create(&sparse)
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    home.write(".cursor/other", "");
    std::os::unix::fs::symlink(&pipe, home.path(".cursor/mcp.json")).unwrap();
    home.write(
        ".kiro/settings/mcp.json",
        r#"{"mcpServers": {"a": {"url": "https://a.example/mcp"}}}"#,
    );
    let listed = home.run(&["import", "--dry-run"]).await;
    assert!(
        listed.code == Some(0) && listed.out.contains("a.example"),
        "{listed:?}"
    );
    for file in [pipe.to_str().unwrap(), "sparse.json", "/dev/zero"] {
        let refused = home.run(&["import", file]).await;
        let why = if file == "sparse.json" {
            "larger than 64 MiB"
        } else {
            "not a regular file"
        };
        assert!(
            refused.code == Some(1) && refused.err.contains(why),
            "{file}: {refused:?}"
        );
        assert_eq!(
            refused.err.contains("moongate import -"),
            file != "sparse.json",
            "{refused:?}"
        );
    }
    for (config, why) in naming_odd_files(&pipe, &sparse) {
        home.write("work/moongate.toml", &config);
        let checked = home.run(&["check"]).await;
        assert!(
            checked.code == Some(2) && checked.err.contains(why),
            "{config}: {checked:?}"
        );
        let looked = home.run(&["doctor"]).await;
        assert!(looked.code.is_some(), "{looked:?}");
    }
}
