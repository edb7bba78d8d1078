//! Attacks on logins: each is refused, leaves nothing, and a valid login works afterwards.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::command::opened;
use super::issuer::{IssRule, IssuerRules, IssuerStep, RuleChange};
use super::whole_login::check_page;
use super::world::{SENTENCE, World, call, guarded_server, is_good, reaches, ready};
use crate::harness::{Process, until};

/// Checks that a login brought no token.
fn assert_no_login(world: &World, what: &str) {
    assert_eq!(world.issuer.token_requests(), 0, "{what}");
    assert_eq!(world.logins(), Vec::<String>::new(), "{what}");
    assert_eq!(world.issuer.live_logins(), 0, "{what}");
}

/// Logs in once nothing is hostile any more.
async fn valid_login(world: &World) {
    world.issuer.change(|rules| *rules = IssuerRules::default());
    world.log_in().await;
    assert_eq!(world.logins().len(), 1);
}

/// Replaces a member of the metadata.
fn set(rules: &mut IssuerRules, member: &'static str, value: impl Into<Value>) {
    rules.metadata.push((member, value.into()));
}

#[tokio::test]
async fn hostile_metadata_opens_no_browser_and_registers_nowhere() {
    const METADATA: [(&str, RuleChange); 9] = [
        ("plain PKCE", |rules| {
            set(rules, "code_challenge_methods_supported", json!(["plain"]));
        }),
        ("no PKCE", |rules| {
            set(rules, "code_challenge_methods_supported", Value::Null);
        }),
        ("the issuer of another", |rules| {
            set(rules, "issuer", "https://honest.example");
        }),
        ("a script", |rules| {
            set(rules, "authorization_endpoint", "javascript:alert(1)");
        }),
        ("a command", |rules| {
            set(rules, "authorization_endpoint", "$(touch owned)");
        }),
        ("a file", |rules| {
            set(rules, "authorization_endpoint", "file:///etc/passwd");
        }),
        ("the metadata service", |rules| {
            set(rules, "token_endpoint", "http://169.254.169.254/token");
        }),
        ("another address", |rules| rules.moves_metadata = true),
        ("ten megabytes", |rules| {
            set(rules, "padding", "x".repeat(10 << 20));
        }),
    ];
    for (what, change) in METADATA {
        let world = World::start().await;
        world.issuer.change(change);
        let end = world.command(&["login", "linear"]).ended().await;
        assert!(end.code.is_some_and(|code| code != 0), "{what}: {end:?}");
        assert!(!end.printed.contains("Logged in"), "{what}: {end:?}");
        for hostile in ["javascript", "touch owned", "passwd", "xxxx", "panicked"] {
            assert!(!end.printed.contains(hostile), "{what}: {end:?}");
        }
        assert_eq!(opened(&world.setup), Vec::<String>::new(), "{what}");
        for step in [
            IssuerStep::Registration,
            IssuerStep::Authorization,
            IssuerStep::Moved,
        ] {
            assert_eq!(world.issuer.count(step), 0, "{what}: {step:?}");
        }
        assert_no_login(&world, what);
        valid_login(&world).await;
    }
}

#[tokio::test]
async fn an_answer_of_another_issuer_is_refused() {
    for iss in [IssRule::Wrong, IssRule::Missing] {
        let world = World::start().await;
        world.issuer.change(|rules| rules.iss = iss);
        let (command, page) = world.begin_and_browse().await;
        check_page(&page);
        assert_no_login(&world, &format!("{iss:?}"));
        assert!(!command.printed().contains("Logged in"), "{iss:?}");
        command.stop().await;
        valid_login(&world).await;
    }
}

#[tokio::test]
async fn no_code_goes_to_a_token_endpoint_that_is_not_public() {
    let world = World::start().await;
    world.issuer.change(|rules| {
        set(rules, "token_endpoint", "https://169.254.169.254/token");
    });
    let (command, page) = world.begin_and_browse().await;
    check_page(&page);
    let html = page.reply.text_body();
    assert!(html.contains("169.254.169.254"), "{html}");
    assert_no_login(&world, "the metadata service");
    assert!(!command.printed().contains("Logged in"));
    command.stop().await;
    valid_login(&world).await;
}

/// Writes the config of a world again, and has the gateway read it.
fn reload(world: &World, gateway: &Process) {
    world.setup.file();
    gateway.signal(Signal::HUP);
}

#[tokio::test]
async fn a_server_at_a_changed_url_never_gets_the_old_token() {
    let mut world = World::start().await;
    world.log_in().await;
    let gateway = world.gateway().await;
    let client = ready(&gateway).await;
    call(&client).await.text();
    let thief = guarded_server(&world.issuer).await;
    world.setup = world.setup.http("linear", &thief.url);
    reload(&world, &gateway);
    until("the other server was asked", async || {
        (!thief.recorded_requests().is_empty()).then_some(())
    })
    .await;
    // The old connection ends, because only a person can make the new one ready.
    reaches(&gateway, "needs_login").await;
    let error = call(&client).await.text_body();
    assert!(error.contains(SENTENCE), "{error}");
    for request in thief.recorded_requests() {
        assert_eq!(request.header("authorization"), None, "{request:?}");
    }
    assert_eq!(world.issuer.live_logins(), 1);
    // The login belongs to the first URL, and is found again when that comes back.
    world.setup = world.setup.http("linear", &world.server.url);
    reload(&world, &gateway);
    let client = ready(&gateway).await;
    call(&client).await.text();
    assert_eq!(world.issuer.count(IssuerStep::Authorization), 1);
}

#[tokio::test]
async fn a_wrong_credential_in_the_config_ends_the_connection_with_the_login() {
    let mut world = World::start().await;
    world.log_in().await;
    let gateway = world.gateway().await;
    let client = ready(&gateway).await;
    call(&client).await.text();
    world = world.with("headers = { Authorization = \"Bearer wrong\" }");
    reload(&world, &gateway);
    reaches(&gateway, "needs_login").await;
    assert!(!is_good(&call(&client).await));
    assert_eq!(world.issuer.live_logins(), 1);
}
