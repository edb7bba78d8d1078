//! Eras of MCP, and the revisions of each.
//!
//! Owns the list of supported revisions. Does not negotiate one (`negotiate.rs`). Invariant: a
//! revision has one era.

use http::HeaderName;

use crate::{legacy, v2026_07_28};

/// Era of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// Era with a handshake, and mostly with sessions.
    Legacy,
    /// Era without a handshake. Each request carries its revision and the client's capabilities.
    Modern,
}

impl Era {
    /// Returns the other era.
    pub fn other(self) -> Self {
        match self {
            Era::Legacy => Era::Modern,
            Era::Modern => Era::Legacy,
        }
    }
}

/// Revisions supported on both sides, oldest first. A new one is a line here and a row or folder
/// below.
pub const SUPPORTED: [&str; 5] = [
    legacy::PROFILES[0].name,
    legacy::PROFILES[1].name,
    legacy::PROFILES[2].name,
    legacy::PROFILES[3].name,
    v2026_07_28::REVISION,
];

/// Newest revision of the legacy era.
pub const NEWEST_LEGACY: &str = legacy::PROFILES[3].name;

/// Header that carries the revision of a request over HTTP, in both eras.
pub(super) const VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// Returns the revision of this name if it is supported.
pub fn supported_revision(name: &str) -> Option<&'static str> {
    SUPPORTED.into_iter().find(|known| *known == name)
}

/// Returns the era of one of [`SUPPORTED`].
pub fn era_of(revision: &str) -> Era {
    if revision == v2026_07_28::REVISION {
        Era::Modern
    } else {
        Era::Legacy
    }
}
