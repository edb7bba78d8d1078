//! Runs a process under callgrind, and tells callgrind where what is counted begins and ends.
//!
//! Owns the settings that make two runs count the same. Does not read what was counted. Invariant:
//! the process that is told is the one that was started, since valgrind keeps its process id.

use crate::callgrind::CostProfile;
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

/// How long callgrind may take to do what it is told.
const PATIENCE: Duration = Duration::from_secs(30);

/// Version of valgrind, or how to get one.
pub(crate) async fn version() -> Result<String> {
    let told = Command::new("valgrind").arg("--version").output().await;
    let told = told.context("valgrind is needed: apt-get install valgrind")?;
    Ok(String::from_utf8_lossy(&told.stdout).trim().to_owned())
}

/// The counters of one process.
pub(crate) struct CallCounter {
    files: TempDir,
    dumps: u32,
}

impl CallCounter {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            files: tempfile::tempdir()?,
            dumps: 0,
        })
    }

    /// The words that start a program under callgrind.
    pub(crate) fn wrapper(&self) -> Vec<String> {
        let path = std::env::var("PATH").unwrap_or_default();
        [
            // Nothing of the caller's environment, which may change what the allocator, tokio or
            // valgrind does.
            "env",
            "-i",
            &format!("PATH={path}"),
            // Workers that wake each other would be counted, and they do it when it suits them.
            "TOKIO_WORKER_THREADS=1",
            // What glibc does with a block that its thread does not keep depends on the blocks
            // around it.
            "GLIBC_TUNABLES=glibc.malloc.tcache_count=2000",
            "valgrind",
            "-q",
            "--tool=callgrind",
            "--trace-children=no",
            "--compress-strings=no",
            "--compress-pos=no",
            &format!("--callgrind-out-file={}", self.output().display()),
            &self.pipes(),
        ]
        .map(str::to_owned)
        .to_vec()
    }

    /// Sets all counters to zero.
    pub(crate) async fn zero(&self, pid: u32) -> Result<()> {
        self.tell(pid, "zero").await
    }

    /// Returns what was counted since then.
    pub(crate) async fn dump(&mut self, pid: u32) -> Result<CostProfile> {
        self.tell(pid, "dump").await?;
        self.dumps += 1;
        let file = self.output().with_extension(self.dumps.to_string());
        let dump = std::fs::read_to_string(&file)
            .with_context(|| format!("callgrind wrote no {}", file.display()))?;
        std::fs::remove_file(file)?;
        CostProfile::parse(&dump)
    }

    async fn tell(&self, pid: u32, what: &str) -> Result<()> {
        let mut command = Command::new("vgdb");
        command
            .arg(self.pipes())
            .arg(format!("--pid={pid}"))
            .arg(what)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let told = timeout(PATIENCE, command.output()).await;
        let told = told
            .context("callgrind does not hear")?
            .context("cannot run vgdb, which valgrind brings")?;
        ensure!(
            told.status.success(),
            "callgrind did not {what}: {}",
            String::from_utf8_lossy(&told.stderr).trim()
        );
        Ok(())
    }

    fn output(&self) -> PathBuf {
        self.files.path().join("dump")
    }

    /// Where valgrind and vgdb meet.
    fn pipes(&self) -> String {
        format!("--vgdb-prefix={}", self.files.path().join("vgdb").display())
    }
}
