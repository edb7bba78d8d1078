//! Rules of a server that match nothing: a note on its card, and the rules themselves on the open
//! one.
//!
//! Owns their words, and the list of findings that the card leaves to other places. Does not find
//! them (`moongate_gateway`). Invariant: a closed card shows that there is one, because a
//! misspelled rule has no other visible effect.

use maud::{Markup, html};
use moongate_api::{ItemState, ServerFindings, ServerStatus};

use super::config_location::entry_location;
use super::icons::StateIcon;
use super::text::{VisibleText, count};

/// Renders the note of a closed card.
pub(super) fn closed_note(server: &ServerStatus) -> Markup {
    // Without `..`, as in `servers.rs`: a new kind of finding needs a place before it compiles.
    let ServerFindings {
        unmatched_filters: rules,
        // The tab of the tools lists them.
        left_out: _,
        mended: _,
        // `moongate status` shows both, and `moongate doctor` the names.
        names: _,
        schemas: _,
    } = &server.findings;
    html! {
        @if !rules.is_empty() {
            span class="orange" {
                " · " (count(rules.len() as u64, "rule matches", "rules match")) " nothing" } }
    }
}

/// Renders the rules, and what helps.
pub(super) fn details(server: &ServerStatus) -> Markup {
    let rules = &server.findings.unmatched_filters;
    html! {
        @if !rules.is_empty() {
            div class="note" {
                p class="outcome orange" {
                    (StateIcon::of_tool(ItemState::LeftOut).draw())
                    b { (count(rules.len() as u64, "rule matches", "rules match")) " nothing" }
                }
                ul { @for rule in rules { li { (VisibleText(rule)) } } }
                p class="soft" {
                    "Correct the name or remove the rule. A misspelled " code { "deny" } " \
                     protects nothing."
                    " Edit servers." (VisibleText(server.name()))
                    (entry_location(&server.source))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_api::EntrySource;

    #[test]
    fn a_rule_that_matches_nothing_is_told_on_both_cards() {
        let rules = [
            "servers.a.tools.deny: no tool matches \"<b>\"",
            "servers.a.tools.hide: no tool matches \"y\"",
        ];
        let mut server = ServerStatus::default();
        server.identity.name = "a".to_owned();
        server.findings.unmatched_filters = rules.map(str::to_owned).to_vec();
        server.source = EntrySource {
            file: Some("/etc/moongate.toml".to_owned()),
            line: Some(12),
            ..EntrySource::default()
        };
        assert!(
            closed_note(&server)
                .into_string()
                .contains(" · 2 rules match nothing")
        );
        let html = details(&server).into_string();
        for part in [
            "2 rules match nothing",
            "no tool matches &quot;&lt;b&gt;&quot;",
            "protects nothing",
            "moongate.toml:12",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
        server.findings.unmatched_filters.truncate(1);
        assert!(
            closed_note(&server)
                .into_string()
                .contains("1 rule matches nothing")
        );
        server.findings.unmatched_filters.clear();
        assert_eq!(closed_note(&server).into_string(), "");
        assert_eq!(details(&server).into_string(), "");
    }
}
