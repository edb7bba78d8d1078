//! The open calls on one connection: which of them is a message on a pipe about?
//!
//! Owns the ids of one connection and who waits behind each. Does not move messages. Invariant: a message that could
//! belong to two callers goes to neither.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::json::Text;
use crate::jsonrpc::{Message, Request};
use crate::model::{AskKind, Caller, Can, Principal};
use crate::revision::injected::Injected;
use crate::store::unix_now;

/// For how long a server may still speak about a call that was cancelled before its answer.
const GONE_TIME: Duration = Duration::from_secs(60);
/// How many of such calls are remembered.
const GONE_MAX: usize = 256;

/// The open calls of one connection.
#[derive(Clone, Default)]
pub struct Calls(Arc<Table>);

#[derive(Default)]
struct Table {
    open: Mutex<BTreeMap<u64, Open>>,
    /// Calls that were given up before their answer: the server may not know yet, and ask because of them.
    gone: Mutex<VecDeque<Gone>>,
    last: AtomicU64,
    /// Whether the server ever asked a client for something.
    asked: AtomicBool,
    /// Questions that users have not answered yet.
    asking: AtomicUsize,
    /// Told of each call that had all its time while nothing was heard of the server.
    silent: Notify,
}

/// What is known of an open call.
struct Open {
    can: Can,
    logs: Logs,
    /// Whose it is; the gateway's own calls are nobody's.
    whose: Option<Whose>,
    /// The task whose end the call waits for, and what else its progress is named by.
    task: Option<(Text, Option<u64>)>,
    /// Takes requests of the server that came on another stream than the call's own.
    injected: Option<Injected>,
}

/// A call that was given up.
struct Gone {
    whose: Whose,
    /// The last id then. Once a later request is answered, the server has read that this call is cancelled.
    last: u64,
    until: Instant,
}

/// Whose a call is: two calls of one session may see each other's messages, two of one principal need not.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Whose {
    principal: u32,
    session: Option<Text>,
}

/// What a log message on the pipe has to do with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logs {
    /// None is about it: it is the gateway's own, or the revision forbids what was not asked for.
    Never,
    /// One can be about it, and this principal does not want it.
    Unwanted(u32),
    /// One can be about it, and this principal wants it.
    Wanted(u32),
}

/// One open call; it is forgotten when this is dropped.
pub(super) struct CallEntry {
    calls: Calls,
    pub(super) id: u64,
    /// Requests of the server that came on another stream.
    pub(super) injected: Option<Injected>,
}

/// A question that a user has not answered yet.
pub(super) struct Asking(Calls);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.0.asking.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Calls {
    /// Begins behind all ids that another process may have used on the same session: "The request ID **MUST NOT** have
    /// been previously used by the requestor within the same session" (2025-11-25/basic/index.mdx, Requests).
    pub(super) fn take_over(&self) {
        self.0.last.store(unix_now() << 20, Ordering::Relaxed);
    }

    /// Opens a call: the id is also its progress token.
    pub(super) fn open(&self, caller: &Caller, logs: Logs, is_pipe: bool) -> CallEntry {
        let id = self.next_id();
        // On a pipe everything comes the same way; a call that can be asked nothing needs no second way either.
        let injected = (!is_pipe && caller.can != Can::default()).then(Injected::default);
        self.lock()
            .insert(id, Open { can: caller.can, logs, whose: whose(caller), task: None, injected: injected.clone() });
        CallEntry { calls: self.clone(), id, injected }
    }

    /// Opens a subscription: its messages name it.
    pub(super) fn open_subscription(&self) -> CallEntry {
        let id = self.next_id();
        self.lock()
            .insert(id, Open { can: Can::default(), logs: Logs::Never, whose: None, task: None, injected: None });
        CallEntry { calls: self.clone(), id, injected: None }
    }

    /// Hands a request of the server that came on no call's stream to the only call that it can be about.
    ///
    /// Gives it back where there is no such call, or several.
    pub(super) fn inject(&self, request: Request) -> Result<(), Request> {
        let kind = AskKind::of(&request.method, &request.params);
        let Some(id) = self.only_asked(|open| open.injected.is_some() && open.can.answer(kind)) else {
            return Err(request);
        };
        self.hand(id, request)
    }

    /// Hands a request that a task makes to the call that waits for the task. Gives it back where there is none.
    pub(super) fn inject_for_task(&self, task: &str, request: Request) -> Result<(), Request> {
        match self.of_task(task) {
            Some(id) => self.hand(id, request),
            None => Err(request),
        }
    }

    fn hand(&self, id: u64, request: Request) -> Result<(), Request> {
        let injected = self.lock().get(&id).and_then(|open| open.injected.clone());
        match injected {
            Some(injected) if injected.add(Message::Request(request.clone())) => Ok(()),
            _ => Err(request),
        }
    }

    /// The call that waits for a task, if one does.
    fn of_task(&self, task: &str) -> Option<u64> {
        let waits = |open: &Open| open.task.as_ref().is_some_and(|(id, _)| id.as_str() == task);
        self.lock().iter().find(|(_, open)| waits(open)).map(|(id, _)| *id)
    }

    /// The call that progress under this token is about.
    fn of_token(&self, token: u64) -> Option<u64> {
        let open = self.lock();
        let named = |call: &Open| call.task.as_ref().is_some_and(|(_, also)| *also == Some(token));
        if open.contains_key(&token) {
            return Some(token);
        }
        open.iter().find(|(_, call)| named(call)).map(|(id, _)| *id)
    }

    /// An id for a request of the gateway's own, which no notification is about.
    pub(super) fn next_id(&self) -> u64 {
        self.0.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether the server was seen to ask its clients for something in the middle of a call.
    pub fn were_asked(&self) -> bool {
        self.0.asked.load(Ordering::Relaxed)
    }

    /// Whether a call of another client is open, as far as clients can be told apart: a question could be about that.
    pub fn have_others(&self, caller: &Caller) -> bool {
        let mine = whose(caller).filter(|whose| whose.session.is_some());
        self.lock().values().any(|open| open.whose.is_some() && (mine.is_none() || open.whose != mine))
            || self.gone(|gone| mine.as_ref() != Some(gone))
    }

    /// Whether no call of a client is open.
    pub fn are_over(&self) -> bool {
        !self.lock().values().any(|open| open.whose.is_some())
    }

    /// Whether a call is open in which the server may be silent for longer than a call takes: its user is asked, or it
    /// waits for the end of a task.
    pub fn may_be_silent(&self) -> bool {
        self.0.asking.load(Ordering::Relaxed) > 0 || self.lock().values().any(|open| open.task.is_some())
    }

    /// A call had all its time, and nothing at all was heard of the server meanwhile.
    pub(super) fn note_silence(&self) {
        self.0.silent.notify_one();
    }

    /// Waits for a call to which that happens.
    pub async fn silence(&self) {
        self.0.silent.notified().await;
    }

    /// A user is asked, until this is dropped.
    pub(super) fn asking(&self) -> Asking {
        self.0.asking.fetch_add(1, Ordering::Relaxed);
        Asking(self.clone())
    }

    /// The open call that a message is about.
    pub(super) fn about(&self, message: &Message) -> Option<u64> {
        match message {
            Message::Response(_) => None,
            Message::Notification(n) if &*n.method == "notifications/progress" => {
                let token = std::str::from_utf8(n.params.get("progressToken")?.bytes()).ok()?.parse().ok()?;
                self.of_token(token)
            }
            Message::Notification(n) if &*n.method == "notifications/message" => self.only_log(),
            // Subscriptions of the modern revision name their request.
            Message::Notification(n) => subscription(&n.params),
            Message::Request(r) => {
                if let Some(task) = super::legacy::related(&r.params) {
                    return self.of_task(&task);
                }
                let kind = AskKind::of(&r.method, &r.params);
                if kind != AskKind::Other {
                    self.0.asked.store(true, Ordering::Relaxed);
                }
                // Where nobody can answer, the only call there is shall fail with the name of what its client lacks.
                self.only_asked(|open| open.can.answer(kind)).or_else(|| self.only_call(|open| !open.can.answer(kind)))
            }
        }
    }

    /// A question says of no call: it is for the one that can answer it, if no other session has a call open that it
    /// could come from. Of several calls of one session any will do, since the client is the same.
    fn only_asked(&self, fits: impl Fn(&Open) -> bool) -> Option<u64> {
        let open = self.lock();
        let mut fitting = open.iter().rev().filter(|(_, call)| fits(call));
        let (id, asked) = fitting.next().map(|(id, call)| (*id, call.whose.clone()))?;
        let one_client = asked.as_ref().is_some_and(|whose| whose.session.is_some());
        if !fitting.all(|(_, call)| one_client && call.whose == asked) {
            return None;
        }
        let same = |(other, call): (&u64, &Open)| {
            *other == id
                || call.whose.is_none()
                || (call.whose == asked && asked.as_ref().is_some_and(|w| w.session.is_some()))
        };
        let another = self.gone(|gone| !one_client || asked.as_ref() != Some(gone));
        (open.iter().all(same) && !another).then_some(id)
    }

    /// The only call of a client, if it is such a one.
    fn only_call(&self, such: impl Fn(&Open) -> bool) -> Option<u64> {
        let id = self.only(|open| open.whose.is_some())?;
        self.lock().get(&id).is_some_and(such).then_some(id)
    }

    /// Whether such a call was given up so lately that the server may still speak about it.
    fn gone(&self, such: impl Fn(&Whose) -> bool) -> bool {
        let mut all = self.0.gone.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while all.front().is_some_and(|first| first.until <= now) {
            all.pop_front();
        }
        all.iter().any(|gone| such(&gone.whose))
    }

    /// A log message says of no call: it is the only one's that wants any, unless it could tell of another principal.
    fn only_log(&self) -> Option<u64> {
        let id = self.only(|open| matches!(open.logs, Logs::Wanted(_)))?;
        let open = self.lock();
        let whose = |logs| match logs {
            Logs::Never => None,
            Logs::Unwanted(principal) | Logs::Wanted(principal) => Some(principal),
        };
        let principal = whose(open.get(&id)?.logs);
        let alone = open.values().filter_map(|call| whose(call.logs)).all(|other| Some(other) == principal);
        (alone && !self.gone(|gone| Some(gone.principal) != principal)).then_some(id)
    }

    fn only(&self, fits: impl Fn(&Open) -> bool) -> Option<u64> {
        let open = self.lock();
        let mut fitting = open.iter().filter(|(_, call)| fits(call)).map(|(id, _)| *id);
        match (fitting.next(), fitting.next()) {
            (Some(id), None) => Some(id),
            _ => None,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Open>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallEntry {
    /// Notes that the call is given up before its answer.
    pub(super) fn give_up(&self) {
        let open = self.calls.lock();
        let Some(whose) = open.get(&self.id).and_then(|open| open.whose.clone()) else { return };
        let mut gone = self.calls.0.gone.lock().unwrap_or_else(PoisonError::into_inner);
        if gone.len() == GONE_MAX {
            gone.pop_front();
        }
        let last = self.calls.0.last.load(Ordering::Relaxed);
        gone.push_back(Gone { whose, last, until: Instant::now() + GONE_TIME });
    }

    /// Notes that the call is answered.
    pub(super) fn answered(&self) {
        let mut gone = self.calls.0.gone.lock().unwrap_or_else(PoisonError::into_inner);
        if !gone.is_empty() {
            gone.retain(|gone| gone.last >= self.id);
        }
    }

    /// Notes that the call waits for a task, and what else its progress is named by.
    pub(super) fn attend(&self, task: Text, also: Option<u64>) {
        if let Some(open) = self.calls.lock().get_mut(&self.id) {
            open.task = Some((task, also));
        }
    }
}

fn whose(caller: &Caller) -> Option<Whose> {
    let principal = caller.principal.id;
    (principal != Principal::GATEWAY).then(|| Whose { principal, session: caller.session.clone() })
}

fn subscription(params: &crate::json::Object) -> Option<u64> {
    let meta = params.object("_meta")?;
    std::str::from_utf8(meta.get(super::v2026_07_28::SUBSCRIPTION_ID)?.bytes()).ok()?.parse().ok()
}

impl Drop for CallEntry {
    fn drop(&mut self) {
        self.calls.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn caller() -> Caller {
        Caller { can: Can { sample: true, ..Can::default() }, ..(*crate::model::testing::caller(1, None)).clone() }
    }

    #[test]
    fn a_question_reaches_no_other_session() {
        let calls = Calls::default();
        let find = |message: &Message| calls.about(message);
        let ask = r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#;
        let ask = Message::parse(&Bytes::from_static(ask.as_bytes())).unwrap();
        let open = |session: &str, sample| {
            let caller = crate::model::testing::caller(1, Some(session));
            calls.open(&Caller { can: Can { sample, ..Can::default() }, ..(*caller).clone() }, Logs::Never, true)
        };
        let unable = open("a", false);
        assert_eq!(find(&ask), Some(unable.id), "its client lacks what the server asks for");
        let second = open("b", false);
        assert_eq!(find(&ask), None, "it could be about either");
        drop((unable, second));
        let able = open("a", true);
        assert_eq!(find(&ask), Some(able.id));
        let same = open("a", false);
        assert_eq!(find(&ask), Some(able.id));
        let other = open("b", false);
        assert_eq!(find(&ask), None, "the server may ask because of the other session's call");
        drop((other, same));
        let second = open("a", true);
        assert_eq!(find(&ask), Some(second.id), "the same client");
        let _third = open("b", true);
        assert_eq!(find(&ask), None, "two could answer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_about_a_call_that_was_given_up_is_nobody_elses() {
        let calls = Calls::default();
        let find = |message: &Message| calls.about(message);
        let ask = r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#;
        let ask = Message::parse(&Bytes::from_static(ask.as_bytes())).unwrap();
        let caller = |session: &str| {
            let caller = crate::model::testing::caller(1, Some(session));
            Caller { can: Can { sample: true, ..Can::default() }, ..(*caller).clone() }
        };
        let left = calls.open(&caller("a"), Logs::Never, true);
        left.give_up();
        drop(left);
        let other = calls.open(&caller("b"), Logs::Never, true);
        assert_eq!(find(&ask), None, "the server may ask because of the call that was given up");
        drop(other);
        assert!(calls.have_others(&caller("b")) && !calls.have_others(&caller("a")));
        let same = calls.open(&caller("a"), Logs::Never, true);
        assert_eq!(find(&ask), Some(same.id), "the same client");
        same.give_up();
        drop(same);
        let answered = calls.open(&caller("b"), Logs::Never, true);
        answered.answered();
        assert_eq!(find(&ask), Some(answered.id), "the server has read what was cancelled before");
        answered.give_up();
        drop(answered);
        tokio::time::advance(GONE_TIME).await;
        let other = calls.open(&caller("b"), Logs::Never, true);
        assert_eq!(find(&ask), Some(other.id), "after so long it has heard of it");
    }

    #[test]
    fn a_log_message_is_about_the_only_call_that_wants_any() {
        let calls = Calls::default();
        let find = |message: &Message| calls.about(message);
        let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
        let log = Message::parse(&Bytes::from_static(log.as_bytes())).unwrap();
        // Such as the stream on which the gateway listens for changes.
        let _stream = calls.open(&caller(), Logs::Never, true);
        assert_eq!(find(&log), None);
        let first = calls.open(&caller(), Logs::Wanted(1), true);
        assert_eq!(find(&log), Some(first.id));
        let second = calls.open(&caller(), Logs::Wanted(1), true);
        assert_eq!(find(&log), None, "it could be about either");
        drop(first);
        let quiet = calls.open(&caller(), Logs::Unwanted(1), true);
        assert_eq!(find(&log), Some(second.id));
        drop(quiet);
        let _other = calls.open(&caller(), Logs::Unwanted(2), true);
        assert_eq!(find(&log), None, "it could tell of another principal");
    }
}
