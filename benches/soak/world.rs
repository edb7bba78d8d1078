//! The servers, the config, and the gateway: what is there, and starting it.

use crate::client::KEYS;
use crate::process::Process;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// What becomes of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerFate {
    /// Nothing: no call of it may fail.
    Calm,
    /// It is killed again and again.
    Mortal,
    /// It is replaced, restarted or changed in place by the config: no call of it may fail either.
    Changing,
    /// The config has it or not.
    Guest,
}

/// How it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerCarrier {
    /// A child that all share.
    Pipe,
    /// A child for each session.
    Own,
    /// A child for each principal.
    Each,
    /// HTTP.
    Web,
    /// HTTP, every answer a stream of events with ids, cut after the second one.
    Polled,
    /// TCP, a message a line.
    Tcp,
    /// WebSocket.
    Ws,
}

impl ServerCarrier {
    /// Whether the gateway starts it.
    pub(crate) fn is_child(self) -> bool {
        matches!(
            self,
            ServerCarrier::Pipe | ServerCarrier::Own | ServerCarrier::Each
        )
    }
}

/// One server.
pub(crate) struct ServerSpec {
    pub(crate) name: &'static str,
    pub(crate) how: ServerCarrier,
    pub(crate) revision: &'static str,
    pub(crate) fate: ServerFate,
}

const fn spec(
    name: &'static str,
    how: ServerCarrier,
    revision: &'static str,
    fate: ServerFate,
) -> ServerSpec {
    ServerSpec {
        name,
        how,
        revision,
        fate,
    }
}

/// All servers.
pub(crate) const SERVERS: &[ServerSpec] = &[
    spec("pipe", ServerCarrier::Pipe, "2025-11-25", ServerFate::Calm),
    spec(
        "pipe_oldest",
        ServerCarrier::Pipe,
        "2024-11-05",
        ServerFate::Calm,
    ),
    spec(
        "pipe_new",
        ServerCarrier::Pipe,
        "2026-07-28",
        ServerFate::Calm,
    ),
    spec("asks", ServerCarrier::Pipe, "2025-11-25", ServerFate::Calm),
    spec("own", ServerCarrier::Own, "2025-06-18", ServerFate::Calm),
    spec("each", ServerCarrier::Each, "2025-11-25", ServerFate::Calm),
    spec("web", ServerCarrier::Web, "2025-11-25", ServerFate::Calm),
    spec(
        "web_new",
        ServerCarrier::Web,
        "2026-07-28",
        ServerFate::Calm,
    ),
    spec(
        "polled",
        ServerCarrier::Polled,
        "2025-11-25",
        ServerFate::Calm,
    ),
    spec(
        "killed_1",
        ServerCarrier::Pipe,
        "2025-11-25",
        ServerFate::Mortal,
    ),
    spec(
        "killed_2",
        ServerCarrier::Pipe,
        "2026-07-28",
        ServerFate::Mortal,
    ),
    spec(
        "killed_3",
        ServerCarrier::Pipe,
        "2025-03-26",
        ServerFate::Mortal,
    ),
    spec(
        "killed_4",
        ServerCarrier::Pipe,
        "2025-06-18",
        ServerFate::Mortal,
    ),
    spec(
        "killed_5",
        ServerCarrier::Pipe,
        "2026-07-28",
        ServerFate::Mortal,
    ),
    spec(
        "killed_6",
        ServerCarrier::Pipe,
        "2024-11-05",
        ServerFate::Mortal,
    ),
    spec(
        "killed_own",
        ServerCarrier::Own,
        "2025-11-25",
        ServerFate::Mortal,
    ),
    spec(
        "killed_web",
        ServerCarrier::Web,
        "2025-11-25",
        ServerFate::Mortal,
    ),
    spec(
        "killed_web_new",
        ServerCarrier::Web,
        "2026-07-28",
        ServerFate::Mortal,
    ),
    spec(
        "killed_tcp",
        ServerCarrier::Tcp,
        "2025-06-18",
        ServerFate::Mortal,
    ),
    spec(
        "killed_ws",
        ServerCarrier::Ws,
        "2025-11-25",
        ServerFate::Mortal,
    ),
    spec(
        "replaced",
        ServerCarrier::Pipe,
        "2025-11-25",
        ServerFate::Changing,
    ),
    spec(
        "replaced_web",
        ServerCarrier::Web,
        "2026-07-28",
        ServerFate::Changing,
    ),
    spec(
        "tuned",
        ServerCarrier::Pipe,
        "2026-07-28",
        ServerFate::Changing,
    ),
    spec(
        "guest",
        ServerCarrier::Pipe,
        "2025-11-25",
        ServerFate::Guest,
    ),
    spec(
        "guest_new",
        ServerCarrier::Pipe,
        "2026-07-28",
        ServerFate::Guest,
    ),
];

/// How long an unused session, and what is kept of a stream, lives.
pub(crate) const IDLE: Duration = Duration::from_secs(5);

/// What of the config changes in a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ConfigVariant {
    /// In the environment or the headers of the servers that are replaced.
    pub(crate) replaced: u32,
    /// A setting of the server that is tuned.
    pub(crate) tuned: u32,
    pub(crate) guests: [bool; 2],
}

/// The gateway and all around it.
pub(crate) struct SoakWorld {
    pub(crate) gateway: RefCell<Option<Process>>,
    pub(crate) pid: u32,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) bin: PathBuf,
    pub(crate) variant: RefCell<ConfigVariant>,
    webs: RefCell<Vec<(&'static str, u16, Option<Process>)>>,
    /// The mocks' ports, for telling the gateway's sockets apart.
    pub(crate) ports: Vec<u16>,
    files: TempDir,
    writes: Cell<u32>,
}

/// Returns a port below those that the system gives to connections, since a server comes back at its
/// own.
fn free_port_above(mut port: u16) -> u16 {
    port += 1;
    while TcpListener::bind(("127.0.0.1", port)).is_err() {
        port += 1;
    }
    port
}

impl SoakWorld {
    pub(crate) async fn start(bin: &Path, plant: Option<&str>) -> Result<Self> {
        ensure!(
            bin.is_file(),
            "there is no gateway at {}: build it, or name another with --bin",
            bin.display()
        );
        let files = tempfile::tempdir()?;
        let mut webs = Vec::new();
        let mut port = 20_000 + u16::try_from(std::process::id() % 9_000)?;
        for spec in SERVERS {
            let plant = plant.filter(|_| matches!(spec.name, "pipe" | "web"));
            std::fs::write(
                files.path().join(format!("{}.json", spec.name)),
                script(spec, plant).to_string(),
            )?;
            if !spec.how.is_child() {
                port = free_port_above(port);
                webs.push((spec.name, port, None));
            }
        }
        let ports: Vec<u16> = webs.iter().map(|(_, port, _)| *port).collect();
        let names: Vec<&'static str> = webs.iter().map(|(name, _, _)| *name).collect();
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut world = Self {
            gateway: RefCell::new(None),
            pid: 0,
            address: nowhere,
            admin: nowhere,
            bin: bin.to_owned(),
            variant: RefCell::default(),
            webs: RefCell::new(webs),
            ports,
            files,
            writes: Cell::new(0),
        };
        for name in names {
            world.web(name).await?;
        }
        world.write(&ConfigVariant::default())?;
        // Too large a file is then an error of the write instead of the process's end: see
        // `Outages`.
        let line = "trap '' XFSZ; exec \"$0\" serve --config \"$1\"".to_owned();
        let words = [
            "-c".to_owned(),
            line,
            bin.display().to_string(),
            world.config().display().to_string(),
        ];
        let mut gateway = Process::program("the gateway", Path::new("sh"), &words)?;
        world.address = gateway.address(Duration::from_secs(30)).await?;
        world.pid = gateway.pid;
        let end = Instant::now() + Duration::from_secs(10);
        world.admin = loop {
            let tail = gateway.tail();
            let at = tail
                .split("metrics and health on http://")
                .nth(1)
                .and_then(|rest| rest.split_whitespace().next());
            if let Some(address) = at {
                break address.parse()?;
            }
            ensure!(
                Instant::now() < end,
                "it does not say where its metrics are:\n{tail}"
            );
            sleep(Duration::from_millis(20)).await;
        };
        world.gateway = RefCell::new(Some(gateway));
        Ok(world)
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.files.path().join("moongate.toml")
    }

    /// What all processes of the servers carry in their environment.
    pub(crate) fn mark(&self) -> String {
        self.files.path().display().to_string()
    }

    pub(crate) fn tail(&self) -> String {
        self.gateway
            .borrow()
            .as_ref()
            .map(Process::tail)
            .unwrap_or_default()
    }

    /// Starts or restarts a server on its own port, not as a child of the gateway.
    pub(crate) async fn web(&self, name: &'static str) -> Result<()> {
        let port = self
            .webs
            .borrow()
            .iter()
            .find(|(web, _, _)| *web == name)
            .context("no such server")?
            .1;
        let file = self.files.path().join(format!("{name}.json"));
        let kind = match SERVERS
            .iter()
            .find(|spec| spec.name == name)
            .map(|spec| spec.how)
        {
            Some(ServerCarrier::Tcp) => "--tcp",
            Some(ServerCarrier::Ws) => "--ws",
            _ => "--http",
        };
        let address = format!("127.0.0.1:{port}");
        let words = ["mock", &file.display().to_string(), kind, &address].map(str::to_owned);
        let end = Instant::now() + Duration::from_secs(30);
        let process = loop {
            let mut process = Process::program(name, &self.bin, &words)?;
            match process.says("listening on", Duration::from_secs(20)).await {
                Ok(()) => break process,
                // Some connection has the port for a moment.
                Err(error) if Instant::now() > end => return Err(error),
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        };
        if let Some(web) = self
            .webs
            .borrow_mut()
            .iter_mut()
            .find(|(web, _, _)| *web == name)
        {
            web.2 = Some(process);
        }
        Ok(())
    }

    /// Kills such a server.
    pub(crate) async fn kill_web(&self, name: &str) {
        let process = self
            .webs
            .borrow_mut()
            .iter_mut()
            .find(|(web, _, _)| *web == name)
            .and_then(|web| web.2.take());
        if let Some(process) = process {
            process.kill().await;
        }
    }

    /// Writes the config as a whole: nobody ever reads half of it.
    pub(crate) fn write(&self, variant: &ConfigVariant) -> Result<()> {
        self.write_text(&self.text(variant)?)?;
        self.variant.replace(variant.clone());
        Ok(())
    }

    /// The same with a text that isn't a config.
    pub(crate) fn write_text(&self, text: &str) -> Result<()> {
        self.writes.set(self.writes.get() + 1);
        let aside = self.files.path().join("next.toml");
        std::fs::write(&aside, text)?;
        std::fs::rename(aside, self.config())?;
        Ok(())
    }

    pub(crate) fn text(&self, variant: &ConfigVariant) -> Result<String> {
        let mut out = self.gateway_text();
        for (n, key) in KEYS.iter().enumerate() {
            writeln!(out, "[[auth.keys]]\nname = \"key{n}\"\nkey = {key:?}\n")?;
        }
        for spec in SERVERS {
            let guest = if spec.name == "guest" { 0 } else { 1 };
            if spec.fate == ServerFate::Guest && !variant.guests[guest] {
                continue;
            }
            self.write_server(&mut out, spec, variant)?;
            out.push('\n');
        }
        Ok(out)
    }

    /// Everything but the keys and the servers.
    fn gateway_text(&self) -> String {
        let idle = IDLE.as_secs();
        format!(
            concat!(
                "[gateway]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nstate_dir = \
                 {:?}\nstate = \"embedded\"\ndrain = \"5s\"\n",
                "keep_alive = \"2s\"\nask_timeout = \"20s\"\nreload = \
                 {{ interval = \"200ms\" }}\n\n",
                "[limits]\nsession_idle = \"{}s\"\nreplay_time = \"{}s\"\n\n",
                "[defaults]\ntimeout = \"20s\"\nconnect_timeout = \"10s\"\nidle_stop = \"5s\"\n",
                "backoff = {{ min = \"50ms\", max = \"200ms\" }}\nbreaker = \
                 {{ failures = 20, open = \"300ms\" }}\n",
                "ping = {{ interval = \"5s\", timeout = \"10s\" }}\nmax_concurrency = 128\n\n"
            ),
            self.files.path().join("state").display().to_string(),
            idle,
            idle,
        )
    }

    fn write_server(
        &self,
        out: &mut String,
        spec: &ServerSpec,
        variant: &ConfigVariant,
    ) -> Result<()> {
        writeln!(out, "[servers.{}]", spec.name)?;
        match self
            .webs
            .borrow()
            .iter()
            .find(|(name, _, _)| *name == spec.name)
        {
            Some((_, port, _)) if spec.how == ServerCarrier::Tcp => {
                writeln!(out, "tcp = \"127.0.0.1:{port}\"")?
            }
            Some((_, port, _)) => {
                let scheme = if spec.how == ServerCarrier::Ws {
                    "ws"
                } else {
                    "http"
                };
                writeln!(out, "url = \"{scheme}://127.0.0.1:{port}/mcp\"")?;
            }
            None => {
                let file = self.files.path().join(format!("{}.json", spec.name));
                let args = json!(["mock", file, "--stdio"]);
                let variant = if spec.name == "replaced" {
                    variant.replaced
                } else {
                    0
                };
                let env = format!(
                    "{{ SOAK_RUN = {}, VARIANT = \"{variant}\" }}",
                    json!(self.mark())
                );
                writeln!(
                    out,
                    "command = {}\nargs = {args}\nenv = {env}",
                    json!(self.bin)
                )?;
            }
        }
        match (spec.name, spec.how) {
            ("replaced_web", _) => {
                writeln!(out, "headers = {{ X-Variant = \"{}\" }}", variant.replaced)?
            }
            ("tuned", _) => writeln!(out, "max_concurrency = {}", 100 + variant.tuned % 20)?,
            // In any minute there are at most eight attempts, and this one may take seconds to
            // come back.
            (_, how) if spec.fate == ServerFate::Mortal && !how.is_child() => {
                writeln!(out, "backoff = {{ min = \"100ms\", max = \"3s\" }}")?;
            }
            (_, ServerCarrier::Own) => writeln!(out, "share = \"session\"")?,
            (_, ServerCarrier::Each) => writeln!(out, "share = \"principal\"")?,
            _ => {}
        }
        Ok(())
    }
}

/// What a server offers: each server the same, under URIs of its own.
fn script(spec: &ServerSpec, plant: Option<&str>) -> serde_json::Value {
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let name = spec.name;
    let faults: Vec<_> = plant
        .map(|act| match act {
            "wrong-id" => json!({"on": "tools/call:echo", "after": 200, "times": 3,
                "do": "wrong_id"}),
            "result" => {
                json!({"on": "tools/call:echo", "after": 200, "times": 3, "do": "result",
                    "json": "{\"content\":[]}"})
            }
            other => json!({"on": "tools/call:echo", "after": 200, "times": 3, "do": other}),
        })
        .into_iter()
        .collect();
    let sse = match spec.how {
        ServerCarrier::Polled => {
            json!({"ids": true, "cut_after": 2, "retry_ms": 10, "prime": true})
        }
        _ => json!({}),
    };
    json!({
        "name": name,
        "revisions": [spec.revision],
        "tools": (["echo", "sleep", "elicit", "steps", "mock_counters"].map(tool)),
        "flows": {
            "steps": {
                "steps": [{"progress": [1, 3]}, {"wait_ms": 3}, {"progress": [2, 3]},
                    {"wait_ms": 3}, {"progress": [3, 3]}],
                "result": {"content": [{"type": "text", "text": "{arguments.nonce}"}]},
            },
            "say": {"result": {"messages": [{"role": "user",
                "content": {"type": "text", "text": "{arguments.nonce}"}}]}},
        },
        "templates": [{"uriTemplate": format!("soak://{name}/{{id}}"), "name": "item"}],
        "contents": {(format!("soak://{name}/{{id}}")): "{id}"},
        "prompts": [{"name": "say", "arguments": [{"name": "nonce", "required": true}]}],
        // A process that is not the gateway's child, and that ignores SIGTERM.
        "stdio": {"grandchild": name == "killed_6"},
        "http": {"answer": if spec.how == ServerCarrier::Polled { "sse" } else { "auto" },
            "sse": sse},
        "faults": faults,
    })
}
