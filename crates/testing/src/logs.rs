//! Log lines that a test reads.
//!
//! Owns the subscriber of one thread. Does not format for people. Invariant: only lines of this
//! project are captured.

use parking_lot::Mutex;
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Lines that this thread logs until this is dropped: level, target, message, fields.
pub struct Captured {
    lines: Lines,
    _guard: tracing::subscriber::DefaultGuard,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

/// Captures what this thread logs, at any level.
pub fn capture() -> Captured {
    let lines = Lines::default();
    let guard =
        tracing::subscriber::set_default(tracing_subscriber::registry().with(lines.clone()));
    Captured {
        lines,
        _guard: guard,
    }
}

impl Captured {
    /// Returns the lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.0.lock().clone()
    }
}

impl<S: tracing::Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if !event.metadata().target().starts_with("moongate") {
            return;
        }
        let mut text = format!("{} {}", event.metadata().level(), event.metadata().target());
        event.record(&mut Fields(&mut text));
        self.0.lock().push(text);
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
