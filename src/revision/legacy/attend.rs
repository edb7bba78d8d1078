//! What a legacy server's tasks ask, for a client that comes back for it.
//!
//! A 2025-11-25 server puts its questions on a stream while somebody waits for the task's end
//! (2025-11-25/basic/utilities/tasks.mdx, Input Required Status); a later client looks for them and answers them in
//! requests of their own. So the gateway waits in its place. Owns the questions of tasks that nobody has answered yet.
//! Invariant: they are bounded in number and in time; what is dropped is answered with an error.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::json::{Object, Raw, Text};
use crate::jsonrpc::{Request, RpcError, code};
use crate::link::{Backlog, Weight};
use crate::model::{Answers, Ask, Call, Caller, Error, Event, Outcome, Question, Reason, Task, TaskMethod, TaskStatus};
use crate::revision::fault;
use crate::revision::legacy::back::LegacyServer;
use crate::revision::legacy::running::Running;
use crate::revision::legacy::tasks;
use crate::telemetry::CountGuard;

/// Tasks of one connection whose questions are waited for; the oldest of the principal that has the most makes room.
const TASKS_MAX: usize = 256;
/// Questions of one task that may wait for answers.
const QUESTIONS_MAX: usize = 32;
/// Questions about tasks that nobody waits for, of one connection.
const EARLY_MAX: usize = 64;
/// Longest time that a question is kept.
const KEEP: Duration = Duration::from_secs(600);
/// How long a client that looks at a task waits for the questions that the server has ready.
const LOOK: Duration = Duration::from_secs(1);

/// The questions of one connection's tasks.
pub(super) struct Attended {
    tasks: Mutex<HashMap<Text, Arc<Waiter>>>,
    /// Questions that came another way than to the call that waits for their task, or before there was one.
    early: Mutex<VecDeque<Early>>,
    /// One more of these is there.
    added: Notify,
    /// The bytes of all questions.
    backlog: Arc<Backlog>,
}

/// A question that nobody waits for yet.
struct Early {
    task: Text,
    at: Instant,
    request: Request,
    _weight: Weight,
}

/// One task that is waited for.
struct Waiter {
    principal: u32,
    since: Instant,
    open: Mutex<Vec<Waiting>>,
    changed: Notify,
    /// Cancelled when it has to make room.
    over: CancellationToken,
}

impl Waiter {
    fn new(principal: u32) -> Arc<Self> {
        let (open, changed, over) = (Mutex::default(), Notify::new(), CancellationToken::new());
        Arc::new(Waiter { principal, since: Instant::now(), open, changed, over })
    }
}

/// One question without an answer.
struct Waiting {
    key: Text,
    question: Question,
    /// The server's side of the question, by its own key.
    own: Text,
    answer: oneshot::Sender<Answers>,
    _weight: Weight,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Attended {
    /// None yet.
    pub(super) fn new(backlog: Arc<Backlog>) -> Self {
        Attended { tasks: Mutex::default(), early: Mutex::default(), added: Notify::new(), backlog }
    }

    /// Keeps a question until somebody waits for its task. Gives back what has no place.
    pub(super) fn keep(&self, task: Text, request: Request) -> Vec<Request> {
        let now = Instant::now();
        let mut early = lock(&self.early);
        let mut refused = Vec::new();
        while early.front().is_some_and(|early| now - early.at >= KEEP) || early.len() >= EARLY_MAX {
            refused.extend(early.pop_front().map(|early| early.request));
        }
        let weight = loop {
            match self.backlog.take(request.params.size_hint()) {
                Some(weight) => break weight,
                // The oldest makes room, unless there is none left.
                None => match early.pop_front() {
                    Some(oldest) => refused.push(oldest.request),
                    None => {
                        refused.push(request);
                        return refused;
                    }
                },
            }
        };
        early.push_back(Early { task, at: now, request, _weight: weight });
        drop(early);
        self.added.notify_waiters();
        refused
    }

    /// Waits for a question of a task that is kept. There may be one at any time: what the server said before the wait
    /// began can still be on its way here. Dropped, it has taken none.
    pub(super) async fn next_kept(&self, task: &Text) -> Request {
        loop {
            // Before the look, so that nothing that is kept after it is missed.
            let added = self.added.notified();
            if let Some(request) = self.take_kept(task) {
                return request;
            }
            added.await;
        }
    }

    fn take_kept(&self, task: &Text) -> Option<Request> {
        let mut early = lock(&self.early);
        let at = early.iter().position(|early| early.task == *task)?;
        early.remove(at).map(|early| early.request)
    }

    fn forget(&self, id: &Text) {
        lock(&self.tasks).remove(id);
    }

    /// Forgets a task, unless somebody else waits for it by now.
    fn leave(&self, id: &Text, waiter: &Arc<Waiter>) {
        let mut tasks = lock(&self.tasks);
        if tasks.get(id).is_some_and(|known| Arc::ptr_eq(known, waiter)) {
            tasks.remove(id);
        }
    }
}

/// Makes room for one more task of a principal, at the cost of the one that has the most; false: that is the principal
/// itself, or has hardly more.
fn make_room(tasks: &mut HashMap<Text, Arc<Waiter>>, principal: u32) -> bool {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for waiter in tasks.values() {
        *counts.entry(waiter.principal).or_default() += 1;
    }
    let own = counts.get(&principal).copied().unwrap_or(0);
    let Some((most, count)) = counts.into_iter().max_by_key(|(id, count)| (*count, *id)) else { return false };
    if count <= own + 1 {
        return false;
    }
    let theirs = tasks.iter().filter(|(_, waiter)| waiter.principal == most);
    let oldest = theirs.min_by_key(|(_, waiter)| waiter.since).map(|(id, _)| id.clone());
    let gone = oldest.and_then(|id| tasks.remove(&id));
    // Its questions are dropped with it, which tells the server that no answers come.
    gone.map(|waiter| waiter.over.cancel()).is_some()
}

/// The whole state of a task: what it asks while it needs input, and what it came to when it is over.
pub(super) async fn whole(server: Arc<LegacyServer>, caller: Arc<Caller>, id: Text) -> Result<Outcome, Error> {
    let look = Call::of_task(TaskMethod::State, &id);
    let mut outcome = Running::start(server.clone(), caller.clone(), look).0.outcome().await?;
    let Some(task) = &mut outcome.task else {
        return Err(fault::protocol(&server.hello.server, "the answer to tasks/get is no task"));
    };
    match task.status {
        TaskStatus::Working | TaskStatus::Cancelled => {}
        TaskStatus::InputRequired => {
            task.questions = questions(&server, &caller, &id).await?;
            if task.questions.is_empty() {
                // Whatever it asked is answered, or not asked yet: there is nothing for the client to do.
                task.status = TaskStatus::Working;
            }
        }
        TaskStatus::Completed | TaskStatus::Failed => {
            server.attended.forget(&id);
            let wait = Call::of_task(TaskMethod::End, &id);
            finish(task, Running::start(server.clone(), caller, wait).0.outcome().await)?;
        }
    }
    Ok(outcome)
}

/// SEP-2663, Task Execution Errors: "If the underlying request resulted in a JSON-RPC error, the task uses `failed`
/// status"; "if the request completed with a result (even if `isError: true`) the task uses `completed` status".
fn finish(task: &mut Task, end: Result<Outcome, Error>) -> Result<(), Error> {
    match end {
        Ok(outcome) => {
            task.status = TaskStatus::Completed;
            task.end = Some(Ok(outcome.result.raw()));
        }
        Err(Error { reason: Reason::Answered(error), .. }) => {
            task.status = TaskStatus::Failed;
            let mut object =
                Object::new().with("code", Raw::of(&error.code)).with("message", Raw::string(&error.message));
            if let Some(data) = error.data {
                object.set(Text::literal("data"), data);
            }
            task.end = Some(Err(object.raw()));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// What the task asks; waits a moment where nothing is there yet.
async fn questions(
    server: &Arc<LegacyServer>,
    caller: &Arc<Caller>,
    id: &Text,
) -> Result<Vec<(Text, Question)>, Error> {
    let waiter = attend(server, caller, id)?;
    let until = Instant::now() + LOOK;
    loop {
        let changed = waiter.changed.notified();
        let open: Vec<_> = lock(&waiter.open).iter().map(|w| (w.key.clone(), w.question.clone())).collect();
        if !open.is_empty() || timeout_at(until, changed).await.is_err() {
            return Ok(open);
        }
    }
}

/// Waits for the task from now on, unless that is done already.
fn attend(server: &Arc<LegacyServer>, caller: &Arc<Caller>, id: &Text) -> Result<Arc<Waiter>, Error> {
    let mut all = lock(&server.attended.tasks);
    if let Some(waiter) = all.get(id) {
        return Ok(waiter.clone());
    }
    if all.len() >= TASKS_MAX {
        server.hello.metrics.refused.with_label_values(&["tasks"]).inc();
        if !make_room(&mut all, caller.principal.id) {
            let name = &server.hello.server;
            let message = format!("Server \"{name}\" has {TASKS_MAX} tasks that wait for input, the most there may be");
            return Err(Error::new(Reason::Overloaded, message));
        }
    }
    let waiter = Waiter::new(caller.principal.id);
    // A copy: the name is a span of a client's message, which must not live as long as the wait.
    let id = Text::from(id.as_str());
    all.insert(id.clone(), waiter.clone());
    let exchange = Running::start(server.clone(), caller.clone(), Call::of_task(TaskMethod::End, &id)).0;
    let (gone, over) = (server.gone.clone(), waiter.over.clone());
    let kept = CountGuard::new(&server.hello.metrics.tasks.with_label_values(&["asked"]));
    let waiting = wait(Arc::downgrade(server), caller.clone(), id, waiter.clone(), exchange);
    tokio::spawn(gone.run_until_cancelled_owned(async move {
        let _kept = kept;
        over.run_until_cancelled_owned(waiting).await;
    }));
    Ok(waiter)
}

async fn wait(
    server: Weak<LegacyServer>,
    caller: Arc<Caller>,
    id: Text,
    waiter: Arc<Waiter>,
    mut exchange: crate::model::Exchange,
) {
    let until = Instant::now() + KEEP;
    let end = loop {
        match timeout_at(until, exchange.next_event()).await {
            Ok(Event::Ask(ask)) => put(&server, &caller, &waiter, ask),
            Ok(Event::Notify(_)) => {}
            Ok(Event::Done(end)) => break Some(end),
            Err(_) => break None,
        }
    };
    drop(exchange);
    // A server may end the stream and still take the answers to what it asked there.
    let streams_only = matches!(&end, Some(Err(error)) if error.reason == Reason::ServerProtocol);
    while streams_only && !lock(&waiter.open).is_empty() {
        if timeout_at(until, waiter.changed.notified()).await.is_err() {
            break;
        }
    }
    if let Some(server) = server.upgrade() {
        server.attended.leave(&id, &waiter);
    }
}

/// Keeps what a task asks, or refuses it where the client cannot be asked.
fn put(server: &Weak<LegacyServer>, caller: &Caller, waiter: &Waiter, ask: Ask) {
    let Some(server) = server.upgrade() else { return };
    let Some((own, mut question)) = ask.requests.into_iter().next() else { return };
    let mut open = lock(&waiter.open);
    let able = caller.can.answer(question.kind);
    let asks = |outcome| server.hello.metrics.asks.with_label_values(&[question.kind.capability(), outcome]).inc();
    let room = (able && open.len() < QUESTIONS_MAX).then(|| server.attended.backlog.take(question.params.size_hint()));
    let Some(weight) = room.flatten() else {
        asks(if able { "too_many" } else { "not_declared" });
        let message = match able {
            true => "Too many questions wait for the client already".to_owned(),
            false => format!("The client did not declare {}", question.kind.capability()),
        };
        let error = RpcError { code: code::METHOD_NOT_FOUND, message: message.into(), data: None };
        drop(ask.answer.send(vec![(own, Err(error))]));
        return;
    };
    asks("asked");
    tasks::unrelate(&mut question.params);
    // "Each request key in `inputRequests` MUST be unique over the lifetime of a single task" (SEP-2663).
    let key = Text::from(format!("ask-{}", server.calls.next_id()));
    open.push(Waiting { key, question, own, answer: ask.answer, _weight: weight });
    drop(open);
    waiter.changed.notify_waiters();
}

/// Passes on the client's answers; those to what is not asked are ignored, as SEP-2663 says.
pub(super) async fn answer(server: Arc<LegacyServer>, caller: Arc<Caller>, call: Call) -> Result<Outcome, Error> {
    let wrong = |what: &str| Error::new(Reason::InvalidParams, format!("Invalid params: {what}"));
    let id = call.target().ok_or_else(|| wrong("taskId must be a string"))?;
    let responses = call.params.object("inputResponses").ok_or_else(|| wrong("inputResponses must be an object"))?;
    let waiter = lock(&server.attended.tasks).get(&id).cloned();
    let Some(waiter) = waiter else {
        // "Servers SHOULD return a JSON-RPC error if the `taskId` does not correspond to a known task": it knows.
        let look = Call::of_task(TaskMethod::State, &id);
        return Running::start(server, caller, look).0.outcome().await.map(|_| Outcome::default());
    };
    for (key, response) in responses.iter() {
        let Some(result) = response.as_object() else { continue };
        let mut open = lock(&waiter.open);
        if let Some(at) = open.iter().position(|waiting| waiting.key == *key) {
            let Waiting { own, answer, .. } = open.remove(at);
            // A server that went away meanwhile takes no answer.
            drop(answer.send(vec![(own, Ok(result))]));
        }
    }
    waiter.changed.notify_waiters();
    Ok(Outcome::default())
}

/// Cancels a task. For a later client that is no error on one that is over: SEP-2663, "The server MUST acknowledge the
/// request with an empty result".
pub(super) async fn cancel(server: Arc<LegacyServer>, caller: Arc<Caller>, call: Call) -> Result<Outcome, Error> {
    let (id, whole) = (call.target().unwrap_or(Text::literal("")), call.whole);
    server.attended.forget(&id);
    match Running::start(server.clone(), caller.clone(), call).0.outcome().await {
        Err(error) if !whole && matches!(&error.reason, Reason::Answered(e) if e.code == code::INVALID_PARAMS) => {
            let look = Call::of_task(TaskMethod::State, &id);
            let state = Running::start(server, caller, look).0.outcome().await;
            let over = state.is_ok_and(|outcome| outcome.task.is_some_and(|task| task.status.is_over()));
            if over { Ok(Outcome::default()) } else { Err(error) }
        }
        end => end,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

    use super::*;
    use crate::jsonrpc::Id;
    use crate::link::Link;
    use crate::link::duplex::{Duplex, DuplexSettings};
    use crate::model::Server;
    use crate::revision::connect::Hello;
    use crate::revision::{Calls, legacy};
    use crate::telemetry::Metrics;

    fn request(n: u64) -> Request {
        Request { id: Id::number(n), method: Text::literal("elicitation/create"), params: Object::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn early_questions_are_their_tasks_and_bounded() {
        let attended = Attended::new(Backlog::new(1 << 20, "a", &Metrics::new()));
        let (a, b) = (Text::literal("a"), Text::literal("b"));
        assert!(attended.keep(a.clone(), request(1)).is_empty());
        assert!(attended.keep(b.clone(), request(2)).is_empty());
        assert!(attended.keep(a.clone(), request(3)).is_empty());
        assert_eq!(attended.next_kept(&a).await.id, Id::number(1));
        assert_eq!(attended.next_kept(&a).await.id, Id::number(3));
        // Whoever waits already gets what is kept after that.
        let (waited, refused) = tokio::join!(attended.next_kept(&a), async { attended.keep(a.clone(), request(4)) });
        assert!(waited.id == Id::number(4) && refused.is_empty());
        assert!(attended.take_kept(&a).is_none());
        let refused: usize = (0..EARLY_MAX as u64 + 5).map(|n| attended.keep(a.clone(), request(n)).len()).sum();
        assert_eq!(refused, 6, "the oldest make room");
        tokio::time::advance(KEEP).await;
        assert_eq!(attended.keep(b, request(9)).len(), EARLY_MAX, "nothing is kept for ever");
    }

    #[tokio::test(start_paused = true)]
    async fn early_questions_are_bounded_in_bytes() {
        let attended = Attended::new(Backlog::new(1000, "a", &Metrics::new()));
        let large = |n| {
            let params = Object::new().with("message", Raw::string(&"x".repeat(400)));
            Request { id: Id::number(n), method: Text::literal("elicitation/create"), params: params.sealed() }
        };
        let task = Text::literal("a");
        assert!(attended.keep(task.clone(), large(1)).is_empty() && attended.keep(task.clone(), large(2)).is_empty());
        let refused = attended.keep(task.clone(), large(3));
        assert_eq!(refused.iter().map(|request| request.id.clone()).collect::<Vec<_>>(), [Id::number(1)]);
        assert_eq!(attended.take_kept(&task).unwrap().id, Id::number(2));
        let huge = Object::new().with("message", Raw::string(&"x".repeat(2000))).sealed();
        let huge = Request { id: Id::number(4), method: Text::literal("elicitation/create"), params: huge };
        let refused = attended.keep(task.clone(), huge);
        assert_eq!(refused.len(), 2, "what is larger than all has no place, whatever makes room");
        assert!(attended.take_kept(&task).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_principal_with_the_most_tasks_makes_room() {
        let mut tasks = HashMap::new();
        for n in 0..10 {
            let waiter = Waiter::new(if n < 8 { 1 } else { 2 });
            tasks.insert(Text::from(format!("t{n}")), waiter);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let first = tasks[&Text::literal("t0")].clone();
        assert!(!make_room(&mut tasks, 1), "who has the most makes no room for itself");
        assert!(make_room(&mut tasks, 3) && first.over.is_cancelled() && tasks.len() == 9);
        for _ in 0..4 {
            assert!(make_room(&mut tasks, 2));
        }
        assert_eq!(tasks.values().filter(|waiter| waiter.principal == 1).count(), 3);
        assert!(!make_room(&mut tasks, 2), "hardly more is no reason");
    }

    /// The next message that the server gets.
    async fn heard(pipe: &mut BufReader<DuplexStream>) -> String {
        let mut line = String::new();
        pipe.read_line(&mut line).await.unwrap();
        line
    }

    #[tokio::test]
    async fn what_was_on_its_way_when_the_wait_began_is_heard() {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let mut pipe = BufReader::new(theirs);
        let (reader, writer) = tokio::io::split(ours);
        let calls = Calls::default();
        let settings = DuplexSettings {
            max_message: 64 * 1024,
            backlog: Backlog::new(1 << 20, "a", &Metrics::new()),
            correlate: calls.correlate(),
            on_garbage: Arc::new(|line| panic!("{}", String::from_utf8_lossy(line))),
            closed: "it was closed",
            explain: None,
        };
        let link: Arc<dyn Link> = Arc::new(Duplex::start(reader, writer, settings));
        let hello = Hello {
            server: "a".to_owned(),
            revision: None,
            era: None,
            first: None,
            capabilities: Raw::literal("{}"),
            info: Raw::literal("{}"),
            times: Arc::new(crate::revision::Times::new(Duration::from_secs(60), Duration::from_secs(60))),
            max_backlog: 1 << 20,
            metrics: Arc::new(Metrics::new()),
            closing: tokio_util::task::TaskTracker::new(),
            handed_over: None,
        };
        let opening = async {
            assert!(heard(&mut pipe).await.contains("initialize"));
            let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
            pipe.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
            heard(&mut pipe).await
        };
        let (opened, _) = tokio::join!(legacy::open(&link, &calls, &hello), opening);
        let server = legacy::LegacyServer::attach(link, calls, hello, opened.unwrap());
        let caller = crate::model::testing::caller(1, Some("s"));
        let task = Text::literal("t");
        let mut end = server.call(&caller, Call::of_task(TaskMethod::End, &task));
        let (event, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(20), end.next_event()), async {
            assert!(heard(&mut pipe).await.contains("tasks/result"));
            // Read from the pipe before anybody waited for the task, and looked at only now.
            server.0.asked_by_task(task.clone(), request(7)).await;
        });
        assert!(matches!(event.expect("the question is lost"), Event::Ask(_)));
    }
}
