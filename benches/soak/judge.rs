//! What an answer is worth, and the counts.
//!
//! A failure is allowed where it is one clear error, under the call's own id, that names a server
//! which was killed a moment ago, or which the config had taken out. All else is a broken promise.

use super::client::Answer;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// For so long after its end a server may still fail calls.
pub(crate) const GRACE: Duration = Duration::from_secs(5);
/// Broken promises that are kept word for word, and kinds of allowed failures.
const KEPT: usize = 40;

/// What came of a call.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// Its own answer.
    Right,
    /// One clear error: what it says.
    Failed(String),
    /// Somebody else's answer, or a changed one.
    Wrong(String),
    /// Nothing.
    Lost(String),
    /// More than one answer.
    Doubled(String),
}

/// Looks at an answer: one response, under this id, whose result is the right one; `wanted` says
/// which that is.
pub(crate) fn judge(
    answer: &Answer,
    id: u64,
    wanted: &str,
    is_right: impl Fn(&Value) -> bool,
) -> Outcome {
    let responses: Vec<&Value> = answer
        .messages
        .iter()
        .filter(|message| message.get("method").is_none())
        .collect();
    let response = match responses.as_slice() {
        [] => return Outcome::Lost(format!("HTTP {} without an answer", answer.status)),
        [one] => *one,
        _ => return Outcome::Doubled(format!("{responses:?}")),
    };
    if response["id"] != id {
        return Outcome::Wrong(format!("asked as {id}: {response}"));
    }
    let result = &response["result"];
    if let Some(message) = response["error"]["message"]
        .as_str()
        .filter(|_| result.is_null())
    {
        let status = if answer.status == 200 {
            String::new()
        } else {
            format!("HTTP {}: ", answer.status)
        };
        return Outcome::Failed(format!("{status}{message}"));
    }
    if result["isError"] == true {
        return Outcome::Failed(
            result["content"][0]["text"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        );
    }
    if answer.status == 200 && is_right(result) {
        return Outcome::Right;
    }
    Outcome::Wrong(format!(
        "wanted {:?}: {response}",
        wanted.get(..80).unwrap_or(wanted)
    ))
}

/// What may fail, and since when: the ends of servers.
#[derive(Default)]
pub(crate) struct Ends {
    last: BTreeMap<&'static str, Instant>,
    /// Those that are down until they are started again.
    down: BTreeSet<&'static str>,
    /// The end after which nothing has worked yet.
    away: BTreeMap<&'static str, Instant>,
}

impl Ends {
    /// A server is killed, or taken out.
    pub(crate) fn ended(&mut self, server: &'static str) {
        self.last.insert(server, Instant::now());
        self.away.insert(server, Instant::now());
    }

    /// A server is stopped, for as long as it is.
    pub(crate) fn stopped(&mut self, server: &'static str) {
        self.ended(server);
        self.down.insert(server);
    }

    /// A server is only about to come back.
    pub(crate) fn returns(&mut self, server: &'static str) {
        if self.down.remove(server) {
            // What counts is how long the gateway takes, not the server.
            self.away.insert(server, Instant::now());
        }
        self.last.insert(server, Instant::now());
    }

    /// Whether a call that began then may have failed by that.
    fn excuse(&self, server: &str, began: Instant) -> bool {
        self.down.contains(server)
            || self
                .last
                .get(server)
                .is_some_and(|end| *end + GRACE >= began)
    }

    /// A call that began then went well: how long after the end that was, if it is the first.
    fn works(&mut self, server: &str, began: Instant) -> Option<Duration> {
        let end = *self.away.get(server).filter(|end| **end < began)?;
        self.away.remove(server);
        Some(end.elapsed())
    }
}

/// All counts of a run.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) ends: Ends,
    /// By what was done.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// Allowed failures by server and kind.
    pub(crate) allowed: BTreeMap<String, u64>,
    /// The time from a server's end to its next success, in milliseconds.
    pub(crate) recoveries: Vec<u64>,
    /// The first broken promises.
    pub(crate) broken: Vec<String>,
}

impl Tally {
    pub(crate) fn add(&mut self, what: &'static str, count: u64) {
        *self.counts.entry(what).or_default() += count;
    }

    pub(crate) fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    /// A promise is broken.
    pub(crate) fn broken(&mut self, what: &'static str, how: String) {
        self.add(what, 1);
        self.add("broken promises", 1);
        if self.broken.len() < KEPT {
            eprintln!("BROKEN: {what}: {how}");
            self.broken.push(format!("{what}: {how}"));
        }
    }

    /// A call of a server has ended.
    pub(crate) fn called(
        &mut self,
        what: &'static str,
        server: &'static str,
        began: Instant,
        outcome: Outcome,
    ) {
        self.add("calls", 1);
        self.add(what, 1);
        match outcome {
            Outcome::Right => {
                if let Some(time) = self.ends.works(server, began) {
                    self.recoveries
                        .push(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
                }
            }
            Outcome::Failed(why) => {
                let named =
                    why.contains(&format!("\"{server}\"")) || why.contains(&format!("{server}__"));
                if named && self.ends.excuse(server, began) {
                    self.add("allowed failures", 1);
                    let kind = format!("{server}: {}", kind(&why));
                    if self.allowed.len() < KEPT || self.allowed.contains_key(&kind) {
                        *self.allowed.entry(kind).or_default() += 1;
                    }
                } else {
                    self.broken("errors", format!("{what} at {server}: {why}"));
                }
            }
            Outcome::Wrong(how) => {
                self.broken("wrong answers", format!("{what} at {server}: {how}"))
            }
            Outcome::Lost(how) => self.broken("lost answers", format!("{what} at {server}: {how}")),
            Outcome::Doubled(how) => {
                self.broken("doubled answers", format!("{what} at {server}: {how}"))
            }
        }
    }
}

/// An error's text with numbers taken out, cut short.
fn kind(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars().take(160) {
        match character {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            other => out.push(other),
        }
    }
    out
}
