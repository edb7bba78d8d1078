//! Gateways that are killed while they renew a login.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::sleep;

use super::ended_logins::keep_calling;
use super::issuer::{IssuerStep, RefreshRule};
use super::world::{World, call, reaches, ready};
use crate::harness::{Era, McpClient, Process, holds, until};

/// Kills of one test.
const ROUNDS: u64 = 10;

async fn end(mut gateway: Process, signal: Signal) {
    gateway.signal(signal);
    gateway.ended().await;
}

/// Logs in for a token that expires at once, so that each start of a gateway renews it.
async fn short_login() -> World {
    let world = World::start().await;
    world
        .issuer
        .change(|rules| rules.life = Duration::from_secs(2));
    world.log_in().await;
    world
}

/// Starts a gateway, and waits until it renews the login.
async fn renewing(world: &World) -> Process {
    holds("the token has ended", || world.issuer.has_expired()).await;
    let before = world.issuer.count(IssuerStep::Refresh);
    let gateway = world.gateway().await;
    holds("the renewal has begun", || {
        world.issuer.count(IssuerStep::Refresh) > before
    })
    .await;
    gateway
}

#[tokio::test]
async fn a_gateway_killed_before_the_answer_is_still_logged_in() {
    let world = short_login().await;
    world
        .issuer
        .change(|rules| rules.refresh = RefreshRule::Hold);
    for _ in 0..ROUNDS {
        end(renewing(&world).await, Signal::KILL).await;
    }
    world
        .issuer
        .change(|rules| rules.refresh = RefreshRule::Renew);
    let gateway = world.gateway().await;
    let client = ready(&gateway).await;
    call(&client).await.text();
    assert_eq!(world.issuer.reuses(), 0);
    assert_eq!(world.issuer.live_logins(), 1);
}

#[tokio::test]
async fn a_gateway_killed_around_the_answer_needs_one_login_at_most() {
    let world = short_login().await;
    for round in 0..ROUNDS {
        let gateway = renewing(&world).await;
        // Each round ends it at another step of what follows the answer.
        sleep(Duration::from_millis(round * 2)).await;
        end(gateway, Signal::KILL).await;
        let gateway = world.gateway().await;
        let state = until("the server is ready or needs a login", async || {
            let status = gateway.status("linear").await;
            let state = status["state"].as_str()?.to_owned();
            ["ready", "needs_login"]
                .contains(&state.as_str())
                .then_some(state)
        })
        .await;
        if state == "needs_login" {
            world.log_in().await;
        }
        let client = ready(&gateway).await;
        call(&client).await.text();
        end(gateway, Signal::TERM).await;
    }
    // A login whose answer was lost has ended, and the next one replaced it.
    assert_eq!(world.issuer.live_logins(), 1);
}

#[tokio::test]
async fn an_answer_that_is_lost_costs_one_login_and_no_loop() {
    let world = short_login().await;
    world
        .issuer
        .change(|rules| rules.refresh = RefreshRule::Lose);
    end(renewing(&world).await, Signal::KILL).await;
    world
        .issuer
        .change(|rules| rules.refresh = RefreshRule::Renew);
    let before = world.issuer.token_requests();
    let gateway = world.gateway().await;
    reaches(&gateway, "needs_login").await;
    let client = McpClient::open(&gateway.mcp(), Era::Modern).await;
    keep_calling(&client).await;
    assert_eq!(world.issuer.token_requests(), before + 1);
    world.log_in().await;
    let client = ready(&gateway).await;
    call(&client).await.text();
}
