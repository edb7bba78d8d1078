//! Formats that give one plan, and layers: later files, variables and flags.

use proptest::prelude::*;

use super::*;

pub(super) const TOML: &str = r#"
[gateway]
listen = ["127.0.0.1:1", "[::1]:1"]
allowed_hosts = ["a.example"]
[defaults]
timeout = "1m30s"
[servers.a]
url = "https://a.example/mcp"
headers = { Authorization = "Bearer ${TOKEN}" }
tools = { deny = ["x_*"], rename = { b = "c" } }
max_message = 1048576
[servers.b]
command = "b"
args = ["1", "--flag"]
env = { X = "1" }
enabled = true
[views.v]
servers = ["a"]
[[auth.keys]]
name = "k"
hash = "sha256:0f0e0d0c0b0a09080706050403020100ffeeddccbbaa99887766554433221100"
views = ["v", "b"]
expires = 2099-01-01
"#;

const YAML: &str = r#"
gateway:
  listen: ["127.0.0.1:1", "[::1]:1"]
  allowed_hosts: [a.example]
x-shared: &shared
  enabled: true
defaults:
  timeout: 1m30s
servers:
  a:
    url: https://a.example/mcp
    headers: { Authorization: "Bearer ${TOKEN}" }
    tools:
      deny: ["x_*"]
      rename: { b: c }
    max_message: 1048576
  b:
    <<: *shared
    command: b
    args: ["1", --flag]
    env: { X: "1" }
views:
  v: { servers: [a] }
auth:
  keys:
    - name: k
      hash: sha256:0f0e0d0c0b0a09080706050403020100ffeeddccbbaa99887766554433221100
      views: [v, b]
      expires: 2099-01-01
limits:
"#;

const JSON: &str = r#"{
  // One line,
  "gateway": { "listen": ["127.0.0.1:1", "[::1]:1"], "allowed_hosts": ["a.example"] },
  /* or several. */
  "defaults": { "timeout": "1m30s" },
  "servers": {
    "a": {
      "url": "https://a.example/mcp",
      "headers": { "Authorization": "Bearer ${TOKEN}" },
      "tools": { "deny": ["x_*"], "rename": { "b": "c" } },
      "max_message": 1048576,
    },
    "b": { "command": "b", "args": ["1", "--flag"], "env": { "X": "1" }, "enabled": true, "cwd": null },
  },
  "views": { "v": { "servers": ["a"] } },
  "auth": { "keys": [{
    "name": "k",
    "hash": "sha256:0f0e0d0c0b0a09080706050403020100ffeeddccbbaa99887766554433221100",
    "views": ["v", "b"],
    "expires": "2099-01-01T00:00:00Z",
  }] },
}"#;

#[test]
fn all_formats_give_the_same_plan() {
    let env = [("TOKEN", "hidden-1f")];
    let toml = plan(&[("a.toml", TOML)], &env);
    assert_eq!(toml, plan(&[("a.yaml", YAML)], &env));
    assert_eq!(toml, plan(&[("a.json", JSON)], &env));
    assert_eq!(toml.servers.len(), 2);
    assert_eq!(toml.views.len(), 1);
    assert_eq!(toml.auth.keys.len(), 1);
    assert_eq!(toml.servers[0].live.timeout.0, Duration::from_secs(90));
    assert_eq!(toml.servers[0].options.max_message.0, 1 << 20);
    assert!(
        !toml.servers[0].presentation.tools.allows_name("x_y")
            && toml.servers[0].presentation.tools.allows_name("y")
    );
    let ConnectTarget::Http { headers, .. } = &toml.servers[0].connect else {
        panic!("{:?}", toml.servers[0].connect)
    };
    assert_eq!(headers[0].1.to_str().unwrap(), "Bearer hidden-1f");
    assert!(headers[0].1.is_sensitive());
    assert!(!format!("{toml:?}").contains("hidden-1f"));
}

#[test]
fn all_spellings_of_servers_give_the_same_plan() {
    let ours = plan(
        &[(
            "a.toml",
            "[servers.a]\nurl = 'https://a.example/'\n[servers.b]\ncommand = 'b'\n",
        )],
        &[],
    );
    for text in [
        r#"{ "mcpServers": { "a": { "serverUrl": "https://a.example/" }, "b": { "command": "b" } } }"#,
        r#"{ "mcp": { "servers": { "a": { "type": "http", "httpUrl": "https://a.example/" }, "b": { "type": "stdio", "command": "b" } } } }"#,
        r#"{ "servers": { "a": { "url": "https://a.example/" } }, "mcpServers": { "b": { "command": "b", "disabled": false } } }"#,
        r#"{ "mcpServers": { "a": { "type": "streamable-http", "url": "https://a.example/" } }, "mcp": { "servers": { "b": { "command": "b" } } } }"#,
        r#"{ "inputs": [], "editor.fontSize": 12, "mcpServers": { "a": { "type": "streamableHttp", "url": "https://a.example/" }, "b": { "command": "b", "autoApprove": [] }, "c": { "command": "c", "disabled": true } } }"#,
    ] {
        let plan = plan(&[("a.json", text)], &[]);
        assert_eq!(
            plan.disabled.len(),
            usize::from(text.contains("\"disabled\": true")),
            "{text}"
        );
        assert_eq!(
            ours,
            Plan {
                disabled: Vec::new(),
                ..plan
            },
            "{text}"
        );
    }
    let toml = "[mcp.servers.a]\nurl = 'https://a.example/'\n[mcpServers.b]\ncommand = 'b'\n";
    assert_eq!(ours, plan(&[("a.toml", toml)], &[]));
}

#[test]
fn later_files_override_earlier_ones() {
    let base = "[gateway]\ndrain = '1s'\nallowed_hosts = ['a', 'b']\n[servers.a]\ncommand = \
                'a'\nargs = ['1', '2']\nenv = { A = '1', B = '2' }\n";
    let over = r#"{ "gateway": { "allowed_hosts": ["c"] }, "mcpServers": { "a": { "env": { "B": "3" }, "args": ["9"] }, "b": { "command": "b" } } }"#;
    let plan = plan(&[("base.toml", base), ("over.json", over)], &[]);
    assert_eq!(
        plan.times.drain.0,
        Duration::from_secs(1),
        "what the later file does not say stays"
    );
    assert_eq!(plan.allowed_hosts, ["c"], "lists are replaced");
    let ConnectTarget::Stdio { args, env, .. } = &plan.servers[0].connect else {
        panic!("{plan:?}")
    };
    assert_eq!(args, &["9"]);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(env, &[pair("A", "1"), pair("B", "3")], "tables merge");
    assert_eq!(plan.servers.len(), 2);
}

#[test]
fn the_environment_overrides_files_and_flags_override_the_environment() {
    let text = "[gateway]\nlisten = '127.0.0.1:1'\n[servers.My-Server]\ncommand = 'a'\n";
    let env = [
        ("MOONGATE_GATEWAY__LISTEN", "127.0.0.1:2"),
        ("MOONGATE_GATEWAY__ALLOWED_HOSTS", "a.example, b.example"),
        ("MOONGATE_GATEWAY__ADMIN", "false"),
        ("MOONGATE_NAMES__MAX_LENGTH", "64"),
        ("MOONGATE_SERVERS__MY_SERVER__TITLE", "0123"),
        ("MOONGATE_SERVERS__MY_SERVER__SHARE", "session"),
        ("MOONGATE_SERVERS__OTHER__URL", "https://other.example/mcp"),
        ("MOONGATE_SERVERS__OTHER__HEADERS", r#"{"X-Key": "${KEY}"}"#),
        ("MOONGATE_CONFIG", "elsewhere"),
        ("MOONGATE_SERVICE_HOST", "10.0.0.1"),
        ("KEY", "one$two"),
    ];
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.toml");
    std::fs::write(&path, text).unwrap();
    let mut options = LoadOptions {
        paths: vec![path],
        env: variables(&env),
        revisions: REVISIONS,
        ..Default::default()
    };
    let plan = moongate_config::load(&options)
        .unwrap_or_else(|problems| panic!("{problems}"))
        .plan;
    assert_eq!(plan.listen, [address("127.0.0.1:2")]);
    assert_eq!(plan.allowed_hosts, ["a.example", "b.example"]);
    assert_eq!(plan.admin, None);
    assert_eq!(plan.names.max_length, 64);
    assert_eq!(
        plan.servers[0].presentation.title.as_deref(),
        Some("0123"),
        "a text stays a text"
    );
    assert_eq!(plan.servers[0].options.share, SharingMode::Session);
    let ConnectTarget::Http { headers, .. } = &plan.servers[1].connect else {
        panic!("{plan:?}")
    };
    assert_eq!(headers[0].1.to_str().unwrap(), "one$two");

    options.listen = vec!["127.0.0.1:3".to_owned(), "localhost:0".to_owned()];
    options.only = vec!["other".to_owned()];
    let plan = moongate_config::load(&options).unwrap().plan;
    assert_eq!(
        plan.listen,
        [address("127.0.0.1:3"), address("127.0.0.1:0")]
    );
    assert_eq!(
        plan.servers
            .iter()
            .map(|server| server.name.as_str())
            .collect::<Vec<_>>(),
        ["other"]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The strongest layer that says something wins; what none says is the default.
    #[test]
    fn the_strongest_wins(first in proptest::option::of(24..128_u64),
        second in proptest::option::of(24..128_u64),
            variable in proptest::option::of(24..128_u64)) {
        let text = |value: Option<u64>| value.map_or(String::new(),
            |value| format!("[names]\nmax_length = {value}\n"));
        let value = variable.map(|value| value.to_string());
        let env: Vec<(&str,
            &str)> = value.iter().map(|value| ("MOONGATE_NAMES__MAX_LENGTH",
                value.as_str())).collect();
        let plan = plan(&[("a.toml", &text(first)), ("b.toml", &text(second))], &env);
        let expected = variable.or(second).or(first).unwrap_or(45);
        prop_assert_eq!(plan.names.max_length as u64, expected);
    }

    /// Whatever the text is, there is a plan or there are problems that can be shown.
    #[test]
    fn no_text_panics(text in "(\\[servers\\.[a-z]{1,3}\\]\n|[a-z]{1,8} = \
                               (\"[^\"\n]{0,9}\"|[0-9]{1,4}|\\[\\]|\\{\\})\n|\\PC{0,12}\n){0,6}") {
        for name in ["a.toml", "a.yaml", "a.json"] {
            if let Err(problems) = load_texts(&[(name, &text)], &[]) {
                prop_assert!(!problems.to_string().is_empty());
            }
        }
    }
}
