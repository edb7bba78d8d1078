//! `moongate doctor`: each code is provoked once, and repairs cure what they promise.

mod provoked_codes;
mod repairs;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use moongate_testing::ReservedAddress;
use serde_json::Value;

use crate::harness::program::Program;
use crate::harness::{HttpClient, Setup, legacy, only, serve, until};

const ADMIN: &str = "127.0.0.1:2";

/// Runs `doctor` in a directory of its own, which is also the home. Returns its exit code and its
/// findings.
async fn doctor(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> (i32, Vec<Value>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moongate"));
    command
        .args(["doctor", "--format", "json"])
        .args(args)
        .current_dir(dir)
        .env("HOME", dir);
    for name in [
        "XDG_CONFIG_HOME",
        "XDG_STATE_HOME",
        "MOONGATE_CONFIG",
        "container",
    ] {
        command.env_remove(name);
    }
    command.envs(env.iter().copied());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (
        output.status.code().unwrap(),
        report["findings"].as_array().unwrap().clone(),
    )
}

fn codes(findings: &[Value]) -> BTreeSet<String> {
    findings
        .iter()
        .map(|finding| finding["code"].as_str().unwrap().to_owned())
        .collect()
}

/// Runs `doctor` as people do. Returns its exit code, stdout and stderr.
async fn doctor_text(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moongate"));
    command
        .arg("doctor")
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .env("PATH", "")
        .stdin(Stdio::null());
    for name in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "MOONGATE_CONFIG"] {
        command.env_remove(name);
    }
    let output = tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// A server that answers every request with this status.
fn refusing_server(status: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
        }
    });
    url
}

/// A config with addresses that nobody has, and more.
fn config(more: &str) -> String {
    format!("[gateway]\nlisten = \"127.0.0.1:1\"\nadmin = \"{ADMIN}\"\nstate = \"memory\"\n{more}")
}

/// A gateway with variables and a PATH of its own, over a server that needs both. Each start of its
/// program leaves a line in `starts`.
async fn gateway_with_environment(dir: &Path, more: &str) -> (Program, String) {
    std::fs::create_dir(dir.join("bin")).unwrap();
    let script = "#!/bin/sh\necho started >> \"$STARTS\"\nexec \"$MOCK\" mock --stdio\n";
    std::fs::write(dir.join("bin/srv"), script).unwrap();
    std::fs::set_permissions(dir.join("bin/srv"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let reserved = (ReservedAddress::new(), ReservedAddress::new());
    let admin = reserved.1.address().to_string();
    let text = format!(
        "[gateway]\nlisten = \"{}\"\nadmin = \"{admin}\"\nstate \
         = \"memory\"\n{more}[servers.a]\ncommand = \"srv\"\n\
         env = {{ TOKEN = \"${{TOKEN_X}}\", STARTS = {:?}, MOCK = {:?} }}\n",
        reserved.0.address(),
        dir.join("starts"),
        env!("CARGO_BIN_EXE_moongate"),
    );
    std::fs::write(dir.join("moongate.toml"), text).unwrap();
    std::fs::set_permissions(
        dir.join("moongate.toml"),
        std::fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_moongate"));
    let path = format!(
        "{}:{}",
        dir.join("bin").display(),
        std::env::var("PATH").unwrap()
    );
    command
        .current_dir(dir)
        .env("HOME", dir)
        .env("TOKEN_X", "x")
        .env("PATH", path);
    (
        Program::start_until(command, "/mcp", &["page on "]).await,
        admin,
    )
}

#[tokio::test]
async fn what_the_gateway_has_is_not_missing() {
    let dir = tempfile::tempdir().unwrap();
    let (gateway, admin) = gateway_with_environment(dir.path(), "").await;
    let status = format!("http://{admin}/api/v1/status");
    until("the server is ready", async || {
        (HttpClient::new().get(&status).await.json()["servers"][0]["state"] == "ready")
            .then_some(())
    })
    .await;
    for env in [&[][..], &[("TOKEN_X", "x")]] {
        let (exit, findings) = doctor(dir.path(), &[], env).await;
        assert_eq!(exit, 0, "{findings:#?}");
        assert!(findings.is_empty(), "{findings:#?}");
    }
    drop(gateway);
}

#[tokio::test]
async fn a_gateway_that_refuses_to_answer_keeps_its_servers_to_itself() {
    let dir = tempfile::tempdir().unwrap();
    let key = "[[admin.keys]]\nname = \"o\"\nhash \
               = \"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\nrole \
               = \"view\"\n";
    let (gateway, _) = gateway_with_environment(dir.path(), key).await;
    let starts = || {
        std::fs::read_to_string(dir.path().join("starts"))
            .unwrap_or_default()
            .lines()
            .count()
    };
    until("the server is started", async || {
        (starts() == 1).then_some(())
    })
    .await;
    let path = format!(
        "{}:{}",
        dir.path().join("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let (_, findings) = doctor(dir.path(), &[], &[("TOKEN_X", "x"), ("PATH", &path)]).await;
    assert!(
        codes(&findings).contains("MG-L02") && starts() == 1,
        "{} starts: {findings:#?}",
        starts()
    );
    let (_, findings) = doctor(dir.path(), &[], &[]).await;
    let unset = findings
        .iter()
        .find(|finding| finding["code"] == "MG-C04")
        .unwrap();
    assert_eq!(unset["severity"], "warning", "{unset}");
    drop(gateway);
}

#[tokio::test]
async fn advice_fits_the_fault() {
    let dir = tempfile::tempdir().unwrap();
    let url = refusing_server("501 Not Implemented").replace("127.0.0.1", "localhost");
    let program = "[servers.b]\ncommand = \"sh\"\nargs = [\"-c\", \"echo boom >&2; echo boom >&2; \
                   exit 3\"]\n";
    std::fs::write(
        dir.path().join("moongate.toml"),
        config(&format!("[servers.a]\nurl = \"{url}\"\n{program}")),
    )
    .unwrap();
    let (_, findings) = doctor(dir.path(), &[], &[("container", "podman")]).await;
    assert!(
        !codes(&findings).contains("MG-E04"),
        "an answer comes from there: {findings:#?}"
    );
    let of = |code: &str| {
        findings
            .iter()
            .find(|finding| finding["code"] == code)
            .unwrap()
    };
    for code in ["MG-S01", "MG-S04"] {
        assert!(
            !of(code)["fix"].as_str().unwrap().contains("moongate tools"),
            "{}",
            of(code)
        );
    }
    assert_eq!(
        of("MG-S04")["message"]
            .as_str()
            .unwrap()
            .matches("boom")
            .count(),
        1,
        "{findings:#?}"
    );
}

#[tokio::test]
async fn a_running_gateway_is_asked() {
    let server = serve(only(legacy(), &["echo"])).await;
    let setup = Setup::new().http("a", &server.url).lasting();
    let gateway = setup.program().await;
    let file = setup.file();
    let admin = gateway
        .admin_url()
        .await
        .trim_start_matches("http://")
        .to_owned();
    let dir = tempfile::tempdir().unwrap();
    let config = file.display().to_string();
    let (code, findings) = doctor(dir.path(), &["--config", &config, "--admin", &admin], &[]).await;
    assert_eq!(code, 0, "{findings:#?}");
    assert!(findings.is_empty(), "{findings:#?}");
    // The gateway goes on with its own address.
    let text = std::fs::read_to_string(&file).unwrap();
    let moved = |line: &str| {
        if line.starts_with("listen = ") {
            "listen = \"127.0.0.1:3\"".to_owned()
        } else {
            line.to_owned()
        }
    };
    std::fs::write(
        &file,
        text.lines().map(moved).collect::<Vec<_>>().join("\n"),
    )
    .unwrap();
    let (_, findings) = doctor(dir.path(), &["--config", &config, "--admin", &admin], &[]).await;
    assert!(codes(&findings).contains("MG-C11"), "{findings:#?}");
    let port = gateway
        .mcp()
        .split(':')
        .nth(2)
        .unwrap()
        .split('/')
        .next()
        .unwrap()
        .to_owned();
    let other = dir.path().join("other.toml");
    std::fs::write(
        &other,
        format!(
            "[gateway]\nlisten = \"127.0.0.1:{port}\"\nadmin = \"{ADMIN}\"\nstate = \"memory\"\n"
        ),
    )
    .unwrap();
    let (_, findings) = doctor(dir.path(), &["--config", &other.display().to_string()], &[]).await;
    assert!(codes(&findings).contains("MG-L02"), "{findings:#?}");
    // Its answers are not about the config that was read.
    let (_, findings) = doctor(
        dir.path(),
        &["--config", &other.display().to_string(), "--admin", &admin],
        &[],
    )
    .await;
    let found = findings
        .iter()
        .find(|finding| finding["code"] == "MG-C12")
        .unwrap_or_else(|| panic!("{findings:#?}"));
    let running = file.canonicalize().unwrap().display().to_string();
    assert_eq!(found["severity"], "warning");
    assert_eq!(found["fix"], format!("moongate doctor --config {running}"));
    let (_, findings) = doctor(dir.path(), &["--admin", &admin], &[]).await;
    assert!(
        !codes(&findings).contains("MG-C01"),
        "that gateway has a config: {findings:#?}"
    );
}

#[tokio::test]
async fn an_entry_without_a_key_is_found_where_keys_are_needed() {
    let dir = tempfile::tempdir().unwrap();
    let key = "[[auth.keys]]\nname = \"k\"\nhash \
               = \"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n";
    std::fs::write(dir.path().join("moongate.toml"), config(key)).unwrap();
    let entry = |path: &str, text: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    entry(
        ".cursor/mcp.json",
        r#"{"mcpServers":{"moongate":{"url":"http://127.0.0.1:1/mcp"}}}"#,
    );
    let codex = "[mcp_servers.moongate]\nurl = \"http://127.0.0.1:1/mcp\"\nbearer_token_env_var \
                 = \"MOONGATE_KEY\"\n";
    entry(".codex/config.toml", codex);
    let (exit, findings) = doctor(dir.path(), &[], &[]).await;
    let found: Vec<&Value> = findings
        .iter()
        .filter(|finding| finding["code"] == "MG-K02")
        .collect();
    assert_eq!(exit, 1, "{findings:#?}");
    assert_eq!(found.len(), 1, "{findings:#?}");
    assert_eq!(
        found[0]["fix"],
        "moongate connect cursor --write --key NAME"
    );
    std::fs::write(dir.path().join("moongate.toml"), config("")).unwrap();
    let (_, findings) = doctor(dir.path(), &[], &[]).await;
    assert!(!codes(&findings).contains("MG-K02"), "{findings:#?}");
}

#[tokio::test]
async fn without_a_gateway_it_says_what_was_asked() {
    let dir = tempfile::tempdir().unwrap();
    for (text, line) in [
        (
            config(""),
            "no gateway is running here, so each server was connected once",
        ),
        (
            config("[vews.a]\n"),
            "no gateway is running here and the config cannot be used, so no server was checked",
        ),
        (
            config("typo = 1\n"),
            "the config does not say where a gateway would run, so no server was checked",
        ),
    ] {
        std::fs::write(dir.path().join("moongate.toml"), text).unwrap();
        let (_, out, said) = doctor_text(dir.path(), &[]).await;
        assert!(
            said.contains(line) && !out.contains("no gateway"),
            "{line}: {out}{said}"
        );
    }
}

#[tokio::test]
async fn a_missing_program_is_told_while_the_config_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (gateway, admin) =
        gateway_with_environment(dir.path(), "[servers.b]\ncommand = \"no-such-program\"\n").await;
    let status = format!("http://{admin}/api/v1/status");
    until("the program is missed", async || {
        HttpClient::new()
            .get(&status)
            .await
            .text_body()
            .contains("command not found")
            .then_some(())
    })
    .await;
    let file = dir.path().join("moongate.toml");
    std::fs::write(
        &file,
        std::fs::read_to_string(&file).unwrap() + "[vews.a]\n",
    )
    .unwrap();
    let (_, findings) = doctor(dir.path(), &[], &[]).await;
    let of_b: Vec<&Value> = findings
        .iter()
        .filter(|finding| finding["server"] == "b")
        .collect();
    assert_eq!(of_b.len(), 1, "{findings:#?}");
    assert_eq!(of_b[0]["code"], "MG-E01", "{findings:#?}");
    drop(gateway);
}
