//! Command lines in clients' files, split into words.
//!
//! Owns the quotes and escapes of a shell, and the paths of Windows in a line. Does not run
//! commands or replace variables. Invariant: a path of Windows keeps its backslashes.

/// True if a program has this name, white space included.
pub(super) fn is_file(line: &str) -> bool {
    line.contains(['/', '\\']) && std::path::Path::new(line).is_file()
}

/// Returns the length of a program's path at the start of a line, white space included: `C:\Program
/// Files\x\y.cmd`.
pub(super) fn windows_program(line: &str) -> Option<usize> {
    const ENDINGS: [&str; 4] = [".exe", ".cmd", ".bat", ".com"];
    let lower = line.to_ascii_lowercase();
    let ends = ENDINGS.iter().filter_map(|ending| {
        lower
            .match_indices(ending)
            .map(|(at, _)| at + 4)
            .find(|at| lower[*at..].chars().next().is_none_or(char::is_whitespace))
    });
    ends.min().filter(|_| is_windows_path(line))
}

/// True for the start of a path on a drive or in a share of Windows.
fn is_windows_path(start: &str) -> bool {
    start.starts_with("\\\\")
        || start.as_bytes().get(1) == Some(&b':') && start.as_bytes()[0].is_ascii_alphabetic()
}

/// True for the rest of `\\server\x` behind its first backslash.
fn is_share(rest: &str) -> bool {
    rest.strip_prefix('\\')
        .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// Returns the characters that a backslash takes the meaning from. Before any other it is one of a
/// path of Windows.
fn escapes(word: &str, quote: Option<char>) -> &'static str {
    match quote {
        // In a POSIX shell, a backslash has no meaning inside single quotes.
        Some('\'') => "",
        _ if is_windows_path(word) => " \t\"'\\",
        Some(_) => "\"\\$`",
        None => " \t\n\"'\\$`&|;<>()*?[]{}#~!",
    }
}

/// Splits a command line into words as a shell does, without any other work of a shell.
pub fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut open = false;
    let mut quote: Option<char> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (c, Some(end)) if c == end => quote = None,
            // A share starts with two of them.
            ('\\', _) if word.is_empty() && is_share(chars.as_str()) => {
                word.push_str("\\\\");
                chars.next();
            }
            ('\\', _)
                if chars
                    .as_str()
                    .starts_with(|next: char| escapes(&word, quote).contains(next)) =>
            {
                word.extend(chars.next());
            }
            (c, Some(_)) => word.push(c),
            ('"' | '\'', None) => (quote, open) = (Some(c), true),
            (c, None) if c.is_whitespace() => {
                if open || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                open = false;
            }
            (c, None) => word.push(c),
        }
    }
    // An open quote at the end counts as closed, and '' is an empty word.
    if open || !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_a_shell_does_it() {
        for (line, words) in [
            ("npx -y  x", &["npx", "-y", "x"][..]),
            (
                "a 'b c' \"d \\\"e\" f\\ g ''",
                &["a", "b c", "d \"e", "f g", ""],
            ),
            ("  a  ", &["a"]),
            // Paths on Windows.
            (
                "C:\\x\\y.js --root D:\\data",
                &["C:\\x\\y.js", "--root", "D:\\data"],
            ),
            (
                "\"C:\\Program Files\\x\\y.js\" a",
                &["C:\\Program Files\\x\\y.js", "a"],
            ),
            ("C:\\Program\\ Files\\y.js", &["C:\\Program Files\\y.js"]),
            ("C:\\\\x\\\\y", &["C:\\x\\y"]),
            ("\\\\server\\share\\y.js", &["\\\\server\\share\\y.js"]),
            (".\\bin\\y.cmd", &[".\\bin\\y.cmd"]),
            ("a\\;b \\$c", &["a;b", "$c"]),
        ] {
            assert_eq!(split(line), words, "{line}");
        }
    }

    #[test]
    fn a_program_of_windows_is_one_word() {
        for (line, length) in [
            ("C:\\Program Files\\nodejs\\npx.cmd", Some(31)),
            ("C:\\Program Files\\nodejs\\NODE.EXE -y x.exe", Some(32)),
            ("C:/Program Files/nodejs/npx.cmd", Some(31)),
            ("\\\\server\\a b\\x.bat", Some(18)),
            ("C:\\x.exe.d\\y", None),
            ("npx -y x.exe", None),
        ] {
            assert_eq!(windows_program(line), length, "{line}");
        }
    }
}
