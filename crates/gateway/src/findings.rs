//! Findings about a catalogue, for its operator: unexpected names, patterns, schemas and
//! definitions.
//!
//! Owns their form in the log and in the status. Does not look for them (`names.rs`,
//! `unmatched_rules.rs`, `schemas.rs`). Invariant: the log has each finding at most once for as
//! long as it holds.

use std::collections::HashSet;

use moongate_telemetry::logs;

/// Maximum number of findings of one topic that are logged at once. The status shows them all.
const LOGGED_MAX: usize = 20;

/// Finding about the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CatalogFinding {
    /// Server that it is about. `None`: a view or a key.
    pub server: Option<String>,
    /// Topic of the finding.
    pub topic: FindingTopic,
    /// Sentence for the operator.
    pub text: String,
}

/// Topic of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FindingTopic {
    /// Name that was truncated, collides, or was given by the config.
    Name,
    /// Pattern or name in the config that matches nothing.
    Filter,
    /// Input schema that model APIs refuse.
    Schema,
    /// Item that is listed in another form, since SDKs of clients refuse the server's.
    Mended,
}

impl FindingTopic {
    /// List of every topic.
    pub const ALL: [FindingTopic; 4] = [
        FindingTopic::Name,
        FindingTopic::Filter,
        FindingTopic::Schema,
        FindingTopic::Mended,
    ];

    /// Returns the topic's name in the status.
    pub fn name(self) -> &'static str {
        match self {
            FindingTopic::Name => "names",
            FindingTopic::Filter => "unmatched_filters",
            FindingTopic::Schema => "schemas",
            FindingTopic::Mended => "mended",
        }
    }
}

/// Logs the findings that were not known before.
pub(super) fn log_new_findings(before: &[CatalogFinding], now: &[CatalogFinding]) {
    let known: HashSet<&CatalogFinding> = before.iter().collect();
    for topic in FindingTopic::ALL {
        let added = now
            .iter()
            .filter(|finding| finding.topic == topic && !known.contains(finding));
        for CatalogFinding { server, text, .. } in added.take(LOGGED_MAX) {
            let server = server.as_deref();
            let text = logs::one_line(text);
            match topic {
                FindingTopic::Name => tracing::info!(server, "name changed: {text}"),
                FindingTopic::Filter => tracing::warn!(server, "filter matches nothing: {text}"),
                FindingTopic::Schema => {
                    tracing::info!(server, "schema refused by model APIs: {text}")
                }
                FindingTopic::Mended => tracing::info!(server, "definition mended: {text}"),
            }
        }
    }
}
