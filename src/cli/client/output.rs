//! What leaves the process: results, messages for people, exit codes.
//!
//! Owns stdout. Invariant: what a server sent reaches a terminal without control characters, which could rewrite what
//! was shown before; into files and pipes it goes as it is.

use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;

use crate::cli::check;
use crate::config::Problems;
use crate::json::{Object, Raw};
use crate::model::{Error, Kind, Reason};

/// Why a verb failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// It was used in a wrong way.
    Usage(String),
    /// The config cannot be used.
    Config(Problems),
    /// It did not work.
    Failed(String),
    /// A signal ended it.
    Interrupted,
    /// Nobody reads stdout any more.
    Unread,
}

impl Failure {
    /// Says what went wrong; gives the exit code.
    pub(super) fn report(self) -> ExitCode {
        match self {
            Failure::Usage(message) => {
                say(&format!("error: {message}"));
                ExitCode::from(2)
            }
            Failure::Config(problems) => check::refuse(&problems),
            Failure::Failed(message) => {
                say(&format!("error: {message}"));
                ExitCode::FAILURE
            }
            Failure::Interrupted => {
                say("interrupted");
                ExitCode::FAILURE
            }
            // `moongate tools | head -1` got what it wanted.
            Failure::Unread => ExitCode::SUCCESS,
        }
    }

    /// The same, with a line on what may help.
    pub(super) fn with_hint(self, hint: impl Into<Option<String>>) -> Self {
        match (self, hint.into()) {
            (Failure::Failed(message), Some(hint)) => Failure::Failed(format!("{message}\n  {hint}")),
            (other, _) => other,
        }
    }

    /// A call that failed.
    pub(super) fn of(error: &Error) -> Self {
        // The gateway says this of its own servers; here nobody keeps trying.
        let message = error.message.trim_end_matches(". The gateway keeps trying to bring it back");
        Failure::Failed(match &error.reason {
            Reason::Answered(answer) => {
                let data = answer.data.as_ref().map(|data| format!("\n  data: {data:?}")).unwrap_or_default();
                format!("{} (code {}){data}", answer.message, answer.code)
            }
            _ => message.to_owned(),
        })
    }
}

/// Writes to stdout.
pub(super) fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::Unread,
        _ => Failure::Failed(format!("standard output cannot be written to: {error}")),
    })
}

/// Says something that a server may have worded to people.
pub(super) fn say(message: &str) {
    crate::cli::say(&clean(message));
}

/// A result's text as stdout should get it.
pub(super) fn fit_for_stdout(text: &str) -> Cow<'_, str> {
    if std::io::stdout().is_terminal() { clean(text) } else { text.into() }
}

/// Text without control characters, except line ends and tabs.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(harmful) { text.replace(harmful, "\u{fffd}").into() } else { text.into() }
}

/// The items of the lists as they were spelled, in the members that the protocol gives them.
pub(super) fn json_lists(lists: &[(Kind, Vec<Arc<Object>>)]) -> Vec<u8> {
    let mut object = Object::new();
    for (kind, items) in lists {
        let items: Vec<Raw> = items.iter().map(|item| item.raw()).collect();
        object = object.with(kind.member(), Raw::array(items.iter()));
    }
    [&object.bytes()[..], b"\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        assert_eq!(clean("a\tb\nc"), "a\tb\nc");
        assert_eq!(clean("a\x1b[2Jb\r\u{9b}"), "a\u{fffd}[2Jb\u{fffd}\u{fffd}");
    }

    #[test]
    fn an_error_of_a_server_keeps_its_code_and_data() {
        let data = Some(Raw::literal(r#"{"uri":"a"}"#));
        let answer = crate::jsonrpc::RpcError { code: -32002, message: "no such thing".into(), data };
        let Failure::Failed(message) = Failure::of(&Error::answered(answer)) else { panic!() };
        assert_eq!(message, "no such thing (code -32002)\n  data: {\"uri\":\"a\"}");
    }
}
