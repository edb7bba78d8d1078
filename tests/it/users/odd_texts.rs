//! Odd hosts, texts and answers at the edge of the gateway: what a reader cannot see, and what only looks like a name.

use crate::harness::{HttpClient, Setup};

#[tokio::test]
async fn foreign_hosts_that_look_like_addresses_are_refused() {
    let gateway = Setup::new().start().await;
    let admin = format!("http://{}/api/v1/status", gateway.app.admin.unwrap());
    let wrong = [
        "[::1].evil.example",
        "[::1].evil.example:80",
        "[::1]evil.example",
        "127.0.0.1:80.evil.example",
        "[127.0.0.1]",
    ];
    for host in wrong {
        for (method, url) in [("GET", gateway.url("/healthz")), ("POST", gateway.url("/mcp")), ("GET", admin.clone())] {
            let reply = HttpClient::new().send(method, &url, &[("host", host)], "").await;
            assert!(matches!(reply.status, 400 | 403), "{host} {url}: {reply:?}");
        }
    }
    for host in ["[::1]", "[::1]:8080", "127.0.0.1:80", "localhost"] {
        let reply = HttpClient::new().send("GET", &gateway.url("/healthz"), &[("host", host)], "").await;
        assert_eq!(reply.status, 200, "{host}");
    }
}
