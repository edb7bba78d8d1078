//! Output of the verbs: results, messages for people, exit codes. Owns stdout.
//!
//! Does not format results (`table.rs`, `render_content.rs`). Invariant: a server's text reaches a
//! terminal without control characters, which could rewrite what was shown before. Files and pipes
//! get it unchanged.

use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;

use crate::cli::process;
use moongate_config::ConfigProblems;
use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_model::{Error, ItemKind, McpErrorKind};
use moongate_telemetry::plain_text::is_invisible;

/// Failure of a verb.
#[derive(Debug)]
pub(super) enum VerbFailure {
    /// Wrong usage.
    Usage(String),
    /// Config that cannot be used.
    Config(ConfigProblems),
    /// Any other failure.
    Failed(String),
    /// End by a signal.
    Interrupted,
    /// Stdout without a reader.
    StdoutClosed,
}

impl VerbFailure {
    /// Prints the failure. Returns the exit code.
    pub(super) fn report(self) -> ExitCode {
        match self {
            VerbFailure::Usage(message) => {
                print_message(&format!("error: {message}"));
                ExitCode::from(2)
            }
            VerbFailure::Config(problems) => process::report_unusable(&problems),
            VerbFailure::Failed(message) => {
                print_message(&format!("error: {message}"));
                ExitCode::FAILURE
            }
            VerbFailure::Interrupted => {
                print_message("interrupted");
                ExitCode::FAILURE
            }
            // `moongate tools | head -1` got what it wanted.
            VerbFailure::StdoutClosed => ExitCode::SUCCESS,
        }
    }

    /// Adds a line with advice.
    pub(super) fn with_hint(self, hint: impl Into<Option<String>>) -> Self {
        match (self, hint.into()) {
            (VerbFailure::Failed(message), Some(hint)) => {
                VerbFailure::Failed(format!("{message}\n  {hint}"))
            }
            (other, _) => other,
        }
    }

    /// Converts the error of a call.
    pub(super) fn of(error: &Error) -> Self {
        // The gateway adds this for its own servers. A verb does not keep trying.
        let message = error
            .message
            .trim_end_matches(". The gateway keeps trying to bring it back");
        VerbFailure::Failed(match &error.kind {
            McpErrorKind::ServerError(answer) => {
                let data = answer
                    .data
                    .as_ref()
                    .map(|data| format!("\n  data: {data:?}"))
                    .unwrap_or_default();
                format!("{} (code {}){data}", answer.message, answer.code)
            }
            _ => message.to_owned(),
        })
    }
}

/// Writes to stdout.
pub(super) fn print(bytes: &[u8]) -> Result<(), VerbFailure> {
    let mut out = std::io::stdout().lock();
    // Flushed here, or an error of a full disk would show only at the exit, where nobody looks.
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => VerbFailure::StdoutClosed,
            _ => VerbFailure::Failed(format!("cannot write to standard output: {error}")),
        })
}

/// Prints a message for people that may contain a server's words.
pub(super) fn print_message(message: &str) {
    process::print_message(&without_control_characters(message));
}

/// Returns a result's text in the form for stdout.
pub(super) fn fit_for_stdout(text: &str) -> Cow<'_, str> {
    // Only a terminal acts on control characters. A file or a pipe gets what the server sent.
    if std::io::stdout().is_terminal() {
        without_control_characters(text)
    } else {
        text.into()
    }
}

/// Replaces control characters, except line ends and tabs, and leaves out what else a reader cannot
/// see. Emoji and many languages have such characters between others.
pub(super) fn without_control_characters(text: &str) -> Cow<'_, str> {
    if !text.contains(is_invisible) {
        return text.into();
    }
    let shown = text.chars().filter_map(|c| match is_invisible(c) {
        true if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => Some('\u{fffd}'),
        true => None,
        false => Some(c),
    });
    shown.collect()
}

/// Encodes the items of the lists as the server wrote them, in the members that the protocol
/// defines.
pub(super) fn json_lists(lists: &[(ItemKind, Vec<Arc<JsonObject>>)]) -> Vec<u8> {
    let mut object = JsonObject::new();
    for (kind, items) in lists {
        let items: Vec<RawJson> = items.iter().map(|item| item.to_raw()).collect();
        object = object.with(kind.member(), RawJson::array(items.iter()));
    }
    [&object.bytes()[..], b"\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        assert_eq!(without_control_characters("a\tb\nc"), "a\tb\nc");
        assert_eq!(
            without_control_characters("a\x1b[2Jb\r\u{9b}"),
            "a\u{fffd}[2Jb\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn words_and_emoji_of_any_language_stay_readable() {
        assert_eq!(
            without_control_characters("❤\u{fe0f} می\u{200c}خواهم"),
            "❤ میخواهم"
        );
        assert_eq!(without_control_characters("👩\u{200d}👧"), "👩👧");
        assert_eq!(
            without_control_characters("a\u{202e}b\u{e0041}c\u{2028}d"),
            "abc\u{fffd}d"
        );
    }

    #[test]
    fn an_error_of_a_server_keeps_its_code_and_data() {
        let data = Some(RawJson::literal(r#"{"uri":"a"}"#));
        let answer = moongate_jsonrpc::message::RpcError {
            code: -32002,
            message: "no such thing".into(),
            data,
        };
        let VerbFailure::Failed(message) = VerbFailure::of(&Error::from_server(answer)) else {
            panic!()
        };
        assert_eq!(
            message,
            "no such thing (code -32002)\n  data: {\"uri\":\"a\"}"
        );
    }
}
