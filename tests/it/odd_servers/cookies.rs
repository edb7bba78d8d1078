//! Cookies of load balancers, at redirects and where several clients use one connection.

use axum::body::Body;
use axum::response::Response;
use serde_json::json;

use super::{Asked, ScriptedServer, legacy};
use crate::harness::{Era, HttpReply, Setup};

fn with_cookie(mut response: Response, cookie: &str) -> Response {
    response
        .headers_mut()
        .insert("set-cookie", cookie.parse().unwrap());
    response
}

#[tokio::test]
async fn a_redirect_sends_each_cookie_once_as_it_is_now() {
    let balances = |asked: &Asked| match (asked.path.as_str(), asked.header("cookie")) {
        ("/mcp", _) => {
            let redirect = Response::builder()
                .status(307)
                .header("location", "/node")
                .body(Body::empty())
                .unwrap();
            with_cookie(
                redirect,
                &format!("lb={}; Path=/", asked.method().replace('/', "-")),
            )
        }
        (_, cookie) if cookie == format!("lb={}", asked.method().replace('/', "-")) => {
            legacy(asked)
        }
        _ => Response::builder()
            .status(400)
            .body(Body::from("another node"))
            .unwrap(),
    };
    let server = ScriptedServer::start(balances).await;
    let gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    assert_eq!(
        gateway
            .client(Era::Legacy)
            .await
            .call("a__echo", json!({"a": 1}))
            .await
            .text(),
        r#"{"a":1}"#
    );
}

#[tokio::test]
async fn a_cookie_of_one_clients_credentials_goes_with_no_others() {
    let server = ScriptedServer::start(|asked| match asked.method() {
        "tools/call" => with_cookie(legacy(asked), &format!("sid={}", asked.header("x-token"))),
        _ => legacy(asked),
    })
    .await;
    let forward = format!(
        "url = {:?}\nforward_headers = {{ X-Token = \"X-Token\" }}",
        server.url
    );
    let gateway = Setup::new().with("servers.a", &forward).start().await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Legacy).await;
    for token in ["first", "second"] {
        let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": {"name": "a__echo"}});
        let sent = client
            .raw("POST", &[("x-token", token.to_owned())], call.to_string())
            .await;
        assert_eq!(sent.status(), 200);
        HttpReply::read(sent).await.result();
    }
    let calls: Vec<_> = server
        .asked()
        .into_iter()
        .filter(|asked| asked.method() == "tools/call")
        .collect();
    assert_eq!(
        calls
            .iter()
            .map(|asked| asked.header("x-token").to_owned())
            .collect::<Vec<_>>(),
        ["first", "second"]
    );
    assert!(calls.iter().all(|asked| asked.header("cookie").is_empty()));
}
