//! Behaviour of the tools.
//!
//! Owns the behaviour behind each tool's name. Does not own their definitions. Invariant: a tool
//! that is not listed cannot be called, and a listed tool without behaviour echoes.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt as _,
    time::{Duration, sleep},
};

use super::{
    call::{CallOutcome, CallStop, LEVELS, MockCall},
    change_notice::ChangeNotice,
    frame::OutgoingFrame,
    lists, process, resources,
    revision::Revision,
    scenario,
    wire::{ResultBody, RpcFailure},
};

/// Limit of the text that `big` returns, in bytes.
const BIG_TEXT_MAX: u64 = 256 << 20;

/// Runs the tool, inside a task or not.
pub(super) async fn run_tool(call: &MockCall, name: &str) -> CallOutcome {
    let script = &call.server.script;
    let modern = script
        .modern_answers
        .get(name)
        .filter(|_| call.revision.is_modern());
    if let Some(answer) = modern.or_else(|| script.answers.get(name)) {
        let mut text = answer
            .as_str()
            .map_or_else(|| answer.to_string(), str::to_owned);
        if lists::is_wrapped(call, name) {
            let mut wrapped = answer.clone();
            wrapped["structuredContent"] = json!({"result": answer["structuredContent"]});
            text = wrapped.to_string();
        }
        return Ok(ResultBody::verbatim(&text)
            .ok_or_else(|| RpcFailure::new(-32603, "the script's answer is no object"))?);
    }
    if let Some(flow) = scenario::flow_of(&call.server, &call.request) {
        return scenario::run_flow(call, flow).await;
    }
    // The script may give a tool of another name the behaviour of a built-in one.
    let name = call
        .server
        .script
        .behave
        .get(name)
        .map_or(name, String::as_str);
    match name {
        "elicit" | "elicit_url" | "elicit_twice" | "ask_both" | "ask_mixed" | "ask_name"
        | "sample" | "sample_or_default" | "sample_tools" | "roots" | "needs_page"
        | "look_first" => run_input_request(call, name).await,
        "change" | "touch" | "link" | "counter" | "directories" | "whoami" | "mock_counters" => {
            run_stateful(call, name)
        }
        "crash" | "hang" | "garbage" | "grandchild" | "big" | "env" => run_rough(call, name).await,
        other => run_plain(call, other).await,
    }
}

/// Result with one text.
pub(super) fn text(text: &str) -> ResultBody {
    ResultBody::new().put("content", &json!([{"type": "text", "text": text}]))
}

/// Result of a JSON object: as text, and as structured content if the revision has it.
fn structured(call: &MockCall, raw: String) -> ResultBody {
    let body = text(&raw);
    // Before 2026-07-28 structured content must be an object. All callers pass one.
    if call.revision >= Revision::V2025_06_18 {
        body.raw("structuredContent", raw)
    } else {
        body
    }
}

async fn run_plain(call: &MockCall, name: &str) -> CallOutcome {
    match name {
        "add" => {
            let sum = match (call.argument("a").as_i64(), call.argument("b").as_i64()) {
                // Integers stay integers: 42 and 42.0 are different texts.
                (Some(a), Some(b)) if a.checked_add(b).is_some() => json!(a + b),
                _ => json!(required_number(call, "a")? + required_number(call, "b")?),
            };
            let raw = json!({"sum": sum}).to_string();
            let body = text(&sum.to_string());
            Ok(if call.revision >= Revision::V2025_06_18 {
                body.raw("structuredContent", raw)
            } else {
                body
            })
        }
        "sleep" => {
            let ms = call.number_argument("ms", 0);
            sleep(Duration::from_millis(ms)).await;
            Ok(text(&format!("slept {ms} ms")))
        }
        "compute" => {
            sleep(Duration::from_secs(call.number_argument("seconds", 0))).await;
            Ok(text("computed"))
        }
        "hello" => Ok(text(&format!(
            "Hello, {}!",
            call.text_argument("name", "whoever you are")
        ))),
        "progress" => {
            let steps = call.number_argument("steps", 3);
            let ms = call.number_argument("ms", 1);
            for step in 1..=steps {
                // A step waits before it reports, so a test can act between two reports.
                sleep(Duration::from_millis(ms)).await;
                call.progress(step, steps).await;
            }
            Ok(text(&format!("{steps} steps")))
        }
        "log" => {
            let level = call.text_argument("level", "info");
            if !LEVELS.contains(&level) {
                return Err(RpcFailure::params(format!("Unknown level: {level}")).into());
            }
            call.log(level, &json!(call.text_argument("text", "")))
                .await;
            Ok(text("logged"))
        }
        "fail" => Err(CallStop::Failed(
            call.text_argument("text", "it failed").to_owned(),
        )),
        "error" => {
            let code = call.argument("code").as_i64().unwrap_or(-32000);
            Err(RpcFailure::new(code, call.text_argument("message", "an error")).into())
        }
        "region" => Ok(text(call.text_argument("region", ""))),
        "now" => Ok(text(&jiff::Timestamp::now().to_string())),
        // Not from the parsed value: an echo proves that the bytes of the arguments arrived
        // unchanged.
        _ => Ok(structured(
            call,
            call.request
                .raw_param("arguments")
                .unwrap_or_else(|| "{}".into()),
        )),
    }
}

fn required_number(call: &MockCall, key: &str) -> Result<f64, RpcFailure> {
    call.argument(key)
        .as_f64()
        .ok_or_else(|| RpcFailure::params(format!("`{key}` is no number")))
}

async fn run_input_request(call: &MockCall, name: &str) -> CallOutcome {
    let answer = match name {
        "sample" => {
            call.sample(call.text_argument("prompt", "Say hello."))
                .await?
        }
        "sample_or_default" => match call.sample("Say hello.").await {
            Err(CallStop::Failed(_)) => return Ok(text("nobody was asked")),
            answer => answer?,
        },
        "roots" => call.roots().await?,
        // Looks what the client declared, as tools should. A refusal is then a failure.
        "look_first" => {
            let capability = call.text_argument("capability", "roots");
            match (call.capabilities[capability].is_object(), capability) {
                (false, _) => return Ok(text("nobody was asked")),
                (true, "elicitation") => call.elicit("name", "What is your name?").await?,
                (true, "sampling") => call.sample("Say hello.").await?,
                (true, _) => call.roots().await?,
            }
        }
        "elicit_url" => {
            call.elicit_url("page", call.text_argument("url", "https://example.com/"))
                .await?
        }
        "elicit_twice" => {
            let first = call.elicit("first", "What is your first name?").await?;
            let second = call.elicit("second", "What is your last name?").await?;
            json!({"first": first, "second": second})
        }
        "ask_both" => {
            // Both at once: a legacy client has to answer two open requests, a modern one gets both
            // in one result.
            let both = tokio::join!(
                call.elicit("first", "Your first name?"),
                call.elicit("last", "Your last name?")
            );
            json!({"first": both.0?, "last": both.1?})
        }
        "ask_mixed" => {
            let (name, sample) = tokio::join!(
                call.elicit("name", "What is your name?"),
                call.sample("Say hello.")
            );
            json!({"name": name?, "sample": sample?})
        }
        "sample_tools" => call.sample_with_tools("Look around.").await?,
        // Error -32042 exists only in 2025-11-25.
        "needs_page" if call.argument("done") == true || call.revision != Revision::V2025_11_25 => {
            return Ok(text("the page was read"));
        }
        "needs_page" => {
            let page = json!({"mode": "url", "message": "Please read this \
                page.", "url": "https://example.com/read",
                "elicitationId": format!("page-{}", call.server.next_number())});
            let fail = RpcFailure::new(-32042, "This request requires more information.");
            return Err(fail.data(json!({"elicitations": [page]})).into());
        }
        "ask_name" => {
            let answer = call.elicit("name", "What is your name?").await?;
            let name = answer["content"]["name"].as_str().map(str::to_owned);
            return Ok(text(&name.map_or_else(
                || "Hello, whoever you are.".into(),
                |n| format!("Hello, {n}."),
            )));
        }
        _ => {
            call.elicit("name", call.text_argument("message", "What is your name?"))
                .await?
        }
    };
    Ok(structured(call, answer.to_string()))
}

fn run_stateful(call: &MockCall, name: &str) -> CallOutcome {
    let server = &call.server;
    Ok(match name {
        "counter" => {
            // A count of the session shows if two calls shared one. Servers without sessions count
            // all calls.
            let counter = call
                .session
                .as_ref()
                .map_or(&server.counter, |s| &s.counter);
            text(&(counter.fetch_add(1, Ordering::Relaxed) + 1).to_string())
        }
        "directories" => {
            let roots = call
                .session
                .as_ref()
                .and_then(|session| session.roots.lock().clone());
            text(&roots.map_or_else(
                || "those of the arguments".to_owned(),
                |roots| roots.to_string(),
            ))
        }
        "change" => text(&server.change("tools")),
        "touch" => {
            let uri = call.text_argument("uri", "mock://watched");
            let told = server
                .listeners
                .publish(&ChangeNotice::Resource(uri.to_owned()));
            text(&format!("told {told}"))
        }
        "link" => {
            let uri = call.text_argument("uri", "mock://static/text");
            let resource =
                resources::contents(call, uri).ok_or_else(|| resources::missing(call, uri))?;
            let link = json!({"type": "resource_link", "uri": uri, "name": "linked",
                "mimeType": resource["mimeType"]});
            let embedded = json!({"type": "resource", "resource": resource});
            // Resource links are new in 2025-06-18.
            let known = call.revision >= Revision::V2025_06_18;
            ResultBody::new().put(
                "content",
                &if known {
                    json!([link, embedded])
                } else {
                    json!([embedded])
                },
            )
        }
        "whoami" => {
            let mut headers = json!({});
            for (name, value) in call.headers.iter().flatten() {
                // A header may come more than once, and the test has to see each value.
                headers[name] = match &headers[name] {
                    Value::String(before) => json!(format!("{before}, {value}")),
                    _ => json!(value),
                };
            }
            let me = json!({"headers": headers, "revision": call.revision.date(),
                "client": call.client,
                "capabilities": call.capabilities,
                "session": call.session.as_ref().map(|s| s.id.clone()),
                "meta": call.request.params["_meta"]});
            structured(call, me.to_string())
        }
        _ => {
            let counters =
                serde_json::to_string(&server.record.counters()).unwrap_or_else(|_| "{}".into());
            structured(call, counters)
        }
    })
}

async fn run_rough(call: &MockCall, name: &str) -> CallOutcome {
    match name {
        "crash" => {
            // The text on stderr is there so that a test can find it in the gateway's log.
            let mut stderr = tokio::io::stderr();
            let _ = stderr.write_all(b"boom\n").await;
            let _ = stderr.flush().await;
            Err(CallStop::Crash)
        }
        "hang" => std::future::pending().await,
        "big" => {
            let bytes = call.number_argument("bytes", 0).min(BIG_TEXT_MAX);
            // The limit makes it fit a usize on every platform.
            Ok(text(&"x".repeat(usize::try_from(bytes).unwrap_or(0))))
        }
        "garbage" => {
            // A banner, half a message, bytes that are not UTF-8, and an empty line.
            for line in [
                &b"mock server 1.0 (c) nobody\n"[..],
                b"{\"jsonrpc\":\"2.0\",\"id\n",
                b"\xff\xfe\x00\x01\n",
                b"\n",
            ] {
                let _ = call.out.send(OutgoingFrame::Raw(line.to_vec())).await;
            }
            Ok(text("after the garbage"))
        }
        "grandchild" => match &call.server.program {
            Some(program) => match process::grandchild(program, call.argument("hold") == true) {
                Ok(pid) => Ok(text(&pid.to_string())),
                Err(e) => Err(CallStop::Failed(e.to_string())),
            },
            None => Err(CallStop::Failed(
                "only a mock that is a process of its own starts others".into(),
            )),
        },
        _ => {
            let all: serde_json::Map<String, Value> = std::env::vars_os()
                .map(|(k, v)| (k.to_string_lossy().into_owned(), json!(v.to_string_lossy())))
                .collect();
            Ok(structured(call, Value::Object(all).to_string()))
        }
    }
}
