//! A gateway that runs as a program, for commands that ask it.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::time::timeout;

use super::{KEY, LONG, MOONGATE, RunOutput, command, end, run_in};

/// A running gateway.
pub(super) struct RunningGateway {
    pub(super) child: Child,
    pub(super) url: String,
    pub(super) admin: String,
    pub(super) dir: TempDir,
}

impl RunningGateway {
    pub(super) async fn start() -> Self {
        RunningGateway::start_with("").await
    }

    pub(super) async fn status(&self) -> serde_json::Value {
        let args = ["status", "--format", "json", "--admin", &self.admin];
        let status = run_in(self.dir.path(), &args).await;
        serde_json::from_str(&status.out).unwrap_or_else(|e| panic!("{e}: {}", status.err))
    }

    /// Starts it with more in its config.
    pub(super) async fn start_with(more: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let config = format!(
            "[gateway]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n[servers.std]\ncommand \
             = {MOONGATE:?}\n\
             args = [\"mock\"]\n[servers.off]\ncommand = \"nothing\"\nenabled = false\n\
             [[auth.keys]]\nname = \"test\"\nkey = {KEY:?}\n{more}"
        );
        std::fs::write(dir.path().join("moongate.toml"), config).unwrap();
        let mut child = command(&["serve"], dir.path()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut url = None;
        let mut admin = None;
        while url.is_none() || admin.is_none() {
            let line = timeout(LONG, lines.next_line())
                .await
                .unwrap()
                .unwrap()
                .expect("it says where it listens");
            let address = line
                .split_once("http://")
                .map(|(_, rest)| rest.split(' ').next().unwrap().to_owned());
            match address {
                Some(address) if line.contains("listening on") => {
                    url = Some(format!("http://{address}"))
                }
                Some(address) if line.contains("metrics") => admin = Some(address),
                _ => {}
            }
        }
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let gateway = RunningGateway {
            child,
            url: url.unwrap(),
            admin: admin.unwrap(),
            dir,
        };
        for _ in 0..200 {
            if gateway.run(&["tools"]).await.out.contains("std__echo") {
                return gateway;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the gateway never had its server's tools");
    }

    pub(super) async fn run(&self, args: &[&str]) -> RunOutput {
        let mut command = command(&[args, &["--url", &self.url]].concat(), self.dir.path());
        end(command.env("MOONGATE_KEY", KEY).spawn().unwrap()).await
    }

    /// The gauge of the allocator, if it has one.
    pub(super) async fn heap_bytes(&self) -> Option<f64> {
        let address = self.admin.split('/').next().unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request =
            format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut metrics = String::new();
        stream.read_to_string(&mut metrics).await.unwrap();
        assert!(metrics.contains("moongate_inflight"), "{metrics}");
        metrics
            .lines()
            .find_map(|line| line.strip_prefix("moongate_heap_bytes "))?
            .parse()
            .ok()
    }

    pub(super) async fn stop(mut self) {
        kill_process(pid_of(&self.child), Signal::TERM).unwrap();
        let status = timeout(LONG, self.child.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(0));
    }
}

pub(super) fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().unwrap().cast_signed()).unwrap()
}
