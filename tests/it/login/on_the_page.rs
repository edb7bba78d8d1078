//! Sign-in and sign-out on the card of a server, in a browser: `tests/page/login.mjs` does what a
//! person would.
//!
//! Owns what the script orders. Does not drive the browser. Invariant: the authorization server has
//! no complaint about any request.

use serde_json::json;

use super::issuer::IssuerRules;
use super::world::{World, call, is_good, reaches, ready};
use crate::harness::{Era, McpClient, Process, until};
use crate::page::{page_home, run_script};

/// Does what the script orders. Returns the line that answers it.
async fn obey(world: &World, gateway: &Process, order: &str) -> String {
    match order {
        "deny" => world.issuer.change(|rules| rules.denies = true),
        "allow" => world.issuer.change(|rules| rules.denies = false),
        "home" => world.issuer.change(|rules| *rules = IssuerRules::default()),
        "elsewhere" => {
            let port = world.issuer.origin().rsplit(':').next().unwrap();
            let address = json!(format!("http://localhost:{port}/authorize"));
            world
                .issuer
                .change(|rules| rules.metadata = vec![("authorization_endpoint", address)]);
        }
        "logins" => return world.logins().len().to_string(),
        "call" => return call_once(world, gateway).await.to_owned(),
        other => panic!("the script orders {other:?}"),
    }
    "done".to_owned()
}

/// Calls the server, which has its tools by now if there is a login.
async fn call_once(world: &World, gateway: &Process) -> &'static str {
    let client = match world.logins().is_empty() {
        true => McpClient::open(&gateway.mcp(), Era::Modern).await,
        false => ready(gateway).await,
    };
    match is_good(&call(&client).await) {
        true => "good",
        false => "refused",
    }
}

#[tokio::test]
async fn a_person_signs_in_and_out_on_the_card() {
    let world = World::start().await;
    let gateway = world.gateway().await;
    reaches(&gateway, "needs_login").await;
    let admin = gateway.admin_url().await;
    let admin = admin.trim_start_matches("http://").trim_end_matches('/');
    let pictures = page_home().join("pictures");
    run_script("login.mjs", admin, &pictures, async |order| {
        obey(&world, &gateway, order).await
    })
    .await;
    assert_eq!(world.issuer.complaints(), Vec::<String>::new());
    until("every login is over", async || {
        (world.issuer.live_logins() == 0).then_some(())
    })
    .await;
}
