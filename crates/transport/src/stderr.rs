//! Standard error of a child process: recent lines, logging and the likely reason of a failure.
//!
//! Owns the last lines and the log level of each. Does not start the child (`stdio`). Invariant: a
//! child never blocks on its stderr, and lines that are held back are logged within
//! [`PROBE_HOLD_TIME`].

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::ProbeState;
use moongate_telemetry::logs;
use moongate_telemetry::plain_text::readable_line;

/// Limit of lines in memory.
const LINES_MAX: usize = 50;
/// Limit of one line, in bytes; longer lines are split.
const LINE_MAX: usize = 500;
/// Limit of lines logged in one second.
const LOG_RATE_MAX: u32 = 50;
/// Longest time that a line is held back while a probe has no answer.
const PROBE_HOLD_TIME: Duration = Duration::from_secs(1);
/// Limit of lines that are held back.
const HELD_LINES_MAX: usize = 256;
/// Time after a refused probe in which lines may still be about it. The stdout and stderr of a
/// child are not in step.
const PROBE_ECHO_TIME: Duration = Duration::from_millis(500);
/// Longest wait for the end of the stream after the child exits. Grandchildren may hold it open.
const EXIT_READ_TIME: Duration = Duration::from_millis(200);

/// Last lines that a child wrote to its stderr.
#[derive(Clone, Default)]
pub struct StderrTail(Arc<TailState>);

#[derive(Default)]
struct TailState {
    lines: Mutex<VecDeque<String>>,
    probe: watch::Sender<ProbeState>,
    /// True once the stream of the last process has ended.
    ended: watch::Sender<bool>,
}

impl StderrTail {
    /// Returns the stored lines, oldest first.
    pub fn lines(&self) -> Vec<String> {
        self.0.lines.lock().iter().cloned().collect()
    }

    /// Returns the line that most likely explains the exit of a child.
    pub async fn likely_exit_reason(&self) -> Option<String> {
        let mut ended = self.0.ended.subscribe();
        let _ = tokio::time::timeout(EXIT_READ_TIME, ended.wait_for(|ended| *ended)).await;
        self.likely_error()
    }

    /// Returns the line that most likely explains what is wrong with a running child.
    pub fn likely_error(&self) -> Option<String> {
        likely_reason(&self.lines()).map(str::to_owned)
    }

    /// Records the state of a probe.
    pub(super) fn set_probe_state(&self, probe: ProbeState) {
        self.0.probe.send_replace(probe);
    }

    /// Reads until the stream ends.
    pub(super) async fn drain(self, server: String, stderr: impl AsyncRead + Unpin) {
        let mut log = StderrLog {
            server,
            held: VecDeque::new(),
            suppressed_until: None,
            second: Instant::now(),
            logged: 0,
        };
        let mut reader = BufReader::new(stderr);
        let mut line = Vec::new();
        // Another process may have written here before.
        self.0.ended.send_replace(false);
        let mut probe = self.0.probe.subscribe();
        loop {
            let due = log.held.front().map(|(due, _)| *due);
            tokio::select! {
                // Input first: lines written before an answer must be held by the time that answer
                // is known.
                biased;
                // An endless line is taken in pieces. If this future is dropped, the bytes read so
                // far stay in `line`.
                read = take_line(&mut reader, &mut line) => {
                    if !read {
                        break;
                    }
                    let text = readable_line(String::from_utf8_lossy(&line).trim_end());
                    line.clear();
                    // The current state of the probe applies to this line, too.
                    if probe.has_changed().unwrap_or(false) {
                        log.on_probe(*probe.borrow_and_update(), Instant::now());
                    }
                    log.on_line(*probe.borrow(), &text, Instant::now());
                    self.push(text);
                }
                // The held lines are released as soon as the result of the probe is known.
                Ok(()) = probe.changed() => log.on_probe(*probe.borrow_and_update(),
                    Instant::now()),
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)),
                    if due.is_some() => {
                    log.release(Instant::now());
                }
            }
        }
        // The stream has ended: held lines have no probe to wait for.
        log.on_probe(ProbeState::Settled, Instant::now());
        self.0.ended.send_replace(true);
    }

    /// Appends a line. The oldest makes room.
    pub fn push(&self, line: String) {
        let mut lines = self.0.lines.lock();
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

/// Reads a line or a piece of one. False at the end of the stream.
async fn take_line(reader: &mut (impl AsyncBufReadExt + Unpin), line: &mut Vec<u8>) -> bool {
    let left = LINE_MAX.saturating_sub(line.len());
    // The piece is as long as a line may be, and is taken as one.
    if left == 0 {
        return true;
    }
    let read = reader.take(left as u64).read_until(b'\n', line).await;
    read.is_ok() && !line.is_empty()
}

/// Rate-limited log of the lines.
struct StderrLog {
    server: String,
    /// Lines that may be about a probe, each with the time at which it is logged anyway.
    held: VecDeque<(Instant, String)>,
    /// End of the time in which lines are attributed to a refused probe.
    suppressed_until: Option<Instant>,
    second: Instant,
    logged: u32,
}

impl StderrLog {
    fn on_line(&mut self, probe: ProbeState, line: &str, now: Instant) {
        if self.suppressed_until.is_some_and(|until| now < until) {
            self.write_debug(line);
        } else if probe == ProbeState::Sent {
            if self.held.len() == HELD_LINES_MAX
                && let Some((_, oldest)) = self.held.pop_front()
            {
                self.write_warning(&oldest, now);
            }
            self.held
                .push_back((now + PROBE_HOLD_TIME, line.to_owned()));
        } else {
            self.write_warning(line, now);
        }
    }

    fn on_probe(&mut self, probe: ProbeState, now: Instant) {
        if probe == ProbeState::Sent {
            return;
        }
        for (_, line) in std::mem::take(&mut self.held) {
            match probe {
                ProbeState::Refused => self.write_debug(&line),
                _ => self.write_warning(&line, now),
            }
        }
        self.suppressed_until = (probe == ProbeState::Refused).then_some(now + PROBE_ECHO_TIME);
    }

    fn release(&mut self, now: Instant) {
        while let Some((_, line)) = self.held.pop_front_if(|(due, _)| *due <= now) {
            self.write_warning(&line, now);
        }
    }

    fn write_warning(&mut self, line: &str, now: Instant) {
        if now.saturating_duration_since(self.second) >= Duration::from_secs(1) {
            // A new second starts with a new allowance.
            (self.second, self.logged) = (now, 0);
        }
        self.logged += 1;
        let server = &self.server;
        if self.logged <= LOG_RATE_MAX {
            tracing::info!(target: "moongate::stderr", server, "{}", logs::redact(line));
        } else if self.logged == LOG_RATE_MAX + 1 {
            tracing::info!(target: "moongate::stderr", server, "more lines in this second are not \
                logged");
        }
    }

    fn write_debug(&self, line: &str) {
        tracing::debug!(target: "moongate::stderr", server = self.server, "{}", logs::redact(line));
    }
}

// === likely reason ===

/// Phrases with which programs report errors.
const SAYS_ERROR: [&str; 26] = [
    "error",
    "exception",
    "fatal",
    "panicked",
    "cannot ",
    "can't ",
    "could not",
    "couldn't",
    "unable to",
    "failed",
    "failure",
    "not found",
    "no such",
    "not in this registry",
    "does not exist",
    "missing",
    "required",
    "must be",
    "please set",
    "please provide",
    "not set",
    "invalid",
    "denied",
    "refused",
    "unsupported",
    "no solution",
];

/// Phrases of lines that follow the reason and do not explain it.
const NOISE: [&str; 9] = [
    "a complete log of this run",
    "debug-0.log",
    "npm notice",
    "node.js v",
    "note: run with `rust_backtrace",
    "note that you can also install from",
    "use `node --trace-",
    "requirestack",
    "during handling of the above exception",
];

/// Returns the line that most likely explains a failure: the last with an error in it, else the
/// last with any text.
fn likely_reason(lines: &[String]) -> Option<&str> {
    let mut lines = lines
        .iter()
        .rev()
        .map(|line| line.trim())
        .filter(|line| says_something(line));
    lines
        .clone()
        .find(|line| says_error(line))
        .or_else(|| lines.next())
}

/// Returns true for a line with text that is neither noise nor a stack frame.
fn says_something(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    let noise = NOISE.iter().any(|noise| lower.contains(noise));
    // Stack frames and closing brackets explain nothing.
    let frame = ["at ", "file \"", "code:", "errno:", "syscall:", "throw "]
        .iter()
        .any(|f| lower.starts_with(f));
    !noise && !frame && line.chars().any(char::is_alphanumeric)
}

fn says_error(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    // npm starts every line of a paragraph with the word "error".
    let message = ["npm error", "npm err!"]
        .iter()
        .find_map(|npm| lower.strip_prefix(npm))
        .unwrap_or(&lower);
    SAYS_ERROR.iter().any(|mark| message.contains(mark))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use moongate_testing::logs::{Captured, capture};

    fn of(text: &str) -> Option<String> {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        likely_reason(&lines).map(str::to_owned)
    }

    #[test]
    fn the_last_line_with_an_error_in_it_tells_why() {
        let node = "node:internal/modules/cjs/loader:1228\n  throw err;\n  ^\n\nError: Cannot find \
                    module '/x/y.js'\n    at Module._resolve (node:internal:1)\n  code: \
                    'MODULE_NOT_FOUND',\n  requireStack: []\n}\n\nNode.js v22.23.3";
        assert_eq!(of(node).unwrap(), "Error: Cannot find module '/x/y.js'");
        let npm = "npm error code E404\nnpm error 404 Not Found - GET \
                   https://npm.example.com/@x%2fy - Not found\nnpm error 404\nnpm error 404  \
                   '@x/y@*' is not in this registry.\nnpm error 404\nnpm error 404 Note that you \
                   can also install from a\nnpm error 404 tarball, folder, http url, or git \
                   folder.\nnpm error A complete log of this run can be found in: \
                   /home/me/.npm/_logs/2026-debug-0.log";
        assert_eq!(
            of(npm).unwrap(),
            "npm error 404  '@x/y@*' is not in this registry."
        );
        let python = "Traceback (most recent call last):\n  File \"/x/y.py\", line 1, in \
                      <module>\n    import z\nModuleNotFoundError: No module named 'z'";
        assert_eq!(
            of(python).unwrap(),
            "ModuleNotFoundError: No module named 'z'"
        );
        let said =
            "Please set SLACK_BOT_TOKEN and SLACK_TEAM_ID environment variables\nNode.js v22.23.3";
        assert_eq!(of(said).unwrap(), said.lines().next().unwrap());
        assert_eq!(
            of("starting\nusage: x --port N\n\n").unwrap(),
            "usage: x --port N",
            "without an error, the last"
        );
        assert_eq!(of("Node.js v22.23.3\n}"), None);
    }

    struct StderrChild {
        stderr: tokio::io::DuplexStream,
        tail: StderrTail,
        logged: Captured,
        draining: tokio::task::JoinHandle<()>,
    }

    fn child() -> StderrChild {
        let (stderr, ours) = tokio::io::duplex(64 * 1024);
        let tail = StderrTail::default();
        let logged = capture();
        let draining = tokio::spawn(tail.clone().drain("x".to_owned(), ours));
        StderrChild {
            stderr,
            tail,
            logged,
            draining,
        }
    }

    impl StderrChild {
        async fn write(&mut self, text: &str) {
            self.stderr.write_all(text.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn stderr_after_a_refused_probe_is_logged_at_debug() {
        let mut child = child();
        child.tail.set_probe_state(ProbeState::Sent);
        child
            .write("Failed to validate request: 51 validation errors\n")
            .await;
        assert_eq!(
            child.logged.lines(),
            [] as [&str; 0],
            "nobody knows yet what it is about"
        );
        child.tail.set_probe_state(ProbeState::Refused);
        child.write("of which this is the last\n").await;
        tokio::time::sleep(PROBE_ECHO_TIME).await;
        child.write("something of its own\n").await;
        let lines = child.logged.lines();
        assert!(
            lines[0].starts_with("DEBUG") && lines[0].contains("Failed to validate"),
            "{lines:?}"
        );
        assert!(
            lines[1].starts_with("DEBUG") && lines[1].contains("the last"),
            "{lines:?}"
        );
        assert!(
            lines[2].starts_with("INFO") && lines[2].contains("its own") && lines.len() == 3,
            "{lines:?}"
        );
        assert_eq!(child.tail.lines().len(), 3, "all are kept");
    }

    #[tokio::test(start_paused = true)]
    async fn stderr_without_a_response_is_logged_soon() {
        let mut child = child();
        child.tail.set_probe_state(ProbeState::Sent);
        child
            .write("Open this page to log in: https://example.com\n")
            .await;
        tokio::time::sleep(PROBE_HOLD_TIME).await;
        assert!(
            child.logged.lines()[0].starts_with("INFO"),
            "{:?}",
            child.logged.lines()
        );
        child.write("Error: no login\nNode.js v22").await;
        drop(child.stderr);
        child.draining.await.unwrap();
        let lines = child.logged.lines();
        assert!(
            lines[1].contains("no login") && lines[1].starts_with("INFO"),
            "its end is news: {lines:?}"
        );
        assert_eq!(
            child.tail.likely_exit_reason().await.unwrap(),
            "Error: no login"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_without_end_is_taken_in_pieces_and_few_are_logged_in_a_second() {
        let mut child = child();
        child.write(&"a".repeat(LINE_MAX + 10)).await;
        assert_eq!(child.tail.lines(), ["a".repeat(LINE_MAX)]);
        child.write("\n").await;
        assert_eq!(child.tail.lines()[1], "a".repeat(10));
        child.write(&"again\n".repeat(100)).await;
        let lines = child.logged.lines();
        assert_eq!(lines.len(), LOG_RATE_MAX as usize + 1, "{lines:?}");
        assert!(
            lines[LOG_RATE_MAX as usize].contains("not logged")
                && child.tail.lines().len() == LINES_MAX,
            "{lines:?}"
        );
    }
}
