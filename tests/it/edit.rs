//! Commands that edit the config, with and without a running gateway.

use std::process::Command;

use serde_json::json;

use crate::harness::{Era, Setup, legacy, only, serve, until};

/// Runs a command of the program. Returns its exit code and what it said.
async fn moongate(args: Vec<String>) -> (i32, String) {
    let output = tokio::task::spawn_blocking(move || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_moongate"));
        command
            .args(args)
            .env_remove("MOONGATE_CONFIG")
            .output()
            .unwrap()
    });
    let output = output.await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8(text).unwrap(),
    )
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[tokio::test]
async fn servers_and_tools_are_added_switched_and_removed_in_a_running_gateway() {
    let server = serve(only(legacy(), &["echo", "fail"])).await;
    let setup = Setup::new().http("a", &server.url).lasting();
    let gateway = setup.program().await;
    let file = setup.file().display().to_string();
    let admin = gateway
        .admin_url()
        .await
        .trim_start_matches("http://")
        .to_owned();
    let before = std::fs::read_to_string(&file).unwrap();
    let run = async |line: &str| {
        moongate(
            [
                words(line),
                words(&format!("--config {file} --admin {admin}")),
            ]
            .concat(),
        )
        .await
    };
    let (code, said) = run(&format!("add b {}", server.url)).await;
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("b: ready, 2 of 2 tools") && said.contains(&server.url),
        "{said}"
    );
    let client = moongate_testing::McpClient::open(&gateway.mcp(), Era::Modern).await;
    client.call("b__echo", json!({"text": "x"})).await.result();
    for (line, part) in [
        ("disable b fial", "did you mean `fail`?"),
        ("disable b fa*", "servers.b.tools.deny"),
    ] {
        let (code, said) = run(line).await;
        assert!(
            code == 2 && said.contains("nothing was changed") && said.contains(part),
            "{line}: {said}"
        );
    }
    let (code, said) = run("disable b fail").await;
    assert_eq!(code, 0, "{said}");
    assert!(
        !client.tools().await.contains(&"b__fail".to_owned()),
        "{said}"
    );
    assert!(said.contains("b: ready, 1 of 2 tools"), "{said}");
    run("enable b fail").await;
    assert!(client.tools().await.contains(&"b__fail".to_owned()));
    let (code, said) = run("disable b").await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("b: off"), "{said}");
    run("enable b").await;
    let (code, said) = run("remove b").await;
    assert_eq!(code, 0, "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before, "{said}");
    // It was said that the server is added anyway.
    let (code, said) = run("add later http://127.0.0.1:2/mcp").await;
    assert!(
        code == 0 && said.contains("added anyway") && said.contains("later: backing_off"),
        "{said}"
    );
    let (code, said) = run("remove b").await;
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("there is no server \"b\"; the config has `a`"),
        "{said}"
    );
}

/// Checks commands that cannot be done over a config with the server `files`.
async fn assert_edits_are_refused(file: &str) {
    for (line, code, part) in [
        ("add files https://x.example/mcp", 2, "already"),
        ("add x", 2, "give a URL"),
        ("add x npx", 2, "is not a URL"),
        (
            "add https://x.example/mcp",
            2,
            "a name comes before the URL: `moongate add NAME https://x.example/mcp`",
        ),
        (
            "add https://x.example/mcp team",
            2,
            "`moongate add team https://x.example/mcp`",
        ),
        (
            "add x https://x.example/mcp -H nothing",
            2,
            "is not a name and a value",
        ),
        ("enable nothing", 2, "there is no server \"nothing\""),
    ] {
        let (found, said) = moongate(words(&format!("{line} --config {file}"))).await;
        assert_eq!(found, code, "{line}: {said}");
        assert!(said.contains(part), "{line}: {said}");
    }
}

#[tokio::test]
async fn without_a_gateway_the_edit_holds_from_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("moongate.toml");
    std::fs::write(&file, "# mine\n[gateway]\nadmin = \"127.0.0.1:1\"\n").unwrap();
    let file = file.display().to_string();
    let run =
        async |line: &str| moongate([words(&format!("{line} --config {file}"))].concat()).await;
    let add = vec![
        "add",
        "files",
        "--no-probe",
        "--config",
        &file,
        "-e",
        "A=b",
        "--",
        "npx",
        "-y",
        "@scope/server@1.0.0",
        "/data",
    ];
    let (code, said) = moongate(add.into_iter().map(str::to_owned).collect()).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("no gateway is running here"), "{said}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.starts_with("# mine\n[gateway]\n") && text.contains("@scope/server@1.0.0"),
        "{text}"
    );
    let (code, said) = run("disable files --dry-run").await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("+ enabled = false"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    let (code, dry) = run("key new laptop --write --dry-run").await;
    assert!(
        code == 0 && dry.contains("this key is not stored anywhere") && !dry.contains("first key"),
        "{dry}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    let (code, key) = run("key new laptop --write").await;
    assert_eq!(code, 0, "{key}");
    assert!(key.lines().next().unwrap().starts_with("mg_"), "{key}");
    assert!(
        key.contains("this is the first key: from now on, every client needs one"),
        "{key}"
    );
    let (_, second) = run("key new desk --write").await;
    assert!(!second.contains("first key"), "{second}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("name = \"laptop\"") && !text.contains(key.lines().next().unwrap()),
        "{text}"
    );
    assert_edits_are_refused(&file).await;
}

#[tokio::test]
async fn a_name_where_no_server_is_leads_to_the_command_that_adds_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("moongate.toml");
    std::fs::write(&file, "[gateway]\nadmin = \"127.0.0.1:1\"\n").unwrap();
    let (code, said) = moongate(words(&format!("disable x --config {}", file.display()))).await;
    let wanted =
        "there is no server \"x\"; the config has none, and `moongate add NAME URL` adds one";
    assert_eq!(code, 2, "{said}");
    assert!(said.contains(wanted), "{said}");
}

#[tokio::test]
async fn a_gateway_that_asks_for_a_key_still_takes_the_change() {
    let server = serve(only(legacy(), &["echo"])).await;
    let key = "name = \"o\"\nkey = \"operator-key-0123456789\"\nrole = \"operate\"";
    let setup = Setup::new()
        .http("a", &server.url)
        .lasting()
        .with("admin.keys.1", key);
    let gateway = setup.program().await;
    let file = setup.file().display().to_string();
    let admin = gateway
        .admin_url()
        .await
        .trim_start_matches("http://")
        .to_owned();
    let client = moongate_testing::McpClient::open(&gateway.mcp(), Era::Modern).await;
    until("the tool is listed", async || {
        client
            .tools()
            .await
            .contains(&"a__echo".to_owned())
            .then_some(())
    })
    .await;
    let (code, said) = moongate(words(&format!("disable a --config {file} --admin {admin}"))).await;
    assert!(
        code == 0 && said.contains("reloads by itself") && said.contains("MOONGATE_ADMIN_KEY"),
        "{code}: {said}"
    );
    until("the change is in use", async || {
        client.tools().await.is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_edit_warns_only_of_its_own_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("moongate.toml");
    let server = |name: &str| {
        format!(
            "[servers.{name}]\nurl = \"http://a/\"\nheaders = {{ X = \"${{UNSET_{name}}}\" }}\n"
        )
    };
    let text = format!(
        "[gateway]\nadmin = \"127.0.0.1:1\"\n{}{}{}",
        server("a"),
        server("b"),
        server("c")
    );
    std::fs::write(&file, text).unwrap();
    let (code, said) = moongate(words(&format!("disable a x --config {}", file.display()))).await;
    assert!(
        code == 0 && said.contains("UNSET_a") && !said.contains("UNSET_b"),
        "{code}: {said}"
    );
    assert!(
        said.contains("other servers have problems, too (2): `moongate check` shows them"),
        "{said}"
    );
    assert!(said.contains("the names are written unchecked"), "{said}");
}
