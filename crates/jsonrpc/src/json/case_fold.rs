//! Member names that differ only by case.
//!
//! Owns the case folding. Does not know which names matter. Invariant: it folds exactly what Go's
//! `encoding/json` folds: ASCII case, U+017F and U+212A.

use crate::json::{ByteString, JsonObject};

/// True if a reader that ignores case takes the key for this name, although the bytes differ.
pub(crate) fn is_lookalike(key: &[u8], name: &str) -> bool {
    // The two non-ASCII characters are longer in UTF-8 than the letters that they fold to.
    match key.len().checked_sub(name.len()) {
        None => false,
        Some(0) => key != name.as_bytes() && key.eq_ignore_ascii_case(name.as_bytes()),
        Some(_) if key.is_ascii() => false,
        Some(_) => std::str::from_utf8(key)
            .is_ok_and(|key| key.chars().map(fold_case).eq(name.chars().map(fold_case))),
    }
}

/// True if the key is a lookalike of one of these names, which differ by more than case.
fn resembles_any(key: &[u8], names: &[&str]) -> bool {
    // Every member of every call passes here. Nearly all have one of the names, and so resemble
    // none of the others.
    if names.iter().any(|name| key == name.as_bytes()) {
        return false;
    }
    // A key in ASCII resembles only names of its own length.
    let is_ascii = key.is_ascii();
    names
        .iter()
        .any(|name| (!is_ascii || key.len() == name.len()) && is_lookalike(key, name))
}

fn fold_case(c: char) -> char {
    match c {
        // Latin small letter long s, and the Kelvin sign.
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    }
}

impl JsonObject {
    /// Returns the first member that only some readers take for one of these names.
    pub fn lookalike(&self, names: &[&str]) -> Option<&ByteString> {
        self.entries
            .iter()
            .map(|(key, _)| key)
            .find(|key| resembles_any(&key.0, names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_spellings_are_seen() {
        for (key, name) in [
            ("Name", "name"),
            ("NAME", "name"),
            ("taskid", "taskId"),
            ("ta\u{17f}kId", "taskId"),
            ("tas\u{212a}id", "taskId"),
            ("param\u{17f}", "params"),
            ("Request\u{17f}tate", "requestState"),
            ("ta\u{17f}\u{212a}", "task"),
            ("\u{17f}tate", "state"),
        ] {
            assert!(
                is_lookalike(key.as_bytes(), name) && resembles_any(key.as_bytes(), &["x", name]),
                "{key}"
            );
        }
        for (key, name) in [
            ("name", "name"),
            ("names", "name"),
            ("nam", "name"),
            ("n\u{e4}me", "name"),
            ("\u{212b}", "a"),
            ("na\u{17f}", "name"),
            ("", "name"),
        ] {
            assert!(
                !is_lookalike(key.as_bytes(), name) && !resembles_any(key.as_bytes(), &["x", name]),
                "{key}"
            );
        }
    }
}
