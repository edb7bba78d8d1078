//! Who may use the admin listener: keys and roles over the whole table of routes, and wrong keys.

use serde_json::{Value, json};

use crate::harness::{EventStream, Gateway, HttpClient, HttpReply, Setup, until};

const VIEWER: &str = "viewer-key-0123456789";
const OPERATOR: &str = "operator-key-0123456789";

fn with_operators(setup: Setup) -> Setup {
    setup
        .with(
            "admin.keys.1",
            &format!("name = \"v\"\nkey = {VIEWER:?}\nrole = \"view\""),
        )
        .with(
            "admin.keys.2",
            &format!("name = \"o\"\nkey = {OPERATOR:?}\nrole = \"operate\""),
        )
}

async fn ask(
    gateway: &Gateway,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpReply {
    let url = format!(
        "http://127.0.0.1:{}{path}",
        gateway.app.admin.unwrap().port()
    );
    HttpClient::new()
        .send(method, &url, headers, body.to_owned())
        .await
}

async fn ask_with(gateway: &Gateway, method: &str, path: &str, key: &str) -> HttpReply {
    ask(
        gateway,
        method,
        path,
        &[("authorization", &format!("Bearer {key}"))],
        "",
    )
    .await
}

/// All routes of the table: method, path and role.
async fn routes(gateway: &Gateway) -> Vec<(String, String, String)> {
    let description = ask_with(gateway, "GET", "/api/v1/openapi.json", VIEWER)
        .await
        .json();
    let mut routes = Vec::new();
    for (path, operations) in description["paths"].as_object().unwrap() {
        // An event stream has no end, and has a test of its own.
        for (method, operation) in operations
            .as_object()
            .unwrap()
            .iter()
            .filter(|_| path != "/api/v1/events")
        {
            let path = ["{name}", "{id}", "{who}"]
                .iter()
                .fold(path.clone(), |path, part| path.replace(part, "none"));
            routes.push((
                method.to_uppercase(),
                path,
                operation["x-role"].as_str().unwrap().to_owned(),
            ));
        }
    }
    routes
}

#[tokio::test]
async fn each_route_asks_for_its_role() {
    for address in ["127.0.0.1:0", "0.0.0.0:0"] {
        let setup = Setup::new().with("gateway", &format!("admin = {address:?}"));
        let gateway = with_operators(setup).start().await;
        let routes = routes(&gateway).await;
        assert!(routes.len() > 10, "{routes:?}");
        let open = routes
            .iter()
            .filter(|(_, _, role)| role == "none")
            .map(|(_, path, _)| path.as_str());
        assert_eq!(
            open.collect::<Vec<_>>(),
            ["/api/v1/signin", "/api/v1/signout"]
        );
        for (method, path, role) in routes.iter().filter(|(_, _, role)| role != "none") {
            let without = ask(&gateway, method, path, &[], "").await;
            let wrong = ask_with(&gateway, method, path, "wrong-key-0123456789").await;
            for refused in [without, wrong] {
                assert_eq!(refused.status, 401, "{method} {path}");
                assert!(
                    refused.json()["message"]
                        .as_str()
                        .unwrap()
                        .contains("admin.keys"),
                    "{method} {path}"
                );
            }
            let viewer = ask_with(&gateway, method, path, VIEWER).await;
            let is_refused = viewer.status == 403 && viewer.json()["error"] == "role_not_allowed";
            assert_eq!(
                is_refused,
                role == "operate",
                "{method} {path}: {} {}",
                viewer.status,
                viewer.text_body()
            );
            let operator = ask_with(&gateway, method, path, OPERATOR).await;
            assert!(
                operator.status != 401 && operator.json()["error"] != "role_not_allowed",
                "{method} {path}: {}",
                operator.status
            );
        }
    }
}

#[tokio::test]
async fn without_keys_each_route_is_refused_beyond_loopback() {
    let local = Setup::new().start().await;
    let description = ask(&local, "GET", "/api/v1/openapi.json", &[], "")
        .await
        .json();
    let gateway = Setup::new()
        .with("gateway", "admin = \"0.0.0.0:0\"")
        .start()
        .await;
    let paths = description["paths"].as_object().unwrap().iter();
    let routes = paths.flat_map(|(path, all)| {
        all.as_object()
            .unwrap()
            .keys()
            .map(move |method| (method, path.as_str()))
    });
    let get = "get".to_owned();
    let post = "post".to_owned();
    let pages = [
        "/",
        "/calls",
        "/parts/servers",
        "/assets/app.css",
        "/nothing",
    ]
    .map(|path| (&get, path));
    for (method, path) in routes.chain(pages).chain([(&post, "/")]) {
        let refused = ask(&gateway, &method.to_uppercase(), path, &[], "").await;
        assert_eq!(refused.status, 401, "{method} {path}");
        assert!(
            refused.text_body().contains("admin.keys"),
            "{method} {path}"
        );
    }
}

#[tokio::test]
async fn the_page_is_announced_with_what_it_still_needs() {
    let command = "moongate key new me --admin --write";
    for (setup, needs_key) in [
        (Setup::new(), false),
        (Setup::new().with("gateway", "admin = \"0.0.0.0:0\""), true),
        (
            with_operators(Setup::new().with("gateway", "admin = \"0.0.0.0:0\"")),
            false,
        ),
    ] {
        let gateway = setup.program().await;
        let log = until("the page is announced", async || {
            let log = gateway.log();
            log.lines()
                .find(|line| line.starts_with("page on http://"))
                .map(str::to_owned)
        })
        .await;
        assert_eq!(log.contains(command), needs_key, "{log}");
    }
}

#[tokio::test]
async fn an_address_tries_ten_wrong_keys_a_minute() {
    let gateway = with_operators(Setup::new()).start().await;
    let mut messages = Vec::new();
    for n in 0..10 {
        let refused = ask_with(&gateway, "GET", "/api/v1/status", &format!("guess-{n}")).await;
        assert_eq!(refused.status, 401);
        messages.push(refused.json());
    }
    messages.dedup();
    assert_eq!(messages.len(), 1, "one message for all: {messages:?}");
    for _ in 0..2 {
        let refused = ask_with(&gateway, "GET", "/api/v1/status", "guess-11").await;
        assert_eq!(refused.status, 429);
        assert_eq!(refused.json()["error"], "too_many_wrong_keys");
        let wait: u64 = refused.header("retry-after").parse().unwrap();
        assert!((1..=61).contains(&wait), "{wait}");
        // Wrong keys lock nobody out.
        assert_eq!(
            ask_with(&gateway, "GET", "/api/v1/status", OPERATOR)
                .await
                .status,
            200
        );
        sign_in(&gateway, json!({ "key": OPERATOR })).await;
    }
    assert_eq!(ask(&gateway, "GET", "/livez", &[], "").await.status, 200);
}

fn bearer(key: &str) -> String {
    format!("Bearer {key}")
}

const JSON: (&str, &str) = ("content-type", "application/json");

/// Signs in as a browser on this machine does. Returns the cookie.
async fn sign_in(gateway: &Gateway, proof: Value) -> String {
    let reply = ask(
        gateway,
        "POST",
        "/api/v1/signin",
        &[JSON],
        &proof.to_string(),
    )
    .await;
    assert_eq!(reply.status, 200, "{}", reply.text_body());
    let cookie = reply.header("set-cookie");
    assert!(
        cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/"),
        "{cookie}"
    );
    cookie.split(';').next().unwrap().to_owned()
}

async fn status_of(gateway: &Gateway, method: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
    ask(gateway, method, path, headers, "").await.status
}

#[tokio::test]
async fn a_browser_signs_in_with_a_key_and_out_again() {
    let gateway = with_operators(Setup::new()).start().await;
    let page = ask(&gateway, "GET", "/signin", &[], "").await;
    assert!(
        page.status == 200
            && page.text_body().contains("Admin key")
            && page.text_body().contains("moongate open")
    );
    let cookie = sign_in(&gateway, json!({ "key": OPERATOR })).await;
    assert!(
        cookie.starts_with("moongate_admin=") && cookie.len() > 50,
        "{cookie}"
    );
    let cookie = ("cookie", cookie.as_str());
    let own = ("sec-fetch-site", "same-origin");
    let me = ask(&gateway, "GET", "/api/v1/me", &[cookie], "").await;
    assert_eq!(
        me.json(),
        json!({ "name": "o", "role": "operate", "by": "session", "keys": true })
    );
    let page = ask(&gateway, "GET", "/", &[cookie], "").await;
    assert!(page.status == 200 && page.text_body().contains("id=\"signout\""));
    // A cookie comes with requests of any page of this machine, so only our own may act with it.
    for site in ["same-site", "cross-site", "none"] {
        let headers = [cookie, ("sec-fetch-site", site)];
        assert_eq!(
            status_of(&gateway, "DELETE", "/api/v1/sessions/none", &headers).await,
            403,
            "{site}"
        );
    }
    assert_eq!(
        status_of(&gateway, "DELETE", "/api/v1/sessions/none", &[cookie]).await,
        403
    );
    assert_eq!(
        status_of(&gateway, "DELETE", "/api/v1/sessions/none", &[cookie, own]).await,
        404
    );
    let wrong = ("authorization", "Bearer wrong-key-0123456789");
    assert_eq!(
        status_of(&gateway, "GET", "/api/v1/me", &[cookie, wrong]).await,
        401,
        "a key that is sent counts"
    );
    let signed_out = ask(&gateway, "POST", "/api/v1/signout", &[cookie, own], "").await;
    assert!(signed_out.status == 200 && signed_out.header("set-cookie").contains("Max-Age=0"));
    assert_eq!(
        status_of(&gateway, "GET", "/api/v1/me", &[cookie]).await,
        401
    );
}

#[tokio::test]
async fn a_session_has_the_role_of_its_key_and_ends_with_it() {
    let mut gateway = with_operators(Setup::new()).start().await;
    let viewer = sign_in(&gateway, json!({ "key": VIEWER })).await;
    let operator = sign_in(&gateway, json!({ "key": OPERATOR })).await;
    let headers = |cookie: &str| {
        [
            ("cookie".to_owned(), cookie.to_owned()),
            ("sec-fetch-site".to_owned(), "same-origin".to_owned()),
        ]
    };
    let status = async |gateway: &Gateway, method: &str, path: &str, cookie: &str| {
        let headers = headers(cookie);
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        status_of(gateway, method, path, &headers).await
    };
    assert_eq!(
        status(&gateway, "DELETE", "/api/v1/sessions/none", &viewer).await,
        403
    );
    assert_eq!(
        status(&gateway, "GET", "/api/v1/status", &viewer).await,
        200
    );
    let viewer_leaves =
        |setup: Setup| setup.with("admin.keys.1", "key = \"another-key-0123456789\"");
    gateway.change(viewer_leaves).await;
    assert_eq!(
        status(&gateway, "GET", "/api/v1/status", &viewer).await,
        401
    );
    assert_eq!(
        status(&gateway, "GET", "/api/v1/status", &operator).await,
        200,
        "its key has stayed"
    );
    gateway
        .change(|setup| setup.with("admin.keys.1", &format!("key = {VIEWER:?}")))
        .await;
    assert_eq!(
        status(&gateway, "GET", "/api/v1/status", &viewer).await,
        401,
        "the key came back, and the session did not"
    );
}

#[tokio::test]
async fn a_stream_of_events_ends_at_sign_out() {
    let gateway = with_operators(Setup::new()).start().await;
    let cookie = sign_in(&gateway, json!({ "key": VIEWER })).await;
    let url = format!("http://{}/api/v1/events", gateway.app.admin.unwrap());
    let cookie = [("cookie", cookie.as_str())];
    let mut stream = EventStream::new(HttpClient::new().open("GET", &url, &cookie, "").await);
    assert!(stream.next().await.is_some());
    assert_eq!(
        status_of(&gateway, "POST", "/api/v1/signout", &cookie).await,
        200
    );
    while stream.next().await.is_some() {}
}

#[tokio::test]
async fn a_ticket_of_this_machine_signs_in_once() {
    let gateway = with_operators(Setup::new()).start().await;
    let key = bearer(VIEWER);
    let key = ("authorization", key.as_str());
    let ticket = ask(&gateway, "POST", "/api/v1/tickets", &[key], "")
        .await
        .json();
    assert_eq!(
        ticket["path"],
        format!("/signin#t={}", ticket["ticket"].as_str().unwrap())
    );
    let cookie = sign_in(&gateway, json!({ "ticket": ticket["ticket"] })).await;
    let me = ask(&gateway, "GET", "/api/v1/me", &[("cookie", &cookie)], "")
        .await
        .json();
    assert_eq!(me["name"], "v");
    assert_eq!(me["role"], "view");
    let body = json!({ "ticket": ticket["ticket"] }).to_string();
    assert_eq!(
        ask(&gateway, "POST", "/api/v1/signin", &[JSON], &body)
            .await
            .status,
        401,
        "it was used"
    );
    // Not through a proxy, without a key, or with a cookie alone.
    let proxied = [key, ("x-forwarded-for", "10.0.0.7")];
    assert_eq!(
        status_of(&gateway, "POST", "/api/v1/tickets", &proxied).await,
        403
    );
    assert_eq!(
        status_of(&gateway, "POST", "/api/v1/tickets", &[]).await,
        401
    );
    assert_eq!(
        status_of(&gateway, "POST", "/api/v1/tickets", &[("cookie", &cookie)]).await,
        403
    );
    let open = Setup::new().start().await;
    for path in ["/api/v1/tickets", "/api/v1/signin"] {
        let refused = ask(&open, "POST", path, &[JSON], &body).await;
        assert_eq!(refused.status, 409, "{path}");
        assert_eq!(refused.json()["error"], "no_keys", "{path}");
    }
    let me = ask(&open, "GET", "/api/v1/me", &[], "").await.json();
    assert_eq!(
        me,
        json!({ "name": null, "role": "operate", "by": "loopback", "keys": false })
    );
}

#[tokio::test]
async fn a_cookie_never_crosses_a_network_in_plain_text() {
    let hosts = "allowed_hosts = [\"gateway.example.com\"]";
    let gateway = with_operators(Setup::new().with("gateway", hosts))
        .start()
        .await;
    let body = json!({ "key": OPERATOR }).to_string();
    let host = ("host", "gateway.example.com");
    let plain = ask(
        &gateway,
        "POST",
        "/api/v1/signin",
        &[JSON, host, ("origin", "http://gateway.example.com")],
        &body,
    )
    .await;
    assert_eq!(plain.status, 403);
    assert_eq!(plain.json()["error"], "needs_tls");
    let tls = ask(
        &gateway,
        "POST",
        "/api/v1/signin",
        &[JSON, host, ("origin", "https://gateway.example.com")],
        &body,
    )
    .await;
    let cookie = tls.header("set-cookie");
    assert!(
        cookie.starts_with("__Host-moongate=")
            && cookie.ends_with("; Secure; HttpOnly; SameSite=Strict; Path=/")
    );
    let cookie = [host, ("cookie", cookie.split(';').next().unwrap())];
    assert_eq!(
        status_of(&gateway, "GET", "/api/v1/status", &cookie).await,
        200
    );
    // What a plain form of another page can send is refused.
    for headers in [
        [JSON, ("sec-fetch-site", "cross-site")],
        [JSON, ("sec-fetch-site", "same-site")],
    ] {
        assert_eq!(
            ask(&gateway, "POST", "/api/v1/signin", &headers, &body)
                .await
                .status,
            403
        );
    }
    let form = [("content-type", "text/plain")];
    assert_eq!(
        ask(&gateway, "POST", "/api/v1/signin", &form, &body)
            .await
            .status,
        415
    );
    assert_eq!(status_of(&gateway, "GET", "/api/v1/signin", &[]).await, 405);
}

#[tokio::test]
async fn wrong_sign_ins_are_limited_too() {
    let gateway = with_operators(Setup::new()).start().await;
    for n in 0..10 {
        let body = if n % 2 == 0 {
            json!({ "key": format!("guess-{n}") })
        } else {
            json!({ "ticket": format!("t-{n}") })
        };
        let refused = ask(
            &gateway,
            "POST",
            "/api/v1/signin",
            &[JSON],
            &body.to_string(),
        )
        .await;
        assert_eq!(refused.status, 401);
        assert_eq!(refused.header("set-cookie"), "");
    }
    let refused = ask(
        &gateway,
        "POST",
        "/api/v1/signin",
        &[JSON],
        &json!({ "key": "guess-10" }).to_string(),
    )
    .await;
    assert_eq!(refused.status, 429);
    // The right key passes: nobody is locked out by somebody else's guesses.
    let right = ask(
        &gateway,
        "POST",
        "/api/v1/signin",
        &[JSON],
        &json!({ "key": OPERATOR }).to_string(),
    )
    .await;
    assert_eq!(right.status, 200);
}
