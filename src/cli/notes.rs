//! Notes of a catalogue as lines for people. Owns their format below a table of servers.
//!
//! Does not find them (`gateway`). Invariant: each note is one line, whatever servers name their
//! items.

use std::fmt::Write as _;

use moongate_telemetry::logs;

/// Maximum number of notes of one kind that are printed for a server.
const SHOWN_MAX: usize = 20;

/// Notes of one kind about a server, or about views and keys.
pub(super) struct ServerNotes<'a> {
    pub(super) server: Option<&'a str>,
    pub(super) what: &'static str,
    pub(super) texts: Vec<&'a str>,
}

/// Returns the notes, a line each.
pub(super) fn lines<'a>(notes: impl Iterator<Item = ServerNotes<'a>>) -> String {
    let mut out = String::new();
    for ServerNotes {
        server,
        what,
        texts,
    } in notes
    {
        let place = server.map(|name| format!("{name}: ")).unwrap_or_default();
        for text in texts.iter().take(SHOWN_MAX) {
            // A write to a `String` does not fail.
            let _ = writeln!(out, "{place}{what}: {}", logs::one_line(text));
        }
        if let Some(more) = texts.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
            let _ = writeln!(
                out,
                "{place}{what}: {more} more; /api/v1/status has them all"
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_note_within_reason() {
        let many = vec!["x\ny"; SHOWN_MAX + 2];
        let notes = [
            ServerNotes {
                server: Some("a"),
                what: "left out",
                texts: many,
            },
            ServerNotes {
                server: None,
                what: "filter",
                texts: vec!["views.v.tools"],
            },
        ];
        let text = lines(notes.into_iter());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), SHOWN_MAX + 2);
        assert_eq!(lines[0], "a: left out: x y");
        assert_eq!(
            lines[SHOWN_MAX],
            "a: left out: 2 more; /api/v1/status has them all"
        );
        assert_eq!(lines[SHOWN_MAX + 1], "filter: views.v.tools");
    }
}
