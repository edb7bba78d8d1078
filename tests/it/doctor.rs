//! `moongate doctor`: each code is provoked once, and repairs cure what they promise.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use moongate_mock::MockScript;
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

/// A code, the config that provokes it, and the environment.
type ProvokedCode<'a> = (&'a str, String, &'a [(&'a str, &'a str)]);

#[tokio::test]
async fn each_code_is_found_where_it_is_provoked() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_at = taken.local_addr().unwrap();
    let refusing = refusing_server("401 Unauthorized");
    let bad = MockScript {
        tools: vec![r#"{"name":"bad","inputSchema":[]}"#.into()],
        ..MockScript::default()
    };
    let long = format!(
        r#"{{"name":"long","description":"{}","inputSchema":{{"type":"object"}}}}"#,
        "word ".repeat(12_000)
    );
    let long = MockScript {
        tools: vec![long.as_str().into()],
        ..MockScript::default()
    };
    let renamed = format!(
        r#"{{"name":"{}","inputSchema":{{"type":"object"}}}}"#,
        "x".repeat(100)
    );
    let renamed = MockScript {
        tools: vec![renamed.as_str().into()],
        ..MockScript::default()
    };
    let bad = serve(bad).await;
    let long = serve(long).await;
    let renamed = serve(renamed).await;
    let server = |settings: String| config(&format!("[servers.a]\n{settings}\n"));
    let url = |url: &str| server(format!("url = \"{url}\""));
    let key = "[[auth.keys]]\nname = \"k\"\nhash \
               = \"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n";
    let nowhere = "http://127.0.0.1:1/mcp";
    let listening = |address: &str| {
        format!("[gateway]\nlisten = \"{address}\"\nadmin = \"{ADMIN}\"\nstate = \"memory\"\n{key}")
    };
    let cases: Vec<ProvokedCode<'_>> = vec![
        ("MG-C02", "x = [".to_owned(), &[]),
        ("MG-C03", url(nowhere) + "prefx = \"b\"\n", &[]),
        ("MG-C04", url("${NOT_SET_ANYWHERE}"), &[]),
        (
            "MG-C05",
            url(nowhere) + "headers = { Authorization = \"Bearer s3cr3t\" }\n",
            &[],
        ),
        (
            "MG-C06",
            url(nowhere) + "headers = { Authorization = \"Bearer s3cr3t\" }\n",
            &[],
        ),
        (
            "MG-C07",
            server("command = \"npx\"\nargs = [\"-y\", \"some-server\"]".to_owned()),
            &[("PATH", "")],
        ),
        (
            "MG-C08",
            server(
                "command = \"npx\"\nargs = [\"@modelcontextprotocol/server-github@1.0.0\"]"
                    .to_owned(),
            ),
            &[("PATH", "")],
        ),
        (
            "MG-C09",
            url(nowhere) + &format!("[servers.b]\nurl = \"{nowhere}\"\n"),
            &[],
        ),
        (
            "MG-C14",
            url(nowhere) + key + "expires = \"2020-01-01\"\n",
            &[],
        ),
        (
            "MG-C15",
            url(&long.url) + "tools = { deny = [\"no_such_tool\"] }\n",
            &[],
        ),
        ("MG-C13", "[gateway]\nlisten = 5\n".to_owned(), &[]),
        ("MG-L01", listening(&taken_at.to_string()), &[]),
        (
            "MG-L03",
            "[gateway]\nlisten = \"0.0.0.0:1\"\n".to_owned(),
            &[],
        ),
        ("MG-L05", listening("0.0.0.0:1"), &[]),
        (
            "MG-E01",
            server("command = \"no-such-program\"".to_owned()),
            &[],
        ),
        (
            "MG-E04",
            url("http://localhost:1/mcp"),
            &[("container", "podman")],
        ),
        (
            "MG-E05",
            config("").replace("state = \"memory\"", "state_dir = \"/proc/moongate\""),
            &[],
        ),
        ("MG-S01", url(nowhere), &[]),
        ("MG-S02", url(&refusing), &[]),
        (
            "MG-S03",
            url(&refusing) + "headers = { Authorization = \"Bearer ${TOKEN}\" }\n",
            &[("TOKEN", "x")],
        ),
        (
            "MG-S04",
            server("command = \"sh\"\nargs = [\"-c\", \"echo boom >&2; exit 3\"]".to_owned()),
            &[],
        ),
        (
            "MG-S05",
            server("command = \"sleep\"\nargs = [\"100\"]\nstart_timeout = \"1s\"".to_owned()),
            &[],
        ),
        ("MG-S07", url(&bad.url), &[]),
        ("MG-S08", url(&renamed.url), &[]),
        ("MG-X01", url(&long.url), &[]),
    ];
    for (code, text, env) in &cases {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("moongate.toml"), text).unwrap();
        std::fs::set_permissions(
            dir.path().join("moongate.toml"),
            std::fs::Permissions::from_mode(0o644),
        )
        .unwrap();
        let (exit, findings) = doctor(dir.path(), &[], env).await;
        let found = findings.iter().find(|finding| finding["code"] == *code);
        let found = found.unwrap_or_else(|| panic!("{code} in {text}: {findings:#?}"));
        assert!(
            !found["fix"].as_str().unwrap().is_empty()
                && !found["message"].as_str().unwrap().contains("s3cr3t"),
            "{found}"
        );
        let is_broken = findings
            .iter()
            .any(|finding| finding["severity"] == "broken");
        assert_eq!(exit, i32::from(is_broken), "{findings:#?}");
    }
    let mut provoked: BTreeSet<String> =
        cases.iter().map(|(code, ..)| (*code).to_owned()).collect();
    // MG-K07 is a matter of the date, and MG-K09 of a number: `src/cli/doctor/clients.rs` has their
    // tests.
    provoked.extend(
        [
            "MG-C01", "MG-C11", "MG-C12", "MG-L02", "MG-K01", "MG-K02", "MG-K03",
        ]
        .map(str::to_owned),
    );
    provoked.extend(["MG-K04", "MG-K07", "MG-K08", "MG-K09"].map(str::to_owned));
    let page = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/codes.md"),
    )
    .unwrap();
    let known: BTreeSet<String> = page
        .lines()
        .filter_map(|line| Some(line.strip_prefix("## ")?.to_owned()))
        .collect();
    assert_eq!(provoked, known, "each code has a test that provokes it");
}

#[tokio::test]
async fn a_repair_cures_its_finding_and_clients_are_judged() {
    let dir = tempfile::tempdir().unwrap();
    let (_, findings) = doctor(dir.path(), &[], &[("MOONGATE_GATEWAY__ADMIN", ADMIN)]).await;
    assert!(codes(&findings).contains("MG-C01"), "{findings:#?}");
    let file = dir.path().join("moongate.toml");
    let text = config(
        "[servers.a]\nurl = \"http://127.0.0.1:9/mcp\"\nheaders = \
         { Authorization = \"Bearer s3cr3t\" }\n",
    );
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (_, findings) = doctor(dir.path(), &["--fix", "--yes"], &[]).await;
    assert!(!codes(&findings).contains("MG-C06"), "{findings:#?}");
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    for (name, part) in [("aa", "did you mean `a`?"), ("nosuch", "there is a")] {
        let (exit, out, said) = doctor_text(dir.path(), &[name]).await;
        assert!(
            exit == 2 && out.is_empty() && said.contains(part),
            "{name}: {exit} {out} {said}"
        );
    }
    let entry = |path: &str, text: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    entry(
        ".cursor/mcp.json",
        r#"{"mcpServers":{"moongate":{"url":"http://elsewhere.example/mcp"}}}"#,
    );
    entry(
        ".codeium/windsurf/mcp_config.json",
        r#"{"mcpServers":{"moongate":{"url":"http://127.0.0.1:1/mcp"}}}"#,
    );
    let mine = r#""mine":{"url":"http://127.0.0.1:9/mcp"},"off":{"url":"http://127.0.0.1:9/mcp","disabled":true}"#;
    entry(
        ".kiro/settings/mcp.json",
        &format!("{{\"mcpServers\":{{{mine}}}}}"),
    );
    entry(".factory/mcp.json", "{ \"mcpServers\": { ");
    let (_, findings) = doctor(dir.path(), &[], &[]).await;
    let of = |code: &str| {
        findings
            .iter()
            .find(|finding| finding["code"] == code)
            .unwrap_or_else(|| panic!("{code}: {findings:#?}"))
    };
    assert!(
        of("MG-K01")["fix"]
            .as_str()
            .unwrap()
            .starts_with("moongate connect cursor")
    );
    assert!(
        of("MG-K04")["message"]
            .as_str()
            .unwrap()
            .contains("`serverUrl`"),
        "{findings:#?}"
    );
    assert_eq!(of("MG-K03")["fix"], "moongate import kiro --take-over");
    assert!(
        of("MG-K03")["message"].as_str().unwrap().ends_with(": a"),
        "{findings:#?}"
    );
    assert!(
        of("MG-K08")["place"]
            .as_str()
            .unwrap()
            .contains(".factory/mcp.json:1"),
        "{findings:#?}"
    );
    // A mistake in the table of the addresses leaves them unknown, and then no entry is foreign.
    std::fs::write(&file, config("typo = 1\n")).unwrap();
    let (_, findings) = doctor(dir.path(), &[], &[]).await;
    assert!(
        codes(&findings).contains("MG-C03") && !codes(&findings).contains("MG-K01"),
        "{findings:#?}"
    );
    let (exit, findings) = doctor(dir.path(), &["a"], &[]).await;
    assert!(
        exit == 1 && codes(&findings).contains("MG-C03"),
        "a broken config costs each server: {findings:#?}"
    );
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
        assert_eq!((exit, findings.len()), (0, 0), "{findings:#?}");
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
    assert_eq!((code, findings.len()), (0, 0), "{findings:#?}");
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
    assert_eq!(
        (&found["severity"], &found["fix"]),
        (
            &"warning".into(),
            &format!("moongate doctor --config {running}").into()
        )
    );
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
    assert_eq!((exit, found.len()), (1, 1), "{findings:#?}");
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
            "no gateway runs here: each server was connected once",
        ),
        (
            config("[vews.a]\n"),
            "no gateway runs here, and the config cannot be used: no server was asked",
        ),
        (
            config("typo = 1\n"),
            "the config does not say where a gateway would run: no server was asked",
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
    assert_eq!(
        (of_b.len(), &of_b[0]["code"]),
        (1, &"MG-E01".into()),
        "{findings:#?}"
    );
    drop(gateway);
}

#[tokio::test]
async fn a_repair_for_one_server_leaves_the_rest_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("moongate.toml");
    let servers = "[servers.a]\nurl = \"http://127.0.0.1:9/mcp\"\n[servers.b]\nurl \
                   = \"http://127.0.0.1:9/mcp\"\n\
                   headers = { Authorization = \"Bearer s3cr3t-value-0123456789\" }\n";
    std::fs::write(&file, config(servers)).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mode = || std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    let (_, all) = doctor(dir.path(), &[], &[]).await;
    assert!(
        codes(&all).contains("MG-C06"),
        "there is something to repair: {all:?}"
    );
    let (_, findings) = doctor(dir.path(), &["a", "--fix", "--yes"], &[]).await;
    assert!(
        findings.iter().all(|finding| finding["server"] == "a"),
        "{findings:?}"
    );
    assert_eq!(mode(), 0o644, "the file is no matter of that server alone");
    doctor(dir.path(), &["--fix", "--yes"], &[]).await;
    assert_eq!(mode(), 0o600);
}

#[tokio::test]
async fn a_package_of_the_table_gets_its_version_and_a_writable_file_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("moongate.toml");
    let text =
        config("[servers.clock] # mine\ncommand = \"uvx\"\nargs = [\"mcp-server-time\"] # why\n");
    std::fs::write(&file, &text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    let env = [("PATH", "")];
    let (_, findings) = doctor(dir.path(), &[], &env).await;
    for code in ["MG-C06", "MG-C07"] {
        let found = findings
            .iter()
            .find(|finding| finding["code"] == code)
            .unwrap();
        assert_eq!(found["can_fix"], true, "{found}");
    }
    let run = async |args: &[&str]| doctor_text(dir.path(), args).await.2;
    let (_, out, said) = doctor_text(dir.path(), &["clock", "--fix"]).await;
    assert!(
        out.contains("MG-C07") && said.contains("nobody can be asked here: `--fix --yes`"),
        "{out}{said}"
    );
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        text,
        "nothing is repaired unasked"
    );
    let said = run(&["clock", "--fix", "--yes"]).await;
    assert!(
        said.contains("- args = [\"mcp-server-time\"] # why\n+ args = [\"mcp-server-time@20"),
        "{said}"
    );
    let repaired = std::fs::read_to_string(&file).unwrap();
    assert!(
        repaired.contains("[servers.clock] # mine\n") && repaired.contains("] # why\n"),
        "{repaired}"
    );
    let said = run(&["--fix", "--yes"]).await;
    assert!(said.contains("chmod 600"), "{said}");
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let (_, findings) = doctor(dir.path(), &[], &env).await;
    assert!(
        codes(&findings).is_disjoint(&["MG-C06", "MG-C07"].map(str::to_owned).into()),
        "{findings:#?}"
    );
}
