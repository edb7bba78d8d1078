//! Lines of standard input, for pasted addresses and for questions.
//!
//! Owns the only reader of standard input, and the limit on a line. Does not interpret lines.
//! Invariant: there is only one reader, so a wait that has ended cannot take the answer to a later
//! question.

use std::io::{self, BufRead, IsTerminal, Read};

use anyhow::bail;
use tokio::sync::mpsc;

use crate::cli::process::print_message;

/// Maximum length of a line, in bytes. Browsers accept longer addresses, but authorization servers
/// do not.
const LINE_MAX: usize = 8 * 1024;
/// Maximum number of waiting lines. The reader waits until the previous line is taken.
const WAITING_MAX: usize = 1;

/// Line of standard input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputLine {
    /// Text without its line end.
    Text(String),
    /// Line that is too long, or not text.
    Unreadable,
}

/// Lines of standard input. Reading starts when a caller first waits for a line.
#[derive(Default)]
pub(super) struct InputLines {
    lines: Option<mpsc::Receiver<InputLine>>,
}

impl InputLines {
    /// Waits for the next line. Never completes after the end of the input. Nothing is lost if the
    /// wait is dropped.
    pub(super) async fn next(&mut self) -> InputLine {
        match self.next_or_end().await {
            Some(line) => line,
            None => std::future::pending().await,
        }
    }

    async fn next_or_end(&mut self) -> Option<InputLine> {
        self.lines.get_or_insert_with(start_reader).recv().await
    }

    /// Asks a question, and returns the answer without blanks around it. Fails without a terminal.
    pub(super) async fn ask(&mut self, question: &str) -> anyhow::Result<String> {
        if !can_ask() {
            bail!("there is no terminal to ask on");
        }
        print_message(question);
        match self.next_or_end().await {
            Some(InputLine::Text(text)) => Ok(text.trim().to_owned()),
            Some(InputLine::Unreadable) => bail!("the answer is too long, or not text"),
            None => bail!("standard input ended before an answer came"),
        }
    }

    /// Asks a question that defaults to no.
    pub(super) async fn confirm(&mut self, question: &str) -> anyhow::Result<bool> {
        let answer = self.ask(&format!("{question} [y/N]")).await?;
        Ok(matches!(answer.to_ascii_lowercase().as_str(), "y" | "yes"))
    }
}

/// Returns true if there is a terminal to ask on.
pub(super) fn can_ask() -> bool {
    io::stdin().is_terminal()
}

/// Reads standard input on a separate thread, since a read cannot be cancelled.
fn start_reader() -> mpsc::Receiver<InputLine> {
    let (sender, lines) = mpsc::channel(WAITING_MAX);
    tokio::task::spawn_blocking(move || {
        let mut input = io::stdin().lock();
        while let Ok(Some(line)) = read_line(&mut input) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Reads a line of bounded length. `None` at the end.
fn read_line(input: &mut impl BufRead) -> io::Result<Option<InputLine>> {
    let mut bytes = Vec::new();
    // With room for the line end.
    let limit = LINE_MAX as u64 + 2;
    if input.by_ref().take(limit).read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    let is_whole = bytes.last() == Some(&b'\n');
    if !is_whole && bytes.len() as u64 == limit {
        input.skip_until(b'\n')?;
    }
    let text = String::from_utf8(bytes).ok();
    let text = text.map(|text| text.trim_end_matches(['\r', '\n']).to_owned());
    let text = text.filter(|text| text.len() <= LINE_MAX);
    Ok(Some(text.map_or(InputLine::Unreadable, InputLine::Text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(mut input: &[u8]) -> Vec<InputLine> {
        std::iter::from_fn(|| read_line(&mut input).unwrap()).collect()
    }

    fn text(text: &str) -> InputLine {
        InputLine::Text(text.to_owned())
    }

    #[test]
    fn lines_are_read_to_the_end() {
        assert!(lines(b"").is_empty());
        assert_eq!(lines(b"a\n\r\nb\r\nc"), ["a", "", "b", "c"].map(text));
        let bad = [InputLine::Unreadable, text("a")];
        assert_eq!(lines(b"\xff\na\n"), bad);
    }

    #[test]
    fn a_line_that_is_too_long_costs_itself_alone() {
        let longest = "x".repeat(LINE_MAX);
        for end in ["\n", "\r\n"] {
            let input = format!("{longest}{end}next\n");
            assert_eq!(lines(input.as_bytes()), [text(&longest), text("next")]);
        }
        for more in [1, 2, 100, LINE_MAX] {
            let input = format!("{longest}{}\nnext\n", "x".repeat(more));
            let expected = [InputLine::Unreadable, text("next")];
            assert_eq!(lines(input.as_bytes()), expected, "{more}");
        }
    }
}
