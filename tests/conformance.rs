//! The official conformance suite, against servers themselves and through the gateway.
//!
//! `tests/conformance/setup.sh` fetches the suite and its fixture, pinned. What each gate reaches is the table in
//! `tests/conformance/README.md`; a run that reaches anything else fails, and `UPDATE_EXPECTED=1` writes it anew.

#[cfg(test)]
#[path = "conformance/peers.rs"]
mod peers;
#[path = "support/program.rs"]
mod program;
#[cfg(test)]
#[path = "conformance/suite.rs"]
mod suite;
#[cfg(test)]
#[path = "conformance/table.rs"]
mod table;

use peers::{Gateway, Home};
use serde_json::json;
use table::{Excused, Gate};

/// The revisions that the suite has requirements for.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

/// What the gateway does not do yet, and nobody scores.
const OWED: &[Excused] =
    &[Excused { revision: "2025-11-25", scenario: "server-sse-polling", why: "Streams are not resumable yet." }];

/// The same, as a client.
const OWED_BY_CLIENT: &[Excused] =
    &[Excused { revision: "2025-11-25", scenario: "sse-retry", why: "Streams are not resumed yet." }];

/// Runs both sets against a server, and compares the results with the table.
async fn check(gate: &Gate, url: &str, log: impl Fn() -> String) {
    let home = Home::get().await;
    let mut reports = Vec::new();
    for revision in REVISIONS {
        reports.push(suite::server_leg(home, gate.name, revision, url).await);
    }
    gate.settle(&reports, &log());
}

/// The suite and its fixture are sound.
#[tokio::test]
async fn g0_fixture() {
    let fixture = Home::get().await.fixture().await;
    let gate = Gate { name: "G0", what: "the fixture alone", transport: "HTTP", excused: &[] };
    check(&gate, &fixture.url("/mcp"), || fixture.said()).await;
}

/// A server's own endpoint, while there is another server.
#[tokio::test]
async fn g1_server_endpoint_over_http() {
    let fixture = Home::get().await.fixture().await;
    let gateway = Gateway::before(json!({"url": fixture.url("/mcp")})).await;
    let gate = Gate { name: "G1", what: "`/mcp/<server>`", transport: "HTTP", excused: OWED };
    check(&gate, &gateway.url("/everything"), || gateway.log()).await;
    gateway.stop().await;
}

/// The same, with a server that is a child of the gateway.
#[tokio::test]
async fn g2_server_endpoint_over_stdio() {
    let gateway = Gateway::before(Home::get().await.fixture_command()).await;
    let gate = Gate { name: "G2", what: "`/mcp/<server>`", transport: "stdio", excused: OWED };
    check(&gate, &gateway.url("/everything"), || gateway.log()).await;
    gateway.stop().await;
}

/// The endpoint of all servers, where names have prefixes.
#[tokio::test]
async fn g3_aggregate_with_prefixes() {
    let home = Home::get().await;
    let fixture = home.fixture().await;
    let gateway = Gateway::before(json!({"url": fixture.url("/mcp")})).await;
    let shim = home.shim(&gateway.url(""), "everything__").await;
    let gate = Gate { name: "G3a", what: "`/mcp`, prefixed names", transport: "HTTP", excused: OWED };
    check(&gate, &shim.url("/mcp"), || gateway.log()).await;
    gateway.stop().await;
}

/// The endpoint of all servers, where those of one have no prefix.
#[tokio::test]
async fn g3_aggregate_without_prefix() {
    let fixture = Home::get().await.fixture().await;
    let gateway = Gateway::before(json!({"url": fixture.url("/mcp"), "prefix": ""})).await;
    let gate = Gate { name: "G3b", what: "`/mcp`, `prefix = \"\"`", transport: "HTTP", excused: OWED };
    check(&gate, &gateway.url(""), || gateway.log()).await;
    gateway.stop().await;
}

/// The gateway as the client under test, in front of the suite's own servers.
#[tokio::test]
async fn g4_client() {
    let home = Home::get().await;
    let gate =
        Gate { name: "G4", what: "Moongate as client, without `auth/*`", transport: "HTTP", excused: OWED_BY_CLIENT };
    let mut reports = Vec::new();
    for revision in REVISIONS {
        reports.push(suite::client_leg(home, gate.name, revision).await);
    }
    gate.settle(&reports, "");
}
