//! Logs on stderr: one line an event, as text or JSON. Owns the filter, the format and the cleaning
//! of peers' text.
//!
//! Does not decide what is logged. Invariant: text of a peer stays within one line, and hides
//! nothing in it.

use std::sync::OnceLock;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use crate::log_writer::CleanStderr;
use crate::plain_text::readable_line;
pub use crate::redact::{redact, redact_values};

/// Setter of the log filter. Empty until logging has started.
static CHANGE: OnceLock<Box<dyn Fn(Targets) + Send + Sync>> = OnceLock::new();

/// Modules in filters, and the crates that log for them, without the prefix `moongate_`.
///
/// Filters name modules of the gateway, whatever crate has them.
const MODULES: [(&str, &str); 22] = [
    ("access", "access"),
    ("admin", "admin"),
    ("auth", "access::auth"),
    ("config", "config"),
    ("front", "server"),
    ("gateway", "gateway"),
    ("http1", "http1"),
    ("jsonrpc", "jsonrpc"),
    ("link", "transport"),
    ("mock", "mock"),
    ("model", "model"),
    ("platform", "platform"),
    ("policy", "access::policy"),
    ("protocol", "protocol"),
    ("random", "random"),
    ("revision", "protocol"),
    ("server", "server"),
    ("session", "session"),
    ("store", "session::store"),
    ("telemetry", "telemetry"),
    ("transport", "transport"),
    ("upstream", "upstream"),
];

/// Parses a filter: a level, or levels of modules, such as `info,moongate::upstream=debug`.
///
/// Returns the parser's message if the filter is wrong.
pub fn filter(text: &str) -> Result<Targets, String> {
    let mut whole = text.to_owned();
    for part in text.split(',') {
        // The part itself stays: it may name a module of the program.
        if let Some(crate_part) = crate_of(part.trim()) {
            whole = format!("{whole},{crate_part}");
        }
    }
    whole
        .parse()
        .map_err(|e: tracing_subscriber::filter::ParseError| e.to_string())
}

/// Translates `moongate::upstream::pool=debug` to the crate that has the module.
fn crate_of(part: &str) -> Option<String> {
    let rest = part.strip_prefix("moongate::")?;
    let end = rest.find([':', '=', '[']).unwrap_or(rest.len());
    let (module, rest) = rest.split_at(end);
    MODULES
        .iter()
        .find(|(name, _)| *name == module)
        .map(|(_, crate_name)| format!("moongate_{crate_name}{rest}"))
}

/// Starts logging. A second call changes nothing.
pub fn start(text: &str, json: bool) {
    // The filter comes first in the registry. An event that it drops is never formatted.
    let (filter, handle) = reload::Layer::new(parse(text));
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(CleanStderr)
        .with_timer(UtcTime);
    let started = if json {
        registry.with(lines.json().flatten_event(true)).try_init()
    } else {
        // Colours only on a terminal: escape codes in a file disturb a search.
        registry
            .with(lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())))
            .try_init()
    };
    if started.is_ok() {
        // Fails only once the log is gone, and then there is nothing to change.
        let _ = CHANGE.set(Box::new(move |filter| {
            handle.reload(filter).unwrap_or_default()
        }));
    }
}

/// Changes the filter from now on.
pub fn change(text: &str) {
    if let Some(change) = CHANGE.get() {
        change(parse(text));
    }
}

fn parse(text: &str) -> Targets {
    // An unusable filter was reported when the config was checked. Logging must work anyway.
    filter(text).unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO))
}

/// Timestamp format: RFC 3339 in UTC, to the millisecond.
struct UtcTime;

impl FormatTime for UtcTime {
    fn format_time(&self, w: &mut tracing_subscriber::fmt::format::Writer<'_>) -> std::fmt::Result {
        write!(w, "{:.3}", jiff::Timestamp::now())
    }
}

/// Returns a sample of a peer's bytes for a log: short, printable, with credentials redacted.
pub fn sample(bytes: &[u8]) -> String {
    // Cut in bytes before the conversion, since a peer may send megabytes of garbage.
    redact(&readable_line(&String::from_utf8_lossy(
        &bytes[..bytes.len().min(200)],
    )))
}

/// Returns a peer's text in one line without what a reader cannot see, of at most 1000 characters.
pub fn one_line(text: &str) -> String {
    let end = text
        .char_indices()
        .nth(1000)
        .map_or(text.len(), |(end, _)| end);
    readable_line(&text[..end])
}

#[cfg(test)]
mod tests {
    use super::filter;
    use tracing::Level;

    #[test]
    fn levels_of_modules_are_read() {
        let read = filter("warn,moongate::link=debug").unwrap();
        assert!(read.would_enable("moongate_transport::stdio", &Level::DEBUG));
        assert!(
            read.would_enable("hyper", &Level::WARN) && !read.would_enable("hyper", &Level::INFO)
        );
        assert!(filter("moongate=loud").is_err());
        let read = filter("moongate=debug").unwrap();
        assert!(
            read.would_enable("moongate::cli", &Level::DEBUG)
                && read.would_enable("moongate_upstream", &Level::DEBUG)
        );
        let read = filter("warn,moongate::store::writer=trace,moongate::calls=off").unwrap();
        assert!(read.would_enable("moongate_session::store::writer", &Level::TRACE));
        assert!(!read.would_enable("moongate_session::store", &Level::INFO));
        assert!(!read.would_enable("moongate::calls", &Level::ERROR));
    }
}
