//! What servers do at the first message.

use moongate_mock::{FaultAction, FaultRule, MockScript, Revision};
use serde_json::json;

use super::{ScriptedServer, error, json_response, legacy, response};
use crate::harness::{self, ERAS, Setup, only};

#[tokio::test]
async fn programs_that_end_or_hang_at_the_probe_are_ready() {
    let on_probe =
        |act| only(harness::legacy(), &["echo"]).with_fault(FaultRule::on("server/discover", act));
    let gateway = Setup::new()
        .stdio("ends", &on_probe(FaultAction::Exit { code: 0 }))
        .stdio("hangs", &on_probe(FaultAction::Hang))
        .stdio("closes", &on_probe(FaultAction::Close))
        .start()
        .await;
    gateway.ready(&["ends", "hangs", "closes"]).await;
    for era in ERAS {
        let client = gateway.client(era).await;
        for server in ["ends", "hangs", "closes"] {
            assert_eq!(
                client
                    .call(&format!("{server}__echo"), json!({"a": 1}))
                    .await
                    .text(),
                r#"{"a":1}"#,
                "{era:?}"
            );
        }
    }
}

#[tokio::test]
async fn the_command_and_the_probe_take_the_same_steps() {
    let script = only(harness::legacy(), &["echo"]).with_fault(FaultRule::on(
        "server/discover",
        FaultAction::Exit { code: 0 },
    ));
    let setup = Setup::new().stdio("ends", &script);
    let loaded = setup.load().unwrap();
    let settings = loaded
        .plan
        .servers
        .iter()
        .find(|server| server.name == "ends")
        .unwrap();
    let shared = moongate_upstream::UpstreamRuntime::new(
        std::sync::Arc::new(moongate_telemetry::Metrics::new()),
        moongate_transport::reaper::Reaper::disabled(),
    );
    let identity = moongate_upstream::ConnectIdentity::for_all(None);
    let opened = moongate_upstream::open_connection(settings, &shared, identity)
        .await
        .unwrap();
    assert_eq!(opened.revision, "2025-11-25");
    opened.link.close(Vec::new()).await;
}

#[tokio::test]
async fn the_revision_that_a_400_names_is_taken() {
    let server = ScriptedServer::start(|asked| match asked.method() {
        "server/discover" => response(400, "text/plain", ""),
        "initialize" if asked.message["params"]["protocolVersion"] != "2025-03-26" => {
            let text = "Bad Request: Unsupported protocol version (supported versions: 2025-03-26, \
                        2024-11-05)";
            json_response(
                400,
                &json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": text}}),
            )
        }
        _ => legacy(asked),
    })
    .await;
    let gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    assert_eq!(server.count("initialize"), 2);
    let greeting = server
        .asked()
        .into_iter()
        .rfind(|asked| asked.method() == "initialize")
        .unwrap();
    assert_eq!(
        greeting.message["params"]["capabilities"],
        json!({"sampling": {}})
    );
}

#[tokio::test]
async fn a_modern_server_that_refuses_the_revision_gets_no_handshake_and_its_list_is_told() {
    let server = ScriptedServer::start(|asked| {
        let mut body = error(asked, -32022, "Unsupported protocol version");
        body["error"]["data"] = json!({"supported": ["2027-01-01"], "requested": "2026-07-28"});
        json_response(400, &body)
    })
    .await;
    let gateway = Setup::new().http("a", &server.url).start().await;
    let status = gateway.state("a", "backing_off").await;
    assert!(
        status["reason"].as_str().unwrap().contains("2027-01-01"),
        "{status}"
    );
    assert_eq!(server.count("initialize"), 0);
}

#[tokio::test]
async fn a_server_that_announces_nothing_has_its_tools_and_one_without_any_says_why() {
    let silent = MockScript {
        capabilities: Some(json!({})),
        ..only(harness::legacy(), &["echo"])
    };
    let modern = MockScript {
        capabilities: Some(json!({})),
        ..only(harness::modern(), &["echo"])
    };
    let nothing = MockScript {
        capabilities: Some(json!({})),
        ..only(harness::legacy(), &[])
    };
    let refuses = FaultAction::Error {
        code: -32601,
        message: "no such list".to_owned(),
    };
    let nothing = [
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ]
    .into_iter()
    .fold(nothing, |script, list| {
        script.with_fault(FaultRule::on(list, refuses.clone()))
    });
    let gateway = Setup::new()
        .stdio("silent", &silent)
        .stdio("modern", &modern)
        .stdio("nothing", &nothing)
        .start()
        .await;
    gateway.ready(&["silent", "modern", "nothing"]).await;
    for era in ERAS {
        let client = gateway.client(era).await;
        for server in ["silent", "modern"] {
            assert_eq!(
                client
                    .call(&format!("{server}__echo"), json!({"a": 1}))
                    .await
                    .text(),
                r#"{"a":1}"#,
                "{era:?}"
            );
        }
    }
    let status = gateway.status("nothing").await;
    assert!(
        status["reason"].as_str().unwrap().contains("no such list"),
        "{status}"
    );
}

#[tokio::test]
async fn the_step_that_worked_is_remembered_in_the_state() {
    let script = MockScript {
        revisions: vec![Revision::V2025_06_18],
        ..only(harness::legacy(), &["echo"])
    };
    let script = script.with_fault(FaultRule::on(
        "server/discover",
        FaultAction::Error {
            code: -32601,
            message: "no".to_owned(),
        },
    ));
    let setup = Setup::new().stdio("a", &script).lasting();
    let first = setup.life().await;
    first.ready(&["a"]).await;
    let record = || std::fs::read_to_string(setup.path("a.record")).unwrap();
    let before = record();
    first.app.stop().await;
    let probes = |record: &str| {
        record
            .lines()
            .filter(|line| line.contains("server/discover"))
            .count()
    };
    assert_eq!(probes(&before), 1, "{before}");
    let second = setup.life().await;
    second.ready(&["a"]).await;
    assert_eq!(
        probes(&record()),
        1,
        "the second life begins with what worked"
    );
    second.app.stop().await;
}
