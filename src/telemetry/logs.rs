//! Logs on stderr: one line an event, as text or JSON. Owns the filter, the format and the cleaning of peers' text.
//!
//! Does not decide what is logged. Invariant: text of a peer stays within one line.

use std::sync::OnceLock;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

pub use crate::telemetry::redact::redact;

/// Setter of the log filter. Empty until logging has started.
static CHANGE: OnceLock<Box<dyn Fn(Targets) + Send + Sync>> = OnceLock::new();

/// Parses a filter: a level, or levels of modules, such as `info,moongate::link=debug`.
///
/// Returns the parser's message if the filter is wrong.
pub fn filter(text: &str) -> Result<Targets, String> {
    text.parse().map_err(|e: tracing_subscriber::filter::ParseError| e.to_string())
}

/// Starts logging. A second call changes nothing.
pub fn start(text: &str, json: bool) {
    let (filter, handle) = reload::Layer::new(parse(text));
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_timer(UtcTime);
    let started = if json {
        registry.with(lines.json().flatten_event(true)).try_init()
    } else {
        // Colours only on a terminal: escape codes in a file disturb a search.
        registry.with(lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))).try_init()
    };
    if started.is_ok() {
        // Fails only once the log is gone, and then there is nothing to change.
        let _ = CHANGE.set(Box::new(move |filter| handle.reload(filter).unwrap_or_default()));
    }
}

/// Changes the filter from now on.
pub fn change(text: &str) {
    if let Some(change) = CHANGE.get() {
        change(parse(text));
    }
}

fn parse(text: &str) -> Targets {
    // An unusable filter was reported when the config was checked. Logging must work all the same.
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
    let text: String = String::from_utf8_lossy(&bytes[..bytes.len().min(200)])
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    redact(&text)
}

/// Returns a peer's text without control characters, cut to 1000 characters.
pub fn one_line(text: &str) -> String {
    text.chars().take(1000).map(|c| if c.is_control() { ' ' } else { c }).collect()
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

/// Captured log lines, for tests.
#[cfg(test)]
pub(crate) mod testing {
    use std::sync::{Arc, Mutex, PoisonError};

    use tracing::field::{Field, Visit};
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    /// Lines that this thread logs until this is dropped: level, target, message, fields.
    pub(crate) struct Captured {
        lines: Lines,
        _guard: tracing::subscriber::DefaultGuard,
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    /// Captures what this thread logs, at any level.
    pub(crate) fn capture() -> Captured {
        let lines = Lines::default();
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(lines.clone()));
        Captured { lines, _guard: guard }
    }

    impl Captured {
        /// Returns the lines so far.
        pub(crate) fn lines(&self) -> Vec<String> {
            self.lines.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
        }
    }

    impl<S: tracing::Subscriber> Layer<S> for Lines {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            if !event.metadata().target().starts_with("moongate") {
                return;
            }
            let mut text = format!("{} {}", event.metadata().level(), event.metadata().target());
            event.record(&mut Fields(&mut text));
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }
    }

    struct Fields<'a>(&'a mut String);

    impl Visit for Fields<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            if field.name() == "message" {
                self.0.push_str(&format!(" {value:?}"));
            } else {
                self.0.push_str(&format!(" {}={value:?}", field.name()));
            }
        }

        fn record_str(&mut self, field: &Field, value: &str) {
            self.0.push_str(&format!(" {}={value}", field.name()));
        }
    }
}
