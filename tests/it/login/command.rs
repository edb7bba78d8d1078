//! Login commands, as a person runs them.
//!
//! Owns the process, its input and what it prints. Does not open addresses (`browser.rs`).
//! Invariant: the command has its own home, and a browser program that only records what it should
//! open.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinSet;

use super::issuer::Issuer;
use crate::harness::{Setup, until, within};

const PROGRAM: &str = env!("CARGO_BIN_EXE_moongate");
/// Browser program that records its arguments.
const XDG_OPEN: &str = "#!/bin/sh\nprintf '%s\\n' \"$@\" >> \"$HOME/opened\"\n";

/// Running command. It ends with this handle.
pub(super) struct RunningCommand {
    child: Child,
    input: Option<ChildStdin>,
    printed: Arc<Mutex<String>>,
    readers: JoinSet<()>,
}

/// Output of a command, both streams together, and its exit code.
#[derive(Debug)]
pub(super) struct CommandEnd {
    pub(super) code: Option<i32>,
    pub(super) printed: String,
}

impl RunningCommand {
    /// Starts a command on the config of a setup. Its input stays open.
    pub(super) fn start(setup: &Setup, args: &[&str]) -> Self {
        // Not written again: a gateway may be reading it.
        let config = setup.path("moongate.toml");
        if !config.exists() {
            setup.file();
        }
        let mut command = program(setup, args);
        command.arg("--config").arg(config);
        RunningCommand::spawn(command)
    }

    /// Starts a command without a config, and with these variables. It has the home of the others.
    pub(super) fn start_bare(setup: &Setup, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = program(setup, args);
        command.envs(variables.iter().copied());
        RunningCommand::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let printed = Arc::new(Mutex::new(String::new()));
        let mut readers = JoinSet::new();
        readers.spawn(collect(child.stdout.take().unwrap(), printed.clone()));
        readers.spawn(collect(child.stderr.take().unwrap(), printed.clone()));
        RunningCommand {
            input: child.stdin.take(),
            child,
            printed,
            readers,
        }
    }

    pub(super) fn printed(&self) -> String {
        self.printed.lock().clone()
    }

    /// Waits for the address that a person should open.
    pub(super) async fn address(&self, issuer: &Issuer) -> String {
        self.address_at(issuer.origin()).await
    }

    /// Waits for the address at an authorization server with this origin.
    pub(super) async fn address_at(&self, origin: &str) -> String {
        let start = format!("{origin}/authorize?");
        until("the address is printed", async || {
            let printed = self.printed();
            let whole = printed.rsplit_once('\n')?.0;
            let line = whole.lines().find(|line| line.contains(&start))?;
            Some(line.trim().to_owned())
        })
        .await
    }

    /// Types a line.
    pub(super) async fn paste(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        let line = format!("{line}\n");
        within("the line is taken", input.write_all(line.as_bytes()))
            .await
            .unwrap();
        input.flush().await.unwrap();
    }

    /// Waits until more is printed than this.
    pub(super) async fn says_more_than(&self, before: &str) -> String {
        until("more is printed", async || {
            let printed = self.printed();
            let more = printed.get(before.len()..)?;
            more.ends_with('\n').then(|| more.to_owned())
        })
        .await
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Kills it, and waits until nothing of it is left.
    pub(super) async fn stop(mut self) {
        // Fails if it has already exited, which is just as good.
        let _ = self.child.kill().await;
    }

    /// Closes its input and waits for its end.
    pub(super) async fn end_of_input(mut self) -> CommandEnd {
        self.input = None;
        self.ended().await
    }

    /// Waits for its end.
    pub(super) async fn ended(mut self) -> CommandEnd {
        let status = within("the command ends", self.child.wait()).await.unwrap();
        while self.readers.join_next().await.is_some() {}
        CommandEnd {
            code: status.code(),
            printed: self.printed(),
        }
    }
}

/// Lists the addresses that the browser program was given.
pub(super) fn opened(setup: &Setup) -> Vec<String> {
    let noted = std::fs::read_to_string(home_of(setup).join("opened")).unwrap_or_default();
    noted.lines().map(str::to_owned).collect()
}

/// Builds a command whose input and output are ours.
fn program(setup: &Setup, args: &[&str]) -> Command {
    let home = make_home(setup);
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(PROGRAM);
    command
        .args(args)
        .env_clear()
        .env("PATH", format!("{}:{path}", home.join("bin").display()))
        .env("HOME", &home)
        .current_dir(&home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

pub(super) fn home_of(setup: &Setup) -> PathBuf {
    setup.path("home")
}

fn make_home(setup: &Setup) -> PathBuf {
    let home = home_of(setup);
    std::fs::create_dir_all(home.join("bin")).unwrap();
    write_program(&home.join("bin/xdg-open"), XDG_OPEN);
    home
}

/// Writes a script that can be run.
pub(super) fn write_program(path: &Path, script: &str) {
    // Renamed into place: a file that is open for writing cannot be run.
    let unfinished = path.with_extension("unfinished");
    std::fs::write(&unfinished, script).unwrap();
    std::fs::set_permissions(&unfinished, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&unfinished, path).unwrap();
}

async fn collect(mut stream: impl AsyncRead + Unpin, printed: Arc<Mutex<String>>) {
    let mut part = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut part).await {
        *printed.lock() += &String::from_utf8_lossy(&part[..length]);
    }
}
