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
use crate::revision::attribution::{AskRecord, AskingTargets, Candidate, Target};
use crate::revision::injected::Injected;
use crate::store::unix_now;

/// For how long a server may still speak about a call that was cancelled before its answer.
const GONE_TIME: Duration = Duration::from_secs(60);
/// How many clients with such calls are remembered. Of more, it is not remembered whose their calls were.
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
    /// Whether the server ever answered a call.
    answered: AtomicBool,
    /// Whether the server ever asked a client for something.
    record: AskRecord,
    /// What asked while nothing else was open.
    asking_targets: Mutex<AskingTargets>,
    /// Questions that users have not answered yet.
    asking: AtomicUsize,
    /// Told of each call that had all its time while nothing was heard of the server.
    silent: Notify,
}

/// What is known of an open call.
struct Open {
    can: Can,
    logs: Logs,
    target: Target,
    /// Questions that it got.
    asked: u32,
    /// The last id when it got the last of them.
    asked_at: u64,
    /// Those that its user has not answered yet.
    unanswered: u32,
    /// Whose it is; the gateway's own calls are nobody's.
    whose: Option<Whose>,
    /// The task whose end the call waits for, and what else its progress is named by.
    task: Option<(Text, Option<u64>)>,
    /// Takes requests of the server that came on another stream than the call's own.
    injected: Option<Injected>,
}

/// Calls of one client that were given up.
struct Gone {
    /// Nobody's: there were too many to remember whose.
    whose: Option<Whose>,
    /// Whether one of them could be asked something.
    able: bool,
    /// The last id then. Once a later request is answered, the server has read that they are cancelled.
    last: u64,
    /// Whether the server has. A tool may go on all the same. That is nothing to calls of its own principal; others wait
    /// for as long as such a tool may ask.
    is_read: bool,
    until: Instant,
}

impl Gone {
    /// Whether such a call may be meant by what seems to be about another client's call.
    fn concerns(&self, other: Option<&Whose>) -> bool {
        match (&self.whose, other) {
            (Some(own), Some(other)) if own.principal == other.principal => own != other && !self.is_read,
            _ => true,
        }
    }
}

/// Whose a call is: one session's, or a principal's without one. Calls of one client may see each other's messages. Clients
/// without sessions are told apart by their principals alone.
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
pub(super) struct Asking {
    calls: Calls,
    id: u64,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.calls.0.asking.fetch_sub(1, Ordering::Relaxed);
        if let Some(call) = self.calls.lock().get_mut(&self.id) {
            call.unanswered = call.unanswered.saturating_sub(1);
        }
    }
}

impl Calls {
    /// The calls of a connection to a server whose questions are recorded there.
    pub fn recording(record: AskRecord) -> Self {
        Calls(Arc::new(Table { record, ..Table::default() }))
    }

    /// Begins behind all ids that another process may have used on the same session: "The request ID **MUST NOT** have
    /// been previously used by the requestor within the same session" (2025-11-25/basic/index.mdx, Requests).
    pub(super) fn take_over(&self) {
        self.0.last.store(unix_now() << 20, Ordering::Relaxed);
    }

    /// Opens a call: the id is also its progress token.
    pub(super) fn open(&self, caller: &Caller, logs: Logs, target: Target) -> CallEntry {
        let id = self.next_id();
        // A call that can be asked nothing needs no second way.
        let injected = (caller.can != Can::default()).then(Injected::default);
        let (can, whose, injected) = (caller.can, whose(caller), injected.clone());
        let open = Open {
            can,
            logs,
            target,
            asked: 0,
            asked_at: 0,
            unanswered: 0,
            whose,
            task: None,
            injected: injected.clone(),
        };
        self.lock().insert(id, open);
        CallEntry { calls: self.clone(), id, injected }
    }

    /// Opens a subscription: its messages name it.
    pub(super) fn open_subscription(&self) -> CallEntry {
        let id = self.next_id();
        let (can, logs, target) = (Can::default(), Logs::Never, Target::default());
        let open =
            Open { can, logs, target, asked: 0, asked_at: 0, unanswered: 0, whose: None, task: None, injected: None };
        self.lock().insert(id, open);
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

    /// Hands a question that was given to the wrong call of a client to another of that client's.
    pub(super) fn inject_again(&self, caller: &Caller, request: Request) -> Result<(), Request> {
        let (kind, mine) = (AskKind::of(&request.method, &request.params), whose(caller));
        let fits = |open: &Open| open.injected.is_some() && open.can.answer(kind) && open.whose == mine;
        match self.only_asked(fits) {
            Some(id) => self.hand(id, request),
            None => Err(request),
        }
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

    /// Whether a call of another client is open that a question could be about as well, as far as clients can be told
    /// apart.
    pub fn have_others(&self, caller: &Caller) -> bool {
        let (mine, able) = (whose(caller), caller.can != Can::default());
        let other = |open: &Open| open.whose.is_some() && open.whose != mine && (able || open.can != Can::default());
        self.lock().values().any(other) || self.gone(|gone| gone.concerns(mine.as_ref()) && (able || gone.able))
    }

    /// Whether the server may still speak about calls that this client gave up.
    pub(super) fn is_unsettled(&self, caller: &Caller) -> bool {
        let mine = whose(caller);
        self.gone(|gone| gone.whose == mine && !gone.is_read)
    }

    /// Notes that a request is answered: the server has read whatever was sent before it.
    pub(super) fn settle(&self, id: u64) {
        let mut gone = self.0.gone.lock().unwrap_or_else(PoisonError::into_inner);
        for gone in gone.iter_mut().filter(|gone| gone.last < id) {
            gone.is_read = true;
        }
    }

    /// Whether the server ever answered a call.
    pub fn were_answered(&self) -> bool {
        self.0.answered.load(Ordering::Relaxed)
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

    /// The user of a call is asked, until this is dropped.
    pub(super) fn asking(&self, id: u64) -> Asking {
        self.0.asking.fetch_add(1, Ordering::Relaxed);
        if let Some(call) = self.lock().get_mut(&id) {
            call.unanswered += 1;
        }
        Asking { calls: self.clone(), id }
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
                if kind != AskKind::Other && !self.are_over() {
                    self.0.record.note();
                }
                // Where nobody can answer, the only call there is shall fail with the name of what its client lacks.
                self.only_asked(|open| open.can.answer(kind)).or_else(|| self.only_call(|open| !open.can.answer(kind)))
            }
        }
    }

    /// A question says of no call: it is for the one that can answer it, if no other client has a call open that it
    /// could come from. Of several calls of one client the likeliest, since the client is the same.
    fn only_asked(&self, fits: impl Fn(&Open) -> bool) -> Option<u64> {
        let mut open = self.lock();
        let whose = open.values().find(|call| fits(call))?.whose.clone();
        if whose.is_none() || open.values().any(|call| call.whose.is_some() && call.whose != whose) {
            return None;
        }
        // Until the server has read what was cancelled, it asks in no call that was sent after that.
        let (mut another, mut unread) = (false, u64::MAX);
        self.each_gone(|gone| {
            another |= gone.concerns(whose.as_ref());
            if gone.whose == whose && !gone.is_read {
                unread = unread.min(gone.last);
            }
        });
        if another {
            return None;
        }
        let fitting = open.iter().filter(|(id, call)| fits(call) && **id <= unread);
        let candidate = |(id, call): (&u64, &Open)| Candidate {
            id: *id,
            target: call.target,
            asked: call.asked,
            waits_since: (call.unanswered > 0).then_some(call.asked_at),
        };
        let candidates: Vec<Candidate> = fitting.map(candidate).collect();
        let mut targets = self.0.asking_targets.lock().unwrap_or_else(PoisonError::into_inner);
        let id = targets.pick(&candidates)?;
        let alone = unread == u64::MAX && open.values().filter(|call| call.whose.is_some()).count() == 1;
        let picked = open.get_mut(&id)?;
        picked.asked = picked.asked.saturating_add(1);
        picked.asked_at = self.0.last.load(Ordering::Relaxed);
        if alone {
            targets.learn(picked.target);
        }
        Some(id)
    }

    /// The only call of a client, if it is such a one.
    fn only_call(&self, such: impl Fn(&Open) -> bool) -> Option<u64> {
        let id = self.only(|open| open.whose.is_some())?;
        let whose = self.lock().get(&id).filter(|open| such(open))?.whose.clone();
        (!self.gone(|gone| gone.concerns(whose.as_ref()))).then_some(id)
    }

    /// Whether such calls were given up so lately that the server may still speak about them.
    fn gone(&self, such: impl Fn(&Gone) -> bool) -> bool {
        let mut any = false;
        self.each_gone(|gone| any |= such(gone));
        any
    }

    fn each_gone(&self, mut look: impl FnMut(&Gone)) {
        let mut all = self.0.gone.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        all.retain(|gone| gone.until > now);
        all.iter().for_each(&mut look);
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
        let others = |gone: &Gone| gone.whose.as_ref().map(|whose| whose.principal) != principal;
        (alone && !self.gone(others)).then_some(id)
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
        let Some(call) = open.get(&self.id) else { return };
        let (Some(whose), able) = (call.whose.clone(), call.can != Can::default()) else { return };
        let last = self.calls.0.last.load(Ordering::Relaxed);
        let until = Instant::now() + GONE_TIME;
        let mut gone = self.calls.0.gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.retain(|gone| gone.until > Instant::now());
        // Nobody may make room by giving up many calls: an entry that is pushed out would be forgotten too early.
        let known = gone.iter().any(|gone| gone.whose.as_ref() == Some(&whose));
        let whose = if known || gone.len() < GONE_MAX { Some(whose) } else { None };
        match gone.iter_mut().find(|gone| gone.whose == whose) {
            Some(gone) => (gone.able, gone.last, gone.is_read, gone.until) = (gone.able | able, last, false, until),
            None => gone.push_back(Gone { whose, able, last, is_read: false, until }),
        }
    }

    /// Notes that the call is answered.
    pub(super) fn answered(&self) {
        if !self.calls.were_answered() {
            self.calls.0.answered.store(true, Ordering::Relaxed);
        }
        self.calls.settle(self.id);
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
            calls.open(
                &Caller { can: Can { sample, ..Can::default() }, ..(*caller).clone() },
                Logs::Never,
                Target::default(),
            )
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
            let principal = if session == "other" { 2 } else { 1 };
            let caller = crate::model::testing::caller(principal, Some(session));
            Caller { can: Can { sample: true, ..Can::default() }, ..(*caller).clone() }
        };
        let open = |session: &str| calls.open(&caller(session), Logs::Never, Target::default());
        let left = open("a");
        let beside = open("a");
        left.give_up();
        drop(left);
        assert_eq!(find(&ask), Some(beside.id), "the same client's, which was there before");
        drop(beside);
        let other = open("b");
        assert_eq!(find(&ask), None, "the server may ask because of the call that was given up");
        assert!(calls.have_others(&caller("b")) && calls.have_others(&caller("a")));
        other.answered();
        assert_eq!(find(&ask), Some(other.id), "the server has read what was cancelled before");
        drop(other);
        let others = ["a", "b", "other"].map(|session| calls.have_others(&caller(session)));
        assert_eq!(others, [false, false, true]);
        let other = open("other");
        assert_eq!(find(&ask), None, "a tool may go on all the same: it is another principal's");
        drop(other);
        let same = open("a");
        assert!(!calls.is_unsettled(&caller("a")), "a later request was answered");
        assert_eq!(find(&ask), Some(same.id), "the same client");
        same.give_up();
        drop(same);
        let same = open("a");
        assert!(calls.is_unsettled(&caller("a")) && !calls.is_unsettled(&caller("b")));
        assert_eq!(find(&ask), None, "what it cancelled may not be read yet, and asks for the last time");
        calls.settle(same.id);
        assert_eq!(find(&ask), Some(same.id), "it is read");
        drop(same);
        tokio::time::advance(GONE_TIME).await;
        let other = open("other");
        assert_eq!(find(&ask), Some(other.id), "after so long it has heard of it");
    }

    #[tokio::test]
    async fn a_question_that_was_given_to_the_wrong_call_stays_its_clients() {
        let calls = Calls::default();
        let find = |message: &Message| calls.about(message);
        let json = r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#;
        let ask = Message::parse(&Bytes::from_static(json.as_bytes())).unwrap();
        let Message::Request(request) = ask.clone() else { unreachable!() };
        let able = |id| {
            let caller = crate::model::testing::caller(id, None);
            Caller { can: Can { sample: true, ..Can::default() }, ..(*caller).clone() }
        };
        let open = |id| calls.open(&able(id), Logs::Never, Target::default());
        let (first, second) = (open(1), open(1));
        assert_eq!(find(&ask), Some(first.id));
        drop(first);
        assert!(calls.inject_again(&able(1), request.clone()).is_ok(), "the first call is over: it was the second's");
        let injected = second.injected.clone().unwrap();
        assert!(matches!(injected.next().await, Message::Request(_)));
        drop(second);
        let other = open(2);
        assert!(calls.inject_again(&able(1), request.clone()).is_err(), "another principal's call is not asked");
        let _third = open(1);
        assert!(calls.inject_again(&able(1), request).is_err(), "nor is anybody, beside it");
        drop(other);
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_many_calls_is_not_forgotten() {
        let calls = Calls::default();
        let able = |session: &str| {
            let caller = crate::model::testing::caller(1, Some(session));
            Caller { can: Can { sample: true, ..Can::default() }, ..(*caller).clone() }
        };
        for n in 0..GONE_MAX + 10 {
            calls.open(&able(&format!("{n}")), Logs::Never, Target::default()).give_up();
        }
        assert!(calls.0.gone.lock().unwrap().len() <= GONE_MAX + 1);
        for n in [0, GONE_MAX + 5] {
            assert!(calls.have_others(&able(&format!("{n}"))), "others gave up calls, too");
        }
        for _ in 0..GONE_MAX * 2 {
            calls.open(&able("one"), Logs::Never, Target::default()).give_up();
        }
        assert!(calls.have_others(&able("1")) && calls.have_others(&able("new")));
        tokio::time::advance(GONE_TIME).await;
        assert!(!calls.have_others(&able("new")));
    }

    #[test]
    fn a_question_of_a_principals_calls_reaches_one_of_them_and_no_other_principal() {
        let calls = Calls::default();
        let find = |message: &Message| calls.about(message);
        let ask = r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#;
        let ask = Message::parse(&Bytes::from_static(ask.as_bytes())).unwrap();
        let able = |id| {
            let caller = crate::model::testing::caller(id, None);
            Caller { can: Can { sample: true, ..Can::default() }, ..(*caller).clone() }
        };
        let open = |caller: &Caller| calls.open(caller, Logs::Never, Target::default());
        let (first, second) = (open(&able(1)), open(&able(1)));
        assert_eq!([find(&ask), find(&ask)], [Some(first.id), Some(second.id)], "each in its turn");
        let unable = crate::model::testing::caller(2, None);
        let other = open(&unable);
        assert_eq!(find(&ask), None, "it could be about the other principal's call");
        assert!(calls.have_others(&able(1)) && calls.have_others(&unable));
        drop((first, second));
        assert!(!calls.have_others(&crate::model::testing::caller(3, None)), "neither of the two can be asked");
        drop(other);
        let record = AskRecord::default();
        let calls = Calls::recording(record.clone());
        let find = |message: &Message| calls.about(message);
        assert!(find(&ask).is_none() && !record.was_seen(), "that was in no call");
        let _call = calls.open(&able(1), Logs::Never, Target::default());
        assert!(find(&ask).is_some() && record.was_seen());
    }

    #[test]
    fn a_log_message_is_about_the_only_call_that_wants_any() {
        let calls = Calls::default();
        let find = |message: &Message| calls.about(message);
        let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
        let log = Message::parse(&Bytes::from_static(log.as_bytes())).unwrap();
        // Such as the stream on which the gateway listens for changes.
        let _stream = calls.open(&caller(), Logs::Never, Target::default());
        assert_eq!(find(&log), None);
        let first = calls.open(&caller(), Logs::Wanted(1), Target::default());
        assert_eq!(find(&log), Some(first.id));
        let second = calls.open(&caller(), Logs::Wanted(1), Target::default());
        assert_eq!(find(&log), None, "it could be about either");
        drop(first);
        let quiet = calls.open(&caller(), Logs::Unwanted(1), Target::default());
        assert_eq!(find(&log), Some(second.id));
        drop(quiet);
        let _other = calls.open(&caller(), Logs::Unwanted(2), Target::default());
        assert_eq!(find(&log), None, "it could tell of another principal");
    }
}
