//! The command line from outside: the binary, its output and its exit codes.

mod failures;
mod output;
mod running_gateway;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use moongate_mock::{MockScript, Revision, serve_http};
use moongate_testing::ReservedAddress;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use running_gateway::{RunningGateway, pid_of};

const MOONGATE: &str = env!("CARGO_BIN_EXE_moongate");
const LONG: Duration = Duration::from_secs(60);
const KEY: &str = "mg_a_key_that_is_long_enough_0123456789";

/// Output of a command, and its exit code.
#[derive(Debug)]
struct RunOutput {
    code: Option<i32>,
    out: String,
    err: String,
}

/// The command with nothing of our environment that it would take as settings, in an empty
/// directory.
fn command(args: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(MOONGATE);
    command
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_STATE_HOME");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MOONGATE_")) {
        command.env_remove(name);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

async fn end(child: Child) -> RunOutput {
    let output = timeout(LONG, child.wait_with_output())
        .await
        .expect("the command ends")
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    RunOutput {
        code: output.status.code(),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

async fn run_in(dir: &Path, args: &[&str]) -> RunOutput {
    end(command(args, dir).spawn().unwrap()).await
}

async fn run(args: &[&str]) -> RunOutput {
    run_in(TempDir::new().unwrap().path(), args).await
}

/// Runs a verb against a mock that it starts itself.
async fn piped(verb: &[&str], mock: &[&str]) -> RunOutput {
    run(&[verb, &["--", MOONGATE, "mock"], mock].concat()).await
}

/// A script that offers one tool, whose answer and definition are spelled oddly.
const ODD_TOOL: &str = r#"{"inputSchema":{"type":"object","properties":{"n":{"type":"number"},"i":{"type":"integer"},"b":{"type":"boolean"},"o":{"type":"object"},"s":{"type":"string"}}, "required":["n"]},"name":"odd","x":1.0,"y":"\u00e9"}"#;
const ODD_ANSWER: &str =
    r#"{"content":[{"text":"a\u0062","type":"text"}],"structuredContent":{"z":1.0, "a":1e5}}"#;

fn odd_script(dir: &Path) -> String {
    let mut script = MockScript {
        tools: vec![ODD_TOOL.into()],
        ..MockScript::default()
    };
    script.answers.insert("odd".into(), ODD_ANSWER.into());
    let path = dir.join("odd.json");
    std::fs::write(&path, serde_json::to_string(&script).unwrap()).unwrap();
    path.to_str().unwrap().to_owned()
}

// === starting with entries that cannot be used ===

#[tokio::test]
async fn a_misspelt_entry_costs_that_server_and_not_the_gateway() {
    let broken = "[servers.unset]\nurl = \"https://a.example/${NOT_SET}\"\n[servers.typo]\ncommand \
                  = \"x\"\ntols = {}\n";
    let gateway = RunningGateway::start_with(broken).await;
    let status = gateway.status().await;
    let server = |name: &str| {
        status["servers"]
            .as_array()
            .unwrap()
            .iter()
            .find(|s| s["name"] == name)
            .unwrap()
            .clone()
    };
    for (name, word) in [("unset", "NOT_SET"), ("typo", "`tols`")] {
        let server = server(name);
        assert_eq!(server["state"], "failed", "{server}");
        assert!(
            server["reason"].as_str().unwrap().contains(word),
            "{server}"
        );
        assert!(
            server["next_attempt_seconds"].is_null(),
            "nothing but another config helps: {server}"
        );
    }
    assert_eq!(server("std")["state"], "ready");
    let check = run_in(gateway.dir.path(), &["check"]).await;
    assert_eq!(check.code, Some(2), "{}", check.err);
    assert!(
        check.err.contains("unknown key `tols`") && check.err.contains("NOT_SET is not set"),
        "{}",
        check.err
    );
    // The gateway runs without these two already, so they do not keep a reload from changing
    // others.
    let path = gateway.dir.path().join("moongate.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        text.replace("[servers.std]", "[servers.std]\nprefix = \"other\""),
    )
    .unwrap();
    let reload = run_in(gateway.dir.path(), &["reload", "--admin", &gateway.admin]).await;
    assert_eq!(reload.code, Some(0), "{}", reload.err);
    assert!(gateway.run(&["tools"]).await.out.contains("other__echo"));
    // A problem in the entry of a server that runs changes nothing.
    std::fs::write(
        &path,
        text.replace(
            "[servers.std]",
            "[servers.std]\nprefix = \"third\"\nstrat = 1",
        ),
    )
    .unwrap();
    let reload = run_in(gateway.dir.path(), &["reload", "--admin", &gateway.admin]).await;
    assert_eq!(reload.code, Some(2), "{}", reload.err);
    assert!(gateway.run(&["tools"]).await.out.contains("other__echo"));
    // Corrected, it starts what had failed.
    let text = text
        .replace("tols = {}", "")
        .replace("\"x\"", &format!("{MOONGATE:?}\nargs = [\"mock\"]"));
    std::fs::write(&path, text.replace("${NOT_SET}", "mcp")).unwrap();
    let reload = run_in(gateway.dir.path(), &["reload", "--admin", &gateway.admin]).await;
    assert_eq!(reload.code, Some(0), "{}", reload.err);
    let mut tools = String::new();
    for _ in 0..200 {
        tools = gateway.run(&["tools"]).await.out;
        if tools.contains("typo__echo") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(tools.contains("typo__echo"), "{tools}");
    gateway.stop().await;
}

// === finding the gateway ===

/// Writes `own.toml`: a gateway with a certificate, and an admin listener at this socket.
fn write_config_with_tls(dir: &Path, listen: u16, admin: &Path) {
    let certified = rcgen::generate_simple_self_signed(vec!["gateway.example".to_owned()]).unwrap();
    std::fs::write(dir.join("cert.pem"), certified.cert.pem()).unwrap();
    std::fs::write(dir.join("key.pem"), certified.signing_key.serialize_pem()).unwrap();
    // The variable is the gateway's: whoever asks where it is need not have it.
    let config = format!(
        "[gateway]\nlisten = \"127.0.0.1:{listen}\"\nadmin = \"unix:{}\"\ntls = \
         {{ cert = \"cert.pem\", key = \"key.pem\" }}\n\
         [servers.std]\ncommand = {MOONGATE:?}\nargs = [\"mock\"]\n[servers.off]\ncommand \
         = \"x\"\nenabled = false\n\
         [[auth.keys]]\nname = \"test\"\nkey = \"${{GATEWAY_KEY}}\"\n",
        admin.display()
    );
    std::fs::write(dir.join("own.toml"), config).unwrap();
}

#[tokio::test]
async fn commands_find_the_gateway_by_its_config() {
    let dir = TempDir::new().unwrap();
    let reserved = ReservedAddress::new();
    let listen = reserved.port();
    let admin = dir.path().join("admin.sock");
    write_config_with_tls(dir.path(), listen, &admin);
    let args = ["--config", "own.toml", "serve"];
    let mut serving = command(&args, dir.path())
        .env("GATEWAY_KEY", KEY)
        .spawn()
        .unwrap();
    let client = |args: &[&str]| {
        let mut command = command(args, dir.path());
        command
            .env("MOONGATE_CONFIG", "own.toml")
            .env("MOONGATE_KEY", KEY);
        async move { end(command.spawn().unwrap()).await }
    };
    let mut tools = client(&["tools"]).await;
    for _ in 0..200 {
        if tools.out.contains("std__echo") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        tools = client(&["tools"]).await;
    }
    assert!(tools.out.contains("std__echo"), "{}", tools.err);
    for args in [
        &["health"][..],
        &["status"],
        &["reload"],
        &["restart", "std"],
        &["call", "std__echo", "text=hi"],
    ] {
        let ran = client(args).await;
        assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.err);
    }
    let before = run_in(dir.path(), &["--config", "own.toml", "status"]).await;
    assert!(
        before.out.contains("std"),
        "flags may stand before the command: {}",
        before.err
    );
    let off = client(&["restart", "off"]).await;
    assert_eq!(off.code, Some(1), "{}", off.err);
    assert_eq!(off.err.lines().count(), 1, "{}", off.err);
    assert!(off.err.contains("off is disabled"), "{}", off.err);
    kill_process(pid_of(&serving), Signal::TERM).unwrap();
    assert_eq!(
        timeout(LONG, serving.wait()).await.unwrap().unwrap().code(),
        Some(0)
    );
    // What was tried, and the flag that the command has.
    for (args, flag, place) in [
        (["status"], "--admin", admin.display().to_string()),
        (["tools"], "--url", format!("127.0.0.1:{listen}")),
    ] {
        let ran = client(&args).await;
        assert_eq!(ran.code, Some(1));
        for word in [&*place, "own.toml", flag] {
            assert!(ran.err.contains(word), "{word}: {}", ran.err);
        }
    }
}

// === the default build ===

#[tokio::test]
async fn the_default_build_allocates_with_jemalloc_where_it_can() {
    let manifest = include_str!("../../Cargo.toml");
    assert!(
        manifest
            .lines()
            .any(|line| line == "default = [\"jemalloc\"]"),
        "the default features name jemalloc"
    );
    let gateway = RunningGateway::start_with("").await;
    let heap = gateway.heap_bytes().await;
    if cfg!(all(
        feature = "jemalloc",
        any(target_os = "linux", target_os = "macos")
    )) {
        // An allocator that is linked and not used counts next to nothing.
        assert!(heap.is_some_and(|bytes| bytes > 1e6), "{heap:?}");
    } else {
        assert_eq!(heap, None);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_version_names_the_allocator_that_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let first = concat!("moongate ", env!("CARGO_PKG_VERSION"), "\n");
    for flag in ["--version", "-V"] {
        let ran = run_in(dir.path(), &[flag]).await;
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert_eq!(ran.out, first);
    }
    let ran = run_in(dir.path(), &["--version", "--verbose"]).await;
    assert!(ran.out.starts_with(first), "{}", ran.out);
    let has_jemalloc = cfg!(all(
        feature = "jemalloc",
        any(target_os = "linux", target_os = "macos")
    ));
    let expected = if has_jemalloc {
        "\nallocator: jemalloc 5."
    } else {
        "\nallocator: system\n"
    };
    assert!(ran.out.contains(expected), "{}", ran.out);
    let refused = run_in(dir.path(), &["--verbose"]).await;
    assert_eq!(refused.code, Some(2), "{}", refused.err);
}

#[tokio::test]
async fn a_search_finds_tools_by_what_they_do() {
    let gateway = RunningGateway::start().await;
    let search = async |args: &[&str]| {
        run_in(
            gateway.dir.path(),
            &[&["search", "--admin", &gateway.admin], args].concat(),
        )
        .await
    };
    let found = search(&["add", "two", "numbers", "--limit", "1"]).await;
    assert_eq!(found.code, Some(0), "{}", found.err);
    assert!(
        found.out.starts_with("std__add(a: ") && found.out.ends_with(")\n  Adds two numbers.\n"),
        "{}",
        found.out
    );
    assert!(found.err.starts_with("1 of "), "{}", found.err);
    let json = search(&["add", "--format", "json", "--endpoint", "std"]).await;
    let answer: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(answer["endpoint"], "/mcp/std");
    assert_eq!(answer["tools"][0]["name"], "std__add");
    let none = search(&["xylophone"]).await;
    assert_eq!(none.code, Some(1), "{}", none.err);
    assert!(
        none.err
            .contains("tools matches; describe it in other words"),
        "{}",
        none.err
    );
    let unknown = search(&["add", "--endpoint", "nothing"]).await;
    assert!(
        unknown.code == Some(1) && unknown.err.contains("There is no endpoint \"nothing\""),
        "{}",
        unknown.err
    );
    gateway.stop().await;
}

#[tokio::test]
async fn check_takes_a_file_and_commands_of_later_versions_say_so() {
    let dir = TempDir::new().unwrap();
    std::fs::write(
        dir.path().join("a.toml"),
        "[servers.a]\ncommand = \"npx\"\nargs = [\"-y\", \"pkg\"]\n",
    )
    .unwrap();
    for args in [
        &["check", "a.toml"][..],
        &["--config", "a.toml", "check"],
        &["check", "--config", "a.toml"],
    ] {
        let ran = run_in(dir.path(), args).await;
        assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.err);
        assert!(
            ran.err.contains("whatever version of `pkg` is newest"),
            "{}",
            ran.err
        );
    }
    for command in ["upgrade", "audit", "pin"] {
        let ran = run(&[command, "x"]).await;
        assert_eq!(ran.code, Some(2));
        assert!(
            ran.err.contains("is not available in this version"),
            "{}",
            ran.err
        );
    }
}

// === the other commands ===

#[tokio::test]
async fn every_command_has_its_exit_codes() {
    let dir = TempDir::new().unwrap();
    std::fs::write(
        dir.path().join("good.toml"),
        "[servers.a]\ncommand = \"a\"\n",
    )
    .unwrap();
    std::fs::write(dir.path().join("bad.toml"), "[gateway]\nlisen = \"a\"\n").unwrap();
    for (args, code, out, err) in [
        (
            &["--version"][..],
            0,
            concat!("moongate ", env!("CARGO_PKG_VERSION"), "\n"),
            "",
        ),
        (&["check", "-c", "good.toml"], 0, "", "fine; 1 server"),
        (
            &["check", "--print", "-c", "good.toml"],
            0,
            "\"command\": \"a\"",
            "fine",
        ),
        (&["check", "-c", "bad.toml"], 2, "", "lisen"),
        (&["check", "-c", "none.toml"], 2, "", "none.toml"),
        (&["check", "--nonsense"], 2, "", "--nonsense"),
        (&["serve", "-c", "bad.toml"], 2, "", "lisen"),
        (
            &["serve", "-c", "good.toml", "--only", "b"],
            2,
            "",
            "--only",
        ),
        (&["schema"], 0, "\"$schema\"", ""),
        (&["key", "new", "laptop"], 0, "mg_", "hash = \"sha256:"),
        (&["key", "new", ""], 2, "", "1 to 64"),
        (&["key"], 2, "", "Usage"),
        (&["health", "--admin", "127.0.0.1:1"], 1, "", "127.0.0.1:1"),
        (&["mock", "none.toml"], 2, "", "none.toml"),
    ] {
        let ran = run_in(dir.path(), args).await;
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.err);
        assert!(
            ran.out.contains(out) && ran.err.contains(err),
            "{args:?}: {ran:?}"
        );
        assert!(!out.is_empty() || ran.out.is_empty(), "{args:?}: {ran:?}");
    }
    let schema = run(&["schema"]).await.out;
    assert!(serde_json::from_str::<serde_json::Value>(&schema).is_ok());
    assert_eq!(run(&["key", "new", "laptop"]).await.out.lines().count(), 1);
}

#[tokio::test]
async fn a_config_that_is_broken_is_bad_usage_for_each_command() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("moongate.toml"), "[gateway]\nlisten = 5\n").unwrap();
    let code = async |line: &str, code| {
        let ran = run_in(dir.path(), &line.split(' ').collect::<Vec<_>>()).await;
        assert!(
            ran.code == Some(code) && !ran.err.contains("sha256:"),
            "{line}: {ran:?}"
        );
    };
    for line in [
        "status",
        "open --print",
        "search x",
        "tools",
        "undo",
        "explain a b",
        "disable a",
        "key new x --write",
    ] {
        code(line, 2).await;
    }
    code("search x --limit 0 --admin 127.0.0.1:1", 2).await;
    // A container's check knows 0 and 1.
    code("health", 1).await;
}

#[tokio::test]
async fn a_gateway_outlives_the_reader_of_its_messages() {
    let dir = TempDir::new().unwrap();
    let listen_port = ReservedAddress::new();
    let admin_port = ReservedAddress::new();
    let listen = listen_port.address().to_string();
    let admin = admin_port.address().to_string();
    let mut command = command(&["serve", "--listen", &listen], dir.path());
    let mut child = command
        .env("MOONGATE_GATEWAY__ADMIN", &admin)
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    let ready = async { while run(&["health", "--admin", &admin]).await.code != Some(0) {} };
    timeout(LONG, ready).await.expect("it becomes ready");
    kill_process(pid_of(&child), Signal::TERM).unwrap();
    assert_eq!(
        timeout(LONG, child.wait()).await.unwrap().unwrap().code(),
        Some(0)
    );
}

#[tokio::test]
async fn every_command_explains_itself() {
    let help = run(&["--help"]).await;
    let (_, commands) = help.out.split_once("Commands:\n").unwrap();
    let names = commands
        .lines()
        .map_while(|line| line.split_whitespace().next());
    let names: Vec<&str> = names.filter(|name| *name != "help").collect();
    for verb in [
        "serve",
        "check",
        "tools",
        "call",
        "resources",
        "read",
        "prompts",
        "get",
        "mock",
    ] {
        assert!(names.contains(&verb), "{names:?}");
    }
    for name in names {
        let help = run(&[name, "--help"]).await;
        assert_eq!(help.code, Some(0), "{name}");
        assert_eq!(help.err, "", "{name}");
        assert!(help.out.contains("Usage: moongate"), "{name}: {}", help.out);
        assert!(
            help.out.lines().next().is_some_and(|line| line.len() > 10),
            "{name}: {}",
            help.out
        );
    }
}
