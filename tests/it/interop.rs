//! Interop with programs we did not write: the official SDKs, at every revision they ever spoke,
//! call reference servers directly (`direct`: is the fixture sound?) and through the gateway
//! (`through_the_gateway`).
//!
//! `tests/interop/setup.sh` fetches the programs, pinned, from their registries;
//! `tests/interop/plan.json` is what each client checks. The checks are the same at a server and at
//! the gateway: a gateway should not be noticed. `definitions.rs` has what they make of definitions
//! of items.

mod definitions;
#[cfg(test)]
mod harness;
mod mutated;

use harness::{ClientPlace, InteropGateway, InteropServers, SdkClient, SdkKind};
use serde_json::{Value, json};

use crate::harness::{Era, McpClient, until};

/// What `/mcp` shows: one of each transport, and both eras.
const EVERYWHERE: &[&str] = &[
    "everything",
    "evt_http",
    "files",
    "memory",
    "time",
    "modern_ts",
    "modern_py",
];

/// Runs the plan at the servers themselves, those that speak the client's revision.
async fn directly(client: SdkClient) {
    let peers = InteropServers::start().await;
    if client.revision < "2026" {
        client
            .at(&peers.evt_http, ClientPlace::Direct)
            .check(&["everything"])
            .await;
    }
    client
        .at(&peers.modern_ts, ClientPlace::Direct)
        .check(&["modern_ts"])
        .await;
    let modern_py = peers.modern_py_http().await;
    client
        .at(&modern_py.url("/mcp"), ClientPlace::Direct)
        .check(&["modern_py"])
        .await;
}

/// Runs the plan at the gateway: at the endpoint of all servers, then at those of single ones.
async fn through_gateway(client: SdkClient) {
    let gateway = InteropGateway::start().await;
    gateway
        .run(client, "", ClientPlace::Aggregate, EVERYWHERE)
        .await;
    for server in ["everything", "modern_ts", "modern_py"] {
        gateway
            .run(
                client,
                &format!("/{server}"),
                ClientPlace::Server,
                &[server],
            )
            .await;
    }
    // The same program behind another transport, so the same part of the plan.
    gateway
        .run(client, "/evt_http", ClientPlace::Server, &["everything"])
        .await;
    gateway.stop().await;
}

macro_rules! clients {
    ($($name:ident: $client:expr;)*) => {
        mod direct {
            use super::*;
            $(#[tokio::test] async fn $name() { directly($client).await })*
        }
        mod through_the_gateway {
            use super::*;
            $(#[tokio::test] async fn $name() { through_gateway($client).await })*
        }
    };
}

clients! {
    typescript_2025_03_26: SdkClient::new(SdkKind::Typescript, "2025-03-26");
    typescript_2025_06_18: SdkClient::new(SdkKind::Typescript, "2025-06-18");
    typescript_2025_11_25: SdkClient::new(SdkKind::Typescript, "2025-11-25");
    typescript_2026_07_28: SdkClient::new(SdkKind::Typescript, "2026-07-28");
    typescript_v2_as_legacy: SdkClient::new(SdkKind::Typescript,
        "2026-07-28").at_revision("2025-11-25");
    python_2025_03_26: SdkClient::new(SdkKind::Python, "2025-03-26");
    python_2025_06_18: SdkClient::new(SdkKind::Python, "2025-06-18");
    python_2025_11_25: SdkClient::new(SdkKind::Python, "2025-11-25");
    python_2026_07_28: SdkClient::new(SdkKind::Python, "2026-07-28");
    python_v2_as_legacy: SdkClient::new(SdkKind::Python, "2026-07-28").at_revision("2025-11-25");
}

/// Clients that launch commands: `moongate stdio` in front of the gateway, at one revision of each
/// SDK and era.
#[tokio::test]
async fn over_stdio() {
    let gateway = InteropGateway::start().await;
    for client in [
        SdkClient::new(SdkKind::Typescript, "2025-03-26"),
        SdkClient::new(SdkKind::Typescript, "2025-11-25"),
        SdkClient::new(SdkKind::Typescript, "2026-07-28"),
        SdkClient::new(SdkKind::Python, "2025-06-18"),
        SdkClient::new(SdkKind::Python, "2025-11-25"),
        SdkClient::new(SdkKind::Python, "2026-07-28"),
    ] {
        gateway
            .run_over_stdio(client, &["everything", "time", "modern_ts"])
            .await;
    }
    gateway.stop().await;
}

/// A key in the SDK's headers opens a gateway that asks for one; without it, the client does not
/// get in.
#[tokio::test]
async fn a_key_opens_the_gateway() {
    let gateway = InteropGateway::with_key("an-interop-test-key").await;
    for client in [
        SdkClient::new(SdkKind::Typescript, "2025-11-25"),
        SdkClient::new(SdkKind::Python, "2026-07-28"),
    ] {
        let run = client.at(&gateway.endpoint(""), ClientPlace::Aggregate);
        run.with_key("an-interop-test-key").check(&["time"]).await;
        run.expect_refusal(&["time"]).await;
    }
    gateway.stop().await;
}

/// The SDK wraps an output that isn't an object for clients of earlier revisions. Each SDK checks
/// results by the list that it got, so a list of the other era would fail its calls.
#[tokio::test]
async fn an_sdk_server_of_both_eras_has_a_list_for_each() {
    let gateway = InteropGateway::serve(&["both_ts"], None).await;
    let output = async |client: &McpClient| -> Value {
        let listed = client.request("tools/list", json!({})).await.result();
        let rows = listed["tools"]
            .as_array()
            .unwrap()
            .iter()
            .find(|tool| tool["name"] == "both_ts__rows");
        rows.map(|rows| rows["outputSchema"]["type"].clone())
            .unwrap_or_default()
    };
    for (era, expected) in [(Era::Modern, "array"), (Era::Legacy, "object")] {
        let client = McpClient::open(&gateway.endpoint(""), era).await;
        until("the server is ready", || async {
            let reply = client
                .call("both_ts__add", json!({"a": 1, "b": 2}))
                .await
                .json();
            (reply["result"]["structuredContent"]["sum"] == 3).then_some(())
        })
        .await;
        until("its list is known", || async {
            (output(&client).await == expected).then_some(())
        })
        .await;
    }
    for client in [
        SdkClient::new(SdkKind::Typescript, "2025-11-25"),
        SdkClient::new(SdkKind::Typescript, "2026-07-28"),
        SdkClient::new(SdkKind::Typescript, "2026-07-28").at_revision("2025-11-25"),
        SdkClient::new(SdkKind::Python, "2025-11-25"),
        SdkClient::new(SdkKind::Python, "2026-07-28"),
    ] {
        gateway
            .run(client, "", ClientPlace::Aggregate, &["both_ts"])
            .await;
    }
    gateway.stop().await;
}
