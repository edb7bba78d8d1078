//! What is fuzzed, and what must hold for any input. Each function takes bytes and panics where
//! something does not.
//!
//! The gateway's own tests include this file and run every function over its corpus
//! (`tests/it/fuzz_corpus.rs`), so that what was once found stays found.

mod http1;
mod text;
mod through;

pub use http1::{answers, requests};
pub use text::{config, envelope, names, sealed, sse, uris};
pub use through::{differential, headers, lines};

/// What is fuzzed: it panics where something does not hold.
pub type Target = fn(&[u8]);

/// All of them, by the name of their corpus.
pub const TARGETS: [(&str, Target); 11] = [
    ("config", config),
    ("differential", differential),
    ("envelope", envelope),
    ("headers", headers),
    ("http_answers", answers),
    ("http_requests", requests),
    ("lines", lines),
    ("names", names),
    ("sealed", sealed),
    ("sse", sse),
    ("uris", uris),
];
