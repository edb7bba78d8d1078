//! Whole logins, from the command to a call with the token.

use tokio::net::TcpListener;

use super::browser::{BrowserPage, approve, browse};
use super::command::opened;
use super::issuer::{ClientMethod, IssRule, IssuerStep, RuleChange};
use super::world::{SENTENCE, World, call, reaches, ready};
use crate::harness::{HttpClient, holds, until};

/// Line that a login prints before it waits.
const WAITING: &str =
    "Waiting. If your browser ends on a page that does not load, paste its address here.";
/// Line that a login prints at its end.
const LOGGED_IN: &str = "Logged in to linear: ready, 2 tools. The login renews itself.";

/// Checks the page on which a login ends: plain words that nothing can leak from.
pub(super) fn check_page(page: &BrowserPage) {
    let reply = &page.reply;
    assert!(page.url.contains("/oauth/callback/"), "{}", page.url);
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.header("content-type").starts_with("text/html"));
    assert_eq!(reply.header("cache-control"), "no-store");
    assert_eq!(reply.header("referrer-policy"), "no-referrer");
    let policy = reply.header("content-security-policy");
    assert!(policy.contains("default-src 'none'"), "{policy}");
    let html = reply.text_body();
    assert!(!html.contains("<script"), "{html}");
    for (name, value) in url::Url::parse(&page.url).unwrap().query_pairs() {
        assert!(name == "error" || !html.contains(&*value), "{name}: {html}");
    }
}

#[tokio::test]
async fn a_login_without_a_gateway_is_there_for_the_next_gateway() {
    let world = World::start().await;
    let command = world.command(&["login", "linear"]);
    let address = command.address(&world.issuer).await;
    let noted = until("the browser program was started", async || {
        Some(opened(&world.setup)).filter(|noted| !noted.is_empty())
    })
    .await;
    // Other users see the arguments of a program, so they have no `state`.
    assert_eq!(noted.len(), 1, "{noted:?}");
    assert!(noted[0].contains("/start/"), "{noted:?}");
    assert!(!noted[0].contains("state="), "{noted:?}");
    check_page(&browse(&noted[0]).await);
    let end = command.ended().await;
    assert_eq!(end.code, Some(0), "{}", end.printed);
    let asks = "linear asks for a login at 127.0.0.1";
    let opens = "Opening your browser. If nothing opens, go to:";
    let url = format!("  {address}");
    for start in [asks, opens, url.as_str(), WAITING, LOGGED_IN] {
        let is_printed = end.printed.lines().any(|line| line.starts_with(start));
        assert!(is_printed, "{start}: {}", end.printed);
    }
    assert_eq!(world.issuer.complaints(), Vec::<String>::new());
    assert_eq!(world.logins().len(), 1);
    let gateway = world.gateway().await;
    let client = ready(&gateway).await;
    call(&client).await.text();
    assert!(world.issuer.secrets().contains(&world.last_token()));
    assert_eq!(world.issuer.count(IssuerStep::Registration), 1);
    assert_eq!(world.issuer.count(IssuerStep::Exchange), 1);
}

#[tokio::test]
async fn a_running_gateway_ends_the_login_and_connects_its_server() {
    let world = World::start().await;
    let gateway = world.gateway().await;
    let status = reaches(&gateway, "needs_login").await;
    assert!(status.to_string().contains(SENTENCE), "{status}");
    let (command, page) = world.begin_and_browse().await;
    check_page(&page);
    assert!(page.reply.text_body().contains("linear"));
    let end = command.ended().await;
    assert_eq!(end.code, Some(0), "{}", end.printed);
    assert!(end.printed.contains(LOGGED_IN), "{}", end.printed);
    let client = ready(&gateway).await;
    call(&client).await.text();
    // A browser that restores its tabs opens the page again.
    let requests = world.issuer.token_requests();
    let logins = world.logins();
    let again = browse(&page.url).await;
    check_page(&again);
    assert_eq!(again.reply.text_body(), page.reply.text_body());
    assert_eq!(world.issuer.token_requests(), requests);
    assert_eq!(world.logins(), logins);
    call(&client).await.text();
    assert_eq!(world.issuer.complaints(), Vec::<String>::new());
}

#[tokio::test]
async fn a_server_that_refuses_only_calls_can_be_logged_in_to() {
    let world = World::start_refusing_calls().await;
    let end = world.log_in().await;
    assert!(end.printed.contains(LOGGED_IN), "{}", end.printed);
    assert_eq!(world.logins().len(), 1);
    world.server.clear_faults();
    let gateway = world.gateway().await;
    call(&ready(&gateway).await).await.text();
    assert!(world.issuer.secrets().contains(&world.last_token()));
}

#[tokio::test]
async fn a_server_without_any_login_is_named_so() {
    let world = World::start_refusing_calls().await.with("auth = {}");
    let end = world.command(&["login", "linear"]).ended().await;
    assert_eq!(end.code, Some(0), "{}", end.printed);
    assert_eq!(end.printed, "linear needs no login\n");
}

#[tokio::test]
async fn a_pasted_address_ends_the_login_and_another_state_does_not() {
    let mut world = World::start().await;
    // Neither the command nor a gateway gets the answer.
    let taken = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let listen = taken.local_addr().unwrap();
    let listen = format!("listen = \"{listen}\"");
    world.setup = world.setup.with("gateway", &listen);
    let (mut command, address) = world.begin().await;
    let answer = approve(&address).await;
    assert!(answer.starts_with(&world.redirect()), "{answer}");
    holds("the command waits", || command.printed().contains(WAITING)).await;
    let (start, state) = answer.split_once("state=").unwrap();
    let other = format!("{start}state=A{state}");
    for wrong in ["that page there", "https://example.com/", other.as_str()] {
        let before = command.printed();
        command.paste(wrong).await;
        let refusal = command.says_more_than(&before).await;
        assert!(!refusal.contains("Logged in"), "{wrong}: {refusal}");
        assert!(!command.has_ended(), "{wrong}: {refusal}");
    }
    assert_eq!(world.issuer.token_requests(), 0);
    command.paste(&answer).await;
    let end = command.ended().await;
    assert_eq!(end.code, Some(0), "{}", end.printed);
    assert!(end.printed.contains(LOGGED_IN), "{}", end.printed);
    assert_eq!(world.logins().len(), 1);
}

#[tokio::test]
async fn a_login_works_with_each_kind_of_authorization_server() {
    const KINDS: [(&str, RuleChange); 5] = [
        ("metadata of OpenID Connect", |rules| rules.is_openid = true),
        ("no `iss`", |rules| rules.iss = IssRule::Unknown),
        ("secret by Basic", |rules| {
            rules.method = ClientMethod::Basic
        }),
        ("secret in the form", |rules| {
            rules.method = ClientMethod::Post;
        }),
        ("no revocation", |rules| {
            let member = ("revocation_endpoint", serde_json::Value::Null);
            rules.metadata.push(member);
        }),
    ];
    for (kind, change) in KINDS {
        let world = World::start().await;
        world.issuer.change(change);
        world.log_in().await;
        let complaints = world.issuer.complaints();
        assert_eq!(complaints, Vec::<String>::new(), "{kind}");
        assert_eq!(world.logins().len(), 1, "{kind}");
        let end = world.command(&["logout", "linear"]).ended().await;
        assert_eq!(world.logins().len(), 0, "{kind}: {}", end.printed);
    }
}

#[tokio::test]
async fn a_client_document_needs_no_registration() {
    let document = "https://clients.example/moongate.json";
    let world = World::start()
        .await
        .with(&format!("auth = {{ client_id_url = \"{document}\" }}"));
    world.issuer.change(|rules| rules.takes_documents = true);
    world.log_in().await;
    assert_eq!(world.issuer.count(IssuerStep::Registration), 0);
    assert_eq!(world.issuer.complaints(), Vec::<String>::new());
}

#[tokio::test]
async fn a_login_that_is_denied_ends_on_a_page_and_leaves_nothing() {
    let world = World::start().await;
    world.issuer.change(|rules| rules.denies = true);
    let (command, page) = world.begin_and_browse().await;
    check_page(&page);
    let html = page.reply.text_body();
    assert!(html.contains("access_denied"), "{html}");
    assert_eq!(world.issuer.token_requests(), 0);
    assert_eq!(world.logins(), Vec::<String>::new());
    command.stop().await;
    world.issuer.change(|rules| rules.denies = false);
    world.log_in().await;
}

/// Finds a redirect address in a text.
fn redirect_in(text: &str) -> Option<&str> {
    let starts = text.match_indices("http://127.0.0.1:");
    let mut addresses = starts.map(|(at, _)| {
        let rest = &text[at..];
        let is_part = |c: char| c.is_ascii_alphanumeric() || "/:.".contains(c);
        let end = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
        rest[..end].trim_end_matches('.')
    });
    addresses.find(|address| address.contains("/oauth/callback/"))
}

#[tokio::test]
async fn a_server_that_registers_nobody_takes_a_client_of_the_config() {
    let mut world = World::start().await;
    world.issuer.change(|rules| {
        rules.registers = false;
        rules.method = ClientMethod::Basic;
    });
    let command = world.command(&["login", "linear", "--no-browser"]);
    let end = command.end_of_input().await;
    assert_ne!(end.code, Some(0), "{}", end.printed);
    assert!(end.printed.contains("client_id"), "{}", end.printed);
    let redirect = redirect_in(&end.printed).unwrap_or_else(|| panic!("{}", end.printed));
    assert_eq!(redirect, world.redirect());
    let secret = world.issuer.add_client("by-hand", redirect);
    world = world.with(&format!(
        "auth = {{ client_id = \"by-hand\", client_secret = \"{secret}\" }}"
    ));
    world.setup.file();
    let (command, address) = world.begin().await;
    // Another host is another address: the server compares all of it.
    let moved = address.replacen("127.0.0.1%3A", "127.0.0.2%3A", 1);
    assert_eq!(HttpClient::new().get(&moved).await.status, 400);
    check_page(&browse(&address).await);
    let end = command.ended().await;
    assert_eq!(end.code, Some(0), "{}", end.printed);
    assert_eq!(world.issuer.count(IssuerStep::Registration), 0);
}
