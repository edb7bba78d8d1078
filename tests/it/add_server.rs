//! `moongate add` and `moongate undo`: popular servers, pasted texts, the look before the write,
//! and the way back.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use axum::http::StatusCode;
use serde_json::Value;
use tempfile::TempDir;

use moongate_testing::ReservedAddress;

use crate::harness::program::Program;
use crate::harness::{Setup, legacy, only, serve, until};

/// Folder with a config and a home of its own.
struct AddScene {
    folder: TempDir,
    file: PathBuf,
}

impl AddScene {
    fn new() -> AddScene {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("moongate.toml");
        std::fs::write(
            &file,
            "# mine\n[gateway]\nadmin = \"127.0.0.1:1\"\nstate_dir = \"state\"\n",
        )
        .unwrap();
        AddScene { folder, file }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.file).unwrap()
    }

    /// Starts a gateway of the folder's config, with these servers in it.
    async fn start_gateway(&self, servers: &str) -> Program {
        let reserved = (ReservedAddress::new(), ReservedAddress::new());
        let listen = reserved.0.address();
        let admin = reserved.1.address();
        let gateway = format!(
            "[gateway]\nlisten = \"{listen}\"\nadmin = \"{admin}\"\nstate_dir = \"state\"\n"
        );
        std::fs::write(&self.file, gateway + servers).unwrap();
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_moongate"));
        command.current_dir(self.path()).env("HOME", self.path());
        Program::start(command, "/mcp").await
    }

    async fn run(&self, args: &[&str]) -> (i32, String) {
        self.run_with(args, "").await
    }

    /// Runs a command in the folder, with this text on stdin. Returns its exit code and what it
    /// said.
    async fn run_with(&self, args: &[&str], stdin: &str) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_moongate"));
        command
            .args(args)
            .current_dir(self.path())
            .env_remove("MOONGATE_CONFIG")
            .env_remove("MOONGATE_KEY");
        command
            .env("HOME", self.path())
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_STATE_HOME");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let stdin = stdin.to_owned();
        let ran = tokio::task::spawn_blocking(move || {
            let mut child = command.spawn().unwrap();
            // Commands that read nothing close it before.
            let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
            child.wait_with_output().unwrap()
        });
        let ran = ran.await.unwrap();
        (
            ran.status.code().unwrap(),
            String::from_utf8([ran.stdout, ran.stderr].concat()).unwrap(),
        )
    }
}

/// Serves one HTTP status at a loopback address.
async fn http_status(status: StatusCode) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        axum::serve(
            listener,
            axum::Router::new().fallback(move || async move { status }),
        )
        .await
    });
    url
}

#[tokio::test]
async fn a_popular_server_needs_its_name_and_its_arguments_alone() {
    let scene = AddScene::new();
    let (code, said) = scene.run(&["add", "deepwiki", "--no-probe"]).await;
    assert_eq!(code, 0, "{said}");
    assert!(
        scene
            .text()
            .contains("url = \"https://mcp.deepwiki.com/mcp\""),
        "{said}"
    );
    let (code, said) = scene.run(&["add", "context7", "--no-probe"]).await;
    assert!(
        code == 0 && said.contains("also takes a key") && said.contains("CONTEXT7_API_KEY"),
        "{said}"
    );
    let before = scene.text();
    for (args, part) in [
        (&["add", "files"][..], "files needs DIR"),
        (&["add", "files", "nowhere"], "there is no folder"),
        (&["add", "deepwiki", "x"], "too many"),
        (&["add", "deepwik"], "is it `moongate add deepwiki`?"),
        (
            &["add", "team", "https://a.example/mcp", "b"],
            "a server has one URL",
        ),
        (
            &["add", "team", "https://a.example/mcp", "--name", "b"],
            "--name is for popular servers",
        ),
    ] {
        let (code, said) = scene.run(args).await;
        assert_eq!(code, 2, "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: {said}");
    }
    assert_eq!(scene.text(), before);
    // The gateway may start in another folder.
    let (code, said) = scene
        .run(&["add", "files", ".", "--name", "here", "--no-probe"])
        .await;
    let folder = std::fs::canonicalize(scene.path())
        .unwrap()
        .display()
        .to_string();
    assert!(
        code == 0 && scene.text().contains(&folder) && scene.text().contains("[servers.here]"),
        "{said}"
    );
    // A URL of one's own may have the name of a popular server.
    let (code, said) = scene
        .run(&["add", "mdn", "https://a.example/mcp", "--no-probe"])
        .await;
    assert!(
        code == 0 && scene.text().contains("https://a.example/mcp"),
        "{said}"
    );
}

#[tokio::test]
async fn a_server_is_looked_at_before_it_is_added() {
    let scene = AddScene::new();
    let server = serve(only(legacy(), &["echo", "fail"])).await;
    let (code, said) = scene.run(&["add", "good", &server.url]).await;
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("good: Streamable HTTP, 2025-11-25") && said.contains("2 tools, about"),
        "{said}"
    );
    let before = scene.text();
    let missing = http_status(StatusCode::NOT_FOUND).await;
    let program = ["add", "bad", "--", "/no/such/program"];
    for (args, part) in [
        (&["add", "bad", &*missing][..], "HTTP status 404"),
        (&program, "/no/such/program"),
        (
            &["add", "bad", "--", "sh", "-c", "echo broken >&2; exit 3"],
            "broken",
        ),
    ] {
        let (code, said) = scene.run(args).await;
        assert!(
            code == 1 && said.contains(part) && said.contains("--no-probe"),
            "{args:?}: {code}: {said}"
        );
        assert_eq!(scene.text(), before, "{args:?}");
    }
    let (code, said) = scene.run(&["add", "bad", &missing, "--no-probe"]).await;
    assert_eq!(code, 0, "{said}");
    assert!(scene.text().contains(&missing), "{said}");
}

#[tokio::test]
async fn faults_that_may_pass_are_told_and_the_server_is_added() {
    let scene = AddScene::new();
    let locked = http_status(StatusCode::UNAUTHORIZED).await;
    let (code, said) = scene.run(&["add", "locked", &locked]).await;
    assert!(
        code == 0
            && said.contains("locked needs a login: moongate login locked")
            && scene.text().contains(&locked),
        "{said}"
    );
    // With a header, the header is what is wrong.
    let (code, said) = scene
        .run(&[
            "add",
            "wrong",
            &locked,
            "-H",
            "Authorization: Bearer secret-of-mine",
        ])
        .await;
    assert!(
        code == 1 && said.contains("the header is wrong") && !said.contains("secret-of-mine"),
        "{said}"
    );
    let (code, said) = scene.run(&["add", "later", "http://127.0.0.1:2/mcp"]).await;
    assert!(
        code == 0 && said.contains("connects once it is reachable"),
        "{said}"
    );
    let (code, said) = scene
        .run(&["add", "unset", &locked, "-H", "X-Key: ${NOT_SET_HERE}"])
        .await;
    assert!(
        code == 0 && said.contains("unset: not tried") && said.contains("NOT_SET_HERE"),
        "{said}"
    );
    let (code, said) = scene
        .run(&["add", "off", "--off", "--", "/no/such/program"])
        .await;
    assert!(
        code == 0 && scene.text().contains("enabled = false"),
        "{said}"
    );
}

#[tokio::test]
async fn a_pasted_text_adds_all_its_servers_as_one_edit() {
    let scene = AddScene::new();
    let before = scene.text();
    let server = serve(only(legacy(), &["echo"])).await;
    let text = format!(
        r#"{{"mcpServers": {{"one": {{"url": "{}", "headers": {{"X-Key": "s3cr3t-value"}}}},
            "two": {{"command": "/no/such/program"}}, "three": {{"url": "https://c.example/mcp", "disabled": true}}}}}}"#,
        server.url
    );
    let (code, said) = scene.run_with(&["add", "-"], &text).await;
    assert!(
        code == 1 && said.contains("one: Streamable HTTP") && said.contains("error: two:"),
        "{code}: {said}"
    );
    assert!(
        scene.text().contains("[servers.one]") && scene.text().contains("[servers.three]"),
        "{}",
        scene.text()
    );
    assert!(
        !scene.text().contains("no/such/program") && !said.contains("s3cr3t-value"),
        "{said}"
    );
    let (code, said) = scene.run(&["undo"]).await;
    assert_eq!(code, 0, "{said}");
    assert_eq!(scene.text(), before, "{said}");
    let (code, said) = scene.run_with(&["add", "-", "--no-probe"], &text).await;
    assert!(
        code == 0 && scene.text().contains("no/such/program"),
        "{said}"
    );
    let (code, said) = scene.run_with(&["add", "-", "--no-probe"], &text).await;
    assert!(code == 0 && said.contains("nothing new"), "{said}");
    for (args, text, code, part) in [
        (
            &["add", "-", "--url", "https://a.example"][..],
            "",
            2,
            "everything comes from stdin",
        ),
        (&["add", "-"], "hello", 1, "not a client's config"),
        (&["add", "-"], "", 1, "not a client's config"),
        (
            &["add", "-"],
            r#"{"mcpServers": {"a": {"url": 5}}}"#,
            1,
            "were not added",
        ),
    ] {
        let (found, said) = scene.run_with(args, text).await;
        assert_eq!(found, code, "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: {said}");
    }
}

#[tokio::test]
async fn a_flag_that_a_form_cannot_use_is_an_error_that_names_both() {
    let scene = AddScene::new();
    let before = scene.text();
    let url = "https://a.example/mcp";
    for (args, parts) in [
        (
            &["add", "-", "--bearer-token-env-var", "TOK"][..],
            ["--bearer-token-env-var", "`-`"],
        ),
        (&["add", "-", "-t", "sse"], ["--transport", "`-`"]),
        (&["add", "-", "--name", "x"], ["--name", "`-`"]),
        (&["add", "-", "--only", "x"], ["--only", "`-`"]),
        (&["add", "-", "word"], ["\"word\"", "`-`"]),
        (&["add", "-", "--", "npx"], ["\"npx\"", "`-`"]),
        (
            &["add", "x", "-t", "sse", "--", "npx"],
            ["--transport", "not for a command"],
        ),
        (
            &["add", "x", "-H", "A: b", "--", "npx"],
            ["--header", "not for a command"],
        ),
        (
            &["add", "x", "--bearer-token-env-var", "TOK", "--", "npx"],
            ["--bearer-token-env-var", "not for a command"],
        ),
        (
            &["add", "files", ".", "-t", "ws"],
            ["--transport", "not for a command"],
        ),
        (&["add", "x", url, "-e", "A=b"], ["--env", "not for a URL"]),
        (
            &["add", "x", url, "-t", "stdio"],
            ["--transport", "use http, sse or ws"],
        ),
        (
            &["add", "x", url, "-H", "A: b", "-H", "a: c"],
            ["\"a\"", "given twice"],
        ),
        (
            &[
                "add",
                "x",
                url,
                "-H",
                "Authorization: b",
                "--bearer-token-env-var",
                "TOK",
            ],
            ["\"Authorization\"", "given twice"],
        ),
    ] {
        let (code, said) = scene.run(&[args, &["--no-probe"]].concat()).await;
        assert_eq!(code, 2, "{args:?}: {said}");
        assert!(
            parts.iter().all(|part| said.contains(part)),
            "{args:?}: {said}"
        );
    }
    assert_eq!(scene.text(), before);
    // Claude Code's spelling of a command's transport.
    let command = ["add", "x", "--no-probe", "-t", "stdio", "--", "npx", "y@1"];
    let (code, said) = scene.run(&command).await;
    assert!(code == 0 && scene.text().contains("npx"), "{said}");
}

#[tokio::test]
async fn undo_takes_back_the_last_edit_to_the_byte_and_nothing_else() {
    let scene = AddScene::new();
    let (code, said) = scene.run(&["undo"]).await;
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("no edits of this config are on record"),
        "{said}"
    );
    let first = scene.text();
    scene.run(&["add", "mdn", "--no-probe"]).await;
    let second = scene.text();
    scene.run(&["disable", "mdn"]).await;
    let (code, listed) = scene.run(&["undo", "--list"]).await;
    let lines: Vec<&str> = listed.lines().collect();
    assert!(
        code == 0 && lines.len() == 3 && lines[1].contains("switched off mdn"),
        "{listed}"
    );
    let (_, json) = scene.run(&["undo", "--list", "--format", "json"]).await;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["edits"].as_array().unwrap().len(), 2);
    assert_eq!(json["edits"][1]["summary"], "added mdn");
    let third = scene.text();
    let (code, said) = scene.run(&["undo", "--dry-run"]).await;
    assert!(
        code == 0 && said.contains("- enabled = false") && scene.text() == third,
        "{said}"
    );
    let (code, said) = scene.run(&["undo"]).await;
    assert!(
        code == 0
            && said.contains("undone: switched off mdn")
            && said.contains("no gateway is running"),
        "{said}"
    );
    assert_eq!(scene.text(), second);
    // Somebody's own change stays: the old bytes would erase it.
    std::fs::write(&scene.file, format!("{second}# more\n")).unwrap();
    let (code, said) = scene.run(&["undo"]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("was changed after the last edit"), "{said}");
    assert!(scene.text().ends_with("# more\n"));
    std::fs::write(&scene.file, &second).unwrap();
    let (code, said) = scene.run(&["undo"]).await;
    assert_eq!(code, 0, "{said}");
    assert_eq!(scene.text(), first, "{said}");
}

#[tokio::test]
async fn undo_reaches_a_running_gateway_and_imports_can_be_undone() {
    let server = serve(only(legacy(), &["echo"])).await;
    let setup = Setup::new().http("a", &server.url).lasting();
    let gateway = setup.program().await;
    let scene = AddScene::new();
    let file = setup.file();
    let before = std::fs::read(&file).unwrap();
    let admin = gateway
        .admin_url()
        .await
        .trim_start_matches("http://")
        .to_owned();
    let config = file.display().to_string();
    let to = ["--config", &config, "--admin", &admin];
    let (code, said) = scene
        .run(&[&["add", "b", &server.url][..], &to].concat())
        .await;
    assert!(code == 0 && said.contains("b: ready"), "{said}");
    let (code, said) = scene.run(&[&["undo"][..], &to].concat()).await;
    assert_eq!(code, 0, "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), before, "{said}");
    let (_, status) = scene.run(&[&["status"][..], &to].concat()).await;
    assert!(!status.contains("b  "), "{status}");
    let (code, said) = scene
        .run_with(
            &["import", "-", "--yes", "--config", &config],
            "https://c.example/mcp",
        )
        .await;
    assert_eq!(code, 0, "{said}");
    assert_ne!(std::fs::read(&file).unwrap(), before);
    let (code, said) = scene.run(&[&["undo"][..], &to].concat()).await;
    assert_eq!(code, 0, "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), before, "{said}");
}

#[tokio::test]
async fn a_prompt_names_the_tools_that_are_switched_off_if_the_gateway_says_so() {
    let server = serve(only(legacy(), &["echo", "fail", "add"])).await;
    let scene = AddScene::new();
    let servers = format!(
        "[servers.a]\nurl = \"{url}\"\ntools = {{ deny = [\"fail\"] }}\n[servers.b]\nurl \
         = \"{url}\"\n\
         [servers.0]\nurl = \"{url}\"\nenabled = false\n",
        url = server.url
    );
    let gateway = scene.start_gateway(&servers).await;
    let config = scene.text();
    let prompt = async |args: &[&str]| {
        let (code, said) = scene
            .run(&[&["tools", "--format", "prompt"][..], args].concat())
            .await;
        assert_eq!(code, 0, "{said}");
        said
    };
    let (url, of_a) = (gateway.url("/mcp"), gateway.url("/mcp/a"));
    // The list grows with the servers that have connected.
    until("both servers are listed", async || {
        prompt(&[]).await.contains("## b__add").then_some(())
    })
    .await;
    for args in [&[][..], &["--url", &url], &["--url", &of_a]] {
        let text = prompt(args).await;
        assert!(
            text.contains("# Switched off") && text.contains("- `fail` of a\n"),
            "{args:?}: {text}"
        );
        assert_eq!(text.matches("` of ").count(), 1, "{args:?}: {text}");
    }
    assert!(
        !prompt(&["--url", &gateway.url("/mcp/b")])
            .await
            .contains("Switched off")
    );
    // Without the admin listener, nothing is claimed.
    std::fs::write(
        &scene.file,
        config.replace("admin = \"127.0.0.1:", "admin = \"127.0.0.2:"),
    )
    .unwrap();
    let text = prompt(&[]).await;
    assert!(
        text.contains("## a__echo") && !text.contains("Switched off"),
        "{text}"
    );
    drop(gateway);
}

#[tokio::test]
async fn an_empty_list_names_the_servers_that_are_away() {
    let scene = AddScene::new();
    let off = "[servers.a]\nurl = \"http://127.0.0.1:1/mcp\"\n[servers.b]\ncommand \
               = \"x\"\nenabled = false\n";
    let gateway = scene.start_gateway(off).await;
    let (code, said) = scene.run(&["tools"]).await;
    assert!(
        code == 0 && said.contains(" has no tools; unavailable: \"a\" ("),
        "{said}"
    );
    assert!(
        said.contains(", \"b\" (disabled); `moongate status` shows why"),
        "{said}"
    );
    let (_, said) = scene
        .run(&["prompts", "--url", &gateway.url("/mcp/a")])
        .await;
    assert!(
        said.contains(" has no prompts; unavailable: \"a\" (") && !said.contains("\"b\""),
        "{said}"
    );
    drop(gateway);
}
