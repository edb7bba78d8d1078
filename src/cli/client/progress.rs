//! Progress of one call until its end. Owns the printing of notifications and the start of input
//! requests.
//!
//! Does not ask the user (`elicitation.rs`). Invariant: each notification is one line on stderr.

use tokio::task::JoinSet;

use moongate_jsonrpc::json::{JsonObject, RawJson, or_default, or_null};
use moongate_model::{Error, Exchange, ExchangeEvent, LogFilter, LogLevel, Notification, Outcome};
use serde::Deserialize;

use super::elicitation::{LOG_LEVEL, UserPrompter};
use super::output::print_message;

/// Params of a progress notification. The numbers stay as they were written.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ProgressParams {
    #[serde(deserialize_with = "or_null")]
    progress: Option<RawJson>,
    #[serde(deserialize_with = "or_null")]
    total: Option<RawJson>,
    #[serde(deserialize_with = "or_default")]
    message: Option<String>,
}

/// Params of a log message.
#[derive(Default, Deserialize)]
#[serde(default)]
struct LogParams {
    #[serde(deserialize_with = "or_default")]
    logger: Option<String>,
    #[serde(deserialize_with = "or_null")]
    data: Option<RawJson>,
}

/// Follows the call to its end.
///
/// The exchange is polled while the user thinks. Only that suspends the call's timeout, and notices
/// an end that comes meanwhile.
pub(super) async fn run_to_end(
    mut exchange: Exchange,
    server: &str,
    input_round: &UserPrompter,
) -> Result<Outcome, Error> {
    let mut asking = JoinSet::new();
    loop {
        match exchange.next_event().await {
            ExchangeEvent::Notification(notice) => print_notification(&notice),
            // In a separate task, so that the exchange is polled while the user types.
            ExchangeEvent::InputRequired(ask) => {
                drop(asking.spawn(input_round.clone().respond(server.to_owned(), ask)))
            }
            ExchangeEvent::Done(end) => return end,
        }
    }
}

fn print_notification(notice: &Notification) {
    match notice {
        Notification::Progress(params) => print_message(&progress(params)),
        Notification::Log(level, params) if LogFilter::AtLeast(LOG_LEVEL).allows(*level) => {
            print_message(&log(*level, params))
        }
        _ => {}
    }
}

/// Formats progress: `progress 1/3: step 1 of 3`.
fn progress(params: &JsonObject) -> String {
    let params: ProgressParams = params.read_members();
    let done = number(params.progress).unwrap_or_default();
    let total = number(params.total)
        .map(|total| format!("/{total}"))
        .unwrap_or_default();
    let message = params
        .message
        .map(|message| format!(": {message}"))
        .unwrap_or_default();
    format!("progress {done}{total}{message}")
}

/// Returns a number as the server wrote it.
fn number(value: Option<RawJson>) -> Option<String> {
    value
        .filter(|raw| raw.parse_as::<f64>().is_ok())
        .map(|raw| format!("{raw:?}"))
}

/// Formats a log message: `info (logger): text`.
fn log(level: Option<LogLevel>, params: &JsonObject) -> String {
    let params: LogParams = params.read_members();
    let level = level.map_or("log", LogLevel::name);
    let logger = params
        .logger
        .map(|logger| format!(" ({logger})"))
        .unwrap_or_default();
    let data = params.data.unwrap_or(RawJson::NULL);
    let data = data
        .as_text()
        .map_or_else(|| format!("{data:?}"), |text| text.to_string());
    format!("{level}{logger}: {data}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(json: &'static str) -> JsonObject {
        RawJson::literal(json).as_object().unwrap()
    }

    #[test]
    fn notices_are_one_line() {
        assert_eq!(
            progress(&object(r#"{"progress":1.0,"total":3,"message":"on"}"#)),
            "progress 1.0/3: on"
        );
        assert_eq!(progress(&object(r#"{"progress":7}"#)), "progress 7");
        assert_eq!(
            log(
                Some(LogLevel::Error),
                &object(r#"{"logger":"a","data":"b"}"#)
            ),
            "error (a): b"
        );
        assert_eq!(
            log(None, &object(r#"{"data":{"x": 1}}"#)),
            "log: {\"x\": 1}"
        );
    }
}
