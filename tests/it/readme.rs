//! The README and the pages below `docs/` are true: each block is run, checked (`blocks`) or used
//! as a client would.

mod blocks;
mod index;
mod prose;
mod reference;

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use moongate_testing::ReservedAddress;

const MOONGATE: &str = env!("CARGO_BIN_EXE_moongate");

/// A fenced block: its language and its text.
struct FencedBlock {
    language: String,
    text: String,
}

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The README, and then the pages of clients, the guides and the reference, by path.
fn pages() -> Vec<(String, String)> {
    let mut pages = vec![("README.md".to_owned(), read("README.md"))];
    for folder in ["docs/clients", "docs/guides", "docs/reference"] {
        pages.extend(pages_in(folder));
    }
    assert!(pages.len() > 15, "the pages were found");
    pages
}

/// The pages of a folder, by path.
fn pages_in(folder: &str) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
    let mut paths: Vec<String> = entries
        .map(|entry| format!("{folder}/{}", entry.unwrap().file_name().to_str().unwrap()))
        .collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let text = read(&path);
            (path, text)
        })
        .collect()
}

fn blocks() -> Vec<FencedBlock> {
    let blocks: Vec<FencedBlock> = pages()
        .iter()
        .flat_map(|(_, text)| blocks_of(text))
        .collect();
    assert!(
        blocks.len() >= 40,
        "the blocks were found: {}",
        blocks.len()
    );
    blocks
}

fn blocks_of(text: &str) -> Vec<FencedBlock> {
    let mut blocks = Vec::new();
    let mut open: Option<FencedBlock> = None;
    for line in text.lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(language), None) => {
                open = Some(FencedBlock {
                    language: language.to_owned(),
                    text: String::new(),
                })
            }
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some(mut block)) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    blocks
}

fn of(language: &str) -> Vec<FencedBlock> {
    blocks()
        .into_iter()
        .filter(|block| block.language == language)
        .collect()
}

/// A gateway with its demo server, as the README's first command starts it, on free ports.
struct DemoGateway {
    process: Child,
    said: String,
    gateway: SocketAddr,
    admin: SocketAddr,
    tcp: SocketAddr,
    _dir: tempfile::TempDir,
}

impl DemoGateway {
    fn start() -> DemoGateway {
        let dir = tempfile::tempdir().unwrap();
        let mut process = Command::new(MOONGATE)
            .current_dir(dir.path())
            .env(
                "MOONGATE_GATEWAY__LISTEN",
                r#"["127.0.0.1:0", "tcp:127.0.0.1:0"]"#,
            )
            .env("MOONGATE_GATEWAY__ADMIN", "127.0.0.1:0")
            .env("XDG_CONFIG_HOME", dir.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut reader = BufReader::new(process.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("page on") {
            assert!(
                reader.read_line(&mut said).unwrap() > 0,
                "it started: {said}"
            );
        }
        // The rest is drained, so that it never blocks on its log.
        std::thread::spawn(move || reader.read_to_end(&mut Vec::new()));
        let address = |mark: &str| {
            let rest = said.split(mark).nth(1).unwrap();
            rest.split(['/', '\n', ' ', ','])
                .next()
                .unwrap()
                .parse()
                .unwrap()
        };
        let demo = DemoGateway {
            gateway: address("listening on http://"),
            admin: address("health on http://"),
            tcp: address("listening on tcp:"),
            process,
            said,
            _dir: dir,
        };
        // A reader is slower than a script: by the time of the next command, the demo server is
        // connected.
        let ready = "for n in $(seq 200); do curl -sf http://127.0.0.1:9090/api/v1/status | grep \
                     -q '\"ready\"' && exit; sleep 0.1; done; exit 1";
        assert!(demo.run(ready).0, "the demo server connects");
        demo
    }

    /// Runs a block with `sh`, with the README's addresses replaced by ours and `moongate`,
    /// `claude` and `nc` on the path.
    fn run(&self, script: &str) -> (bool, String) {
        let tools = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(MOONGATE, tools.path().join("moongate")).unwrap();
        write_program(&tools.path().join("claude"), CLAUDE);
        write_program(&tools.path().join("nc"), NC);
        let path = format!(
            "{}:{}",
            tools.path().display(),
            std::env::var("PATH").unwrap()
        );
        // The commands go to the default ports where they name no others.
        let named = |line: &str| match line
            .strip_prefix("moongate ")
            .and_then(|rest| rest.split(' ').next())
        {
            Some("tools" | "call") => format!("{line} --url http://{}/mcp", self.gateway),
            Some("status" | "reload" | "restart") => format!("{line} --admin {}", self.admin),
            Some("check") if line.contains("--plan") => format!("{line} --admin {}", self.admin),
            _ => line.to_owned(),
        };
        let script: Vec<String> = script.lines().map(named).collect();
        let script = script
            .join("\n")
            .replace("127.0.0.1:8080", &self.gateway.to_string());
        let script = script.replace("127.0.0.1:9090", &self.admin.to_string());
        let script = script.replace("127.0.0.1 9100", &format!("127.0.0.1 {}", self.tcp.port()));
        let output = Command::new("timeout")
            .args(["60", "bash", "-euo", "pipefail", "-c", &script])
            .current_dir(tools.path())
            .env("PATH", path)
            .output()
            .unwrap();
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        (output.status.success(), text)
    }
}

impl Drop for DemoGateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write_program(path: &PathBuf, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// What `claude mcp add --transport http NAME URL [--header H]` comes to: an `initialize` with
/// those headers.
const CLAUDE: &str = r#"#!/usr/bin/env bash
set -euo pipefail
[ "$1 $2 $3 $4" = "mcp add --transport http" ] || { echo "other arguments: $*"; exit 1; }
url=$6; shift 6
headers=()
while [ $# -gt 0 ]; do [ "$1" = "--header" ]; headers+=(-H "$2"); shift 2; done
curl -sf "$url" "${headers[@]}" -H "content-type: application/json" -H "accept: application/json, text/event-stream" \
  -d '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}'
"#;

/// What `nc -N HOST PORT` comes to, for one line and its answer.
const NC: &str = r#"#!/usr/bin/env bash
set -euo pipefail
[ "$1" = "-N" ] || { echo "other arguments: $*"; exit 1; }
exec 3<>"/dev/tcp/$2/$3"
cat >&3
read -r answer <&3
case "$answer" in *'"result"'*) echo "$answer" ;; *) echo "no result: $answer"; exit 1 ;; esac
"#;

#[test]
fn the_readme_begins_with_the_start_and_its_demo_says_what_it_shows() {
    let blocks = blocks_of(&read("README.md"));
    assert_eq!(blocks[0].text.trim(), START);
    let at = blocks
        .iter()
        .position(|block| block.text.trim() == "cargo run")
        .expect("the demo has a command");
    let demo = DemoGateway::start();
    let shown = blocks[at + 1]
        .text
        .replace("127.0.0.1:8080", &demo.gateway.to_string());
    let shown = shown.replace("127.0.0.1:9090", &demo.admin.to_string());
    for line in shown.lines() {
        assert!(
            demo.said.contains(line),
            "{line:?} is not in {:?}",
            demo.said
        );
    }
}

#[test]
fn every_command_works() {
    let demo = DemoGateway::start();
    let mut ran = 0;
    let mut failed = Vec::new();
    for block in of("sh") {
        let script = match block.text.trim() {
            "cargo run" => continue,
            // No Docker engine here; the script that builds and runs both images does it with this
            // Dockerfile.
            text if text.starts_with("docker ") => {
                let root = Path::new(env!("CARGO_MANIFEST_DIR"));
                assert!(
                    root.join("Dockerfile").exists()
                        && root.join("deploy/build-and-try.sh").exists()
                );
                continue;
            }
            // The commands of the start have a test of their own, since the last one does not end.
            text if text == START => continue,
            text => text.to_owned(),
        };
        let (success, text) = demo.run(&script);
        ran += 1;
        if !success {
            failed.push(format!("{script}\n{text}"));
        }
    }
    assert!(ran >= 15, "commands were run: {ran}");
    assert!(failed.is_empty(), "{}", failed.join("\n---\n"));
}

/// The three commands of the page to start with.
const START: &str = "moongate import\nmoongate connect claude-code --write\nmoongate";

#[test]
fn the_commands_of_the_start_lead_from_a_client_to_a_tool_call() {
    assert_eq!(
        blocks_of(&read("docs/guides/start.md"))[0].text.trim(),
        START
    );
    let home = tempfile::tempdir().unwrap();
    let server = serde_json::json!({ "command": MOONGATE, "args": ["mock", "--demo"] });
    let client = home.path().join(".claude.json");
    std::fs::write(
        &client,
        serde_json::json!({ "mcpServers": { "own": server } }).to_string(),
    )
    .unwrap();
    std::os::unix::fs::symlink(MOONGATE, home.path().join("moongate")).unwrap();
    let reserved = ReservedAddress::new();
    // Nobody can be asked here, and the gateway runs while the tool is called.
    let script =
        format!("{START} & trap 'kill $!; wait' EXIT").replace("import\n", "import --yes\n");
    let script = script.replace("--write\n", "--write --yes\n")
        + "\nfor n in $(seq 200); do moongate call own__add a=20 b=22 && exit; sleep 0.1; done; \
           exit 1";
    let output = Command::new("timeout")
        .args(["60", "bash", "-euo", "pipefail", "-c", &script])
        .current_dir(home.path())
        .env(
            "PATH",
            format!(
                "{}:{}",
                home.path().display(),
                std::env::var("PATH").unwrap()
            ),
        )
        .env("HOME", home.path())
        .env_remove("CLAUDE_CONFIG_DIR")
        .env("XDG_CONFIG_HOME", home.path().join(".config"))
        .env("MOONGATE_GATEWAY__LISTEN", reserved.address().to_string())
        .env("MOONGATE_GATEWAY__ADMIN", "127.0.0.1:0")
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        output.status.success() && text.contains("not checked") && text.contains("\n42\n"),
        "{text}"
    );
    let entry = format!("http://{}/mcp", reserved.address());
    assert!(
        std::fs::read_to_string(&client).unwrap().contains(&entry),
        "{text}"
    );
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;

#[test]
fn every_client_entry_leads_to_the_gateway() {
    let demo = DemoGateway::start();
    let pages = ["README.md", "docs/guides/clients.md"].map(read);
    let blocks = pages.iter().flat_map(|page| blocks_of(page));
    let entries: Vec<FencedBlock> = blocks
        .filter(|block| block.language == "json client")
        .collect();
    assert_eq!(
        entries.len(),
        4,
        "Cursor and VS Code; `moongate stdio`, alone and as a bridge"
    );
    for block in entries {
        let entry: serde_json::Value = serde_json::from_str(&block.text).unwrap();
        let servers = entry
            .get("mcpServers")
            .or_else(|| entry.get("servers"))
            .unwrap();
        let server = &servers["moongate"];
        let script = match server["url"].as_str() {
            Some(url) => format!("claude mcp add --transport http moongate {url}"),
            None => {
                let args = server["args"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|arg| arg.as_str().unwrap());
                let command = [server["command"].as_str().unwrap()]
                    .into_iter()
                    .chain(args)
                    .collect::<Vec<_>>()
                    .join(" ");
                format!("echo '{INITIALIZE}' | {command}")
            }
        };
        let (success, text) = demo.run(&script);
        assert!(success && text.contains("protocolVersion"), "{text}");
    }
}

#[test]
fn prometheus_is_pointed_at_the_metrics() {
    let demo = DemoGateway::start();
    let yaml = of("yaml prometheus").remove(0).text;
    let target = yaml
        .lines()
        .find_map(|line| {
            line.trim()
                .strip_prefix("- targets: [\"")?
                .strip_suffix("\"]")
        })
        .unwrap();
    // The path that Prometheus takes when none is given.
    let (success, text) = demo.run(&format!("curl -sf http://{target}/metrics"));
    assert!(success && text.contains("moongate_build_info"), "{text}");
}
