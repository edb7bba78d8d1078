//! Logins on the cards of servers.

use serde_json::{Value, json};

use super::{
    HOSTILE, OpenServer, ServersView, ViewQuery, assert_harmless, server, servers_page, typed,
};

/// Request of the button that starts a login.
const SIGN_IN: &str = "data-login=\"/api/v1/servers/a/login\"";
/// Request of the button that ends one.
const SIGN_OUT: &str = "data-action=\"/api/v1/servers/a/logout\"";

fn with_login(state: &str, login: Value) -> Value {
    let mut server = server("a", state);
    server["login"] = login;
    server
}

fn open_card(server: Value) -> String {
    servers_page(&[server], "", Some(("a", json!({ "tools": [] }))))
}

#[test]
fn each_state_of_a_login_has_its_words_and_buttons() {
    let renews = json!({ "state": "signed_in", "renews": true, "expires": "2026-11-23T14:02:11Z" });
    let ends = json!({ "state": "signed_in", "expires": "2026-11-23T14:02:11Z" });
    let lasts = json!({ "state": "signed_in" });
    let ended = json!({ "state": "ended" });
    let none = json!({ "state": "signed_out" });
    for (state, login, words, buttons) in [
        ("ready", &renews, "Signed in, renews itself", [false, true]),
        (
            "ready",
            &ends,
            "Signed in until <time datetime=\"2026-11-23T14:02:11Z\" \
             title=\"2026-11-23T14:02:11Z\">2026-11-23 14:02 UTC</time>",
            [false, true],
        ),
        ("ready", &lasts, " · Signed in<", [false, true]),
        ("needs_login", &renews, "Sign-in needed", [true, true]),
        (
            "needs_login",
            &ended,
            "The last login has ended",
            [true, true],
        ),
        ("needs_login", &none, "Sign-in needed", [true, false]),
        ("ready", &none, "Ready.", [false, false]),
        ("failed", &none, "Failed", [false, false]),
        // With a key in the config, or a program, there is nothing to sign in to.
        (
            "needs_login",
            &Value::Null,
            "Sign-in needed",
            [false, false],
        ),
    ] {
        let html = open_card(with_login(state, login.clone()));
        let found = [SIGN_IN, SIGN_OUT].map(|request| html.contains(request));
        assert_eq!(found, buttons, "{state} {login}");
        assert!(html.contains(words), "{words} in {html}");
        let is_signed_in = login["state"] == "signed_in";
        assert_eq!(html.contains("Signed in"), is_signed_in, "{state} {login}");
    }
}

#[test]
fn a_closed_card_offers_only_the_sign_in() {
    let needed = with_login("needs_login", json!({ "state": "ended" }));
    let html = servers_page(&[needed], "", None);
    assert!(html.contains(SIGN_IN) && !html.contains(SIGN_OUT), "{html}");
}

#[test]
fn a_viewer_sees_the_login_without_buttons() {
    let servers = [typed(&with_login(
        "needs_login",
        json!({ "state": "ended" }),
    ))];
    let query = ViewQuery::default();
    let view = ServersView {
        servers: &servers,
        query: &query,
        open: Some(("a", OpenServer::default())),
        may_act: false,
        is_demo: false,
    };
    let html = view.page().into_string();
    assert!(html.contains("The last login has ended"), "{html}");
    assert!(
        !html.contains(SIGN_IN) && !html.contains(SIGN_OUT),
        "{html}"
    );
}

#[test]
fn the_problem_of_a_login_is_text() {
    let login = json!({ "state": "signed_out", "problem": HOSTILE });
    assert_harmless(&open_card(with_login("needs_login", login)));
    let login = json!({ "state": "signed_in", "problem": "run `moongate login a`" });
    let html = open_card(with_login("ready", login));
    assert!(
        html.contains("Login: run <code>moongate login a</code>"),
        "{html}"
    );
}
