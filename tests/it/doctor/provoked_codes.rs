//! Every code of `moongate doctor`, each found where its fault is provoked.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use moongate_mock::{MockHandle, MockScript};

use super::{ADMIN, config, doctor, refusing_server};
use crate::harness::serve;

/// A code, the config that provokes it, and the environment.
type ProvokedCode = (
    &'static str,
    String,
    &'static [(&'static str, &'static str)],
);

const NOWHERE: &str = "http://127.0.0.1:1/mcp";

const KEY: &str = "[[auth.keys]]\nname = \"k\"\nhash \
               = \"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n";

/// An address that is taken, and servers that each have one fault.
struct FaultyServers {
    taken: SocketAddr,
    /// Refuses every request.
    refusing: String,
    /// Lists a tool with a bad schema.
    bad: MockHandle,
    /// Lists a tool with a long description.
    long: MockHandle,
    /// Lists a tool with a long name.
    renamed: MockHandle,
    _listener: TcpListener,
}

impl FaultyServers {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
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
        FaultyServers {
            taken: listener.local_addr().unwrap(),
            refusing: refusing_server("401 Unauthorized"),
            bad: serve(bad).await,
            long: serve(long).await,
            renamed: serve(renamed).await,
            _listener: listener,
        }
    }
}

/// A config with the server `a`.
fn server_entry(settings: String) -> String {
    config(&format!("[servers.a]\n{settings}\n"))
}

fn url_entry(url: &str) -> String {
    server_entry(format!("url = \"{url}\""))
}

/// A config with a key that listens here.
fn listening(address: &str) -> String {
    format!("[gateway]\nlisten = \"{address}\"\nadmin = \"{ADMIN}\"\nstate = \"memory\"\n{KEY}")
}

/// Codes of the config.
fn config_cases(servers: &FaultyServers) -> Vec<ProvokedCode> {
    vec![
        ("MG-C02", "x = [".to_owned(), &[]),
        ("MG-C03", url_entry(NOWHERE) + "prefx = \"b\"\n", &[]),
        ("MG-C04", url_entry("${NOT_SET_ANYWHERE}"), &[]),
        (
            "MG-C05",
            url_entry(NOWHERE) + "headers = { Authorization = \"Bearer s3cr3t\" }\n",
            &[],
        ),
        (
            "MG-C06",
            url_entry(NOWHERE) + "headers = { Authorization = \"Bearer s3cr3t\" }\n",
            &[],
        ),
        (
            "MG-C07",
            server_entry("command = \"npx\"\nargs = [\"-y\", \"some-server\"]".to_owned()),
            &[("PATH", "")],
        ),
        (
            "MG-C08",
            server_entry(
                "command = \"npx\"\nargs = [\"@modelcontextprotocol/server-github@1.0.0\"]"
                    .to_owned(),
            ),
            &[("PATH", "")],
        ),
        (
            "MG-C09",
            url_entry(NOWHERE) + &format!("[servers.b]\nurl = \"{NOWHERE}\"\n"),
            &[],
        ),
        (
            "MG-C14",
            url_entry(NOWHERE) + KEY + "expires = \"2020-01-01\"\n",
            &[],
        ),
        (
            "MG-C15",
            url_entry(&servers.long.url) + "tools = { deny = [\"no_such_tool\"] }\n",
            &[],
        ),
        ("MG-C13", "[gateway]\nlisten = 5\n".to_owned(), &[]),
    ]
}

/// Codes of the listeners and of the machine.
fn machine_cases(servers: &FaultyServers) -> Vec<ProvokedCode> {
    vec![
        ("MG-L01", listening(&servers.taken.to_string()), &[]),
        (
            "MG-L03",
            "[gateway]\nlisten = \"0.0.0.0:1\"\n".to_owned(),
            &[],
        ),
        ("MG-L05", listening("0.0.0.0:1"), &[]),
        (
            "MG-E01",
            server_entry("command = \"no-such-program\"".to_owned()),
            &[],
        ),
        (
            "MG-E04",
            url_entry("http://localhost:1/mcp"),
            &[("container", "podman")],
        ),
        (
            "MG-E05",
            config("").replace("state = \"memory\"", "state_dir = \"/proc/moongate\""),
            &[],
        ),
    ]
}

/// Codes of servers and of what their tools cost.
fn server_cases(servers: &FaultyServers) -> Vec<ProvokedCode> {
    vec![
        ("MG-S01", url_entry(NOWHERE), &[]),
        ("MG-S02", url_entry(&servers.refusing), &[]),
        (
            "MG-S03",
            url_entry(&servers.refusing) + "headers = { Authorization = \"Bearer ${TOKEN}\" }\n",
            &[("TOKEN", "x")],
        ),
        (
            "MG-S04",
            server_entry("command = \"sh\"\nargs = [\"-c\", \"echo boom >&2; exit 3\"]".to_owned()),
            &[],
        ),
        (
            "MG-S05",
            server_entry(
                "command = \"sleep\"\nargs = [\"100\"]\nstart_timeout = \"1s\"".to_owned(),
            ),
            &[],
        ),
        ("MG-S07", url_entry(&servers.bad.url), &[]),
        ("MG-S08", url_entry(&servers.renamed.url), &[]),
        ("MG-X01", url_entry(&servers.long.url), &[]),
    ]
}

/// Runs `doctor` where this is the config, and checks that it finds the code.
async fn assert_found(code: &str, text: &str, env: &[(&str, &str)]) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("moongate.toml"), text).unwrap();
    std::fs::set_permissions(
        dir.path().join("moongate.toml"),
        std::fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    let (exit, findings) = doctor(dir.path(), &[], env).await;
    let found = findings.iter().find(|finding| finding["code"] == code);
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

#[tokio::test]
async fn each_code_is_found_where_it_is_provoked() {
    let servers = FaultyServers::start().await;
    let cases = [
        config_cases(&servers),
        machine_cases(&servers),
        server_cases(&servers),
    ]
    .concat();
    for (code, text, env) in &cases {
        assert_found(code, text, env).await;
    }
    let mut provoked: BTreeSet<String> =
        cases.iter().map(|(code, ..)| (*code).to_owned()).collect();
    // MG-K07 is a matter of the date, and MG-K09 of a number: `src/cli/doctor/clients.rs` has their
    // tests. `src/app/doctor/logins.rs` has those of MG-S09 and MG-S10.
    provoked.extend(
        [
            "MG-S09", "MG-S10", "MG-C01", "MG-C11", "MG-C12", "MG-L02", "MG-K01", "MG-K02",
            "MG-K03",
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
