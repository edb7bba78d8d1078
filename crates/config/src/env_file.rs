//! Env files: variables, one `NAME=value` a line.
//!
//! Owns their format. Does not read or write files. Invariant: a shell, systemd and `parse` read
//! the same from what `line` writes.

use std::collections::BTreeMap;

/// Line of an env file that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvLineError {
    /// Number of the line, from 1.
    pub line: usize,
    /// Reason.
    pub why: &'static str,
}

/// Reads the text of an env file. Of two lines with one name, the later one counts.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, EnvLineError> {
    let mut variables = BTreeMap::new();
    for (at, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) =
            parse_assignment(line).map_err(|why| EnvLineError { line: at + 1, why })?;
        variables.insert(name.to_owned(), value);
    }
    Ok(variables)
}

fn parse_assignment(line: &str) -> Result<(&str, String), &'static str> {
    // People also source such a file in a shell.
    let assignment = line.strip_prefix("export ").map_or(line, str::trim_start);
    let (name, value) = assignment.split_once('=').ok_or("it has no `=`")?;
    if !is_name(name) {
        return Err("the text before `=` is not a variable name");
    }
    let value = unquoted(value.trim()).ok_or("its quotes do not match")?;
    Ok((name, value))
}

/// Returns the line of a variable, as a shell and systemd read it, too. `None` if a line cannot
/// hold it.
pub fn line(name: &str, value: &str) -> Option<String> {
    if !is_name(name) || value.chars().any(|c| c.is_control()) {
        return None;
    }
    let is_plain = value
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c));
    Some(match (is_plain, value.contains('\'')) {
        (true, _) => format!("{name}={value}"),
        (false, false) => format!("{name}='{value}'"),
        (false, true) => format!(
            "{name}=\"{}\"",
            value.chars().map(escape).collect::<String>()
        ),
    })
}

/// Characters that need a backslash in double quotes.
const ESCAPED: &str = "\\\"$`";

/// Writes a character for double quotes.
fn escape(c: char) -> String {
    if ESCAPED.contains(c) {
        format!("\\{c}")
    } else {
        c.to_string()
    }
}

fn is_name(name: &str) -> bool {
    // POSIX, Environment Variables: names of letters, digits and underscores, without a digit in
    // front.
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    !name.is_empty() && is_plain && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn unquoted(value: &str) -> Option<String> {
    match (inside(value, '\''), inside(value, '"')) {
        (Some(text), _) => text.filter(|text| !text.contains('\'')).map(str::to_owned),
        (_, Some(text)) => unescaped(text?),
        // A comment needs a space before it: `#` is a character of passwords.
        (None, None) => Some(
            value
                .split(" #")
                .next()
                .unwrap_or_default()
                .trim_end()
                .to_owned(),
        ),
    }
}

/// Returns the text inside quotes. `Some(None)` if only the first of them is there.
fn inside(value: &str, quote: char) -> Option<Option<&str>> {
    let rest = value.strip_prefix(quote)?;
    Some(rest.strip_suffix(quote))
}

fn unescaped(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => return None,
            '\\' => {
                let next = letters.next()?;
                // As in a shell, a backslash before any other character stays.
                if !ESCAPED.contains(next) {
                    out.push('\\');
                }
                out.push(next);
            }
            letter => out.push(letter),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_variables() {
        let text = "\u{feff}# mine\n\nA=one\nexport B = 'x'\nexport C='t w # o'\r\n\
                    D=\"q\\\"\\$\\\\ \\n\"\nE=p#1 # why\nF=\nA=two\n";
        assert_eq!(
            parse(text).unwrap_err(),
            EnvLineError {
                line: 4,
                why: "the text before `=` is not a variable name"
            }
        );
        let found = parse(&text.replace("B = ", "B=")).unwrap();
        let expected = [
            ("A", "two"),
            ("B", "x"),
            ("C", "t w # o"),
            ("D", "q\"$\\ \\n"),
            ("E", "p#1"),
            ("F", ""),
        ];
        assert_eq!(
            found,
            expected
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect()
        );
        for (text, line) in [
            ("A", 1),
            ("\n1=x", 2),
            ("A='x", 1),
            ("A=\"x", 1),
            ("A=\"", 1),
            ("A='", 1),
            ("=x", 1),
        ] {
            assert_eq!(parse(text).unwrap_err().line, line, "{text}");
        }
        assert_eq!(line("A", "one\ntwo"), None);
    }

    proptest! {
        #[test]
        fn a_written_line_is_read_back(value in "[^\\p{Cc}]*") {
            let text = line("NAME", &value).unwrap();
            let read = parse(&text).unwrap();
            prop_assert_eq!(&read["NAME"], &value);
        }
    }
}
