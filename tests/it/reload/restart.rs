//! `moongate restart`, and the requests of operators.

use std::process::Stdio;

use serde_json::json;

use crate::harness::{Era, Gateway, HttpClient, Setup, alive, holds, legacy, only};

async fn command(gateway: &Gateway, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_moongate"));
    command
        .args(args)
        .args(["--admin", &gateway.app.admin.unwrap().to_string()])
        .stdin(Stdio::null());
    let output = command.output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_starts_the_new_connection_before_it_closes_the_old() {
    let gateway = Setup::new()
        .stdio("a", &only(legacy(), &["echo"]))
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let old = u32::try_from(gateway.status("a").await["pid"].as_u64().unwrap()).unwrap();
    let client = gateway.client(Era::Legacy).await;
    let calling = tokio::spawn({
        let client = client.clone();
        async move {
            for n in 0..200 {
                client.call("a__echo", json!({"n": n})).await.text();
            }
        }
    });
    let (code, _, said) = command(&gateway, &["restart", "a"]).await;
    assert_eq!(code, Some(0), "{said}");
    calling.await.expect("no call failed");
    let new = u32::try_from(gateway.status("a").await["pid"].as_u64().unwrap()).unwrap();
    assert_ne!(new, old);
    assert!(
        said.contains(&format!("pid {old}")) && said.contains(&format!("pid {new}")),
        "{said}"
    );
    holds("the old one is gone", || !alive(old)).await;
    client.call("a__echo", json!({})).await.text();
    assert_eq!(
        gateway
            .metric("moongate_server_restarts_total{mcp_server=\"a\"}")
            .await,
        Some(1.0)
    );
    gateway.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_restart_keeps_the_old_connection() {
    let gateway = Setup::new()
        .stdio("a", &only(legacy(), &["echo"]))
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let old = gateway.status("a").await["pid"].clone();
    // The script is read at the start of the process: the next one has none.
    std::fs::write(gateway.dir.path().join("a.json"), "no script").unwrap();
    let (code, _, said) = command(&gateway, &["restart", "a"]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("but the old one still serves"), "{said}");
    let status = gateway.state("a", "ready").await;
    assert_eq!(status["pid"], old);
    assert_eq!(status["replacement"], json!(null));
    gateway
        .client(Era::Modern)
        .await
        .call("a__echo", json!({}))
        .await
        .text();
    let (code, _, said) = command(&gateway, &["restart", "b"]).await;
    assert!(
        code == Some(1) && said.contains("the servers are a"),
        "{said}"
    );
    assert_eq!(command(&gateway, &["restart", "../a"]).await.0, Some(2));
    gateway.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_local_non_browser_requests_may_use_the_admin_api() {
    let gateway = Setup::new()
        .with(
            "gateway",
            "allowed_origins = [\"https://app.example.com\"]\nallowed_hosts = \
                          [\"gateway.example.com\"]",
        )
        .start()
        .await;
    let base = format!("http://{}", gateway.app.admin.unwrap());
    let http = HttpClient::new();
    let refused: [&[(&str, &str)]; 5] = [
        &[("origin", "https://evil.test")],
        &[("host", "evil.test")],
        &[
            ("origin", "https://app.example.com"),
            ("sec-fetch-site", "cross-site"),
        ],
        &[("x-forwarded-for", "192.0.2.1")],
        &[("forwarded", "for=192.0.2.1")],
    ];
    for headers in refused {
        for path in ["/api/v1/reload", "/api/v1/servers/a/restart"] {
            let reply = http
                .send("POST", &format!("{base}{path}"), headers, "")
                .await;
            assert_eq!(reply.status, 403, "{path} {headers:?}");
        }
    }
    for path in ["/api/v1/reload", "/api/v1/servers/a/restart"] {
        assert_eq!(
            http.get(&format!("{base}{path}")).await.status,
            405,
            "{path}"
        );
    }
    assert_eq!(
        gateway
            .metric("moongate_config_reloads_total{outcome=\"refused\"}")
            .await,
        None
    );
    // Nothing was read from a file here, which is said.
    let reply = gateway.order("/api/v1/reload").await;
    assert_eq!(reply.status, 422);
    assert_eq!(reply.json()["outcome"], "refused");
    gateway.app.stop().await;
}
