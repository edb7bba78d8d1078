//! Who may use the admin listener: keys and roles over the whole table of routes, and wrong keys.

use serde_json::Value;

use crate::harness::{Gateway, HttpClient, HttpReply, Setup};

const VIEWER: &str = "viewer-key-0123456789";
const OPERATOR: &str = "operator-key-0123456789";

fn with_operators(setup: Setup) -> Setup {
    setup
        .with("admin.keys.1", &format!("name = \"v\"\nkey = {VIEWER:?}\nrole = \"view\""))
        .with("admin.keys.2", &format!("name = \"o\"\nkey = {OPERATOR:?}\nrole = \"operate\""))
}

async fn ask(gateway: &Gateway, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> HttpReply {
    let url = format!("http://127.0.0.1:{}{path}", gateway.app.admin.unwrap().port());
    HttpClient::new().send(method, &url, headers, body.to_owned()).await
}

async fn ask_with(gateway: &Gateway, method: &str, path: &str, key: &str) -> HttpReply {
    ask(gateway, method, path, &[("authorization", &format!("Bearer {key}"))], "").await
}

/// All routes of the table: method, path and role.
async fn routes(gateway: &Gateway) -> Vec<(String, String, String)> {
    let description = ask_with(gateway, "GET", "/api/v1/openapi.json", VIEWER).await.json();
    let mut routes = Vec::new();
    for (path, operations) in description["paths"].as_object().unwrap() {
        // An event stream has no end, and has a test of its own.
        for (method, operation) in operations.as_object().unwrap().iter().filter(|_| path != "/api/v1/events") {
            let path = path.replace("{name}", "none").replace("{id}", "none");
            routes.push((method.to_uppercase(), path, operation["x-role"].as_str().unwrap().to_owned()));
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
        for (method, path, role) in &routes {
            let without = ask(&gateway, method, path, &[], "").await;
            let wrong = ask_with(&gateway, method, path, "wrong-key-0123456789").await;
            for refused in [without, wrong] {
                assert_eq!(refused.status, 401, "{method} {path}");
                assert!(refused.json()["message"].as_str().unwrap().contains("admin.keys"), "{method} {path}");
            }
            let viewer = ask_with(&gateway, method, path, VIEWER).await;
            let is_refused = viewer.status == 403 && viewer.json()["error"] == "role_not_allowed";
            assert_eq!(is_refused, role == "operate", "{method} {path}: {} {}", viewer.status, viewer.text_body());
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
    let description = ask(&local, "GET", "/api/v1/openapi.json", &[], "").await.json();
    let gateway = Setup::new().with("gateway", "admin = \"0.0.0.0:0\"").start().await;
    let paths = description["paths"].as_object().unwrap().iter();
    let routes =
        paths.flat_map(|(path, all)| all.as_object().unwrap().keys().map(move |method| (method, path.as_str())));
    let (get, post) = ("get".to_owned(), "post".to_owned());
    let pages = ["/", "/calls", "/parts/servers", "/assets/app.css", "/nothing"].map(|path| (&get, path));
    for (method, path) in routes.chain(pages).chain([(&post, "/")]) {
        let refused = ask(&gateway, &method.to_uppercase(), path, &[], "").await;
        assert_eq!(refused.status, 401, "{method} {path}");
        assert!(refused.text_body().contains("admin.keys"), "{method} {path}");
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
    for key in ["guess-11", OPERATOR] {
        let refused = ask_with(&gateway, "GET", "/api/v1/status", key).await;
        assert_eq!((refused.status, &refused.json()["error"]), (429, &Value::from("too_many_wrong_keys")), "{key}");
        let wait: u64 = refused.header("retry-after").parse().unwrap();
        assert!((1..=61).contains(&wait), "{wait}");
    }
    assert_eq!(ask(&gateway, "GET", "/livez", &[], "").await.status, 200);
}
