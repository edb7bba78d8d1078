//! Reaper: a second, tiny process that outlives the gateway by moments and ends its children.
//!
//! Owns the cleanup after a gateway that was killed (`kill -9`, out of memory). Does not stop
//! children while the gateway lives (`stdio`). Invariant: every process with the run's tag in its
//! environment is gone within two seconds of the gateway's end. Forks and new sessions do not
//! escape.
//!
//! A parent-death signal would reach only the direct child, and is tied to the thread that started
//! it. A pipe that ends with the gateway, and a tag that every descendant inherits, have neither
//! fault.

use parking_lot::Mutex;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use moongate_platform::{Platform, child_process};

/// Environment variable that tags every child of a run.
pub const CHILD_TAG_ENV: &str = "MOONGATE_RUN";

/// Gateway's side of the reaper.
pub struct Reaper {
    process: Mutex<Option<(Child, ChildStdin)>>,
    run: String,
}

impl Reaper {
    /// Creates a reaper without a process. Children are still tagged, but survive a `kill -9` of
    /// the gateway.
    pub fn disabled() -> Self {
        Reaper {
            process: Mutex::new(None),
            run: new_run(),
        }
    }

    /// Starts `program guard`.
    pub fn start(program: &Path) -> std::io::Result<Self> {
        let reaper = Reaper::disabled();
        reaper.ensure(program)?;
        Ok(reaper)
    }

    /// Starts `program guard` unless it runs.
    pub fn ensure(&self, program: &Path) -> std::io::Result<()> {
        let mut process = self.process.lock();
        // The reaper outlives reloads; a second one would not know the groups of the first.
        if process.is_some() || Platform::CURRENT.ends_children {
            return Ok(());
        }
        let mut command = Command::new(program);
        // Own process group: a Ctrl-C at the terminal must not reach the reaper before the gateway
        // has ended. Without the gateway's environment, which may hold secrets.
        command.args(["guard", &self.run]).env_clear();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = child_process::spawn_separately(&mut command)?;
        let input = child
            .stdin
            .take()
            .ok_or_else(|| std::io::Error::other("the guard has no input"))?;
        *process = Some((child, input));
        Ok(())
    }

    /// Returns the tag of a child, unique in this run.
    pub fn child_tag(&self, child: u64) -> String {
        format!("{}.{child}.", self.run)
    }

    /// Registers the process group of a child.
    pub fn register_group(&self, group: u32) {
        self.write_command(&format!("+{group}\n"));
    }

    /// Unregisters a process group that has ended.
    pub fn unregister_group(&self, group: u32) {
        self.write_command(&format!("-{group}\n"));
    }

    /// Stops the reaper after all children have ended.
    pub fn stop(&self) {
        if let Some((mut child, input)) = self.process.lock().take() {
            // The end of its input makes the reaper finish.
            drop(input);
            // Reaps the process. Its status says nothing.
            let _ = child.wait();
        }
    }

    fn write_command(&self, line: &str) {
        if let Some((_, input)) = self.process.lock().as_mut() {
            // A dead reaper must not fail a call: children are still stopped in the ordinary way.
            let _ = input.write_all(line.as_bytes());
        }
    }
}

fn new_run() -> String {
    let bytes: [u8; 8] = moongate_random::random_bytes();
    format!("{:016x}", u64::from_be_bytes(bytes))
}

/// Runs the reaper process. It reads groups until the gateway's end of the pipe closes, then ends
/// the remaining ones.
pub fn run_reaper(run: &str) {
    let mut groups = std::collections::BTreeSet::new();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Some((sign, group)) = line.split_at_checked(1) else {
            continue;
        };
        let Ok(group) = group.parse::<u32>() else {
            continue;
        };
        if sign == "+" {
            groups.insert(group)
        } else {
            groups.remove(&group)
        };
    }
    if !groups.is_empty() {
        groups
            .iter()
            .copied()
            .for_each(child_process::terminate_group);
        // Time to exit after SIGTERM, within the two seconds of the invariant.
        sleep_blocking(Duration::from_millis(500));
    }
    groups.into_iter().for_each(child_process::kill_group);
    // A process in its own session has left its group, but not its environment.
    kill_tagged(run);
    // Again, for processes that were being forked during the first scan.
    sleep_blocking(Duration::from_millis(50));
    kill_tagged(run);
}

/// Blocks the thread. The reaper has no runtime and nothing else to do.
#[allow(clippy::disallowed_methods)]
fn sleep_blocking(time: Duration) {
    std::thread::sleep(time);
}

/// Kills every process whose tag starts with `mark`, and returns their number.
pub fn kill_tagged(tag: &str) -> usize {
    child_process::kill_with_variable(&format!("{CHILD_TAG_ENV}={tag}"))
}
