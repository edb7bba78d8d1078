//! The pictures of the documentation show the page as it is: `tests/page/pictures.mjs` compares
//! them, or takes them.
//!
//! This runs the gateway of `tests/page/scene`. `UPDATE_PICTURES=1 tests/page/run.sh` takes the
//! pictures again.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use moongate_mock::{MockHandle, MockScript};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::harness::program::Program;
use crate::harness::proxy::{ForwardProxy, Verdict};
use crate::harness::relay::Relay;
use crate::harness::tls::Authority;
use crate::harness::{HttpClient, lasting_port, serve, server_of, until};
use crate::page::{page_home, run_script};

const MOONGATE: &str = env!("CARGO_BIN_EXE_moongate");

/// Servers behind `https://NAME.example.com/mcp`.
const REMOTE: [&str; 4] = ["weather", "tickets", "photos", "wiki"];
/// Servers that are programs.
const PROGRAMS: [&str; 2] = ["notes", "files"];
/// States that the servers come to.
const STATES: [(&str, &str); 6] = [
    ("weather", "ready"),
    ("tickets", "ready"),
    ("notes", "ready"),
    ("files", "ready"),
    ("photos", "needs_login"),
    ("orders", "backing_off"),
];
/// Commands of the picture of a terminal, after `moongate` itself.
const COMMANDS: [&[&str]; 2] = [&["status"], &["call", "weather__forecast", "place=Mainz"]];

fn scene_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/page/scene")
        .join(name)
}

fn is_update() -> bool {
    std::env::var_os("UPDATE_PICTURES").is_some()
}

/// Remote servers of the scene, each by its own name and over TLS.
struct RemoteServers {
    proxy: ForwardProxy,
    authority: Authority,
    _servers: Vec<(MockHandle, Relay)>,
}

impl RemoteServers {
    async fn start() -> Self {
        let authority = Authority::new("Pictures");
        let mut servers = Vec::new();
        let mut hosts = Vec::new();
        for name in REMOTE {
            let host = format!("{name}.example.com");
            let mock = serve(MockScript::load(&scene_file(&format!("{name}.toml"))).unwrap()).await;
            let relay = Relay::secure(
                mock.addr.unwrap(),
                authority.sign_for(&host).server(&["http/1.1"]),
            )
            .await;
            hosts.push((format!("{host}:443"), relay.address));
            servers.push((mock, relay));
        }
        let hosts: Vec<_> = hosts
            .iter()
            .map(|(host, address)| (host.as_str(), *address))
            .collect();
        let proxy = ForwardProxy::start(&hosts, None, Verdict::Serve).await;
        RemoteServers {
            proxy,
            authority,
            _servers: servers,
        }
    }
}

/// Gateway of the pictures, in a folder of its own.
struct PictureScene {
    home: TempDir,
    servers: RemoteServers,
    gateway: Option<Program>,
    /// Addresses for clients and for operators. A test that takes no pictures leaves the default
    /// ones to others.
    addresses: [String; 2],
}

impl PictureScene {
    async fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let bin = home.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(MOONGATE, bin.join("moongate")).unwrap();
        for name in PROGRAMS {
            let script = scene_file(&format!("{name}.toml"));
            write_program(
                &bin,
                name,
                &format!("exec moongate mock '{}' --stdio", script.display()),
            );
        }
        write_program(
            &bin,
            "orders",
            "echo 'error: orders.db is locked' >&2\nexit 1",
        );
        std::fs::copy(
            scene_file("moongate.toml"),
            home.path().join("moongate.toml"),
        )
        .unwrap();
        let ports = if is_update() {
            [8080, 9090]
        } else {
            [lasting_port(), lasting_port()]
        };
        let addresses = ports.map(|port| format!("127.0.0.1:{port}"));
        let mut scene = PictureScene {
            home,
            servers: RemoteServers::start().await,
            gateway: None,
            addresses,
        };
        scene.gateway =
            Some(Program::start_until(scene.moongate(&[]), "/mcp", &["page on http://"]).await);
        for (name, state) in STATES {
            let is_there = || async {
                (server_of(&scene.status().await, name)["state"] == state).then_some(())
            };
            until(&format!("{name} is {state}"), is_there).await;
        }
        scene
    }

    /// A command in the folder of the scene. It knows nothing of this machine and its user.
    fn moongate(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.home.path().join("bin/moongate"));
        let (home, bin) = (self.home.path(), self.home.path().join("bin"));
        let trusted = home.join("trusted.pem");
        std::fs::write(&trusted, &self.servers.authority.pem).unwrap();
        command.args(args).current_dir(home).env_clear();
        command
            .env("HOME", home)
            .env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        command.env("SSL_CERT_FILE", trusted).env(
            "HTTPS_PROXY",
            format!("http://{}", self.servers.proxy.address),
        );
        command
            .env("MOONGATE_GATEWAY__LISTEN", &self.addresses[0])
            .env("MOONGATE_GATEWAY__ADMIN", &self.addresses[1]);
        command
    }

    async fn status(&self) -> Value {
        HttpClient::new()
            .get(&format!("http://{}/api/v1/status", self.addresses[1]))
            .await
            .json()
    }

    /// Does what the script orders. Returns the line that answers it.
    async fn obey(&self, order: &str) -> String {
        match order {
            "home" => self.home.path().display().to_string(),
            "endpoint" => format!("http://{}/mcp", self.addresses[0]),
            "terminal" => self.terminal().await.to_string(),
            "client-keys" | "operator-key" => {
                self.extend_config(&format!("{order}.toml")).await;
                "done".to_owned()
            }
            other => panic!("the script orders {other:?}"),
        }
    }

    /// Commands with their output, as a list.
    async fn terminal(&self) -> Value {
        let said = self.gateway.as_ref().unwrap().said();
        // After these lines comes the log.
        let said: Vec<&str> = said
            .lines()
            .filter(|line| line.contains(" on http://"))
            .collect();
        let mut shown = vec![json!(["moongate", said.join("\n")])];
        for args in COMMANDS {
            let Output {
                status,
                stdout,
                stderr,
            } = self.moongate(args).output().await.unwrap();
            let stderr = String::from_utf8_lossy(&stderr).into_owned();
            assert!(status.success() && stderr.is_empty(), "{args:?}: {stderr}");
            shown.push(json!([
                format!("moongate {}", args.join(" ")),
                String::from_utf8(stdout).unwrap()
            ]));
        }
        let text = Value::Array(shown).to_string();
        let text = text
            .replace(&self.addresses[0], "127.0.0.1:8080")
            .replace(&self.addresses[1], "127.0.0.1:9090");
        serde_json::from_str(&text).unwrap()
    }

    /// Adds a file of the scene to the config, and has it applied.
    async fn extend_config(&self, name: &str) {
        let path = self.home.path().join("moongate.toml");
        let text = std::fs::read_to_string(&path).unwrap()
            + &std::fs::read_to_string(scene_file(name)).unwrap();
        std::fs::write(&path, text).unwrap();
        let output = self.moongate(&["reload"]).output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

fn write_program(bin: &Path, name: &str, script: &str) {
    let path = bin.join(format!("{name}-server"));
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn the_pictures_show_the_page_as_it_is() {
    let scene = PictureScene::start().await;
    let shots = page_home().join("pictures");
    run_script("pictures.mjs", &scene.addresses[1], &shots, async |order| {
        scene.obey(order).await
    })
    .await;
}
