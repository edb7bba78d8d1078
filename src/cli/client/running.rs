//! One call until its end: what the server says meanwhile, and what it asks.

use tokio::task::JoinSet;

use crate::json::{Object, Raw};
use crate::model::{Error, Event, Exchange, Level, LogWish, Notice, Outcome};

use super::ask::{Asker, LOGS};
use super::output::say;

/// Sees the call through.
///
/// The exchange is looked at while the user thinks: only so does the call's time stand still, and an end that comes
/// meanwhile is noticed.
pub(super) async fn finish(mut exchange: Exchange, server: &str, asker: &Asker) -> Result<Outcome, Error> {
    let mut asking = JoinSet::new();
    loop {
        match exchange.next_event().await {
            Event::Notify(notice) => tell(&notice),
            Event::Ask(ask) => drop(asking.spawn(asker.clone().answer(server.to_owned(), ask))),
            Event::Done(end) => return end,
        }
    }
}

fn tell(notice: &Notice) {
    match notice {
        Notice::Progress(params) => say(&progress(params)),
        Notice::Log(level, params) if LogWish::AtLeast(LOGS).wants(*level) => say(&log(*level, params)),
        _ => {}
    }
}

/// `progress 1/3: step 1 of 3`
fn progress(params: &Object) -> String {
    let number = |key: &str| params.get(key).filter(|raw| raw.read::<f64>().is_ok()).map(|raw| format!("{raw:?}"));
    let done = number("progress").unwrap_or_default();
    let total = number("total").map(|total| format!("/{total}")).unwrap_or_default();
    let message = params.text("message").map(|message| format!(": {message}")).unwrap_or_default();
    format!("progress {done}{total}{message}")
}

/// `info (logger): text`
fn log(level: Option<Level>, params: &Object) -> String {
    let level = level.map_or("log", Level::name);
    let logger = params.text("logger").map(|logger| format!(" ({logger})")).unwrap_or_default();
    let data = params.get("data").cloned().unwrap_or(Raw::NULL);
    let data = data.as_text().map_or_else(|| format!("{data:?}"), |text| text.to_string());
    format!("{level}{logger}: {data}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_one_line() {
        let object = |json| Raw::literal(json).as_object().unwrap();
        assert_eq!(progress(&object(r#"{"progress":1.0,"total":3,"message":"on"}"#)), "progress 1.0/3: on");
        assert_eq!(progress(&object(r#"{"progress":7}"#)), "progress 7");
        assert_eq!(log(Some(Level::Error), &object(r#"{"logger":"a","data":"b"}"#)), "error (a): b");
        assert_eq!(log(None, &object(r#"{"data":{"x": 1}}"#)), "log: {\"x\": 1}");
    }
}
