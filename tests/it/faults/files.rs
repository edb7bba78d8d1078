//! Open files: a limit that is raised, shared out, and made room in when it is reached anyway.

use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::harness::{Era, HttpClient, McpClient, Process, Setup, holds, until, within};

const HALF_HEAD: &str = "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: ";
const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Opens connections that send this, and no more.
async fn half_requests(base: &str, number: usize, text: &str) -> Vec<TcpStream> {
    let address = base.strip_prefix("http://").unwrap();
    let mut held = Vec::new();
    for _ in 0..number {
        let mut stream = within("a connection", TcpStream::connect(address))
            .await
            .unwrap();
        // It may have made room already.
        let _ = stream.write_all(text.as_bytes()).await;
        held.push(stream);
    }
    held
}

/// Both listeners answer probes within a second, and a client is served.
async fn serves(gateway: &Process) {
    for base in [gateway.base.clone(), gateway.admin_url().await] {
        let began = Instant::now();
        let http = HttpClient::new();
        let url = format!("{base}/livez");
        assert_eq!(
            within("a probe", http.get(&url)).await.status,
            200,
            "{base}"
        );
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "{base}: {:?}",
            began.elapsed()
        );
    }
    let client = McpClient::open(&gateway.mcp(), Era::Modern).await;
    assert_eq!(client.request("tools/list", json!({})).await.status, 200);
}

fn limit_of(pid: u32) -> Rlimit {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .unwrap();
    let mut values = line.split_whitespace().map(|value| value.parse().ok());
    Rlimit {
        current: values.next().unwrap(),
        maximum: values.next().unwrap(),
    }
}

fn open_files(gateway: &Process) -> u64 {
    std::fs::read_dir(format!("/proc/{}/fd", gateway.pid()))
        .unwrap()
        .count() as u64
}

#[tokio::test]
async fn half_requests_make_room_at_once_under_any_limit_of_files() {
    for text in [HALF_HEAD, PREFACE, ""] {
        let gateway = Setup::new().spawn_after("ulimit -n 256").await;
        let _clients = half_requests(&gateway.base, 700, text).await;
        serves(&gateway).await;
        let _operators = half_requests(&gateway.admin_url().await, 400, text).await;
        serves(&gateway).await;
        assert!(open_files(&gateway) < 256);
        let lines = gateway.log().matches("connection not accepted").count();
        assert!(lines <= 2, "{text:?}: {lines} lines");
    }
}

#[tokio::test]
async fn half_requests_hold_no_place_of_the_operators_listener() {
    let gateway = Setup::new().spawn().await;
    let _held = half_requests(&gateway.admin_url().await, 406, HALF_HEAD).await;
    serves(&gateway).await;
    let _held = half_requests(&gateway.admin_url().await, 406, PREFACE).await;
    serves(&gateway).await;
}

#[tokio::test]
async fn probes_are_answered_while_every_place_of_the_operators_listener_is_in_use() {
    let gateway = Setup::new()
        .with("limits", "admin_connections = 2")
        .spawn()
        .await;
    let admin = gateway.admin_url().await;
    let events = "GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    let _streams = half_requests(&admin, 2, events).await;
    let http = HttpClient::new();
    let refused = until("both places are taken", || async {
        let reply = http.get(&format!("{admin}/api/v1/status")).await;
        (reply.status == 503).then_some(reply)
    });
    let refused = refused.await;
    assert!(
        refused.text_body().contains("limits.admin_connections"),
        "{refused:?}"
    );
    for path in ["/livez", "/healthz", "/readyz"] {
        assert_eq!(
            http.get(&format!("{admin}{path}")).await.status,
            200,
            "{path}"
        );
    }
    // Half requests beside them hold no place of the probes.
    let _half = half_requests(&admin, 100, HALF_HEAD).await;
    assert_eq!(http.get(&format!("{admin}/livez")).await.status, 200);
}

#[tokio::test]
async fn the_limit_of_files_is_raised_and_programs_get_the_first_one() {
    let setup = Setup::new();
    let seen = setup.path("seen");
    let line = format!("ulimit -S -n > {}; sleep 600", seen.display());
    let setup = setup.with(
        "servers.a",
        &format!("command = \"sh\"\nargs = [\"-c\", {line:?}]"),
    );
    let gateway = setup.spawn_after("ulimit -S -n 300").await;
    // It is lowered for the moment in which a program starts.
    until("the limit is raised", || {
        let limit = limit_of(gateway.pid());
        let is_raised = limit.current == Some(limit.maximum.unwrap_or(u64::MAX).min(65_536));
        std::future::ready(is_raised.then_some(()))
    })
    .await;
    until("the program has written", || {
        let text = std::fs::read_to_string(&seen).unwrap_or_default();
        std::future::ready((text.trim() == "300").then_some(()))
    })
    .await;
    // More than the first limit allows.
    let address = gateway.base.strip_prefix("http://").unwrap().to_owned();
    let client = McpClient::open(&gateway.mcp(), Era::Modern).await;
    let mut held = Vec::new();
    for _ in 0..400 {
        held.push(TcpStream::connect(&address).await.unwrap());
    }
    holds("all are held", || open_files(&gateway) > 400).await;
    assert_eq!(client.request("tools/list", json!({})).await.status, 200);
}

/// Out of files that something else took, connections make room as they do at their own limit, and
/// one line tells of it.
#[tokio::test]
async fn out_of_descriptors_connections_without_a_request_make_room() {
    let gateway = Setup::new().spawn().await;
    let admin = gateway.admin_url().await;
    let held = half_requests(&gateway.base, 100, HALF_HEAD).await;
    holds("all are held", || open_files(&gateway) > 100).await;
    let pid = Pid::from_raw(gateway.pid().cast_signed());
    let limit = limit_of(gateway.pid());
    let few = Rlimit {
        current: Some(open_files(&gateway)),
        ..limit
    };
    prlimit(pid, Resource::Nofile, few).unwrap();
    let more = half_requests(&gateway.base, 100, HALF_HEAD).await;
    holds("it is out of files", || {
        gateway.log().contains("connection not accepted")
    })
    .await;
    serves(&gateway).await;
    let operators = half_requests(&admin, 50, HALF_HEAD).await;
    serves(&gateway).await;
    let lines = gateway.log().matches("connection not accepted").count();
    assert!(lines <= 2, "{lines} lines");
    drop((held, more, operators));
    prlimit(pid, Resource::Nofile, limit).unwrap();
    serves(&gateway).await;
}
