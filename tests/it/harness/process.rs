//! The program itself, and what it leaves behind.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::gateway::PROGRAM;
use super::{HttpClient, HttpReply, server_of, until, within};

/// A running gateway in a process of its own.
pub(crate) struct Process {
    /// `http://127.0.0.1:PORT`
    pub(crate) base: String,
    /// Where its files are.
    pub(crate) dir: TempDir,
    /// Key of an operator, which the requests to the admin listener carry.
    pub(crate) admin_key: Option<String>,
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Process {
    /// Starts the program with a config file.
    pub(crate) async fn of(config: &Path, dir: TempDir) -> Process {
        Process::start(config, dir, None).await
    }

    /// Starts it with a file of the authorities that it trusts, if not the system's.
    pub(super) async fn start(config: &Path, dir: TempDir, trusted: Option<&Path>) -> Process {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--config"]).arg(config);
        Process::run(command, dir, trusted).await
    }

    /// Starts it through a shell that first runs `first`.
    pub(super) async fn start_after(
        first: &str,
        config: &Path,
        dir: TempDir,
        trusted: Option<&Path>,
    ) -> Process {
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("{first} && exec \"$0\" serve --config \"$1\""))
            .arg(PROGRAM)
            .arg(config);
        Process::run(command, dir, trusted).await
    }

    /// Starts a command that starts the program.
    pub(crate) async fn run(mut command: Command, dir: TempDir, trusted: Option<&Path>) -> Process {
        command.envs(trusted.map(|file| ("SSL_CERT_FILE", file)));
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        tokio::spawn({
            let log = log.clone();
            async move {
                while let Ok(Some(line)) = lines.next_line().await {
                    *log.lock().unwrap() += &(line + "\n");
                }
            }
        });
        let base = until("the address is printed", || {
            let log = log.lock().unwrap().clone();
            let url = log
                .split_once("listening on ")
                .and_then(|(_, rest)| rest.split_once("/mcp"));
            std::future::ready(url.map(|(url, _)| url.to_owned()))
        });
        Process {
            base: base.await,
            dir,
            admin_key: None,
            child,
            log,
        }
    }

    /// The endpoint over everything.
    pub(crate) fn mcp(&self) -> String {
        format!("{}/mcp", self.base)
    }

    /// The URL of the admin listener. Waits for it, since it is printed after the address of the
    /// endpoint.
    pub(crate) async fn admin_url(&self) -> String {
        let url = until("the admin listener is there", || {
            let log = self.log();
            let line = log
                .split_once("metrics and health on ")
                .and_then(|(_, rest)| rest.split_once('\n'));
            std::future::ready(line.map(|(url, _)| url.trim().to_owned()))
        });
        url.await
    }

    /// A page of the admin listener.
    pub(crate) async fn admin(&self, path: &str) -> HttpReply {
        let key = self.admin_key.as_ref().map(|key| format!("Bearer {key}"));
        let headers: Vec<(&str, &str)> = key
            .iter()
            .map(|key| ("authorization", key.as_str()))
            .collect();
        HttpClient::new()
            .send(
                "GET",
                &format!("{}{path}", self.admin_url().await),
                &headers,
                "",
            )
            .await
    }

    /// What the status says of a server.
    pub(crate) async fn status(&self, server: &str) -> Value {
        server_of(&self.admin("/api/v1/status").await.json(), server)
    }

    /// What it wrote to stderr.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid().cast_signed()).unwrap(), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        within("the gateway ends", self.child.wait()).await.unwrap()
    }
}

/// Whether a process is there, and no zombie.
pub(crate) fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// The processes whose environment holds this text: what a test's servers are marked with.
pub(crate) fn marked(mark: &str) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let has = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        memchr::memmem::find(&environment, mark.as_bytes()).is_some()
    };
    pids.filter(has).collect()
}
