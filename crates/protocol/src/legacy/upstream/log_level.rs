//! Log level of a legacy server, which all its callers share.
//!
//! Owns the choice of the level. Does not send it (`own_requests.rs`). Invariant: within a session
//! the level is lowered, and never raised.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use moongate_model::{LogFilter, LogLevel};

/// Value above the highest level: no level was sent.
const UNSET: u8 = u8::MAX;

/// Log level of one connection.
pub(crate) struct ServerLogLevel {
    /// Lowest level sent to the server.
    sent: AtomicU8,
    /// True once a caller without a log level has called.
    has_undecided: AtomicBool,
}

impl Default for ServerLogLevel {
    fn default() -> Self {
        ServerLogLevel {
            sent: AtomicU8::new(UNSET),
            has_undecided: AtomicBool::new(false),
        }
    }
}

impl ServerLogLevel {
    /// Returns the level that the server needs for a caller, if any.
    ///
    /// Other callers may need more messages, and each caller's own filter drops what it did not
    /// request. A level set by one caller replaces the server's default for callers that set none.
    /// With both present, the server gets the default level or a lower one.
    pub(crate) fn needed(&self, filter: LogFilter) -> Option<LogLevel> {
        match filter {
            LogFilter::Nothing => None,
            LogFilter::ServerDecides => {
                // Read first: each call comes here, and a write would move the cache line between
                // cores.
                if !self.has_undecided.load(Ordering::Relaxed) {
                    self.has_undecided.store(true, Ordering::Relaxed);
                }
                // While no caller sets a level, the server's own default applies.
                (self.sent.load(Ordering::Relaxed) != UNSET).then_some(LogFilter::BY_DEFAULT)
            }
            LogFilter::AtLeast(_) if self.has_undecided.load(Ordering::Relaxed) => {
                Some(LogFilter::BY_DEFAULT)
            }
            LogFilter::AtLeast(level) => Some(level),
        }
    }

    /// Lowers the level. Returns false if the server has it already, or a lower one.
    pub(crate) fn lower(&self, level: LogLevel) -> bool {
        self.sent.fetch_min(level as u8, Ordering::Relaxed) > level as u8
    }

    /// Forgets the level: the session is new, or the server did not take it.
    pub(crate) fn reset(&self) {
        self.sent.store(UNSET, Ordering::Relaxed);
    }
}
