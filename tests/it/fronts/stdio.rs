//! `moongate stdio`, by itself and in front of a running gateway.

mod bridges;
mod tasks;

use moongate_mock::MockScript;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::fronts::pipe::StdioProcess;
use crate::harness::{Era, Gateway, Setup, alive, holds, legacy, modern, only, record_of, serve};

const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// The gateway itself, with the config of a setup.
fn own(setup: &Setup, flags: &[&str]) -> StdioProcess {
    let config = setup.file();
    StdioProcess::launch(
        &[&["--config", config.to_str().unwrap()], flags].concat(),
        &[],
    )
}

/// A bridge to a running gateway.
fn bridge(gateway: &Gateway) -> StdioProcess {
    StdioProcess::launch(&["--url", &gateway.url("/mcp")], &[])
}

/// One of each over the same kind of server; what has to live as long as they do comes with them.
async fn both(script: &MockScript) -> (Vec<(&'static str, StdioProcess)>, Setup, Gateway) {
    let setup = Setup::new().stdio("s", script);
    let gateway = Setup::new().stdio("s", script).start().await;
    gateway.ready(&["s"]).await;
    let pipes = vec![("itself", own(&setup, &[])), ("bridge", bridge(&gateway))];
    (pipes, setup, gateway)
}

#[tokio::test]
async fn every_revision_lists_and_calls() {
    for script in [legacy(), modern()] {
        for revision in LEGACY {
            let (pipes, _setup, _gateway) = both(&script).await;
            for (form, mut pipe) in pipes {
                // The first list is whole: most clients look once.
                pipe.initialize(revision, json!({})).await;
                pipe.ask(1, "tools/list", json!({})).await;
                let tools = pipe.result(1).await["tools"].to_string();
                assert!(tools.contains("\"s__echo\""), "{form} {revision}: {tools}");
                pipe.ask(
                    2,
                    "tools/call",
                    json!({"name": "s__echo", "arguments": {"n": 1}}),
                )
                .await;
                assert_eq!(
                    pipe.result(2).await["content"][0]["text"],
                    r#"{"n":1}"#,
                    "{form} {revision}"
                );
                pipe.ask(3, "ping", json!({})).await;
                assert_eq!(pipe.result(3).await, json!({}));
                pipe.close();
                let (status, said) = pipe.ended().await;
                assert!(
                    status.success() && said.is_empty(),
                    "{form} {revision}: {status} {said:?}"
                );
            }
        }
        let (pipes, _setup, _gateway) = both(&script).await;
        for (form, mut pipe) in pipes {
            pipe.ask_modern(1, "server/discover", json!({})).await;
            assert_eq!(
                pipe.result(1).await["supportedVersions"],
                json!(["2026-07-28"]),
                "{form}"
            );
            pipe.ask_modern(
                2,
                "tools/call",
                json!({"name": "s__echo", "arguments": {"n": 2}}),
            )
            .await;
            let result = pipe.result(2).await;
            assert_eq!(result["content"][0]["text"], r#"{"n":2}"#);
            assert_eq!(result["resultType"], "complete");
            // A revision that nobody has: what there is, and no session.
            let meta = json!({"io.modelcontextprotocol/protocolVersion": "2099-01-01"});
            pipe.ask_modern(3, "tools/list", json!({"_meta": meta}))
                .await;
            let error = pipe.answer(3).await["error"].clone();
            assert_eq!(error["code"], -32022);
            assert_eq!(error["data"]["supported"], json!(["2026-07-28"]));
        }
    }
}

#[tokio::test]
async fn an_elicitation_reaches_the_stdio_client() {
    for script in [legacy(), modern()] {
        let (pipes, _setup, _gateway) = both(&script).await;
        for (form, mut pipe) in pipes {
            pipe.initialize("2025-11-25", json!({"elicitation": {}, "sampling": {}}))
                .await;
            for (id, tool, method, reply) in [
                (
                    1,
                    "s__elicit",
                    "elicitation/create",
                    json!({"action": "accept", "content": {"name": "Ada"}}),
                ),
                (
                    2,
                    "s__sample",
                    "sampling/createMessage",
                    json!({"role": "assistant", "content": {"type": "text", "text": "Hello."},
                        "model": "m"}),
                ),
            ] {
                pipe.ask(id, "tools/call", json!({"name": tool, "arguments": {}}))
                    .await;
                let question = pipe.until(|m| m["method"] == method).await;
                pipe.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": reply}))
                    .await;
                let text = pipe.result(id).await["content"][0]["text"]
                    .as_str()
                    .unwrap()
                    .to_owned();
                assert_eq!(
                    serde_json::from_str::<Value>(&text).unwrap(),
                    reply,
                    "{form} {tool}"
                );
            }
        }
        // Without sessions the question is a result, and its answer another request.
        let (pipes, _setup, _gateway) = both(&script).await;
        for (form, mut pipe) in pipes {
            let meta = json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}});
            let call = |extra: Value| {
                let mut params = json!({"name": "s__elicit", "arguments": {}, "_meta": meta});
                params
                    .as_object_mut()
                    .unwrap()
                    .extend(extra.as_object().unwrap().clone());
                params
            };
            pipe.ask_modern(1, "tools/call", call(json!({}))).await;
            let asked = pipe.result(1).await;
            assert_eq!(asked["resultType"], "input_required", "{form}: {asked}");
            let key = asked["inputRequests"]
                .as_object()
                .unwrap()
                .keys()
                .next()
                .unwrap()
                .clone();
            let answers = json!({key: {"action": "accept", "content": {"name": "Ada"}}});
            let retry =
                call(json!({"inputResponses": answers, "requestState": asked["requestState"]}));
            pipe.ask_modern(2, "tools/call", retry).await;
            let text = pipe.result(2).await["content"][0]["text"].to_string();
            assert!(text.contains("Ada"), "{form}: {text}");
        }
    }
}

#[tokio::test]
async fn progress_precedes_the_response_and_calls_can_be_cancelled() {
    for script in [legacy(), modern()] {
        let (pipes, setup, _gateway) = both(&script).await;
        for (form, mut pipe) in pipes {
            pipe.initialize("2025-06-18", json!({})).await;
            let params = json!({"name": "s__progress", "arguments": {"steps": 3},
                "_meta": {"progressToken": "t"}});
            pipe.ask(1, "tools/call", params).await;
            let progress = pipe.notification("notifications/progress").await;
            assert_eq!(progress["params"]["progressToken"], "t", "{form}");
            pipe.result(1).await;
            // Both eras at once, on one pipe.
            pipe.ask(2, "tools/call", json!({"name": "s__hang", "arguments": {}}))
                .await;
            pipe.ask_modern(3, "tools/call", json!({"name": "s__hang", "arguments": {}}))
                .await;
            // A quick one is not held up by them.
            pipe.ask(4, "tools/call", json!({"name": "s__echo", "arguments": {}}))
                .await;
            pipe.result(4).await;
            if form == "itself" {
                let record = || record_of(setup.path("s.record").parent().unwrap(), "s");
                holds("both arrived", || {
                    record().matches("\"s__hang\"").count() + record().matches("\"hang\"").count()
                        >= 2
                })
                .await;
                pipe.tell("notifications/cancelled", json!({"requestId": 2}))
                    .await;
                pipe.tell("notifications/cancelled", json!({"requestId": 3}))
                    .await;
                holds("the server is told", || {
                    record().matches("notifications/cancelled").count() == 2
                })
                .await;
            } else {
                pipe.tell("notifications/cancelled", json!({"requestId": 2}))
                    .await;
                pipe.tell("notifications/cancelled", json!({"requestId": 3}))
                    .await;
            }
            pipe.ask(5, "ping", json!({})).await;
            pipe.result(5).await;
            let late = pipe.kept().iter().any(|m| m["id"] == 2 || m["id"] == 3);
            assert!(!late, "{form}: {:?}", pipe.kept());
        }
    }
}

#[tokio::test]
async fn batches_are_answered_where_the_revision_has_them() {
    let (pipes, _setup, _gateway) = both(&legacy()).await;
    for (_, mut pipe) in pipes {
        pipe.initialize("2025-03-26", json!({})).await;
        let one = |id: i64| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
        let call = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call",
            "params": {"name": "s__echo", "arguments": {}}});
        pipe.say(&json!([one(1), call, one(2)])).await;
        let answers = pipe.until(Value::is_array).await;
        let mut ids: Vec<i64> = answers
            .as_array()
            .unwrap()
            .iter()
            .map(|m| m["id"].as_i64().unwrap())
            .collect();
        ids.sort_unstable();
        assert_eq!(ids, [1, 2, 3], "{answers}");
    }
    let (pipes, _setup, _gateway) = both(&legacy()).await;
    for (_, mut pipe) in pipes {
        pipe.initialize("2025-11-25", json!({})).await;
        pipe.raw(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#)
            .await;
        let refusal = pipe.hear().await;
        assert_eq!(refusal["id"], Value::Null, "{refusal}");
        assert_eq!(refusal["error"]["code"], -32600, "{refusal}");
    }
}

#[tokio::test]
async fn list_changes_are_notified_in_both_eras() {
    let mock = serve(only(legacy(), &["one"])).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    let setup = Setup::new().http("a", &mock.url);
    for (form, mut pipe) in [("itself", own(&setup, &[])), ("bridge", bridge(&gateway))] {
        mock.set_tools(&[crate::harness::tool("one")]);
        mock.notify_list("tools");
        pipe.initialize("2025-11-25", json!({})).await;
        pipe.ask_modern(
            7,
            "subscriptions/listen",
            json!({"notifications": {"toolsListChanged": true}}),
        )
        .await;
        let ack = pipe
            .notification("notifications/subscriptions/acknowledged")
            .await;
        assert_eq!(
            ack["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 7,
            "{form}"
        );
        let changed = |m: &Value| m["method"] == "notifications/tools/list_changed";
        let tagged =
            |m: &Value| m["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 7;
        holds("it hears of changes", || match form {
            "bridge" => gateway.app.metrics.clients.streams.get() > 0,
            _ => mock.listeners() > 1,
        })
        .await;
        mock.change_tools_and_notify(&[crate::harness::tool(&format!("{form}-last"))]);
        pipe.until(|m| changed(m) && tagged(m)).await;
        pipe.until(|m| changed(m) && !tagged(m)).await;
        pipe.tell("notifications/cancelled", json!({"requestId": 7}))
            .await;
        pipe.ask(8, "ping", json!({})).await;
        pipe.result(8).await;
        pipe.close();
        let (status, said) = pipe.ended().await;
        assert!(
            status.success() && !said.iter().any(|m| m["id"] == 7),
            "{form}: {said:?}"
        );
    }
}

#[tokio::test]
async fn oversized_and_malformed_lines_get_one_error_and_stdio_goes_on() {
    let setup = Setup::new()
        .stdio("s", &legacy())
        .with("limits", "body = \"2KiB\"");
    let mut pipe = own(&setup, &[]);
    // Before the handshake, too.
    pipe.raw("this is not JSON").await;
    let error = pipe.hear().await;
    assert_eq!(error["id"], Value::Null);
    assert_eq!(error["error"]["code"], -32700);
    pipe.ask(1, "tools/list", json!({})).await;
    assert!(
        pipe.answer(1).await["error"]["message"]
            .as_str()
            .unwrap()
            .contains("initialize")
    );
    pipe.initialize("2025-11-25", json!({})).await;
    for size in [3_000, 3_000_000] {
        // The id stands last, as the TypeScript SDK writes it.
        let text = "x".repeat(size);
        pipe.raw(&format!(
            r#"{{"method":"tools/call","params":{{"name":"s__echo","arguments":{{"id":4,"t":"{text}"}}}},"jsonrpc":"2.0","id":9}}"#
        ))
        .await;
        let error = pipe.answer(9).await["error"].clone();
        assert!(
            error["message"].as_str().unwrap().contains("limits.body"),
            "{error}"
        );
        pipe.ask(10, "ping", json!({})).await;
        pipe.result(10).await;
    }
    assert!(pipe.kept().is_empty(), "{:?}", pipe.kept());
}

/// The end of the input, a signal, and the end of the client.
#[tokio::test]
async fn every_end_ends_the_children_and_says_nothing_but_messages() {
    for how in ["eof", "eof with a call", "term", "kill -9"] {
        let setup = Setup::new().stdio("s", &legacy());
        let mark = setup.path("s.record").to_str().unwrap().to_owned();
        let children = || {
            let pids = std::fs::read_dir("/proc")
                .unwrap()
                .filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
            let has = |pid: &u32| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                memchr::memmem::find(&line, mark.as_bytes()).is_some() && alive(*pid)
            };
            pids.filter(has).collect::<Vec<u32>>()
        };
        let mut pipe = own(&setup, &[]);
        pipe.initialize("2025-11-25", json!({})).await;
        assert_eq!(children().len(), 1, "{how}");
        if how == "eof with a call" {
            pipe.ask(5, "tools/call", json!({"name": "s__hang", "arguments": {}}))
                .await;
        }
        match how {
            "term" => pipe.signal(Signal::TERM),
            "kill -9" => {
                pipe.signal(Signal::KILL);
                holds("the children are gone", || children().is_empty()).await;
                continue;
            }
            _ => pipe.close(),
        }
        let (status, said) = pipe.ended().await;
        assert!(status.success(), "{how}: {status}\n{}", pipe.log());
        assert!(
            said.iter().all(|m| m["id"] != 5 || m["error"].is_object()),
            "{how}: {said:?}"
        );
        holds("the children are gone", || children().is_empty()).await;
    }
}

#[tokio::test]
async fn requests_piped_in_by_a_script_are_answered() {
    let setup = Setup::new().stdio("s", &modern());
    let mut pipe = own(&setup, &[]);
    pipe.ask_modern(
        1,
        "tools/call",
        json!({"name": "s__echo", "arguments": {"n": 1}}),
    )
    .await;
    pipe.ask_modern(
        2,
        "tools/call",
        json!({"name": "s__echo", "arguments": {"n": 2}}),
    )
    .await;
    pipe.close();
    let (status, said) = pipe.ended().await;
    assert!(status.success());
    let mut ids: Vec<i64> = said
        .iter()
        .filter(|m| m["result"].is_object())
        .map(|m| m["id"].as_i64().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2], "{said:?}");
}

#[tokio::test]
async fn stdio_mode_opens_no_listener_and_serves_the_named_endpoint() {
    let setup = Setup::new().stdio("s", &legacy()).with(
        "auth.keys",
        "name = \"me\"\nkey = \"a-key-of-somebody-01234\"",
    );
    // The one who launches it needs no key; whoever comes by the listener does.
    let mut pipe = own(&setup, &["--endpoint", "s", "--listen", "127.0.0.1:0"]);
    pipe.initialize("2025-11-25", json!({})).await;
    pipe.ask(1, "tools/call", json!({"name": "echo", "arguments": {}}))
        .await;
    assert_eq!(pipe.result(1).await["content"][0]["text"], "{}");
    holds("it says where", || pipe.log().contains("/mcp\n")).await;
    let log = pipe.log();
    let url = log
        .split_once("listening on ")
        .and_then(|(_, rest)| rest.split_once('\n'))
        .unwrap()
        .0
        .to_owned();
    let reply = crate::harness::HttpClient::new()
        .send("POST", &url, &[("content-type", "application/json")], "{}")
        .await;
    assert_eq!(reply.status, 401);
    let client =
        crate::harness::McpClient::with_key(&url, Era::Modern, Some("a-key-of-somebody-01234"))
            .await;
    assert!(client.tools().await.contains(&"s__echo".to_owned()));
    let mut quiet = own(&setup, &[]);
    quiet.initialize("2025-11-25", json!({})).await;
    assert!(!quiet.log().contains("listening"), "{}", quiet.log());
    for (flags, words) in [
        (
            &["--endpoint", "nothing"][..],
            "no view or server \"nothing\"",
        ),
        (&["--key", "of-nobody"], "is not in the config"),
        (&["--listen", "0.0.0.0"], "not an address"),
    ] {
        let mut pipe = own(&setup, flags);
        let (status, said) = pipe.ended().await;
        assert_eq!(status.code(), Some(2), "{flags:?}");
        assert!(said.is_empty(), "{flags:?}");
        holds(words, || pipe.log().contains(words)).await;
    }
    let mut pipe = StdioProcess::launch(&["--url", "ftp://nowhere"], &[]);
    assert_eq!(pipe.ended().await.0.code(), Some(2));
}
