//! Levels of the log, and words that were meant as a level.
//!
//! Owns the check of the words in a log filter. Does not parse filters (`telemetry::logs`).
//! Invariant: a filter without a level is refused, because a lone word that isn't a level names a
//! module and switches all other logs off.

use moongate_search::nearest;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Words that other programs use for a level, with ours.
const SYNONYMS: [(&str, &str); 25] = [
    ("warning", "warn"),
    ("warnings", "warn"),
    ("notice", "info"),
    ("information", "info"),
    ("informational", "info"),
    ("normal", "info"),
    ("default", "info"),
    ("verbose", "debug"),
    ("debugging", "debug"),
    ("fine", "debug"),
    ("all", "trace"),
    ("everything", "trace"),
    ("silly", "trace"),
    ("tracing", "trace"),
    ("finest", "trace"),
    ("none", "off"),
    ("no", "off"),
    ("disabled", "off"),
    ("silent", "off"),
    ("false", "off"),
    ("quiet", "error"),
    ("err", "error"),
    ("fatal", "error"),
    ("critical", "error"),
    ("emergency", "error"),
];

/// Finds the level that a part of the filter was probably meant as. `None` if all parts are valid.
pub(super) fn suggested_level(filter: &str) -> Option<&'static str> {
    parts(filter).find_map(|part| {
        let (word, lone) = match part.rsplit_once('=') {
            Some((_, level)) => (level.trim(), false),
            None => (part, true),
        };
        // A lone word may name a module, and one with these characters surely does.
        if is_level(word) || (lone && word.contains([':', '[', '/'])) {
            return None;
        }
        let synonym = SYNONYMS
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(word))
            .map(|(_, level)| *level);
        synonym.or_else(|| nearest(word, &LEVELS))
    })
}

/// True if a part of the filter sets a level.
pub(super) fn has_level(filter: &str) -> bool {
    parts(filter).any(|part| {
        is_level(
            part.rsplit_once('=')
                .map_or(part, |(_, level)| level.trim()),
        ) || is_own_module(part)
    })
}

/// True for a module of ours. It alone means its logs at every level.
fn is_own_module(part: &str) -> bool {
    part.strip_prefix("moongate")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::") || rest.starts_with('_'))
}

fn parts(filter: &str) -> impl Iterator<Item = &str> {
    filter
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

fn is_level(word: &str) -> bool {
    // The filter also accepts numbers, from 0 for `off` to 5 for `trace`.
    let number = matches!(word, "0" | "1" | "2" | "3" | "4" | "5");
    number || LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_no_levels_are_found() {
        for (filter, expected) in [
            ("verbose", "debug"),
            ("warning", "warn"),
            ("none", "off"),
            ("WARNING", "warn"),
            ("info,moongate=verbose", "debug"),
            ("inof", "info"),
            ("warning,moongate=debug", "warn"),
            ("fatal", "error"),
        ] {
            assert_eq!(suggested_level(filter), Some(expected), "{filter}");
        }
        for filter in [
            "info",
            "Info",
            "3",
            "info,moongate=debug",
            "off",
            "moongate::link=trace,warn",
            "info,hyper",
            "moongate",
        ] {
            assert_eq!(suggested_level(filter), None, "{filter}");
            assert!(has_level(filter), "{filter}");
        }
        for filter in ["hyper", "loud", "", ","] {
            assert!(!has_level(filter), "{filter}");
        }
    }
}
