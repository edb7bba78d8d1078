//! Writer of log lines.
//!
//! Owns the last check of each line: a field may hold a peer's text that nobody cleaned. Does not
//! format. Invariant: what is written has no character that ends a line, reorders it or hides in
//! it, apart from our own line ends and colours.

use std::borrow::Cow;
use std::io::{self, Stderr, Write};

use tracing_subscriber::fmt::MakeWriter;

use crate::plain_text::is_invisible;

/// Writes lines to stderr.
pub(crate) struct CleanStderr;

impl<'a> MakeWriter<'a> for CleanStderr {
    type Writer = CleanWriter<Stderr>;

    fn make_writer(&'a self) -> Self::Writer {
        CleanWriter(io::stderr())
    }
}

/// Writer that gets a whole line in each call.
pub(crate) struct CleanWriter<W>(W);

impl<W: Write> Write for CleanWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(&clean(line))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes invisible characters out as escapes, which JSON reads, too. The formatter has escaped
/// those of ASCII.
fn clean(line: &[u8]) -> Cow<'_, [u8]> {
    let Some(text) = Some(line)
        .filter(|line| !line.is_ascii())
        .and_then(|line| std::str::from_utf8(line).ok())
    else {
        return Cow::Borrowed(line);
    };
    if !text.contains(is_hidden) {
        return Cow::Borrowed(line);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_hidden(character) {
            let mut units = [0; 2];
            let escapes = character
                .encode_utf16(&mut units)
                .iter()
                .map(|unit| format!("\\u{unit:04x}"));
            out.extend(escapes);
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out.into_bytes())
}

fn is_hidden(character: char) -> bool {
    !character.is_ascii() && is_invisible(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reader_cannot_see_is_written_out() {
        for (line, written) in [
            ("plain\n", "plain\n"),
            (
                "\u{1b}[33mWARN\u{1b}[0m ümlaut\n",
                "\u{1b}[33mWARN\u{1b}[0m ümlaut\n",
            ),
            ("a\u{2028}b\u{202e}c\u{85}\n", "a\\u2028b\\u202ec\\u0085\n"),
            (
                "{\"name\":\"x\u{200b}\u{e0041}\"}\n",
                "{\"name\":\"x\\u200b\\udb40\\udc41\"}\n",
            ),
        ] {
            let mut out = CleanWriter(Vec::new());
            out.write_all(line.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(out.0).unwrap(), written);
        }
        let json: serde_json::Value =
            serde_json::from_slice(&clean("\"x\u{e0041}\"".as_bytes())).unwrap();
        assert_eq!(json, "x\u{e0041}");
    }
}
