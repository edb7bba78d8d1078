//! The examples work: every config is checked, and the commands of every README are run where their
//! programs are.
//!
//! nginx, Caddy and systemd's tools may be missing; a test that needs one then says `SKIPPED`. With
//! `EXAMPLES_NEED_ALL=1` it fails instead. What Docker would run is checked without Docker;
//! `deploy/build-and-try.sh` runs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const MOONGATE: &str = env!("CARGO_BIN_EXE_moongate");

/// The folders; one without a test here is a failure, too.
const FOLDERS: [&str; 5] = ["behind-a-proxy", "docker", "one-url", "systemd", "team"];

/// The functions that the scripts of all examples have.
const PRELUDE: &str = r#"
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
soon() { for n in $(seq 150); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done; echo "not within 15 s: $*"; cat serve.log; exit 1; }
all_ready() { moongate status | awk 'NR > 1 && $2 == "ready" { n++ } END { exit NR < 2 || n != NR - 1 }'; }
serve_in_another_terminal() { moongate serve >serve.log 2>&1 & soon all_ready; }
"#;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A copy of one example, on ports of its own.
struct Example {
    dir: tempfile::TempDir,
    /// In place of 127.0.0.1:8080.
    listen: String,
    admin: String,
    /// In place of a proxy's 443.
    tls_port: u16,
}

impl Example {
    fn copy(name: &str) -> Example {
        let [listen, admin, tls_port] = free_ports();
        let example = Example {
            dir: tempfile::tempdir().unwrap(),
            listen: format!("127.0.0.1:{listen}"),
            admin: format!("127.0.0.1:{admin}"),
            tls_port,
        };
        let source = root().join("examples").join(name);
        for file in files_below(&source) {
            let target = example.path(file.strip_prefix(&source).unwrap());
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            fs::write(
                target,
                example.on_its_ports(&fs::read_to_string(file).unwrap()),
            )
            .unwrap();
        }
        example
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn on_its_ports(&self, text: &str) -> String {
        text.replace("127.0.0.1:8080", &self.listen)
    }

    /// The README's fenced blocks of a language.
    fn blocks(&self, language: &str) -> Vec<String> {
        let readme = self.read("README.md");
        let fenced = readme
            .split("\n```")
            .filter_map(|part| part.strip_prefix(language)?.strip_prefix('\n'));
        fenced.map(str::to_owned).collect()
    }

    /// A command in the folder, with `moongate` on the path and nothing of this machine's own
    /// config or state.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let bin = Path::new(MOONGATE).parent().unwrap().display();
        command.current_dir(self.dir.path()).env(
            "PATH",
            format!("{bin}:{}:/usr/sbin", std::env::var("PATH").unwrap()),
        );
        command
            .env("HOME", self.dir.path())
            .env("MOONGATE_GATEWAY__ADMIN", &self.admin);
        for name in [
            "XDG_CONFIG_HOME",
            "XDG_STATE_HOME",
            "XDG_DATA_HOME",
            "MOONGATE_CONFIG",
            "MOONGATE_KEY",
        ] {
            command.env_remove(name);
        }
        command
    }

    /// Runs a script; what a reader does in another terminal goes on meanwhile, and ends with it.
    fn run(&self, script: &str) -> String {
        let script = script.replace("moongate serve\n", "serve_in_another_terminal\n");
        let mut command = self.command("timeout");
        let output = command
            .args(["90", "bash", "-uc", &format!("{PRELUDE}\n{script}\n")])
            .output()
            .unwrap();
        said(&output)
    }

    /// Runs the README's commands, and compares what they say with what the README shows.
    fn run_readme(&self) {
        let output = self.run(&self.blocks("sh").join("\n"));
        let shown = self.blocks("text").join("\n");
        assert!(!shown.is_empty(), "the README shows what comes out");
        for line in shown.lines() {
            assert!(output.contains(line), "{line:?} is not in:\n{output}");
        }
    }

    fn assert_fit(&self, config: &str, environment: &[(&str, &str)]) {
        let mut command = self.command(MOONGATE);
        let output = command
            .args(["check", config])
            .envs(environment.iter().copied())
            .output()
            .unwrap();
        assert!(
            output.status.success() && said(&output).contains(" 0 warnings"),
            "{config}: {}",
            said(&output)
        );
    }
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files_below(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// Ports below those that the system hands out by itself; tests in other processes begin elsewhere.
fn free_ports<const N: usize>() -> [u16; N] {
    // Many places to begin at, since two tests that run at once have numbers near each other.
    let first = 13_000 + u16::try_from(std::process::id() % 800).unwrap() * 8;
    let listeners =
        (first..20_000).filter_map(|port| std::net::TcpListener::bind(("127.0.0.1", port)).ok());
    let listeners: Vec<_> = listeners.take(N).collect();
    std::array::from_fn(|n| listeners[n].local_addr().unwrap().port())
}

/// Whether a program is installed; says so if not.
fn is_installed(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("PATH=$PATH:/usr/sbin; command -v {program}")])
        .output()
        .unwrap();
    if !found.status.success() {
        assert!(
            std::env::var_os("EXAMPLES_NEED_ALL").is_none(),
            "{program} is not installed"
        );
        eprintln!("SKIPPED: {program} is not installed, so its example was not run");
    }
    found.status.success()
}

#[test]
fn every_folder_is_in_the_list_and_its_links_lead_somewhere() {
    let list = fs::read_to_string(root().join("examples/README.md")).unwrap();
    let folders = fs::read_dir(root().join("examples"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut folders: Vec<_> = folders.filter(|path| path.is_dir()).collect();
    folders.sort();
    assert_eq!(
        folders
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap())
            .collect::<Vec<_>>(),
        FOLDERS
    );
    for folder in [root().join("examples")].iter().chain(&folders) {
        let readme = fs::read_to_string(folder.join("README.md")).unwrap();
        for target in readme
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', '#']).next())
        {
            assert!(
                folder.join(target).exists(),
                "{} links to {target}",
                folder.display()
            );
        }
    }
    assert!(
        FOLDERS
            .iter()
            .all(|name| list.contains(&format!("[{name}/]({name}/README.md)"))),
        "{list}"
    );
}

#[test]
fn the_configs_to_copy_name_the_versions_of_packages() {
    let configs = files_below(&root().join("config"))
        .into_iter()
        .filter(|path| !path.starts_with(root().join("config/mock")));
    let configs: Vec<_> = configs
        .filter(|path| path.extension().is_some_and(|it| it != "md"))
        .collect();
    for config in &configs {
        let mut command = Command::new(MOONGATE);
        let output = command
            .arg("check")
            .arg(config)
            .env("MOONGATE_KEY", "a-long-enough-test-key")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}: {}",
            config.display(),
            said(&output)
        );
        assert!(
            !said(&output).contains("runs whatever version"),
            "{}: {}",
            config.display(),
            said(&output)
        );
    }
    assert!(configs.len() > 4, "{configs:?}");
}

#[test]
fn claude_code_and_cursor_reach_the_gateway_at_one_url() {
    let example = Example::copy("one-url");
    example.run_readme();
    for file in ["moongate.toml", ".mcp.json", ".cursor/mcp.json"] {
        example.assert_fit(file, &[]);
    }
    for file in [".mcp.json", ".cursor/mcp.json"] {
        let entry: Value = serde_json::from_str(&example.read(file)).unwrap();
        let url = entry["mcpServers"]["moongate"]["url"].as_str().unwrap();
        let output = example.run(&format!("moongate serve\nmoongate tools --url {url}"));
        assert!(output.contains("demo__echo"), "{file}: {output}");
    }
}

#[test]
fn a_key_opens_its_views_and_nothing_else() {
    let example = Example::copy("team");
    example.run_readme();
    example.assert_fit("moongate.toml", &[]);
    let tools = "MOONGATE_KEY=$(cat report.key) moongate tools";
    let output = example.run(&format!("{}\n{tools}", example.blocks("sh")[0]));
    assert!(
        output.contains("docs__add")
            && !output.contains("ask_name")
            && !output.contains("tickets__"),
        "{output}"
    );
}

#[test]
fn docker_gets_a_config_that_its_image_can_run() {
    let example = Example::copy("docker");
    let key = ("MOONGATE_KEY", "0123456789abcdef0123456789abcdef");
    example.assert_fit(
        "moongate.toml",
        &[key, ("MOONGATE_GATEWAY__LISTEN", "0.0.0.0:8080")],
    );

    // The versions are those that the script runs in the image.
    let tried = fs::read_to_string(root().join("deploy/build-and-try.sh")).unwrap();
    let config: toml::Table = example.read("moongate.toml").parse().unwrap();
    for server in config["servers"].as_table().unwrap().values() {
        let package = server["args"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .as_str()
            .unwrap();
        assert!(
            tried.contains(package),
            "deploy/build-and-try.sh does not run {package}"
        );
    }

    let folder = root().join("examples/docker");
    let yaml = |path: PathBuf| {
        serde_saphyr::from_str::<Value>(&fs::read_to_string(path).unwrap()).unwrap()
    };
    let compose = yaml(folder.join("compose.yaml"));
    let service = &compose["services"]["gateway"];
    let base_file = folder.join(service["extends"]["file"].as_str().unwrap());
    let base = yaml(base_file.clone());
    let base_service = &base["services"][service["extends"]["service"].as_str().unwrap()];
    let context = base_file
        .parent()
        .unwrap()
        .join(base_service["build"]["context"].as_str().unwrap());
    let dockerfile = fs::read_to_string(context.join("Dockerfile")).unwrap();
    let stage = format!(" AS {}", service["build"]["target"].as_str().unwrap());
    assert!(
        dockerfile
            .lines()
            .any(|line| line.starts_with("FROM ") && line.ends_with(&stage)),
        "no stage{stage}"
    );
    for volume in [service, base_service]
        .iter()
        .flat_map(|service| service["volumes"].as_array().unwrap())
    {
        let source = volume.as_str().unwrap().split(':').next().unwrap();
        let there = if source.starts_with('.') {
            folder.join(source).exists()
        } else {
            compose["volumes"].get(source).is_some()
        };
        assert!(there, "the volume {source} is nowhere");
    }
}

/// Calls a tool through a proxy by its name, then opens a stream, whose first event must come at
/// once.
fn call_through_a_proxy(example: &Example, start: &str) {
    let certificate = rcgen::generate_simple_self_signed(["mcp.example.com".to_owned()]).unwrap();
    fs::write(example.path("cert.pem"), certificate.cert.pem()).unwrap();
    fs::write(
        example.path("key.pem"),
        certificate.signing_key.serialize_pem(),
    )
    .unwrap();
    let port = example.tls_port;
    let serve = &example.blocks("sh")[0];
    let output = example.run(&format!(
        r#"{serve}
{start} &
mcp() {{
    timeout 10 curl -sSN --cacert cert.pem --resolve mcp.example.com:{port}:127.0.0.1 https://mcp.example.com:{port}/mcp \
        -H "Authorization: Bearer $(cat laptop.key)" -H "Content-Type: application/json" "$@"
}}
both="Accept: application/json, text/event-stream"
soon mcp
session=$(mcp -D - -o /dev/null -H "$both" -d '{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{
    "protocolVersion":"2025-11-25","capabilities":{{}},"clientInfo":{{"name":"examples","version":"1"}}}}}}' \
    | tr -d '\r' | sed -n 's/^mcp-session-id: /Mcp-Session-Id: /Ip')
version="MCP-Protocol-Version: 2025-11-25"
mcp -H "$both" -H "$session" -H "$version" \
    -d '{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"demo__add","arguments":{{"a":20,"b":22}}}}}}'
read -r line < <(mcp -H "Accept: text/event-stream" -H "$session" -H "$version")
echo; echo "first line of the stream: $line"
"#
    ));
    assert!(output.contains(r#""text":"42""#), "{output}");
    assert!(
        output.contains("first line of the stream: id: "),
        "{output}"
    );
}

#[test]
fn nginx_passes_calls_and_streams_on() {
    let example = Example::copy("behind-a-proxy");
    if !is_installed("nginx") {
        return;
    }
    let site = example.read("nginx.conf").replace(
        "listen 443",
        &format!("listen 127.0.0.1:{}", example.tls_port),
    );
    let site = site.replace("/etc/ssl/mcp.example.com/fullchain.pem", "cert.pem");
    let site = site.replace("/etc/ssl/mcp.example.com/privkey.pem", "key.pem");
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path tmp;\n"));
    let whole = format!(
        "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\nevents {{}}\n\
         http {{\naccess_log off;\n{}\n{site}}}\n",
        temporary.concat()
    );
    fs::write(example.path("whole.conf"), whole).unwrap();
    call_through_a_proxy(&example, "nginx -p . -e stderr -c whole.conf");
}

#[test]
fn caddy_passes_calls_and_streams_on() {
    let example = Example::copy("behind-a-proxy");
    if !is_installed("caddy") {
        return;
    }
    // Certificates of an authority, and port 80, are the real name's.
    let opened = format!(
        "https://mcp.example.com:{} {{\n    bind 127.0.0.1\n    tls cert.pem key.pem\n",
        example.tls_port
    );
    let site = example
        .read("Caddyfile")
        .replace("mcp.example.com {\n", &opened);
    let whole = format!("{{\n    admin off\n    auto_https disable_redirects\n}}\n{site}");
    fs::write(example.path("whole.caddyfile"), whole).unwrap();
    call_through_a_proxy(
        &example,
        "caddy run --adapter caddyfile --config whole.caddyfile",
    );
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    if !is_installed("systemd-analyze") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("systemd-analyze");
    command.arg("verify");
    for unit in ["moongate.service", "moongate.socket"] {
        let text = fs::read_to_string(root().join("deploy/systemd").join(unit)).unwrap();
        fs::write(
            dir.path().join(unit),
            text.replace("/usr/local/bin/moongate", MOONGATE),
        )
        .unwrap();
        command.arg(dir.path().join(unit));
    }
    let output = command.output().unwrap();
    assert!(
        output.status.success() && !said(&output).contains("moongate."),
        "{}",
        said(&output)
    );
}

#[test]
fn systemd_hands_over_a_port_that_the_gateway_serves() {
    let example = Example::copy("systemd");
    let key = ("MOONGATE_KEY", "0123456789abcdef0123456789abcdef");
    example.assert_fit("moongate.toml", &[key]);
    if !is_installed("systemd-socket-activate") {
        return;
    }
    let readme = example.read("README.md");
    let call = readme
        .lines()
        .find(|line| line.starts_with("moongate call "))
        .unwrap();
    let passed = "-E MOONGATE_KEY -E MOONGATE_GATEWAY__ADMIN -E PATH -E HOME";
    let output = example.run(&format!(
        "export {}={}\nsystemd-socket-activate -l {} {passed} {MOONGATE} serve >serve.log 2>&1 \
         &\nsoon {call}\n{call}",
        key.0, key.1, example.listen
    ));
    assert!(output.lines().any(|line| line == "42"), "{output}");
}
