//! The gateway is stopped, killed and started again under load: what was answered was answered
//! once, and every session goes on.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use moongate_mock::MockHandle;
use rustix::process::Signal;
use serde_json::json;

use crate::harness::{
    Era, EventStream, HttpClient, McpClient, Process, Setup, holds, legacy, modern, serve, until,
    within,
};
use moongate_testing::messages::LATEST_LEGACY;

const WATCHED: &str = "mock://watched";

/// What the clients of one run counted.
#[derive(Default)]
struct CallTally {
    stop: AtomicBool,
    /// Calls that were sent, whatever became of them.
    sent: AtomicU64,
    /// Calls that failed before they were answered.
    broken: AtomicU64,
    answered: AtomicU64,
}

/// Calls without a pause, and counts; gives the numbers that the server's counter gave for the
/// calls of this client.
async fn keep_calling(client: McpClient, tool: &str, tally: Arc<CallTally>) -> Vec<u64> {
    let mut numbers = Vec::new();
    let mut n = 0;
    while !tally.stop.load(Ordering::Relaxed) {
        n += 1;
        let body = call(&client, tool, n);
        tally.sent.fetch_add(1, Ordering::Relaxed);
        match client
            .http
            .try_send("POST", &client.url, &body.0, body.1)
            .await
        {
            // Refused, or broken off: nobody says whether it ran, so it is not repeated; the next
            // one is another call.
            None => {
                tally.broken.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Some(reply) => {
                assert_eq!(reply.status, 200, "{reply:?}");
                let answer = reply.answer();
                assert_eq!(answer["id"], n, "the answer to another call");
                // A server that is being stopped with the gateway is one clear error, too.
                let text = answer["result"]["content"][0]["text"]
                    .as_str()
                    .unwrap_or_else(|| panic!("{answer}"));
                match text.parse() {
                    Ok(number) => {
                        numbers.push(number);
                        tally.answered.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(_) => assert_eq!(answer["result"]["isError"], true, "{answer}"),
                }
            }
        }
    }
    numbers
}

fn call(client: &McpClient, tool: &str, id: u64) -> (Vec<(&'static str, String)>, String) {
    let mut headers = client.headers();
    let mut params = json!({"name": tool, "arguments": {}});
    if client.era() == Era::Modern {
        params["_meta"] = crate::harness::modern_meta();
        headers.extend([
            ("mcp-method", "tools/call".to_owned()),
            ("mcp-name", tool.to_owned()),
        ]);
    }
    (headers, crate::harness::body_of(id, "tools/call", params))
}

async fn ready(process: &Process) {
    let client = McpClient::open(&process.mcp(), Era::Modern).await;
    for server in ["old", "new"] {
        until("the servers answer", || async {
            let reply = client.call(&format!("{server}__echo"), json!({})).await;
            (reply.json()["result"]["isError"] != true && reply.json()["error"].is_null())
                .then_some(())
        })
        .await;
    }
}

/// Starts the program again as soon as its port is free.
async fn started(setup: &Setup) -> Process {
    setup.program().await
}

async fn stopped(mut process: Process, signal: Signal) {
    process.signal(signal);
    let status = process.ended().await;
    if signal == Signal::TERM {
        assert_eq!(status.code(), Some(0), "{}", process.log());
    }
}

fn executed(mock: &MockHandle) -> u64 {
    mock.counters().of("tools/call")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_under_load_lose_no_call_that_ran_and_no_session() {
    let (answered, ran) = under_load(&[Signal::TERM; 4]).await;
    assert_eq!(
        answered, ran,
        "what runs when the gateway is stopped is answered"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_under_load_lose_nothing_that_was_answered_and_no_session() {
    let (answered, ran) =
        under_load(&[Signal::TERM, Signal::KILL, Signal::TERM, Signal::KILL]).await;
    assert!(answered <= ran);
}

/// Ends the gateway with each of these signals, under load; gives how many calls were answered, and
/// how many ran.
async fn under_load(signals: &[Signal]) -> (u64, u64) {
    let old = serve(legacy()).await;
    let new = serve(modern()).await;
    let setup = Setup::new()
        .lasting()
        .http("old", &old.url)
        .http("new", &new.url)
        .with("gateway", "admin = false");
    let mut process = started(&setup).await;
    ready(&process).await;
    let url = process.mcp();
    let open = |era| McpClient::open(&url, era);
    let sessions: Vec<McpClient> =
        futures_util::future::join_all((0..20).map(|_| open(Era::Legacy))).await;
    for client in &sessions {
        client
            .request("resources/subscribe", json!({"uri": WATCHED}))
            .await
            .result();
    }
    let stateless: Vec<McpClient> =
        futures_util::future::join_all((0..4).map(|_| open(Era::Modern))).await;
    let before = executed(&new);
    let tally = Arc::new(CallTally::default());
    // A server with sessions counts for each of its own, and starts again with each: the stateless
    // one counts for all.
    let calling = sessions[..8].iter().chain(&stateless).cloned();
    let calling: Vec<_> = calling
        .map(|client| tokio::spawn(keep_calling(client, "new__counter", tally.clone())))
        .collect();
    // The first one writes all that is new: what a kill -9 may cost is another test's.
    for signal in signals.iter().copied() {
        let answered = tally.answered.load(Ordering::Relaxed);
        holds("calls are answered", || {
            tally.answered.load(Ordering::Relaxed) > answered + 50
        })
        .await;
        stopped(process, signal).await;
        process = started(&setup).await;
    }
    let answered = tally.answered.load(Ordering::Relaxed);
    holds("calls are answered", || {
        tally.answered.load(Ordering::Relaxed) > answered + 50
    })
    .await;
    tally.stop.store(true, Ordering::Relaxed);
    let mut numbers = Vec::new();
    for calling in calling {
        numbers.extend(within("a client ends", calling).await.unwrap());
    }
    // Each answer is of an execution of its own, and no call ran that nobody sent.
    let distinct: HashSet<u64> = numbers.iter().copied().collect();
    assert_eq!(distinct.len(), numbers.len(), "an answer was given twice");
    let ran = executed(&new) - before;
    let sent = tally.sent.load(Ordering::Relaxed);
    let answered = numbers.len() as u64;
    let broken = tally.broken.load(Ordering::Relaxed);
    eprintln!(
        "{} restarts: {sent} calls sent, {ran} ran, {answered} answered, {broken} broken off",
        signals.len()
    );
    assert!(answered <= ran && ran <= sent);
    assert_sessions_go_on(&sessions, &new).await;
    stopped(process, Signal::TERM).await;
    (answered, ran)
}

/// Checks the calls, streams and subscriptions of all sessions, those that called and those that
/// were silent.
async fn assert_sessions_go_on(sessions: &[McpClient], subscribed: &MockHandle) {
    let mut streams = Vec::new();
    for client in sessions {
        assert_eq!(
            client.call("old__echo", json!({"n": 1})).await.text(),
            "{\"n\":1}"
        );
        streams.push(client.listen().await);
    }
    for stream in &mut streams {
        stream
            .notification("notifications/tools/list_changed")
            .await;
        stream
            .notification("notifications/resources/list_changed")
            .await;
    }
    // Both servers have it; it is the first one's, by name.
    holds("the server is subscribed to", || {
        subscribed.notify_resource(WATCHED) > 0
    })
    .await;
    for stream in &mut streams {
        let updated = stream.notification("notifications/resources/updated").await;
        assert_eq!(updated["params"]["uri"], WATCHED);
    }
}

/// Opens sessions, one after the other, until the gateway is gone; gives those that were answered.
async fn keep_opening(url: String) -> Vec<String> {
    let http = HttpClient::new();
    let mut opened = Vec::new();
    let who = json!({"name": "t", "version": "1"});
    let params =
        json!({"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": who});
    let body = crate::harness::body_of(0, "initialize", params);
    let json = "application/json";
    let headers = [
        ("content-type", json.to_owned()),
        ("accept", format!("{json}, text/event-stream")),
    ];
    while let Some(reply) = http.try_send("POST", &url, &headers, body.clone()).await {
        assert_eq!(reply.status, 200, "{reply:?}");
        opened.push(reply.header("mcp-session-id").to_owned());
    }
    opened
}

/// Whether a session is there.
async fn is_there(client: &McpClient, session: &str) -> bool {
    let client = McpClient {
        revision: LATEST_LEGACY,
        session: Some(session.to_owned()),
        ..client.clone()
    };
    let status = client.request_as(1, "ping", json!({})).await.status;
    assert!(status == 200 || status == 404, "{status}");
    status == 200
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_kills_while_it_writes_leave_the_state_whole() {
    let setup = Setup::new()
        .lasting()
        .with("gateway", "admin = false")
        .with("limits", "sessions = 100000");
    let (mut last, mut survivors): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for round in 0..=20_u64 {
        let process = started(&setup).await;
        let client = McpClient::open(&process.mcp(), Era::Modern).await;
        // What survived once is there for good.
        for session in survivors.iter().rev().step_by(survivors.len() / 10 + 1) {
            assert!(is_there(&client, session).await, "round {round}");
        }
        // Changes are written in their order, in whole batches: of what was opened last, a
        // beginning is there, and nothing behind the first that is not.
        let mut there = true;
        for session in last.iter().step_by(last.len() / 50 + 1) {
            let found = is_there(&client, session).await;
            assert!(there || !found, "round {round}: there is a gap");
            there = found;
            survivors.extend(found.then(|| session.clone()));
        }
        if round == 20 {
            return done(&setup, process, survivors.len()).await;
        }
        let opening = tokio::spawn(keep_opening(process.mcp()));
        // Another moment each time, in the middle of the batches that are written.
        tokio::time::sleep(Duration::from_millis(150 + 37 * (round * 7 % 20))).await;
        stopped(process, Signal::KILL).await;
        last = within("it ends", opening).await.unwrap();
        assert!(!last.is_empty());
    }
}

async fn done(setup: &Setup, process: Process, survivors: usize) {
    stopped(process, Signal::TERM).await;
    eprintln!("20 kills: {survivors} of the sessions that were looked for survived");
    assert!(survivors > 0, "nothing was ever written");
    let files = std::fs::read_dir(setup.path("state")).unwrap();
    let names: Vec<_> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        !names.iter().any(|name| name.ends_with(".broken")),
        "nothing had to be set aside: {names:?}"
    );
}

/// A client that resumes its stream over restarts with whatever id it has.
#[tokio::test]
async fn a_stream_is_followed_over_many_restarts() {
    let setup = Setup::new().lasting().with("gateway", "admin = false");
    let mut process = started(&setup).await;
    let client = McpClient::open(&process.mcp(), Era::Legacy).await;
    let mut last = None::<String>;
    for round in 0..4 {
        let extra: Vec<_> = last
            .iter()
            .map(|id| ("last-event-id", id.clone()))
            .collect();
        let response = client.raw("GET", &extra, "").await;
        assert_eq!(response.status(), 200, "round {round}: {last:?}");
        let mut stream = EventStream::new(response);
        let event = stream.next().await.unwrap();
        last = event
            .lines()
            .find_map(|line| line.strip_prefix("id: "))
            .map(str::to_owned)
            .or(last);
        stopped(
            process,
            if round % 2 == 0 {
                Signal::TERM
            } else {
                Signal::KILL
            },
        )
        .await;
        process = started(&setup).await;
    }
    assert_eq!(client.request("ping", json!({})).await.status, 200);
}

/// The sessions that a damaged state takes along are told of once, with their number.
#[tokio::test]
async fn the_sessions_of_a_damaged_state_are_one_line_with_their_number() {
    let setup = Setup::new().lasting().with("gateway", "admin = false");
    let process = started(&setup).await;
    let mut clients = Vec::new();
    for _ in 0..7 {
        clients.push(McpClient::open(&process.mcp(), Era::Legacy).await);
    }
    stopped(process, Signal::TERM).await;
    let file = setup.path("state").read_dir().unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        path.extension()
            .is_some_and(|extension| extension == "redb")
            .then_some(path)
    });
    let file = file.unwrap();
    let length = std::fs::metadata(&file).unwrap().len();
    std::fs::write(&file, vec![0x5a; usize::try_from(length).unwrap()]).unwrap();
    let process = started(&setup).await;
    for client in &clients {
        assert_eq!(client.request("ping", json!({})).await.status, 404);
    }
    let log = process.log();
    let lines: Vec<_> = log
        .lines()
        .filter(|line| line.contains("sessions_lost"))
        .collect();
    assert!(
        lines.len() == 1 && lines[0].contains("sessions_lost=\"7\""),
        "{log}"
    );
}
