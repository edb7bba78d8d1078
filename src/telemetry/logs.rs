//! Logs: one line an event on stderr, as text or JSON.

use std::sync::OnceLock;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

/// Changes what is logged; there is none where nothing was started.
static CHANGE: OnceLock<Box<dyn Fn(Targets) + Send + Sync>> = OnceLock::new();

/// Reads a filter: a level, or levels of modules, such as `info,moongate::link=debug`.
///
/// Fails with what is wrong with it.
pub fn filter(text: &str) -> Result<Targets, String> {
    text.parse().map_err(|e: tracing_subscriber::filter::ParseError| e.to_string())
}

/// Starts logging; a second call changes nothing.
pub fn start(text: &str, json: bool) {
    let (filter, handle) = reload::Layer::new(parse(text));
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_timer(Utc);
    let started = if json {
        registry.with(lines.json().flatten_event(true)).try_init()
    } else {
        registry.with(lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))).try_init()
    };
    if started.is_ok() {
        // It fails only where the log is gone, and then there is nothing to change.
        let _ = CHANGE.set(Box::new(move |filter| handle.reload(filter).unwrap_or_default()));
    }
}

/// Changes what is logged from now on.
pub fn change(text: &str) {
    if let Some(change) = CHANGE.get() {
        change(parse(text));
    }
}

fn parse(text: &str) -> Targets {
    filter(text).unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO))
}

/// RFC 3339, in UTC, to the millisecond.
struct Utc;

impl FormatTime for Utc {
    fn format_time(&self, w: &mut tracing_subscriber::fmt::format::Writer<'_>) -> std::fmt::Result {
        write!(w, "{:.3}", jiff::Timestamp::now())
    }
}

/// A piece of what a peer sent, fit for a log: short, printable, without what looks like a secret.
pub fn sample(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(&bytes[..bytes.len().min(200)])
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    redact(&text)
}

/// Text of a peer's, fit to stand in one line of a log.
pub fn one_line(text: &str) -> String {
    text.chars().take(1000).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Hides the value of anything that looks like a credential.
pub fn redact(text: &str) -> String {
    const MARKS: [&str; 7] = ["bearer ", "token", "secret", "password", "api_key", "apikey", "authorization"];
    // A URL with a password in it: only the scheme is shown.
    let has_password = |after: &str| {
        let authority = after.split(['/', ' ', '\'', '"']).next().unwrap_or_default();
        authority.split_once('@').is_some_and(|(user, _)| user.contains(':'))
    };
    if let Some((before, after)) = text.split_once("://")
        && has_password(after)
    {
        return format!("{before}://[redacted]");
    }
    let lower = text.to_ascii_lowercase();
    // Cut at the first mark: a shorter log line is better than a leaked key.
    match MARKS.iter().filter_map(|mark| lower.find(mark).map(|at| at + mark.len())).min() {
        Some(at) if text.is_char_boundary(at) => format!("{}[redacted]", &text[..at]),
        Some(_) => "[redacted]".to_owned(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod filter_tests {
    use super::filter;
    use tracing::Level;

    #[test]
    fn levels_of_modules_are_read() {
        let read = filter("warn,moongate::link=debug").unwrap();
        assert!(read.would_enable("moongate::link::stdio", &Level::DEBUG));
        assert!(read.would_enable("hyper", &Level::WARN) && !read.would_enable("hyper", &Level::INFO));
        assert!(filter("moongate=loud").is_err());
    }
}
