//! The gateway is stopped, killed and started again under load: what was answered was answered once, and every session
//! goes on.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, unused_imports, reason = "each test crate uses a part of it")]
mod support;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use moongate::mock::Handle;
use rustix::process::Signal;
use serde_json::json;

use support::{Client, Era, Http, Process, Setup, Stream, holds, legacy, modern, serve, until, within};

const WATCHED: &str = "mock://watched";

/// What the clients of one run counted.
#[derive(Default)]
struct Tally {
    stop: AtomicBool,
    /// Calls that were sent, whatever became of them.
    sent: AtomicU64,
    /// Calls that failed before they were answered.
    broken: AtomicU64,
    answered: AtomicU64,
}

/// Calls without a pause, and counts; gives the numbers that the server's counter gave for the calls of this client.
async fn keep_calling(client: Client, tool: &str, tally: Arc<Tally>) -> Vec<u64> {
    let mut numbers = Vec::new();
    let mut n = 0;
    while !tally.stop.load(Ordering::Relaxed) {
        n += 1;
        let body = call(&client, tool, n);
        tally.sent.fetch_add(1, Ordering::Relaxed);
        match client.http.try_send("POST", &client.url, &body.0, body.1).await {
            // Refused, or broken off: nobody says whether it ran, so it is not repeated; the next one is another call.
            None => {
                tally.broken.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Some(reply) => {
                assert_eq!(reply.status, 200, "{reply:?}");
                let answer = reply.answer();
                assert_eq!(answer["id"], n, "the answer to another call");
                // A server that is being stopped with the gateway is one clear error, too.
                let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
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

fn call(client: &Client, tool: &str, id: u64) -> (Vec<(&'static str, String)>, String) {
    let mut headers = client.headers();
    let mut params = json!({"name": tool, "arguments": {}});
    if client.era == Era::Modern {
        params["_meta"] = support::modern_meta();
        headers.extend([("mcp-method", "tools/call".to_owned()), ("mcp-name", tool.to_owned())]);
    }
    (headers, support::body_of(id, "tools/call", params))
}

async fn ready(process: &Process) {
    let client = Client::open(&process.mcp(), Era::Modern).await;
    for server in ["old", "new"] {
        until("the servers answer", || async {
            let reply = client.call(&format!("{server}__echo"), json!({})).await;
            (reply.json()["result"]["isError"] != true && reply.json()["error"].is_null()).then_some(())
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

fn executed(mock: &Handle) -> u64 {
    mock.counters().of("tools/call")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_under_load_lose_nothing_that_was_answered_and_no_session() {
    let (old, new) = (serve(legacy()).await, serve(modern()).await);
    let setup = Setup::new().lasting().http("old", &old.url).http("new", &new.url).with("gateway", "admin = false");
    let mut process = started(&setup).await;
    ready(&process).await;
    let url = process.mcp();
    let open = |era| Client::open(&url, era);
    let sessions: Vec<Client> = futures_util::future::join_all((0..20).map(|_| open(Era::Legacy))).await;
    for client in &sessions {
        client.request("resources/subscribe", json!({"uri": WATCHED})).await.result();
    }
    let stateless: Vec<Client> = futures_util::future::join_all((0..4).map(|_| open(Era::Modern))).await;
    let before = (executed(&old), executed(&new));
    let tally = Arc::new(Tally::default());
    // A server with sessions counts for each of its own, and starts anew with each: the stateless one counts for all.
    let calling = sessions[..8].iter().chain(&stateless).cloned();
    let calling: Vec<_> =
        calling.map(|client| tokio::spawn(keep_calling(client, "new__counter", tally.clone()))).collect();
    // What is written a moment later is no news for a kill -9: the sessions are older than that.
    tokio::time::sleep(Duration::from_millis(500)).await;
    for signal in [Signal::TERM, Signal::KILL, Signal::TERM, Signal::KILL, Signal::TERM] {
        let answered = tally.answered.load(Ordering::Relaxed);
        holds("calls are answered", || tally.answered.load(Ordering::Relaxed) > answered + 50).await;
        stopped(process, signal).await;
        process = started(&setup).await;
    }
    let answered = tally.answered.load(Ordering::Relaxed);
    holds("calls are answered", || tally.answered.load(Ordering::Relaxed) > answered + 50).await;
    tally.stop.store(true, Ordering::Relaxed);
    let mut numbers = Vec::new();
    for calling in calling {
        numbers.extend(within("a client ends", calling).await.unwrap());
    }
    // Each answer is of an execution of its own, and no call ran that nobody sent.
    let distinct: HashSet<u64> = numbers.iter().copied().collect();
    assert_eq!(distinct.len(), numbers.len(), "an answer was given twice");
    let (ran, sent) = (executed(&new) - before.1, tally.sent.load(Ordering::Relaxed));
    assert!(numbers.len() as u64 <= ran && ran <= sent, "{} answered, {ran} ran, {sent} sent", numbers.len());
    eprintln!(
        "5 restarts: {sent} calls sent, {ran} ran, {} answered, {} broken off, 0 lost of those answered",
        numbers.len(),
        tally.broken.load(Ordering::Relaxed)
    );
    // All sessions, those that called and those that were silent: calls, streams, subscriptions.
    let mut streams = Vec::new();
    for client in &sessions {
        assert_eq!(client.call("old__echo", json!({"n": 1})).await.text(), "{\"n\":1}");
        streams.push(client.listen().await);
    }
    for stream in &mut streams {
        stream.notification("notifications/tools/list_changed").await;
        stream.notification("notifications/resources/list_changed").await;
    }
    holds("the server is subscribed to", || old.notify_resource(WATCHED) > 0).await;
    for stream in &mut streams {
        let updated = stream.notification("notifications/resources/updated").await;
        assert_eq!(updated["params"]["uri"], WATCHED);
    }
    drop(streams);
    stopped(process, Signal::TERM).await;
}

/// Opens sessions, one after the other, until the gateway is gone; gives those that were answered.
async fn keep_opening(url: String) -> Vec<(tokio::time::Instant, String)> {
    let http = Http::new();
    let mut opened = Vec::new();
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": {"name": "t", "version": "1"}});
    let headers =
        [("content-type", "application/json".to_owned()), ("accept", "application/json, text/event-stream".to_owned())];
    while let Some(reply) =
        http.try_send("POST", &url, &headers, support::body_of(0, "initialize", params.clone())).await
    {
        assert_eq!(reply.status, 200, "{reply:?}");
        opened.push((tokio::time::Instant::now(), reply.header("mcp-session-id").to_owned()));
    }
    opened
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_kills_while_it_writes_leave_the_state_whole() {
    let setup = Setup::new().lasting().with("gateway", "admin = false").with("limits", "sessions = 100000");
    let mut kept: Vec<String> = Vec::new();
    let mut expected = 0;
    for round in 0..20_u64 {
        let process = started(&setup).await;
        let url = process.mcp();
        // What was there at an earlier kill and was written is there: a sample of it.
        for session in kept.iter().rev().take(20) {
            let mut client = Client::open(&url, Era::Modern).await;
            (client.era, client.session) = (Era::Legacy, Some(session.clone()));
            assert_eq!(client.request("ping", json!({})).await.status, 200, "round {round}");
        }
        let opening = tokio::spawn(keep_opening(url));
        // Another moment each time, in the middle of the batches that are written.
        tokio::time::sleep(Duration::from_millis(150 + 37 * (round * 7 % 20))).await;
        let killed = tokio::time::Instant::now();
        stopped(process, Signal::KILL).await;
        let opened = within("it ends", opening).await.unwrap();
        assert!(!opened.is_empty());
        // Kept for certain is what a whole batch came after; on a busy disk that takes a while, so that most rounds add
        // nothing to what is certain.
        let old = |at: &tokio::time::Instant| killed.saturating_duration_since(*at) > Duration::from_millis(600);
        let certain: Vec<String> = opened.into_iter().filter(|(at, _)| old(at)).map(|(_, id)| id).collect();
        expected += certain.len();
        kept.extend(certain);
    }
    assert!(expected > 0, "some were kept");
    let names: Vec<_> = std::fs::read_dir(setup.path("state")).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert_eq!(names.len(), 1, "nothing had to be set aside: {names:?}");
}

/// A client that resumes its stream over restarts with whatever id it has.
#[tokio::test]
async fn a_stream_is_followed_over_many_restarts() {
    let setup = Setup::new().lasting().with("gateway", "admin = false");
    let mut process = started(&setup).await;
    let client = Client::open(&process.mcp(), Era::Legacy).await;
    let mut last = None::<String>;
    for round in 0..4 {
        let extra: Vec<_> = last.iter().map(|id| ("last-event-id", id.clone())).collect();
        let response = client.raw("GET", &extra, "").await;
        assert_eq!(response.status(), 200, "round {round}: {last:?}");
        let mut stream = Stream::new(response);
        let event = stream.next().await.unwrap();
        last = event.lines().find_map(|line| line.strip_prefix("id: ")).map(str::to_owned).or(last);
        // The record is written by then.
        tokio::time::sleep(Duration::from_millis(if round == 0 { 600 } else { 0 })).await;
        stopped(process, if round % 2 == 0 { Signal::KILL } else { Signal::TERM }).await;
        process = started(&setup).await;
    }
    assert_eq!(client.request("ping", json!({})).await.status, 200);
}
