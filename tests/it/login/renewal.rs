//! Renewal of logins, on connections that live and over several processes.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use super::issuer::{IssuerStep, RefreshRule};
use super::world::{World, call, is_good, ready};
use crate::fronts::pipe::StdioProcess;
use crate::harness::{holds, until};

const HOUR: Duration = Duration::from_secs(3600);

/// Logs in for tokens that live so long.
async fn logged_in(life: Duration) -> World {
    let world = World::start().await;
    world.issuer.change(|rules| rules.life = life);
    world.log_in().await;
    world
}

/// Waits until the newest token has ended, and lets the next one live long.
async fn expired(world: &World) {
    holds("the token has ended", || world.issuer.has_expired()).await;
    world.issuer.change(|rules| rules.life = HOUR);
}

#[tokio::test]
async fn a_live_connection_takes_a_renewed_token_and_fifty_calls_cause_one_refresh() {
    let world = logged_in(Duration::from_secs(4)).await;
    let gateway = world.gateway().await;
    let client = ready(&gateway).await;
    // The connection that the server's messages come on.
    holds("its stream is open", || world.server.listeners() > 0).await;
    call(&client).await.text();
    let first = world.last_token();
    let before = world.server.counters();
    until("another token is sent", async || {
        call(&client).await.text();
        (world.last_token() != first).then_some(())
    })
    .await;
    let after = world.server.counters();
    assert_eq!(after.sessions, before.sessions);
    assert_eq!(after.connections, before.connections);
    expired(&world).await;
    let refreshes = world.issuer.count(IssuerStep::Refresh);
    for reply in join_all((0..50).map(|_| call(&client))).await {
        reply.text();
    }
    assert_eq!(world.issuer.count(IssuerStep::Refresh), refreshes + 1);
    assert_eq!(world.issuer.reuses(), 0);
    assert_eq!(world.server.counters().sessions, before.sessions);
    assert_eq!(world.issuer.complaints(), Vec::<String>::new());
}

#[tokio::test]
async fn three_processes_renew_one_login_once() {
    let world = logged_in(Duration::from_secs(4)).await;
    let gateway = world.gateway().await;
    let client = ready(&gateway).await;
    let config = world.setup.path("moongate.toml");
    let params = json!({"name": "linear__echo", "arguments": {"n": 1}});
    let mut pipes = Vec::new();
    for _ in 0..2 {
        let mut pipe = StdioProcess::launch(&["--config", config.to_str().unwrap()], &[]);
        pipe.initialize("2025-11-25", json!({})).await;
        pipe.ask(1, "tools/list", json!({})).await;
        pipe.result(1).await;
        pipe.ask(2, "tools/call", params.clone()).await;
        let result = pipe.result(2).await;
        assert_ne!(result["isError"], true, "{result}");
        pipes.push(pipe);
    }
    call(&client).await.text();
    expired(&world).await;
    let refreshes = world.issuer.count(IssuerStep::Refresh);
    for pipe in &mut pipes {
        pipe.ask(3, "tools/call", params.clone()).await;
    }
    call(&client).await.text();
    for pipe in &mut pipes {
        let result = pipe.result(3).await;
        assert_ne!(result["isError"], true, "{result}");
    }
    assert_eq!(world.issuer.count(IssuerStep::Refresh), refreshes + 1);
    assert_eq!(world.issuer.reuses(), 0);
    assert_eq!(world.issuer.live_logins(), 1);
}

#[tokio::test]
async fn calls_go_on_while_the_authorization_server_is_down() {
    let world = logged_in(Duration::from_secs(12)).await;
    let gateway = world.gateway().await;
    let client = ready(&gateway).await;
    let refreshes = world.issuer.count(IssuerStep::Refresh);
    world
        .issuer
        .change(|rules| rules.refresh = RefreshRule::Down);
    until("a renewal was tried", async || {
        call(&client).await.text();
        (world.issuer.count(IssuerStep::Refresh) > refreshes).then_some(())
    })
    .await;
    let mut calls = 0;
    loop {
        let reply = call(&client).await;
        if !world.issuer.is_fresh() {
            break;
        }
        reply.text();
        calls += 1;
    }
    assert!(calls > 0);
    // After a failure it waits, whatever comes meanwhile.
    let tried = world.issuer.count(IssuerStep::Refresh) - refreshes;
    assert!(tried <= 2, "{tried} attempts in {calls} calls");
    let old = world.last_token();
    world
        .issuer
        .change(|rules| rules.refresh = RefreshRule::Renew);
    until("calls have a new token", async || {
        let is_good = is_good(&call(&client).await);
        (is_good && world.last_token() != old).then_some(())
    })
    .await;
    assert_eq!(world.issuer.live_logins(), 1);
    assert_eq!(world.issuer.reuses(), 0);
}
