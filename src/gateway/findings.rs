//! What an operator should hear of a catalogue: names, patterns and schemas that are not what somebody expects.
//!
//! Owns how that is told, in the log and in the status. Does not look for it (`names`, `filters`, `schemas`). Invariant:
//! the log tells each finding once for as long as it holds.

use std::collections::HashSet;

use crate::telemetry::logs;

/// Findings of one topic that are logged at once; the status shows them all.
const LOGGED_MAX: usize = 20;

/// One thing to know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CatalogFinding {
    /// The server that it is about; `None`: a view or a key.
    pub server: Option<String>,
    /// What it is about.
    pub topic: FindingTopic,
    /// A sentence.
    pub text: String,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FindingTopic {
    /// A name that was cut, collides, or was given by the config.
    Name,
    /// A pattern or a name in the config that matches nothing.
    Filter,
    /// An input schema that model APIs refuse.
    Schema,
}

impl FindingTopic {
    /// Every topic.
    pub const ALL: [FindingTopic; 3] = [FindingTopic::Name, FindingTopic::Filter, FindingTopic::Schema];

    /// The topic's name in the status.
    pub fn name(self) -> &'static str {
        match self {
            FindingTopic::Name => "names",
            FindingTopic::Filter => "unmatched_filters",
            FindingTopic::Schema => "schemas",
        }
    }
}

/// Logs what was not known before.
pub(super) fn log_new_findings(before: &[CatalogFinding], now: &[CatalogFinding]) {
    let known: HashSet<&CatalogFinding> = before.iter().collect();
    for topic in FindingTopic::ALL {
        let news = now.iter().filter(|finding| finding.topic == topic && !known.contains(finding));
        for CatalogFinding { server, text, .. } in news.take(LOGGED_MAX) {
            let (server, text) = (server.as_deref(), logs::one_line(text));
            match topic {
                FindingTopic::Name => tracing::info!(server, "name changed: {text}"),
                FindingTopic::Filter => tracing::warn!(server, "filter matches nothing: {text}"),
                FindingTopic::Schema => tracing::info!(server, "schema refused by model APIs: {text}"),
            }
        }
    }
}
