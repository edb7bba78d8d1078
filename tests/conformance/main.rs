//! The official conformance suite, against servers themselves and through the gateway.
//!
//! `tests/conformance/setup.sh` fetches the suite and its fixture, pinned. What each gate reaches
//! is the table in `tests/conformance/README.md`; a run that reaches anything else fails, and
//! `UPDATE_EXPECTED=1` rewrites it.

// The harness starts and stops programs with signals.
#![cfg(unix)]

mod peers;
#[path = "../it/harness/program.rs"]
mod program;
mod suite;
mod table;

use peers::{ProgramHome, SuiteGateway};
use serde_json::json;
use suite::ClientScenarios;
use table::{ExcusedScenario, SuiteGate};

/// The revisions that the suite has requirements for.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

/// What the suite does not run.
const SKIPPED: &[ExcusedScenario] = &[STATUS_NOTIFICATIONS];

const STATUS_NOTIFICATIONS: ExcusedScenario = ExcusedScenario {
    revision: "2026-07-28",
    scenario: "tasks-status-notifications",
    why: "The suite itself skips it until it is rewritten for `subscriptions/listen`.",
};

/// What tasks of 2025-11-25 do in another way, so that a client of 2026-07-28 sees it.
const TASKS_ACROSS: &[ExcusedScenario] = &[
    STATUS_NOTIFICATIONS,
    ExcusedScenario {
        revision: "2026-07-28",
        scenario: "tasks-required-task-error",
        why: "If a client does not support tasks, the gateway waits for the task on its behalf, so \
              the tool returns a result.",
    },
    ExcusedScenario {
        revision: "2026-07-28",
        scenario: "tasks-mrtr-composition",
        why: "It expects the question before the task is created, but a 2025-11-25 server creates \
              the task first: \"Receivers that accept a task-augmented request **MUST** return a \
              `CreateTaskResult` as the response\" \
              (2025-11-25/basic/utilities/tasks.mdx).",
    },
];

/// What cannot exist across the eras.
const ACROSS: &[ExcusedScenario] = &[NAMED_KEY];

/// The suite expects the key that its own fixture would choose, but the server here sends requests,
/// which have ids.
const NAMED_KEY: ExcusedScenario = ExcusedScenario {
    revision: "2026-07-28",
    scenario: "input-required-result-basic-elicitation",
    why: "It expects the key `user_name`, but a request from a server with sessions has no key: \
          \"`inputRequests` keys are server assigned identifiers\" \
          (2026-07-28/basic/patterns/mrtr.mdx).",
};

/// Extensions of authorization that the gateway does not have yet.
const LOGINS: &[ExcusedScenario] = &[
    extension(
        REVISIONS[0],
        "auth/enterprise-managed-authorization",
        ENTERPRISE,
    ),
    extension(REVISIONS[0], "auth/dpop", DPOP),
    extension(REVISIONS[0], "auth/dpop-nonce", DPOP),
    extension(REVISIONS[0], "auth/wif-jwt-bearer", WORKLOAD),
    extension(
        REVISIONS[1],
        "auth/enterprise-managed-authorization",
        ENTERPRISE,
    ),
    extension(REVISIONS[1], "auth/dpop", DPOP),
    extension(REVISIONS[1], "auth/dpop-nonce", DPOP),
    extension(REVISIONS[1], "auth/wif-jwt-bearer", WORKLOAD),
    extension(REVISIONS[0], "auth/scope-step-up", STEP_UP),
    extension(REVISIONS[1], "auth/scope-step-up", NO_HEADER),
    extension(REVISIONS[1], "auth/scope-retry-limit", NO_HEADER),
    extension(
        REVISIONS[1],
        "auth/authorization-server-migration",
        MIGRATION,
    ),
];

const ENTERPRISE: &str = "Identity assertions of a company's login are not exchanged yet.";
const DPOP: &str = "Tokens are not bound to a key yet.";
const STEP_UP: &str = "A list that is refused with 403 does not lead to another login yet.";
const NO_HEADER: &str = "A server that answers 400 to an `initialize` without a version header is \
                         not logged in to yet.";
const MIGRATION: &str = "A login that moves to another authorization server is not begun yet.";
const WORKLOAD: &str = "Workload identities are not exchanged for tokens yet.";

const fn extension(
    revision: &'static str,
    scenario: &'static str,
    why: &'static str,
) -> ExcusedScenario {
    ExcusedScenario {
        revision,
        scenario,
        why,
    }
}

/// Runs both sets against a server, and compares the results with the table.
async fn check(gate: &SuiteGate, url: &str, log: impl Fn() -> String) {
    check_each(gate, [url, url], log).await;
}

/// The same, each set against a server of its own.
async fn check_each(gate: &SuiteGate, urls: [&str; 2], log: impl Fn() -> String) {
    let home = ProgramHome::get().await;
    let mut reports = Vec::new();
    for (revision, url) in REVISIONS.into_iter().zip(urls) {
        reports.push(suite::server_leg(home, gate.name, revision, url).await);
    }
    gate.settle(&reports, &log());
}

/// The suite and its fixture are sound.
#[tokio::test]
async fn g0_fixture() {
    let fixture = ProgramHome::get().await.fixture().await;
    let gate = SuiteGate {
        name: "G0",
        what: "the fixture alone",
        transport: "HTTP",
        strict: false,
        excused: &[],
    };
    check(&gate, &fixture.url("/mcp"), || fixture.said()).await;
}

/// A server's own endpoint, while there is another server.
#[tokio::test]
async fn g1_server_endpoint_over_http() {
    let fixture = ProgramHome::get().await.fixture().await;
    let gateway = SuiteGateway::before(json!({"url": fixture.url("/mcp")})).await;
    let gate = SuiteGate {
        name: "G1",
        what: "`/mcp/<server>`",
        transport: "HTTP",
        strict: false,
        excused: &[],
    };
    check(&gate, &gateway.url("/everything"), || gateway.log()).await;
    gateway.stop().await;
}

/// The same, with a server that is a child of the gateway.
#[tokio::test]
async fn g2_server_endpoint_over_stdio() {
    let gateway = SuiteGateway::before(ProgramHome::get().await.fixture_command()).await;
    let gate = SuiteGate {
        name: "G2",
        what: "`/mcp/<server>`",
        transport: "stdio",
        strict: false,
        excused: &[],
    };
    check(&gate, &gateway.url("/everything"), || gateway.log()).await;
    gateway.stop().await;
}

/// The endpoint of all servers, where names have prefixes.
#[tokio::test]
async fn g3_aggregate_with_prefixes() {
    let home = ProgramHome::get().await;
    let fixture = home.fixture().await;
    let gateway = SuiteGateway::before(json!({"url": fixture.url("/mcp")})).await;
    let shim = home.shim(&gateway.url(""), "everything__").await;
    let gate = SuiteGate {
        name: "G3a",
        what: "`/mcp`, prefixed names",
        transport: "HTTP",
        strict: false,
        excused: &[],
    };
    check(&gate, &shim.url("/mcp"), || gateway.log()).await;
    gateway.stop().await;
}

/// The endpoint of all servers, where those of one have no prefix.
#[tokio::test]
async fn g3_aggregate_without_prefix() {
    let fixture = ProgramHome::get().await.fixture().await;
    let gateway = SuiteGateway::before(json!({"url": fixture.url("/mcp"), "prefix": ""})).await;
    let gate = SuiteGate {
        name: "G3b",
        what: "`/mcp`, `prefix = \"\"`",
        transport: "HTTP",
        strict: false,
        excused: &[],
    };
    check(&gate, &gateway.url(""), || gateway.log()).await;
    gateway.stop().await;
}

/// The gateway as the client under test, in front of the suite's own servers.
#[tokio::test]
async fn g4_client() {
    let home = ProgramHome::get().await;
    let gate = SuiteGate {
        name: "G4",
        what: "Moongate as client, without `auth/*`",
        transport: "HTTP",
        strict: false,
        excused: &[],
    };
    let mut reports = Vec::new();
    for revision in REVISIONS {
        let scenarios = ClientScenarios::Open;
        reports.push(suite::client_leg(home, gate.name, revision, scenarios).await);
    }
    gate.settle(&reports, "");
}

/// The gateway as the client that logs in: `moongate login` with a browser that follows redirects,
/// then a call through the gateway.
#[tokio::test]
async fn g7_client_that_logs_in() {
    let home = ProgramHome::get().await;
    let gate = SuiteGate {
        name: "G7",
        what: "Moongate as client, `auth/*` alone",
        transport: "HTTP",
        strict: true,
        excused: LOGINS,
    };
    let mut reports = Vec::new();
    for revision in REVISIONS {
        let scenarios = ClientScenarios::Login;
        reports.push(suite::client_leg(home, gate.name, revision, scenarios).await);
    }
    gate.settle(&reports, "");
}

/// The scenarios of tasks, of which the fixture has none: at the mock alone, then through the
/// gateway.
async fn tasks(gate: &SuiteGate, url: &str, log: impl Fn() -> String) {
    let report =
        suite::task_scenarios(ProgramHome::get().await, gate.name, REVISIONS[1], url).await;
    gate.settle(&[suite::SuiteReport::none(REVISIONS[0]), report], &log());
}

/// The mock's tasks are what the suite thinks they are.
#[tokio::test]
async fn g5_tasks_of_the_mock() {
    let mock = peers::mock("tasks.toml", REVISIONS[1]).await;
    let gate = SuiteGate {
        name: "G5a",
        what: "tasks: the mock alone",
        transport: "HTTP",
        strict: true,
        excused: SKIPPED,
    };
    tasks(&gate, &mock.url("/mcp"), || mock.said()).await;
}

/// Tasks of a stateless server.
#[tokio::test]
async fn g5_tasks() {
    let mock = peers::mock("tasks.toml", REVISIONS[1]).await;
    let gateway = SuiteGateway::before(json!({"url": mock.url("/mcp")})).await;
    let gate = SuiteGate {
        name: "G5b",
        what: "tasks",
        transport: "HTTP",
        strict: true,
        excused: SKIPPED,
    };
    tasks(&gate, &gateway.url("/everything"), || gateway.log()).await;
    gateway.stop().await;
}

/// Tasks of a server with sessions, which spells them in another way.
#[tokio::test]
async fn g5_tasks_across_the_eras() {
    let mock = peers::mock("tasks-2025-11-25.toml", REVISIONS[0]).await;
    let gateway = SuiteGateway::before(json!({"url": mock.url("/mcp")})).await;
    let what = "tasks: the mock locked to 2025-11-25";
    let gate = SuiteGate {
        name: "G5c",
        what,
        transport: "HTTP",
        strict: true,
        excused: TASKS_ACROSS,
    };
    tasks(&gate, &gateway.url("/everything"), || gateway.log()).await;
    gateway.stop().await;
}

/// The mock, locked to the era of the set: it gives everything that the sets call, each spelled in
/// that era.
#[tokio::test]
async fn g6_mock_in_its_own_era() {
    let (legacy, modern) = tokio::join!(
        peers::mock("server.toml", REVISIONS[0]),
        peers::mock("server.toml", REVISIONS[1])
    );
    let gate = SuiteGate {
        name: "G6a",
        what: "the mock alone, in the set's era",
        transport: "HTTP",
        strict: false,
        excused: &[],
    };
    let urls = [legacy.url("/mcp"), modern.url("/mcp")];
    check_each(&gate, [&urls[0], &urls[1]], || {
        legacy.said() + &modern.said()
    })
    .await;
}

/// Each set, through the gateway, against the mock locked to the other era.
async fn bridge(gate: &SuiteGate, modern: serde_json::Value, legacy: serde_json::Value) {
    // Roots belong to one client.
    let server = |mut server: serde_json::Value| {
        server["share"] = json!("session");
        SuiteGateway::before(server)
    };
    let (modern, legacy) = tokio::join!(server(modern), server(legacy));
    let urls = [modern.url("/everything"), legacy.url("/everything")];
    let log = || {
        format!(
            "in front of the modern server:\n{}\n\nof the legacy one:\n{}",
            modern.log(),
            legacy.log()
        )
    };
    check_each(gate, [&urls[0], &urls[1]], log).await;
    modern.stop().await;
    legacy.stop().await;
}

/// Across the eras, over HTTP.
#[tokio::test]
async fn g6_bridge_over_http() {
    let (legacy, modern) = tokio::join!(
        peers::mock("server.toml", REVISIONS[0]),
        peers::mock("server.toml", REVISIONS[1])
    );
    let gate = SuiteGate {
        name: "G6b",
        what: "the mock locked to the other era",
        transport: "HTTP",
        strict: false,
        excused: ACROSS,
    };
    bridge(
        &gate,
        json!({"url": modern.url("/mcp")}),
        json!({"url": legacy.url("/mcp")}),
    )
    .await;
}

/// Across the eras, with children of the gateway.
#[tokio::test]
async fn g6_bridge_over_stdio() {
    let gate = SuiteGate {
        name: "G6c",
        what: "the mock locked to the other era",
        transport: "stdio",
        strict: false,
        excused: ACROSS,
    };
    bridge(
        &gate,
        peers::mock_command(REVISIONS[1]),
        peers::mock_command(REVISIONS[0]),
    )
    .await;
}
