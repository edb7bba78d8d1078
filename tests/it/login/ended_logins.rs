//! Logins that end: by a logout, or because the authorization server says so.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::issuer::{IssuerStep, RefreshRule};
use super::world::{SENTENCE, World, call, reaches, ready};
use crate::harness::{McpClient, Process, until};

/// Runs a command about a running gateway. Returns what it prints.
async fn printed(world: &World, gateway: &Process, args: &[&str]) -> String {
    let admin = gateway.admin_url().await;
    let admin = admin.trim_start_matches("http://").trim_end_matches('/');
    let args = [args, &["--admin", admin]].concat();
    world.command(&args).ended().await.printed
}

/// Calls for three seconds, whatever comes of it.
pub(super) async fn keep_calling(client: &McpClient) {
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        call(client).await;
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_logout_is_revoked_and_everything_says_what_to_do() {
    let world = World::start().await;
    world.log_in().await;
    let gateway = world.gateway().await;
    let client = ready(&gateway).await;
    call(&client).await.text();
    let end = world.command(&["logout", "linear"]).ended().await;
    assert_eq!(end.code, Some(0), "{}", end.printed);
    assert!(world.issuer.count(IssuerStep::Revocation) > 0);
    assert_eq!(world.issuer.live_logins(), 0);
    assert_eq!(world.issuer.complaints(), Vec::<String>::new());
    assert_eq!(world.logins(), Vec::<String>::new());
    let status = reaches(&gateway, "needs_login").await;
    assert!(status.to_string().contains(SENTENCE), "{status}");
    let error = call(&client).await.text_body();
    assert!(error.contains(SENTENCE), "{error}");
    for args in [
        &["status"][..],
        &["doctor"],
        &["doctor", "--format", "json"],
    ] {
        let printed = printed(&world, &gateway, args).await;
        assert!(printed.contains(SENTENCE), "{args:?}: {printed}");
    }
    let page = gateway.admin("/servers/linear").await.text_body();
    assert!(page.contains("moongate login linear"), "{page}");
    world.log_in().await;
    let client = ready(&gateway).await;
    call(&client).await.text();
}

#[tokio::test]
async fn a_refused_refresh_needs_a_login_and_is_not_tried_again() {
    let world = World::start().await;
    world
        .issuer
        .change(|rules| rules.life = Duration::from_secs(2));
    world.log_in().await;
    let gateway = world.gateway().await;
    let client = ready(&gateway).await;
    world
        .issuer
        .change(|rules| rules.refresh = RefreshRule::Refuse("invalid_grant"));
    let before = world.issuer.count(IssuerStep::Refresh);
    let status = until("the login has ended", async || {
        call(&client).await;
        let status = gateway.status("linear").await;
        (status["state"] == "needs_login").then_some(status)
    })
    .await;
    assert!(status.to_string().contains(SENTENCE), "{status}");
    keep_calling(&client).await;
    assert_eq!(world.issuer.count(IssuerStep::Refresh), before + 1);
    let error = call(&client).await.text_body();
    assert!(error.contains(SENTENCE), "{error}");
    world
        .issuer
        .change(|rules| rules.refresh = RefreshRule::Renew);
    world.log_in().await;
    let client = ready(&gateway).await;
    call(&client).await.text();
}
