//! Faults of clients below MCP: what comes on one connection of HTTP/1, byte by byte. F52.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use moongate_mock::{FaultAction, FaultRule, MockScript};

use super::rig::{FaultRig, FaultyServer, RigClient, RowSetup};
use crate::harness::{Era, body_of, modern_meta, within};

fn slow(script: MockScript) -> MockScript {
    script.with_fault(FaultRule::on(
        "tools/call:slow",
        FaultAction::Delay { ms: 200 },
    ))
}

async fn rig(test: &'static str) -> FaultRig {
    let setting = RowSetup::new("F52", test).with("limits", "body = \"64KiB\"");
    setting
        .children(&["odd", "slow"], slow, "")
        .http_servers(&["odd", "slow"], slow, "")
        .await
        .start()
        .await
}

/// A POST of the user's, as bytes; `more` are lines of its head.
fn post(
    rig: &FaultRig,
    user: &RigClient,
    extra: &[(&str, String)],
    more: &str,
    body: &str,
) -> String {
    let host = rig.gateway.base.trim_start_matches("http://");
    let headers = user.client.headers();
    let all = headers
        .iter()
        .map(|(name, value)| (*name, value))
        .chain(extra.iter().map(|(name, value)| (*name, value)));
    let head: String = all
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    format!("POST /mcp HTTP/1.1\r\nhost: {host}\r\n{head}{more}\r\n{body}")
}

/// A call, as bytes.
fn call(
    rig: &FaultRig,
    user: &RigClient,
    bad: &FaultyServer,
    tool: &str,
    id: u64,
    more: &str,
) -> String {
    let name = format!("{}__{tool}", bad.name);
    let mut params = json!({"name": name, "arguments": {"nonce": format!("nonce-{id}")}});
    let mut extra = Vec::new();
    if user.client.era() == Era::Modern {
        params["_meta"] = modern_meta();
        extra = vec![("mcp-method", "tools/call".to_owned()), ("mcp-name", name)];
    }
    let body = body_of(id, "tools/call", params);
    post(
        rig,
        user,
        &extra,
        &format!("content-length: {}\r\n{more}", body.len()),
        &body,
    )
}

/// What is answered until the connection ends.
async fn answered(rig: &FaultRig, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(rig.gateway.base.trim_start_matches("http://"))
        .await
        .unwrap();
    // Who is refused may be so before all of it is read.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = within("the end of the connection", stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// The statuses of all answers.
fn statuses(answer: &str) -> Vec<u16> {
    let lines = answer
        .match_indices("HTTP/1.1 ")
        .map(|(at, word)| &answer[at + word.len()..]);
    lines
        .filter_map(|rest| rest.get(..3)?.parse().ok())
        .collect()
}

const LAST: &str = "connection: close\r\n";

#[tokio::test]
async fn f52_requests_in_a_row_are_answered_in_their_order() {
    let rig = rig("f52_requests_in_a_row_are_answered_in_their_order").await;
    rig.each(async |bad, user| {
        let all: String = (0..6)
            .map(|id| {
                let tool = if id == 0 { "slow" } else { "odd" };
                let more = if id == 5 { LAST } else { "" };
                call(&rig, user, bad, tool, id, more)
            })
            .collect();
        let answer = answered(&rig, all.as_bytes()).await;
        assert_eq!(statuses(&answer), [200; 6], "{answer}");
        let places: Vec<_> = (0..6)
            .map(|id| answer.find(&format!("nonce-{id}")).expect("each is there"))
            .collect();
        assert!(places.is_sorted(), "{answer}");
    })
    .await;
    rig.end().await;
}

#[tokio::test]
async fn f52_a_connection_goes_on_after_an_error_or_is_closed() {
    let rig = rig("f52_a_connection_goes_on_after_an_error_or_is_closed").await;
    rig.each(async |bad, user| {
        let good = call(&rig, user, bad, "odd", 7, LAST);
        let before = rig.got(bad, "tools/call");
        // What was read to its end leaves the connection usable.
        let malformed = post(&rig, user, &[], "content-length: 5\r\n", "{\"a\":");
        let answer = answered(&rig, (malformed + &good).as_bytes()).await;
        assert_eq!(statuses(&answer), [400, 200], "{answer}");
        assert!(answer.contains("nonce-7"), "{answer}");
        // What is refused unread does not: nobody can say where the next request would begin.
        let large = post(
            &rig,
            user,
            &[],
            &format!("content-length: {}\r\n", 100_000),
            &"x".repeat(100_000),
        );
        let answer = answered(&rig, (large + &good).as_bytes()).await;
        let first = *statuses(&answer).first().unwrap_or(&413);
        assert!(
            first == 413
                && statuses(&answer)
                    .iter()
                    .all(|status| [413, 200].contains(status)),
            "{answer}"
        );
        // Two lengths: whoever stands in front may have read the other one.
        let after = rig.got(bad, "tools/call");
        let hidden = call(&rig, user, bad, "odd", 8, LAST);
        for more in [
            format!(
                "content-length: {}\r\ntransfer-encoding: chunked\r\n",
                hidden.len() + 5
            ),
            format!(
                "content-length: 3\r\ncontent-length: {}\r\n",
                hidden.len() + 5
            ),
        ] {
            let smuggled = post(&rig, user, &[], &more, &format!("0\r\n\r\n{hidden}"));
            let answer = answered(&rig, smuggled.as_bytes()).await;
            assert!(!answer.contains("nonce-8"), "{more}: {answer}");
            assert_eq!(statuses(&answer), [400], "{more}: {answer}");
        }
        assert_eq!(
            rig.got(bad, "tools/call"),
            after,
            "nothing that was hidden ran"
        );
        assert!(after > before);
    })
    .await;
    rig.end().await;
}

#[tokio::test]
async fn f52_smuggled_requests_are_refused_and_do_not_run() {
    let rig = rig("f52_smuggled_requests_are_refused_and_do_not_run").await;
    let version_2: &[u8] =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x02\x10\0\x1f\x90";
    let openings: [&[u8]; 4] = [
        // Who says whom it speaks for is believed by nobody who did not ask.
        b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n",
        version_2,
        // The beginning of a handshake, at a port without TLS.
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        b"SSH-2.0-client\r\n",
    ];
    rig.each(async |bad, user| {
        let before = rig.got(bad, "tools/call");
        for opening in openings {
            let request = call(&rig, user, bad, "odd", 9, LAST);
            let answer = answered(&rig, &[opening, request.as_bytes()].concat()).await;
            let refused = statuses(&answer).iter().all(|status| *status == 400);
            assert!(
                refused && !answer.contains("nonce-9"),
                "{opening:?}: {answer}"
            );
        }
        assert_eq!(rig.got(bad, "tools/call"), before, "nothing ran");
        let again: Value = user.call(bad, "odd", json!({"n": 1})).await.result();
        assert_eq!(again["content"][0]["text"], r#"{"n":1}"#);
    })
    .await;
    rig.end().await;
}
