//! Home of a user, with files of clients, for commands that read and write those.

use std::path::PathBuf;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

/// Key that the commands find in their environment.
pub(crate) const KEY: &str = "mg_a_key_that_is_long_enough_0123456789";

/// User's home, with a directory to work in.
pub(crate) struct UserHome {
    dir: TempDir,
}

/// Output of a command, and its exit code.
#[derive(Debug)]
pub(crate) struct RunOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl UserHome {
    pub(crate) fn new() -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        UserHome { dir }
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    pub(crate) fn write(&self, below: &str, text: &str) {
        std::fs::create_dir_all(self.path(below).parent().unwrap()).unwrap();
        std::fs::write(self.path(below), text).unwrap();
    }

    pub(crate) fn read(&self, below: &str) -> String {
        std::fs::read_to_string(self.path(below)).unwrap()
    }

    pub(crate) async fn run(&self, args: &[&str]) -> RunOutput {
        self.run_with(args, KEY, "").await
    }

    /// Runs a command with variables of its own.
    pub(crate) async fn run_in(&self, args: &[&str], variables: &[(&str, &str)]) -> RunOutput {
        self.spawn(args, variables, "").await
    }

    pub(crate) async fn run_with(&self, args: &[&str], key: &str, stdin: &str) -> RunOutput {
        let key = [("MOONGATE_KEY", key)];
        self.spawn(args, if key[0].1.is_empty() { &[] } else { &key }, stdin)
            .await
    }

    /// Starts a command that runs until it is dropped.
    pub(crate) fn start(&self, args: &[&str]) -> Child {
        let mut command = self.command(args, &[]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.kill_on_drop(true).spawn().unwrap()
    }

    fn command(&self, args: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_moongate"));
        command
            .args(args)
            .current_dir(self.path("work"))
            .env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
            .env("HOME", self.dir.path())
            .env("XDG_CONFIG_HOME", self.path(".config"));
        command.envs(variables.iter().copied());
        command
    }

    async fn spawn(&self, args: &[&str], variables: &[(&str, &str)], stdin: &str) -> RunOutput {
        let mut command = self.command(args, variables);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        // A command that reads nothing may have closed it.
        let _ = input.write_all(stdin.as_bytes()).await;
        drop(input);
        let output = crate::harness::within("the command ends", child.wait_with_output())
            .await
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        RunOutput {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}
