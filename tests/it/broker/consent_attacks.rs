//! Attacks on consent and on the browser: each is refused without a trace, and a valid login works
//! afterwards.

use super::browser::{BrowserPage, BrowserStop, ConsentButton};
use super::client::{LoginClient, random_text};
use super::parameters::Parameters;
use super::provider::ProviderStep;
use super::shapes::{CLAUDE_CODE, OPENCODE};
use super::world::Company;
use crate::harness::{HttpClient, Process};

/// Checks that a page is the last one, and that the company's login was not asked.
async fn assert_no_consent(company: &Company, gateway: &Process, page: &BrowserPage, what: &str) {
    assert!(page.reply.status >= 400, "{what}: {page:?}");
    assert!(page.stays(), "{what}: {page:?}");
    let asked = company.provider.count(ProviderStep::Authorization);
    assert_eq!(asked, 0, "{what}");
    company.assert_nothing(gateway, what).await;
}

#[tokio::test]
async fn a_yes_counts_only_from_our_own_page_in_that_browser() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let client = company.client(&OPENCODE).await;
    let mut browser = company.browser();
    let page = browser.open(&client.address()).await;
    let (action, form) = page.filled_form(ConsentButton::Yes);
    for origin in ["https://evil.example", "null", company.provider.origin()] {
        let refused = browser.post(&action, &form, origin).await;
        assert_no_consent(&company, &gateway, &refused, origin).await;
    }
    let own = company.origin.clone();
    let refused = company.browser().post(&action, &form, &own).await;
    assert_no_consent(&company, &gateway, &refused, "no cookie").await;
    // A browser with a cookie, and the form of another one.
    let mut other = company.browser();
    other.open(&client.address()).await;
    let refused = other.post(&action, &form, &own).await;
    assert_no_consent(&company, &gateway, &refused, "another's form").await;
    let headers = [("origin", own.as_str())];
    let http = HttpClient::new();
    let reply = http.send("POST", &action, &headers, "").await;
    assert!(reply.status >= 400, "{reply:?}");
    company.assert_unharmed(&gateway, "a forged yes").await;
}

#[tokio::test]
async fn an_answer_counts_only_in_the_browser_that_said_yes() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let client = company.client(&OPENCODE).await;
    // The attacker approves, and gets the victim to open the answer.
    let mut attacker = company.browser();
    let answer = attacker.up_to_the_answer(&client.address()).await;
    let mut victim = company.browser();
    victim.open(&client.address()).await;
    let page = victim.open(&answer).await;
    assert!(page.reply.status >= 400 && page.stays(), "{page:?}");
    assert_eq!(company.provider.count(ProviderStep::Exchange), 0);
    company.assert_nothing(&gateway, "another browser").await;
    // The state still works in its own browser, and only once.
    let page = attacker.open(&answer).await;
    let stop = attacker.follow(page).await;
    assert!(matches!(stop, BrowserStop::Client(_)), "{stop:?}");
    let again = attacker.open(&answer).await;
    assert!(again.reply.status >= 400 && again.stays(), "{again:?}");
    assert_eq!(company.provider.count(ProviderStep::Exchange), 1);
    company.assert_unharmed(&gateway, "an answer twice").await;
}

#[tokio::test]
async fn an_answer_that_nobody_asked_for_starts_nothing() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let client = company.client(&OPENCODE).await;
    let mut browser = company.browser();
    let answer = browser.up_to_the_answer(&client.address()).await;
    let (address, _) = answer.split_once('?').unwrap();
    let right = Parameters::of_address(&answer);
    for (what, query) in [
        ("another state", right.clone().with("state", random_text())),
        ("no state", right.clone().without("state")),
        ("two states", right.clone().and_again("state", "x")),
        ("nothing", Parameters::default()),
    ] {
        let page = browser.open(&format!("{address}?{}", query.encode())).await;
        assert!(page.reply.status >= 400 && page.stays(), "{what}: {page:?}");
        assert_eq!(company.provider.count(ProviderStep::Exchange), 0, "{what}");
    }
    let http = HttpClient::new();
    assert_eq!(http.send("HEAD", &answer, &[], "").await.status, 405);
    let framed = [("sec-fetch-dest", "iframe")];
    let reply = http.send("GET", &answer, &framed, "").await;
    assert!(reply.status >= 400, "{reply:?}");
    company
        .assert_unharmed(&gateway, "an answer out of nowhere")
        .await;
}

#[tokio::test]
async fn no_request_for_a_login_redirects_before_the_yes() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let client = company.client(&OPENCODE).await;
    let right = client.request();
    for (what, request) in [
        ("no PKCE", right.clone().without("code_challenge")),
        (
            "plain",
            right.clone().with("code_challenge_method", "plain"),
        ),
        ("no method", right.clone().without("code_challenge_method")),
        (
            "a short challenge",
            right.clone().with("code_challenge", "abc"),
        ),
        ("a token", right.clone().with("response_type", "token")),
        (
            "an ID token",
            right.clone().with("response_type", "code id_token"),
        ),
        (
            "a fragment",
            right.clone().with("response_mode", "fragment"),
        ),
        ("a form", right.clone().with("response_mode", "form_post")),
        ("no page", right.clone().with("prompt", "none")),
        (
            "a resource of others",
            right.clone().with("resource", "https://evil.example/mcp"),
        ),
        (
            "two resources",
            right.clone().and_again("resource", &client.resource),
        ),
        ("two clients", right.clone().and_again("client_id", "x")),
        (
            "two addresses",
            right
                .clone()
                .and_again("redirect_uri", "https://evil.example/"),
        ),
        (
            "a long state",
            right.clone().with("state", "s".repeat(9_000)),
        ),
    ] {
        let page = company.browser().open(&client.address_of(&request)).await;
        // `prompt=none` may also get the consent page: what counts is that nothing moves on.
        assert!(page.stays(), "{what}: {page:?}");
        if what != "no page" {
            assert!(page.reply.status >= 400, "{what}: {page:?}");
        }
        company.assert_nothing(&gateway, what).await;
    }
    assert_eq!(company.provider.count(ProviderStep::Authorization), 0);
    company
        .assert_unharmed(&gateway, "a malformed request")
        .await;
}

#[tokio::test]
async fn peoples_routes_answer_at_the_public_host_alone() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let client = company.client(&OPENCODE).await;
    let port = company.origin.rsplit(':').next().unwrap();
    let http = HttpClient::new();
    for host in ["localhost", "127.0.0.2", "evil.example"] {
        let host = format!("{host}:{port}");
        let headers = [("host", host.as_str())];
        for (method, path) in [
            ("GET", client.address()),
            ("POST", format!("{}/authorize", company.origin)),
            ("POST", client.metadata.token.clone()),
            ("POST", client.metadata.register.clone()),
            ("POST", client.metadata.revoke.clone()),
            ("GET", format!("{}/oauth/provider?state=x", company.origin)),
        ] {
            let reply = http.send(method, &path, &headers, "").await;
            // A host that is not allowed at all gets the answer of every other route.
            let is_refused = matches!(reply.status, 421 | 403);
            assert!(is_refused, "{method} {path} at {host}: {reply:?}");
        }
        let path = format!("{}/.well-known/oauth-authorization-server", company.origin);
        let reply = http.send("GET", &path, &headers, "").await;
        assert!(matches!(reply.status, 404 | 421 | 403), "{reply:?}");
    }
    company.assert_unharmed(&gateway, "another host").await;
}

/// Names that would break a page or a log line, if they got there as they are.
const HOSTILE_NAMES: [&str; 10] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "</title><iframe src=//evil.example>",
    "'; DROP TABLE logins; --",
    "Claude\u{202e}edoC",
    "Claude\u{200b}Code",
    "line one\nline two level=ERROR forged",
    "\u{1b}[31mred\u{1b}[0m",
    "{{constructor.constructor('return 1')()}}",
    "javascript:alert(1)",
];

/// Registers a client under a name.
async fn client_named(company: &Company, name: &str) -> Option<LoginClient> {
    let mut client = LoginClient::discover(&company.mcp(), &OPENCODE).await;
    let body = serde_json::json!({
        "client_name": name,
        "redirect_uris": [client.redirect],
        "token_endpoint_auth_method": "none",
    });
    let reply = client.register(&body.to_string()).await;
    match reply.status {
        201 => client.id = reply.json()["client_id"].as_str().unwrap().to_owned(),
        _ => {
            assert_eq!(reply.json()["error"], "invalid_client_metadata");
            return None;
        }
    }
    Some(client)
}

#[tokio::test]
async fn hostile_names_are_text_on_pages_and_in_the_log() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    for name in HOSTILE_NAMES {
        let Some(client) = client_named(&company, name).await else {
            continue;
        };
        // The browser checks that the page has no script, no frame and no picture.
        let answer = company.browser().log_in(&client.address()).await;
        let code = client.code_of(&answer);
        let tokens = client.exchange(&code, &company.documents).await;
        client.revoke(&tokens.refresh, &company.documents).await;
    }
    let log = gateway.log();
    for line in log.lines() {
        assert!(!line.starts_with("line two"), "{line}");
        for hidden in ["\u{202e}", "\u{200b}", "\u{1b}[31m"] {
            assert!(!line.contains(hidden), "{line:?}");
        }
    }
    company.server.reset_record();
    company.assert_unharmed(&gateway, "hostile names").await;
}

#[tokio::test]
async fn a_hostile_address_of_a_person_is_text_everywhere() {
    for email in [
        "<script>alert(1)</script>@example.com",
        "ann@example.com\nboss@example.com",
        "ann\u{202e}@example.com",
        "\u{430}nn@example.com",
    ] {
        let company = Company::start().await;
        let gateway = company.gateway().await;
        let value = serde_json::json!(email);
        company
            .provider
            .change(|rules| rules.set_claim("email", value));
        let login = company.log_in_with(&CLAUDE_CODE).await;
        login.client.call(&login.tokens.access).await;
        let list = gateway.admin("/api/v1/people").await.text_body();
        let log = gateway.log();
        assert!(!list.contains('\u{202e}'), "{list}");
        assert!(!log.contains('\u{202e}'), "{email:?}");
        let is_forged = log.lines().any(|line| line.starts_with("boss@example.com"));
        assert!(!is_forged, "{email:?}");
    }
}
