//! Servers that are stricter, older or stranger at their first message than the newest SDKs.
//!
//! Owns their scripts. Invariant: time is paused, and each server records what it was sent.

mod slow_start;

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::testing::{ScriptedAnswer, ServerSide, dialing, dialing_http, settings, settings_http};
use crate::{NoSink, ServerSettings, Upstream};
use moongate_model::ItemKind;
use moongate_model::UpstreamState;

/// What a server got: the number of the connection, and the message.
type Received = Arc<Mutex<Vec<(usize, Value)>>>;

struct OddServer {
    upstream: Arc<Upstream>,
    received: Received,
    took: Duration,
}

impl OddServer {
    /// Starts a server that behaves so, and waits until it has this state.
    async fn start(
        state: UpstreamState,
        change: impl Fn(&mut ServerSettings),
        serve: impl Fn(&ServerSide, &Value) + Send + Sync + 'static,
    ) -> Self {
        let received = Received::default();
        let record = received.clone();
        let shared = dialing(move |talk, message| {
            record.lock().push((talk.nth, message.clone()));
            serve(talk, message);
        });
        let mut settings = settings();
        change(&mut settings);
        let upstream = Upstream::new(settings, shared, Arc::new(NoSink));
        let began = Instant::now();
        tokio::spawn(upstream.clone().run());
        upstream
            .watch()
            .wait_for(|status| status.state == state)
            .await
            .unwrap();
        OddServer {
            upstream,
            received,
            took: began.elapsed(),
        }
    }

    async fn ready(serve: impl Fn(&ServerSide, &Value) + Send + Sync + 'static) -> Self {
        OddServer::start(UpstreamState::Ready, |_| {}, serve).await
    }

    /// Returns the methods that the server got, with their connections.
    fn methods(&self) -> Vec<(usize, String)> {
        let received = self.received.lock();
        received
            .iter()
            .map(|(nth, message)| (*nth, message["method"].as_str().unwrap().to_owned()))
            .collect()
    }

    fn count(&self, method: &str) -> usize {
        self.methods()
            .iter()
            .filter(|(_, got)| got == method)
            .count()
    }

    fn tools(&self) -> usize {
        self.upstream.lists().get(ItemKind::Tools).items.len()
    }
}

fn has_method(message: &Value, method: &str) -> bool {
    message["method"] == method
}

fn refuse(talk: &ServerSide, message: &Value, code: i64, text: &str, data: &Value) {
    let error = json!({"code": code, "message": text, "data": data});
    talk.send(json!({"jsonrpc": "2.0", "id": message["id"], "error": error}));
}

/// Answers `initialize` in a revision, and lists as every server does.
fn agree(talk: &ServerSide, message: &Value, revision: &str, capabilities: &Value) {
    let info = json!({"name": "odd", "version": "1"});
    if has_method(message, "initialize") {
        let mut result = json!({"protocolVersion": revision, "serverInfo": info});
        if !capabilities.is_null() {
            result["capabilities"] = capabilities.clone();
        }
        talk.answer(message, &result);
    } else {
        talk.serve_legacy(message);
    }
}

const TOOLS: fn() -> Value = || json!({"tools": {}});

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_at_the_probe_gets_the_handshake_first() {
    let odd = OddServer::ready(|talk, message| match message["method"].as_str().unwrap() {
        "server/discover" => talk.end(),
        _ => agree(talk, message, "2025-06-18", &TOOLS()),
    })
    .await;
    assert_eq!(
        odd.methods()[..2],
        [
            (0, "server/discover".to_owned()),
            (1, "initialize".to_owned())
        ]
    );
    assert_eq!(odd.upstream.revision(), Some("2025-06-18"));
    assert_eq!(odd.tools(), 1);
    assert!(odd.took < Duration::from_secs(1), "{:?}", odd.took);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_after_the_probe_gets_the_handshake_on_a_fresh_connection() {
    let hung = Mutex::new(Vec::new());
    let odd = OddServer::ready(move |talk, message| {
        if has_method(message, "server/discover") {
            hung.lock().push(talk.nth);
        } else if !hung.lock().contains(&talk.nth) {
            agree(talk, message, "2025-06-18", &TOOLS());
        }
    })
    .await;
    assert_eq!(
        odd.methods()[..2],
        [
            (0, "server/discover".to_owned()),
            (1, "initialize".to_owned())
        ]
    );
    assert!(odd.took < Duration::from_secs(8), "{:?}", odd.took);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_out_of_order_after_the_probe_gets_a_fresh_connection() {
    let odd =
        OddServer::ready(
            |talk, message| match (talk.nth, message["method"].as_str().unwrap()) {
                (0, _) => refuse(talk, message, -32000, "not initialized", &Value::Null),
                _ => agree(talk, message, "2025-06-18", &TOOLS()),
            },
        )
        .await;
    assert_eq!(odd.methods()[2], (1, "initialize".to_owned()));
    assert_eq!(odd.tools(), 1);
}

fn connect_by_npx(settings: &mut ServerSettings) {
    settings.connect = crate::ConnectTarget::Stdio {
        command: "npx".to_owned(),
        args: Vec::new(),
        env: Vec::new(),
        cwd: None,
    };
}

/// Answers as a legacy server, after 8 seconds.
fn serve_slowly(talk: &ServerSide, message: &Value) {
    let talk = talk.clone();
    let message = message.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(8)).await;
        match message["method"].as_str().unwrap() {
            "server/discover" => refuse(&talk, &message, -32601, "no", &Value::Null),
            _ => agree(&talk, &message, "2025-06-18", &TOOLS()),
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_program_that_is_still_downloaded_is_not_ended() {
    let odd = OddServer::start(UpstreamState::Ready, connect_by_npx, serve_slowly).await;
    assert!(
        odd.methods().iter().all(|(nth, _)| *nth == 0),
        "{:?}",
        odd.methods()
    );
}

#[tokio::test(start_paused = true)]
async fn the_revision_that_an_error_names_is_requested_next() {
    let named = [
        (
            "Unsupported protocol version",
            json!({"supported": ["2025-06-18"], "requested": "2025-11-25"}),
        ),
        (
            "Bad Request: Unsupported protocol version (supported versions: 2025-06-18)",
            Value::Null,
        ),
    ];
    for (text, data) in named {
        let odd = OddServer::ready(move |talk, message| {
            let wanted = &message["params"]["protocolVersion"];
            if has_method(message, "server/discover")
                || has_method(message, "initialize") && wanted != "2025-06-18"
            {
                refuse(talk, message, -32602, text, &data);
            } else {
                agree(talk, message, "2025-06-18", &TOOLS());
            }
        })
        .await;
        assert_eq!(odd.upstream.revision(), Some("2025-06-18"));
        let greetings: Vec<Value> = odd
            .received
            .lock()
            .iter()
            .filter(|(_, got)| has_method(got, "initialize"))
            .map(|(_, got)| got.clone())
            .collect();
        let greeting = &greetings.last().unwrap()["params"];
        assert_eq!(
            greeting["capabilities"],
            json!({"sampling": {}, "elicitation": {}})
        );
        // Two of the newest: one after the probe, one as the first message.
        assert_eq!(greetings.len(), 3, "{greetings:?}");
    }
}

/// Refuses members that a server does not know, as Java, PHP and Jenkins servers do.
fn strict(talk: &ServerSide, message: &Value, known: &[&str]) {
    if has_method(message, "server/discover") {
        return refuse(talk, message, -32601, "no", &Value::Null);
    }
    let declared = message["params"]["capabilities"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let unknown = declared
        .iter()
        .find(|(name, value)| !known.contains(&name.as_str()) || **value != json!({}));
    match unknown {
        Some((name, _)) => refuse(
            talk,
            message,
            -32603,
            &format!("Unrecognized field {name:?}"),
            &Value::Null,
        ),
        None => agree(
            talk,
            message,
            message["params"]["protocolVersion"]
                .as_str()
                .unwrap_or_default(),
            &TOOLS(),
        ),
    }
}

#[tokio::test(start_paused = true)]
async fn older_forms_have_the_members_of_their_revision_and_the_last_has_none() {
    let known: [(&'static [&'static str], &str); 3] = [
        (&["sampling", "elicitation"], "2025-06-18"),
        (&["sampling"], "2025-03-26"),
        (&[], "2025-11-25"),
    ];
    for (known, revision) in known {
        let odd = OddServer::ready(move |talk, message| strict(talk, message, known)).await;
        assert_eq!(odd.upstream.revision(), Some(revision), "{known:?}");
        let reason = odd.upstream.status().reason;
        assert_eq!(
            reason.contains("cannot ask its clients for anything"),
            known.is_empty(),
            "{reason}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_form_that_worked_is_the_first_of_the_next_connection() {
    let odd = OddServer::ready(|talk, message| {
        strict(talk, message, &["sampling"]);
        if has_method(message, "notifications/initialized") && talk.nth < 20 {
            let talk = talk.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(40)).await;
                talk.end();
            });
        }
    })
    .await;
    let before = odd.methods().len();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let after = odd.methods()[before..]
        .iter()
        .filter(|(_, got)| got == "initialize")
        .count();
    assert_eq!(after, 1, "{:?}", odd.methods());
    assert_eq!(odd.count("server/discover"), 1, "{:?}", odd.methods());
}

/// Refuses each message as a server of a later revision.
fn refuse_revision(talk: &ServerSide, message: &Value) {
    refuse(
        talk,
        message,
        -32022,
        "Unsupported protocol version",
        &json!({"supported": ["2027-01-01"]}),
    );
}

#[tokio::test(start_paused = true)]
async fn a_modern_error_stays_modern() {
    let tried = Mutex::new(0);
    let odd = OddServer::ready(
        move |talk, message| match message["method"].as_str().unwrap() {
            "server/discover" => {
                *tried.lock() += 1;
                if *tried.lock() == 1 {
                    return refuse(
                        talk,
                        message,
                        -32022,
                        "no",
                        &json!({"supported": ["2026-07-28"]}),
                    );
                }
                talk.answer(
                    message,
                    &json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}}}),
                );
            }
            "tools/list" => {
                let tools = json!([{"name": "t", "inputSchema": {"type": "object"}}]);
                talk.answer(message, &json!({"resultType": "complete", "tools": tools}));
            }
            _ => {}
        },
    )
    .await;
    assert_eq!(odd.upstream.revision(), Some("2026-07-28"));
    assert_eq!(odd.count("initialize"), 0);
    let odd = OddServer::start(UpstreamState::BackingOff, |_| {}, refuse_revision).await;
    assert_eq!(odd.count("initialize"), 0, "{:?}", odd.methods());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_lists_only_older_revisions_gets_the_handshake() {
    let odd = OddServer::ready(|talk, message| match message["method"].as_str().unwrap() {
        "server/discover" => talk.answer(
            message,
            &json!({"supportedVersions": ["2025-06-18"], "capabilities": {}}),
        ),
        _ => agree(talk, message, "2025-06-18", &TOOLS()),
    })
    .await;
    assert_eq!(odd.upstream.revision(), Some("2025-06-18"));
    assert_eq!(odd.tools(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_announces_nothing_is_asked_for_each_list() {
    for capabilities in [
        json!({}),
        json!([]),
        Value::Null,
        json!({"tools": true}),
        json!({"logging": {}}),
    ] {
        let odd =
            OddServer::ready(
                move |talk, message| match message["method"].as_str().unwrap() {
                    "server/discover"
                    | "prompts/list"
                    | "resources/list"
                    | "resources/templates/list" => {
                        refuse(talk, message, -32601, "Method not found", &Value::Null);
                    }
                    _ => agree(talk, message, "2025-06-18", &capabilities),
                },
            )
            .await;
        assert_eq!(odd.tools(), 1);
        assert_eq!(odd.count("prompts/list"), 1);
        assert_eq!(odd.count("resources/list"), 1);
        assert_eq!(odd.upstream.status().reason, "");
        assert!(odd.upstream.description().unwrap().capabilities.tools);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_for_beside_an_announced_list() {
    let odd = OddServer::ready(|talk, message| match message["method"].as_str().unwrap() {
        "server/discover" => refuse(talk, message, -32601, "no", &Value::Null),
        _ => agree(talk, message, "2025-06-18", &TOOLS()),
    })
    .await;
    assert_eq!(odd.count("prompts/list"), 0);
    assert_eq!(odd.count("resources/list"), 0);
    assert_eq!(odd.count("tools/list"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_ready_with_nothing_says_why() {
    let odd = OddServer::ready(|talk, message| match message["method"].as_str().unwrap() {
        "initialize" | "notifications/initialized" => {
            agree(talk, message, "2025-06-18", &json!({}))
        }
        _ => refuse(talk, message, -32601, "Method not found", &Value::Null),
    })
    .await;
    let reason = odd.upstream.status().reason;
    assert!(
        reason.contains("announces no tools") && reason.contains("Method not found"),
        "{reason}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_every_handshake_is_started_a_few_times_only() {
    let odd = OddServer::start(
        UpstreamState::BackingOff,
        |_| {},
        |talk, message| {
            refuse(
                talk,
                message,
                -32603,
                "GITHUB_TOKEN is not set",
                &Value::Null,
            )
        },
    )
    .await;
    assert!(odd.count("initialize") <= 6, "{:?}", odd.methods());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_minds_a_member_of_the_newest_revision_keeps_the_others() {
    let odd = OddServer::ready(|talk, message| match message["method"].as_str().unwrap() {
        "server/discover" => refuse(talk, message, -32601, "no", &Value::Null),
        "initialize"
            if message["params"]["capabilities"]
                .to_string()
                .contains("form") =>
        {
            refuse(
                talk,
                message,
                -32602,
                "Unrecognized field \"form\"",
                &Value::Null,
            );
        }
        _ => agree(talk, message, "2025-06-18", &TOOLS()),
    })
    .await;
    let received = odd.received.lock();
    let taken = received
        .iter()
        .rfind(|(_, message)| has_method(message, "initialize"))
        .unwrap();
    assert!(
        taken.1["params"]["capabilities"]["elicitation"].is_object(),
        "{}",
        taken.1
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_host_in_trouble_takes_is_not_remembered() {
    let greetings = Arc::new(Mutex::new(0));
    let counted = greetings.clone();
    let shared = dialing_http(move |asked| match asked.method() {
        "initialize" => {
            *counted.lock() += 1;
            if *counted.lock() < 3 {
                return ScriptedAnswer::Status(500);
            }
            let info = json!({"name": "odd", "version": "1"});
            let result = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": info});
            ScriptedAnswer::Result(result, None)
        }
        "tools/list" => ScriptedAnswer::Result(json!({"tools": []}), None),
        method if method.starts_with("notifications/") => ScriptedAnswer::Status(202),
        _ => ScriptedAnswer::Status(400),
    });
    let settings = ServerSettings {
        protocol: None,
        ..settings_http()
    };
    let upstream = Upstream::new(settings, shared, Arc::new(NoSink));
    tokio::spawn(upstream.clone().run());
    upstream
        .watch()
        .wait_for(|status| status.state == UpstreamState::Ready)
        .await
        .unwrap();
    assert_eq!(*greetings.lock(), 3);
    assert_eq!(upstream.pool.greeting(), None);
}
