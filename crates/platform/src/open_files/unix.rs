//! Open files on Unix: a soft limit, which a process may raise up to the hard one.
//!
//! Only Linux can set the limit of another process. Elsewhere, while more files are open than the
//! first limit allows, a program that is started gets the raised one.

use std::io;
use std::sync::OnceLock;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::process::{Child, Command};

use super::LIMIT_MAX;

/// macOS accepts no more than this, whatever its hard limit is (setrlimit(2)).
const OPEN_MAX: u64 = 10_240;
/// Limits of this process before they were raised.
static ORIGINAL: OnceLock<Rlimit> = OnceLock::new();
/// Held while the limit is lowered for a program.
static LOWERED: Mutex<()> = Mutex::new(());

/// Raises the limit of this process as far as it may.
pub fn raise_limit() {
    let before = getrlimit(Resource::Nofile);
    let Some(current) = before.current else {
        return;
    };
    for highest in [LIMIT_MAX, OPEN_MAX] {
        let raised = before
            .maximum
            .map_or(highest, |maximum| maximum.min(highest));
        if raised <= current {
            return;
        }
        if setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(raised),
                ..before
            },
        )
        .is_ok()
        {
            // Only the first call knows what the process was started with.
            let _ = ORIGINAL.set(before);
            return;
        }
    }
}

/// Returns the limit of this process. `None` if there is none.
pub fn limit() -> Option<u64> {
    // Meanwhile it may be lowered for a moment.
    let _raised = LOWERED.lock();
    getrlimit(Resource::Nofile).current
}

/// Returns the number of open files, or 0 if the system does not say.
pub fn open() -> u64 {
    let count = std::fs::read_dir("/dev/fd").map_or(0, Iterator::count);
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// True if an error says that no more files can be opened.
pub fn is_exhausted(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Starts a program with the limit that this process was started with.
///
/// A hook between fork and exec would need `unsafe`. So this process lowers its own limit for that
/// moment, if half of it is free for everything else that opens files meanwhile.
pub(crate) fn spawn(command: &mut Command) -> io::Result<Child> {
    let Some(original) = ORIGINAL.get() else {
        return command.spawn();
    };
    let _one_at_a_time = LOWERED.lock();
    let raised = getrlimit(Resource::Nofile);
    let open = open();
    let has_room = open > 0 && original.current.is_some_and(|limit| open <= limit / 2);
    if !has_room
        || setrlimit(
            Resource::Nofile,
            Rlimit {
                current: original.current,
                ..raised
            },
        )
        .is_err()
    {
        let child = command.spawn()?;
        set_limit_of(&child, *original);
        return Ok(child);
    }
    let child = command.spawn();
    // Cannot fail: the limit was the same before.
    let _ = setrlimit(Resource::Nofile, raised);
    child
}

/// Sets the limit of a program that was just started.
#[cfg(target_os = "linux")]
fn set_limit_of(child: &Child, limit: Rlimit) {
    if let Some(pid) = child
        .id()
        .and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()))
    {
        // It may have ended already.
        let _ = rustix::process::prlimit(Some(pid), Resource::Nofile, limit);
    }
}

#[cfg(not(target_os = "linux"))]
fn set_limit_of(_: &Child, _: Rlimit) {}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Stdio;

    use super::*;

    /// The limit that a program sees.
    async fn limit_of_child() -> u64 {
        let mut command = Command::new("sh");
        command
            .args(["-c", "sleep 0.2; ulimit -n"])
            .stdout(Stdio::piped());
        let child = spawn(&mut command).unwrap();
        let output = child.wait_with_output().await.unwrap();
        String::from_utf8(output.stdout)
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    }

    #[tokio::test]
    async fn programs_get_the_limit_from_before_it_was_raised() {
        let hard = getrlimit(Resource::Nofile).maximum;
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(100),
                maximum: hard,
            },
        )
        .unwrap();
        raise_limit();
        let raised = limit().unwrap();
        assert_eq!(raised, hard.map_or(LIMIT_MAX, |hard| hard.min(LIMIT_MAX)));
        assert_eq!(limit_of_child().await, 100);
        assert_eq!(limit(), Some(raised));
        // The second call changes neither.
        raise_limit();
        // More files than the first limit allows.
        let files: Vec<_> = (0..150)
            .map(|_| std::fs::File::open("/dev/null").unwrap())
            .collect();
        assert!(open() > 150);
        assert_eq!(limit_of_child().await, 100);
        assert_eq!(limit(), Some(raised));
        drop(files);
    }

    #[test]
    fn an_exhausted_limit_is_told_from_other_errors() {
        assert!(is_exhausted(&Errno::MFILE.into()) && is_exhausted(&Errno::NFILE.into()));
        assert!(!is_exhausted(&Errno::CONNABORTED.into()));
    }
}
