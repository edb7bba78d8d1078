//! Faults of children: what they say, what they do not say, and how they stop taking part. F4,
//! F7–F17.

mod half_open;

use std::time::Duration;

use moongate_mock::{
    AnswerMode, FaultAction, FaultRule, FlowStep, HttpRules, MockScript, ScriptedFlow, StdioRules,
};
use serde_json::{Value, json};

use super::rig::{FaultCarrier, FaultRig, FaultyServer, RigClient, RowSetup};
use crate::harness::{ERAS, Era, until};

/// Strikes the tool `odd` with each of these.
fn odd(acts: Vec<FaultAction>) -> impl Fn(MockScript) -> MockScript {
    move |mut script| {
        for act in &acts {
            script = script.with_fault(FaultRule::on("tools/call:odd", act.clone()));
        }
        script.http = HttpRules {
            answer: AnswerMode::Sse,
            ..HttpRules::default()
        };
        script
    }
}

/// A call of `odd` that is answered as if nothing had happened.
async fn answered(bad: &FaultyServer, user: &RigClient, nonce: impl Into<Value>) {
    let arguments = json!({"nonce": nonce.into()});
    assert_eq!(
        user.call(bad, "odd", arguments.clone()).await.text(),
        arguments.to_string(),
        "{}",
        bad.name
    );
}

/// A result of one text, for a server of this era.
pub(crate) fn result(era: Era, text: &str) -> String {
    let more = if era == Era::Modern {
        r#","resultType":"complete""#
    } else {
        ""
    };
    format!(
        r#"{{"jsonrpc":"2.0","id":{{id}},"result":{{"content":[{{"type":"text","text":"{text}"}}]{more}}}}}"#
    )
}

fn era_of(script: &MockScript) -> Era {
    if script.revisions.len() == 1 {
        Era::Modern
    } else {
        Era::Legacy
    }
}

const TIMED_OUT: (&str, &[&str]) = (
    "mcp_client_operation_duration_seconds_count",
    &["error_type=\"server_timeout\""],
);
const RESTARTED: (&str, &[&str]) = ("moongate_server_restarts_total", &[]);
const LATE: (&str, &[&str]) = ("moongate_dropped_total", &["what=\"server_answer\""]);
const GARBAGE: (&str, &[&str]) = ("moongate_garbage_total", &[]);
const MENDED: (&str, &[&str]) = ("moongate_mended_messages_total", &[]);

#[tokio::test]
async fn f04_a_call_that_hangs_ends_at_its_deadline_and_is_cancelled() {
    // Long enough for a child that starts with the call on a busy machine: a call that was never
    // sent is not cancelled.
    let settings = "timeout = \"4s\"";
    let setting = RowSetup::new(
        "F4",
        "f04_a_call_that_hangs_ends_at_its_deadline_and_is_cancelled",
    );
    let setting = setting.counts(TIMED_OUT.0, TIMED_OUT.1).children(
        &["odd"],
        odd(vec![FaultAction::Hang]),
        settings,
    );
    let rig = setting
        .http_servers(&["odd"], odd(vec![FaultAction::Hang]), settings)
        .await
        .start()
        .await;
    rig.all(async |bad, user| {
        let failure = user.call(bad, "odd", json!({})).await.failure();
        assert!(
            failure.contains(&format!("servers.{}.timeout", bad.name)),
            "{failure}"
        );
    })
    .await;
    for bad in &rig.bads {
        let told =
            || std::future::ready((rig.got(bad, "notifications/cancelled") >= 2).then_some(()));
        until(&format!("{} is told", bad.name), told).await;
    }
    rig.end().await;
}

#[tokio::test]
async fn f06_progress_for_ever_does_not_move_the_deadline() {
    // "Implementations ... SHOULD always enforce a maximum timeout, regardless of progress
    // notifications" (2026-07-28, basic/utilities/cancellation).
    let endless = |mut script: MockScript| {
        let steps = (1..=2000)
            .flat_map(|n| [FlowStep::Progress(n, 2000), FlowStep::WaitMs(20)])
            .collect();
        script.flows.insert(
            "odd".to_owned(),
            ScriptedFlow {
                steps,
                ..ScriptedFlow::default()
            },
        );
        script
    };
    let settings = "timeout = \"1s\"";
    let setting = RowSetup::new("F6", "f06_progress_for_ever_does_not_move_the_deadline");
    let setting = setting
        .counts(TIMED_OUT.0, TIMED_OUT.1)
        .children(&["odd"], endless, settings);
    let rig = setting
        .http_servers(&["odd"], endless, settings)
        .await
        .start()
        .await;
    rig.all(async |bad, user| {
        let params = json!({"name": format!("{}__odd", bad.name), "arguments": {},
            "_meta": {"progressToken": "p"}});
        let reply = user.request("tools/call", params).await;
        let failure = reply.failure();
        assert!(
            failure.contains(&format!("servers.{}.timeout", bad.name)),
            "{failure}"
        );
        let told = reply
            .messages()
            .iter()
            .filter(|told| told["params"]["progressToken"] == "p")
            .count();
        assert!(
            (1..2000).contains(&told),
            "{}: {told} messages of progress came before \
            the end",
            bad.name
        );
    })
    .await;
    for bad in &rig.bads {
        let told =
            || std::future::ready((rig.got(bad, "notifications/cancelled") >= 2).then_some(()));
        until(&format!("{} is told", bad.name), told).await;
    }
    rig.end().await;
}

#[tokio::test]
async fn f07_a_response_after_the_deadline_is_dropped_and_counted() {
    let late = |script: MockScript| MockScript {
        stdio: StdioRules {
            ignore_cancelled: true,
            ..StdioRules::default()
        },
        ..odd(vec![FaultAction::Delay { ms: 1500 }])(script)
    };
    let setting = RowSetup::new(
        "F7",
        "f07_a_response_after_the_deadline_is_dropped_and_counted",
    );
    let setting = setting
        .counts(LATE.0, LATE.1)
        .children(&["odd"], late, "timeout = \"1s\"");
    let rig = setting.start().await;
    rig.all(async |bad, user| {
        user.call(bad, "odd", json!({"late": true})).await.failure();
        // Until long after the late answer came.
        for n in 0..40 {
            let nonce = json!({"n": n, "bad": bad.name});
            let reply = user.call(bad, "echo", nonce.clone()).await;
            assert_eq!(reply.text(), nonce.to_string());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    until("the late answers are counted", async || {
        (rig.metric(LATE.0, LATE.1).await >= 6.0).then_some(())
    })
    .await;
    rig.end().await;
}

#[tokio::test]
async fn f08_responses_with_wrong_ids_end_no_call() {
    let wrong = [
        r#"{"jsonrpc":"2.0","id":{id}00000,"result":{"content":[]}}"#,
        r#"{"jsonrpc":"2.0","id":"{id}x","result":{"content":[]}}"#,
        r#"{"jsonrpc":"2.0","id":{id}.5,"result":{"content":[]}}"#,
        r#"{"jsonrpc":"2.0","id":"nobody's","result":{"content":[]}}"#,
        r#"{"jsonrpc":"2.0","id":-1,"result":{"content":[]}}"#,
        r#"{"jsonrpc":"2.0","id":0,"error":{"code":-1,"message":"no"}}"#,
        r#"{"jsonrpc":"2.0","id":null,"result":{"content":[]}}"#,
    ];
    let mut acts: Vec<FaultAction> = wrong
        .iter()
        .map(|text| FaultAction::Garbage {
            text: (*text).to_owned(),
        })
        .collect();
    acts.push(FaultAction::Duplicate);
    let setting = RowSetup::new("F8", "f08_responses_with_wrong_ids_end_no_call");
    let setting = setting.counts(LATE.0, LATE.1).counts(GARBAGE.0, GARBAGE.1);
    let rig = setting
        .children(&["odd"], odd(acts.clone()), "")
        .http_servers(&["odd"], odd(acts), "")
        .await
        .start()
        .await;
    rig.all(async |bad, user| {
        let calls = (0..10).map(|n| answered(bad, user, format!("{}-{n}", bad.name)));
        futures_util::future::join_all(calls).await;
    })
    .await;
    rig.end().await;
}

#[tokio::test]
async fn f09_a_servers_request_under_a_clients_id_is_another_request() {
    let ping = FaultAction::Garbage {
        text: r#"{"jsonrpc":"2.0","id":{id},"method":"ping"}"#.to_owned(),
    };
    let setting = RowSetup::new(
        "F9",
        "f09_a_servers_request_under_a_clients_id_is_another_request",
    );
    let setting = setting.counts("moongate_server_requests_total", &["outcome=\"answered\""]);
    let rig = setting
        .children(&["odd"], odd(vec![ping]), "")
        .start()
        .await;
    rig.each(async |bad, user| {
        for n in 0..5 {
            answered(bad, user, n).await;
        }
        // Where servers may send requests, this one has its answer, under the same id.
        let own = || {
            let answers = rig
                .record(bad)
                .lines()
                .filter(|line| line.contains("\"result\":{}"))
                .count();
            std::future::ready((bad.era == Era::Modern || answers >= 5).then_some(()))
        };
        until("the server's request is answered", own).await;
    })
    .await;
    rig.end().await;
}

#[tokio::test]
async fn f10_lines_that_are_no_messages_are_skipped() {
    let lines = [
        "Listening on 8080...",
        "{\"level\":30,\"id\":{id},\"msg\":\"call\"}",
        "7",
        "\"{id}\"",
        "{}",
        "",
        "[1,2]",
    ];
    let mut acts: Vec<FaultAction> = lines
        .iter()
        .map(|text| FaultAction::Garbage {
            text: (*text).to_owned(),
        })
        .collect();
    acts.push(FaultAction::Garbage {
        text: "a banner\n".repeat(500),
    });
    let setting = RowSetup::new("F10", "f10_lines_that_are_no_messages_are_skipped")
        .counts(GARBAGE.0, GARBAGE.1);
    let rig = setting.children(&["odd"], odd(acts), "").start().await;
    rig.all(async |bad, user| {
        for n in 0..3 {
            answered(bad, user, n).await;
        }
    })
    .await;
    assert!(
        rig.gateway.log().len() < 64 << 10,
        "one line a minute of each server is logged"
    );
    rig.end().await;
}

/// The most memory that the gateway ever had, in KiB.
fn peak(rig: &FaultRig) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", rig.gateway.pid())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

#[tokio::test]
async fn f11_a_line_without_end_is_thrown_away() {
    let setting =
        RowSetup::new("F11", "f11_a_line_without_end_is_thrown_away").counts(GARBAGE.0, GARBAGE.1);
    let unending = odd(vec![FaultAction::Unending { bytes: 24 << 20 }]);
    let rig = setting
        .children(&["odd"], unending, "max_message = \"1MiB\"")
        .start()
        .await;
    let before = peak(&rig);
    rig.each(async |bad, user| answered(bad, user, "after the line").await)
        .await;
    let grown = peak(&rig).saturating_sub(before);
    assert!(
        grown < 16 << 10,
        "{grown} KiB for lines of 24 MiB, of which 1 MiB may be kept"
    );
    rig.end().await;
}

#[tokio::test]
async fn f11_an_answer_that_is_too_long_fails_its_call() {
    let setting = RowSetup::new("F11", "f11_an_answer_that_is_too_long_fails_its_call")
        .counts(GARBAGE.0, GARBAGE.1);
    let huge = odd(vec![FaultAction::Huge { bytes: 3 << 20 }]);
    let setting = setting.children(&["odd"], &huge, "max_message = \"1MiB\"");
    let rig = setting
        .http_servers(&["odd"], &huge, "max_message = \"1MiB\"")
        .await
        .start()
        .await;
    rig.each(async |bad, user| {
        let failure = user.call(bad, "odd", json!({})).await.failure();
        assert!(
            failure.contains(&format!("servers.{}.max_message", bad.name)),
            "{failure}"
        );
    })
    .await;
    rig.end().await;
}

#[tokio::test]
async fn f12_odd_text_passes_and_invalid_utf8_is_replaced() {
    // U+2028, a lone surrogate, a byte order mark and CR before LF are no reason to lose an answer.
    let passes = |script: MockScript| {
        let era = era_of(&script);
        let text = format!(
            "\u{ef}\u{bb}\u{bf}{}\r\n",
            result(era, "\u{e2}\u{80}\u{a8} \\ud800 \\u0000")
        );
        odd(vec![FaultAction::Bytes { text }, FaultAction::Hang])(script)
    };
    let setting = RowSetup::new("F12", "f12_odd_text_passes_and_invalid_utf8_is_replaced");
    let setting = setting
        .counts(MENDED.0, MENDED.1)
        .shared(&["odd"], passes, "");
    let replaced = |script: MockScript| {
        let text = result(era_of(&script), "\u{ff}\u{fe} ") + "\n";
        odd(vec![FaultAction::Bytes { text }, FaultAction::Hang])(script)
    };
    let rig = setting.own(&["odd"], replaced, "").start().await;
    rig.each(async |bad, user| {
        if bad.carrier == FaultCarrier::ChildPerClient {
            assert_eq!(
                user.call(bad, "odd", json!({})).await.text(),
                "\u{fffd}\u{fffd} "
            );
            return;
        }
        let id = json!(9000);
        let reply = user
            .client
            .request_as(
                9000,
                "tools/call",
                json!({"name": format!("{}__odd", bad.name)}),
            )
            .await;
        let body = reply.text_body();
        assert!(
            body.contains("\u{2028} \\ud800 \\u0000") && body.contains(&format!("\"id\":{id}")),
            "{body}"
        );
    })
    .await;
    rig.end().await;
}

#[tokio::test]
async fn f13_writes_of_one_byte_are_put_together() {
    let setting = RowSetup::new("F13", "f13_writes_of_one_byte_are_put_together");
    let rig = setting
        .shell("MOCK | dd bs=1 2>/dev/null", &["odd"], "")
        .start()
        .await;
    rig.all(async |bad, user| answered(bad, user, "ünï-cödé \u{1f600} ".repeat(20)).await)
        .await;
    rig.end().await;
}

#[tokio::test]
async fn f13_many_messages_in_one_write_keep_their_order() {
    let line = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{token},"progress":N}}"#;
    let all: Vec<String> = (1..=100)
        .map(|n| line.replace('N', &n.to_string()))
        .collect();
    let act = FaultAction::Garbage {
        text: all.join("\n"),
    };
    let setting = RowSetup::new("F13", "f13_many_messages_in_one_write_keep_their_order");
    let rig = setting.children(&["odd"], odd(vec![act]), "").start().await;
    rig.each(async |bad, user| {
        let params =
            json!({"name": format!("{}__odd", bad.name), "_meta": {"progressToken": "mine"}});
        let messages = user.request("tools/call", params).await.messages();
        let progress = messages
            .iter()
            .filter_map(|message| message["params"]["progress"].as_u64());
        assert_eq!(
            progress.collect::<Vec<_>>(),
            (1..=100).collect::<Vec<_>>(),
            "{}",
            bad.name
        );
    })
    .await;
    rig.end().await;
}

#[tokio::test]
async fn f14_a_flood_on_stderr_blocks_nobody_and_fills_no_log() {
    let setting = RowSetup::new(
        "F14",
        "f14_a_flood_on_stderr_blocks_nobody_and_fills_no_log",
    );
    let rig = setting
        .children(
            &["odd"],
            odd(vec![FaultAction::Stderr { bytes: 2 << 20 }]),
            "",
        )
        .start()
        .await;
    rig.each(async |bad, user| answered(bad, user, 1).await)
        .await;
    let logged = rig.gateway.log().len();
    assert!(logged < 2 << 20, "{logged} bytes of 16 MiB are logged");
    rig.end().await;
}

#[tokio::test]
async fn f20_a_flood_of_notifications_delays_nobody() {
    let flood = |text: &str, count| FaultAction::Flood {
        text: text.to_owned(),
        count,
    };
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{token},"progress":{n}}}"#;
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"{n}"}}"#;
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let acts = vec![
        flood(progress, 10_000),
        flood(log, 10_000),
        flood(changed, 2000),
    ];
    let setting = RowSetup::new("F20", "f20_a_flood_of_notifications_delays_nobody");
    let rig = setting.children(&["odd"], odd(acts), "").start().await;
    rig.each(async |bad, user| {
        let lists = rig.got(bad, "tools/list");
        let params = json!({"name": format!("{}__odd", bad.name), "_meta": {"progressToken": 1}});
        let (reply, ()) = tokio::join!(user.request("tools/call", params), async {
            for n in 0..5 {
                let text = user.call(bad, "echo", json!({"n": n})).await.text();
                assert_eq!(text, format!("{{\"n\":{n}}}"));
            }
        });
        assert_eq!(
            reply.answer()["result"]["isError"],
            Value::Null,
            "{:?}",
            reply.answer()
        );
        let lists = rig.got(bad, "tools/list") - lists;
        assert!(lists < 60, "2000 notices of a change cost {lists} lists");
    })
    .await;
    for era in ERAS {
        let user = rig.user(era).await;
        assert!(
            !user
                .request("tools/list", json!({}))
                .await
                .names()
                .is_empty()
        );
        user.leave().await;
    }
    rig.end().await;
}
