//! Faults of clients, and of the machine: F41, F43, F44, F47, F49, F51, F58, F60.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use moongate_mock::MockScript;
use serde_json::{Value, json};

use super::rig::{FaultRig, RigClient, RowSetup, assert_one_outcome};
use crate::harness::{
    ERAS, Era, HttpClient, HttpReply, McpClient, body_of, modern_meta, tool, until, within,
};

fn plain(script: MockScript) -> MockScript {
    script
}

async fn everywhere(setting: RowSetup, tools: &[&str]) -> FaultRig {
    setting
        .children(tools, plain, "")
        .http_servers(tools, plain, "")
        .await
        .start()
        .await
}

#[tokio::test]
async fn f41_a_disconnect_cancels_the_call_where_the_revision_says_so() {
    let setting = RowSetup::new(
        "F41",
        "f41_a_disconnect_cancels_the_call_where_the_revision_says_so",
    );
    let setting = setting.counts("moongate_cancelled_total", &[]);
    let rig = everywhere(setting, &["hang"]).await;
    rig.each(async |bad, user| {
        let calls = rig.got(bad, "tools/call");
        let told = rig.got(bad, "notifications/cancelled");
        // A connection of its own, which closes when the call is dropped.
        let client = McpClient {
            http: HttpClient::new(),
            ..user.client.clone()
        };
        let params = json!({"name": format!("{}__hang", bad.name), "arguments": {}});
        let call =
            tokio::spawn(async move { client.request_as("mine", "tools/call", params).await });
        let has = || std::future::ready((rig.got(bad, "tools/call") > calls).then_some(()));
        until("the server has the call", has).await;
        call.abort();
        if user.client.era() == Era::Legacy {
            // "Disconnection ... SHOULD NOT be interpreted as the client cancelling its request":
            // it says so later.
            for n in 0..5 {
                assert_eq!(
                    user.call(bad, "echo", json!({"n": n})).await.text(),
                    format!("{{\"n\":{n}}}")
                );
            }
            assert_eq!(
                rig.got(bad, "notifications/cancelled"),
                told,
                "{}",
                bad.name
            );
            cancel(user, json!("mine")).await;
        }
        let cancelled =
            || std::future::ready((rig.got(bad, "notifications/cancelled") > told).then_some(()));
        until("the server is told", cancelled).await;
    })
    .await;
    rig.end().await;
}

/// Cancels a call of a legacy client.
async fn cancel(user: &RigClient, id: Value) {
    let params = json!({"requestId": id});
    let body = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    assert_eq!(user.client.post(body.to_string()).await.status, 202);
}

#[tokio::test]
async fn f43_hundreds_of_idle_streams_are_held_and_calls_go_on() {
    let setting = RowSetup::new(
        "F43",
        "f43_hundreds_of_idle_streams_are_held_and_calls_go_on",
    );
    let rig = setting
        .children(&["odd"], plain, "")
        .http_servers(&["odd"], plain, "")
        .await
        .start()
        .await;
    let mut idle = Vec::new();
    for n in 0..300 {
        let user = rig.user(ERAS[n % 2]).await;
        let stream = user.client.listen().await;
        idle.push((user, stream));
    }
    assert!(rig.metric("moongate_streams", &[]).await >= 300.0);
    rig.each(async |bad, user| {
        for n in 0..3 {
            assert_eq!(
                user.call(bad, "odd", json!({"n": n})).await.text(),
                format!("{{\"n\":{n}}}")
            );
        }
    })
    .await;
    // They are held, and not only open: each of them hears of a change.
    for mock in &rig.http_servers {
        let told = || std::future::ready((mock.listeners() > 0).then_some(()));
        until("the gateway listens to the server", told).await;
        mock.change_tools_and_notify(&[tool("echo"), tool("odd"), tool("new")]);
    }
    for (_, stream) in &mut idle {
        stream
            .notification("notifications/tools/list_changed")
            .await;
    }
    for (user, stream) in idle {
        drop(stream);
        user.leave().await;
    }
    rig.end().await;
}

#[tokio::test]
async fn f44_equal_ids_at_once_get_their_own_answers() {
    let rig = everywhere(
        RowSetup::new("F44", "f44_equal_ids_at_once_get_their_own_answers"),
        &["odd"],
    )
    .await;
    rig.all(async |bad, user| {
        let calls = (0..20).map(|n| async move {
            let arguments = json!({"n": n, "of": bad.name});
            let params = json!({"name": format!("{}__odd", bad.name), "arguments": arguments});
            // Half of them as a text, which is another id.
            let id = if n % 2 == 0 { json!(7) } else { json!("7") };
            let reply = user
                .client
                .request_as(id.clone(), "tools/call", params)
                .await;
            // A session may refuse the second; what is answered is answered rightly.
            if reply.status == 200 {
                assert_one_outcome(&reply, &id);
                assert_eq!(reply.text(), arguments.to_string());
            } else {
                assert_eq!(reply.status, 400, "{reply:?}");
            }
        });
        futures_util::future::join_all(calls).await;
    })
    .await;
    rig.end().await;
}

/// Sends a list request with one header added, replaced or removed.
async fn send_changed(
    user: &RigClient,
    verb: &str,
    change: (&str, Option<&str>),
    path: &str,
    body: &str,
) -> HttpReply {
    let mut headers = user.client.headers();
    if user.client.era() == Era::Modern {
        headers.push(("mcp-method", "tools/list".to_owned()));
    }
    headers.retain(|(name, _)| *name != change.0);
    let mut headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    headers.extend(change.1.map(|value| (change.0, value)));
    let url = format!("{}{path}", user.client.url);
    user.client
        .http
        .send(verb, &url, &headers, body.to_owned())
        .await
}

/// Sends a request without a key in HTTP/1.0, and one that waits for a 100.
async fn assert_both_versions_are_answered(rig: &FaultRig) {
    for (version, more) in [("HTTP/1.0", ""), ("HTTP/1.1", "expect: 100-continue\r\n")] {
        let body = body_of(1, "ping", json!({}));
        let authority = rig.gateway.base.trim_start_matches("http://").to_owned();
        let head = format!(
            "POST /mcp {version}\r\nhost: {authority}\r\n{more}content-type: \
             application/json\r\naccept: application/json, \
             text/event-stream\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let answer = by_hand(&authority, &head, &body).await;
        let status = answer
            .lines()
            .find(|line| line.starts_with("HTTP/") && !line.contains(" 100 "))
            .unwrap();
        assert!(status.contains(" 401 "), "no key was shown: {answer}");
    }
}

#[tokio::test]
async fn f47_unsupported_http_requests_get_their_status() {
    let setting = RowSetup::new("F47", "f47_unsupported_http_requests_get_their_status");
    let rig = setting
        .http_servers(&["odd"], plain, "")
        .await
        .start()
        .await;
    rig.each(async |bad, user| {
        let list = match user.client.era() {
            Era::Legacy => body_of(1, "tools/list", json!({})),
            Era::Modern => body_of(1, "tools/list", json!({"_meta": modern_meta()})),
        };
        let send = async |verb: &str, change: (&str, Option<&str>), path: &str, body: &str| {
            send_changed(user, verb, change, path, body).await
        };
        assert_eq!(send("POST", ("x", None), "", &list).await.status, 200);
        // What a page of another origin may send without asking.
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
        ] {
            let reply = send("POST", ("content-type", Some(kind)), "", &list).await;
            assert_eq!(reply.status, 400, "{kind}");
            assert!(
                reply.error()["message"]
                    .as_str()
                    .unwrap()
                    .contains("application/json"),
                "{reply:?}"
            );
        }
        for accept in ["application/json", "*/*"] {
            assert_eq!(
                send("POST", ("accept", Some(accept)), "", &list)
                    .await
                    .status,
                200,
                "{accept}"
            );
        }
        for verb in ["PUT", "PATCH"] {
            let reply = send(verb, ("x", None), "", &list).await;
            assert_eq!(reply.status, 405, "{verb}");
            assert!(
                reply.header("allow").contains("POST"),
                "{:?}",
                reply.headers
            );
        }
        if user.client.era() == Era::Modern {
            for verb in ["GET", "DELETE"] {
                assert_eq!(send(verb, ("x", None), "", "").await.status, 405, "{verb}");
            }
        }
        assert_eq!(
            send("POST", ("x", None), "/no/such/path", &list)
                .await
                .status,
            404
        );
        assert_eq!(
            user.call(bad, "odd", json!({})).await.text(),
            "{}",
            "and the client goes on"
        );
    })
    .await;
    assert_both_versions_are_answered(&rig).await;
    rig.end().await;
}

async fn by_hand(authority: &str, head: &str, body: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(authority).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    // It may be refused before its body is read.
    let _ = stream.write_all(body.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = within("the answer", stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn f49_notifications_and_stray_responses_reach_no_server() {
    let setting = RowSetup::new(
        "F49",
        "f49_notifications_and_stray_responses_reach_no_server",
    );
    let rig = setting
        .http_servers(&["odd"], plain, "")
        .await
        .start()
        .await;
    let odd = json!({"jsonrpc": "2.0", "method": "notifications/of-nobody", "params": {"a": 1}})
        .to_string();
    let answers = [
        json!({"jsonrpc": "2.0", "id": 999, "result": {}}).to_string(),
        json!({"jsonrpc": "2.0", "id": "nobody's", "error": {"code": -1, "message": "no"}})
            .to_string(),
    ];
    rig.each(async |bad, user| {
        let calls = rig.got(bad, "tools/call");
        for _ in 0..20 {
            match user.client.era() {
                Era::Legacy => {
                    assert_eq!(user.client.post(odd.clone()).await.status, 202);
                    for answer in &answers {
                        assert_eq!(user.client.post(answer.clone()).await.status, 202);
                    }
                }
                Era::Modern => {
                    assert!([202, 400].contains(&user.client.post(odd.clone()).await.status));
                    for answer in &answers {
                        // "clients **MUST NOT** send JSON-RPC responses" (2026-07-28,
                        // streamable-http).
                        assert_eq!(user.client.post(answer.clone()).await.status, 400);
                    }
                }
            }
        }
        assert_eq!(
            rig.got(bad, "tools/call"),
            calls,
            "nothing reached the server"
        );
        if user.client.era() == Era::Legacy {
            let early = McpClient {
                session: None,
                ..user.client.clone()
            };
            for stray in answers.iter().chain([&odd]) {
                let reply = early.post(stray.clone()).await;
                assert_eq!(reply.status, 202, "before `initialize`");
            }
            assert_eq!(rig.got(bad, "tools/call"), calls);
        }
    })
    .await;
    rig.end().await;
}

#[tokio::test]
async fn f51_a_cancellation_that_comes_at_any_time_ends_its_own_call_only() {
    let setting = RowSetup::new(
        "F51",
        "f51_a_cancellation_that_comes_at_any_time_ends_its_own_call_only",
    );
    let setting = setting.counts("moongate_cancelled_total", &[]);
    let rig = everywhere(setting, &["hang", "odd"]).await;
    for bad in &rig.bads {
        let (user, other) = (rig.user(Era::Legacy).await, rig.user(Era::Legacy).await);
        let call = async |user: &RigClient, tool: &str| {
            let params = json!({"name": format!("{}__{tool}", bad.name), "arguments": {}});
            user.client.request_as("mine", "tools/call", params).await
        };
        // Before, after, twice, and another's.
        for id in [
            json!("mine"),
            json!(1),
            json!(-1),
            Value::Null,
            json!({"a": 1}),
        ] {
            cancel_of_any_kind(&user, id).await;
        }
        assert_eq!(
            call(&user, "odd").await.text(),
            "{}",
            "the id was cancelled before it was used"
        );
        cancel(&user, json!("mine")).await;
        let before = rig.got(bad, "tools/call");
        let (mine, theirs, ()) = tokio::join!(call(&user, "hang"), call(&other, "hang"), async {
            let both =
                || std::future::ready((rig.got(bad, "tools/call") >= before + 2).then_some(()));
            until("both calls are there", both).await;
            cancel(&user, json!("mine")).await;
            cancel(&user, json!("mine")).await;
            let told =
                || std::future::ready((rig.got(bad, "notifications/cancelled") > 0).then_some(()));
            until("the server is told", told).await;
            cancel(&other, json!("mine")).await;
        });
        assert!(
            mine.body.is_empty() && theirs.body.is_empty(),
            "what is cancelled is not answered"
        );
        // Together with the call: it is answered or not, and never twice.
        for _ in 0..10 {
            let (reply, ()) = tokio::join!(call(&user, "odd"), cancel(&user, json!("mine")));
            assert!(reply.body.is_empty() || reply.text() == "{}", "{reply:?}");
        }
        rig.record_coverage(bad, Era::Legacy);
        user.leave().await;
        other.leave().await;
    }
    rig.end().await;
}

async fn cancel_of_any_kind(user: &RigClient, id: Value) {
    let body =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    assert!(
        [202, 400].contains(&user.client.post(body.to_string()).await.status),
        "{id}"
    );
}

#[test]
fn the_clock_on_the_wall_ends_nothing() {
    // Whoever reads the clock that people set: what it is read for is no timeout. Everything that
    // ends by time takes tokio's clock, which no jump of that one moves. Keys end on a date, states
    // of tasks show one, and what outlives a process is dated by the only clock that does, too.
    let allowed = [
        "session/store/",
        "session/sealed_state.rs",
        "telemetry/",
        "mock/",
        "config/resolve/access.rs",
        "access/auth/api_keys.rs",
        "access/auth/expiry.rs",
        "app/reload/revoke.rs",
        "session/task_results.rs",
        // Since when a server is in its state, and when a call began, as dates that people read.
        "admin/status.rs",
        "gateway/recent_calls.rs",
        // Since when a session is there, and how old the oldest call of a table is, for people.
        "session/lib.rs",
        "admin/sessions.rs",
        "page/calls.rs",
        // The age of a server's last error, for people.
        "page/servers.rs",
        // A bench takes the time of a search. Nothing ends by it.
        "search/benches/",
        // A date until when a host asks to be left alone, if it does not show its own clock.
        "transport/retry_after.rs",
        // When an edit was made and the config was read, as dates that people read.
        "config/edit/history.rs",
        "app/reload.rs",
        "app/reload/change_config.rs",
        // When a key was last used and whether it has expired, for people.
        "admin/keys.rs",
        "admin/sign_in/key_uses.rs",
        // A login of tests, which waits since now.
        "app/logins/callback_routes.rs",
        "app/logins/fixtures.rs",
        // The age of a look at a popular server, in days.
        "cli/popular.rs",
        // The name of a copy of a client's file.
        "cli/connect/backup.rs",
        // The age of what is known of a client.
        "cli/doctor/clients.rs",
        // The header that says it.
        "http1/server/date_cache.rs",
        // `Expires` of a cookie is a date.
        "transport/cookie_jar.rs",
        // A token's life outlives the process, and several processes read it.
        "oauth/",
        "tokens/",
        "broker/",
        "access/auth/principal_table/tests.rs",
        "cli/login/wait.rs",
    ];
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("src"), root.join("crates")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path
                .strip_prefix(root)
                .unwrap()
                .to_string_lossy()
                .replace('\\', "/");
            let name = name
                .trim_start_matches("src/")
                .trim_start_matches("crates/")
                .replacen("/src/", "/", 1);
            let reads = ["SystemTime::now", "Timestamp::now", "std::time::Instant"]
                .iter()
                .any(|word| text.contains(word));
            if reads {
                found.push(name);
            }
        }
    }
    let wrong: Vec<_> = found
        .iter()
        .filter(|name| !allowed.iter().any(|place| name.starts_with(place)))
        .collect();
    assert!(!found.is_empty(), "the sources were looked at");
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f60_a_starved_gateway_answers_and_ends_nobody() {
    let setting = RowSetup::new("F60", "f60_a_starved_gateway_answers_and_ends_nobody");
    let rig = setting.children(&["odd"], plain, "").start().await;
    let stop = Arc::new(AtomicBool::new(false));
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let hogs: Vec<_> = (0..cores * 2)
        .map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
        })
        .collect();
    let mut pids = Vec::new();
    for bad in &rig.bads {
        pids.push(rig.status(&bad.name).await["pid"].clone());
    }
    for _ in 0..3 {
        assert_eq!(rig.page("/healthz").await.status, 200);
        rig.each(async |bad, user| {
            assert_eq!(
                user.call(bad, "odd", json!({"n": 1})).await.text(),
                r#"{"n":1}"#
            );
        })
        .await;
    }
    for (bad, pid) in rig.bads.iter().zip(pids) {
        let status = rig.status(&bad.name).await;
        assert_eq!(status["pid"], pid, "nobody was ended for being slow");
        assert_eq!(status["state"], "ready", "nobody was ended for being slow");
    }
    stop.store(true, Ordering::Relaxed);
    for hog in hogs {
        hog.join().unwrap();
    }
    rig.end().await;
}
