//! Servers over `https`: what is agreed on, and who is not trusted.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use http::{HeaderMap, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client as Pool, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use moongate_mock::{MockHandle, MockScript};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::harness::relay::Relay;
use crate::harness::tls::Authority;
use crate::harness::{ERAS, McpClient, Setup, holds, legacy, loopback, modern, serve, until};

/// A mock behind TLS, and behind somebody who speaks both versions of HTTP, since it speaks one.
struct TlsMock {
    mock: MockHandle,
    relay: Relay,
    /// The version of HTTP of each request.
    versions: Arc<Mutex<Vec<Version>>>,
    _serving: JoinSet<()>,
}

impl TlsMock {
    async fn start(script: MockScript, config: rustls::ServerConfig) -> TlsMock {
        let mock = serve(script).await;
        let behind = mock.addr.unwrap();
        let versions = Arc::new(Mutex::new(Vec::new()));
        let pool: PlainServer = Pool::builder(TokioExecutor::new()).build_http();
        let passes = Router::new().fallback({
            let versions = versions.clone();
            async move |request: Request| {
                versions.lock().unwrap().push(request.version());
                pass(pool, behind, request).await
            }
        });
        let listener = TcpListener::bind(loopback()).await.unwrap();
        let relay = Relay::secure(listener.local_addr().unwrap(), config).await;
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, passes).await.unwrap() });
        TlsMock {
            mock,
            relay,
            versions,
            _serving: serving,
        }
    }

    fn url(&self) -> String {
        self.relay.url("https")
    }
}

type PlainServer = Pool<HttpConnector, Body>;

/// Passes a request on to the mock, and its answer back, in whatever version each side speaks.
async fn pass(
    pool: PlainServer,
    behind: SocketAddr,
    request: Request,
) -> Result<Response<Incoming>, StatusCode> {
    let (mut head, body) = request.into_parts();
    head.uri = format!("http://{behind}{}", head.uri.path_and_query().unwrap())
        .parse()
        .unwrap();
    head.version = Version::HTTP_11;
    forget_hop(&mut head.headers);
    let mut response = pool
        .request(Request::from_parts(head, body))
        .await
        .map_err(|_| StatusCode::BAD_GATEWAY)?;
    forget_hop(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    Ok(response)
}

fn forget_hop(headers: &mut HeaderMap) {
    for name in [header::HOST, header::CONNECTION, header::TRANSFER_ENCODING] {
        headers.remove(name);
    }
}

#[tokio::test]
async fn servers_over_https_are_reached_in_the_version_that_alpn_gives() {
    let authority = Authority::new("trusted");
    let mut servers = Vec::new();
    let mut setup = Setup::new();
    for (era, script) in [("old", legacy()), ("new", modern())] {
        for (number, protocols, version) in [
            ("two", &["h2", "http/1.1"][..], Version::HTTP_2),
            ("one", &["http/1.1"], Version::HTTP_11),
            ("none", &[], Version::HTTP_11),
        ] {
            let name = format!("{era}-{number}");
            let server = TlsMock::start(script.clone(), authority.sign().server(protocols)).await;
            setup = setup.http(&name, &server.url());
            servers.push((name, version, server));
        }
    }
    let gateway = setup.trusting(&authority).spawn().await;
    for era in ERAS {
        let client = McpClient::open(&gateway.mcp(), era).await;
        for (name, version, server) in &servers {
            let tool = format!("{name}__echo");
            until(&format!("{tool} is listed"), || async {
                client.tools().await.contains(&tool).then_some(())
            })
            .await;
            assert_eq!(
                client.call(&tool, json!({"n": 1})).await.text(),
                r#"{"n":1}"#,
                "{name}"
            );
            // More than one window of HTTP/2, and an answer with something before it.
            let big = client
                .call(&format!("{name}__big"), json!({"bytes": 1_000_000}))
                .await
                .text();
            assert_eq!(big.len(), 1_000_000, "{name}");
            let calls = (0..20).map(|n| client.call(&tool, json!({"n": n})));
            for (n, reply) in futures_util::future::join_all(calls)
                .await
                .into_iter()
                .enumerate()
            {
                assert_eq!(reply.text(), format!(r#"{{"n":{n}}}"#), "{name}");
            }
            let versions = server.versions.lock().unwrap().clone();
            assert!(
                versions.iter().all(|seen| seen == version),
                "{name}: {versions:?}"
            );
            assert!(server.mock.counters().of("tools/call") >= 22, "{name}");
        }
    }
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_refused_and_explained() {
    let trusted = Authority::new("trusted");
    let stranger = Authority::new("stranger");
    let strange = TlsMock::start(legacy(), stranger.sign().server(&["h2"])).await;
    let misnamed = TlsMock::start(
        modern(),
        trusted.sign_for("elsewhere.example").server(&["http/1.1"]),
    )
    .await;
    let setup = Setup::new()
        .http("strange", &strange.url())
        .http("misnamed", &misnamed.url());
    let gateway = setup.trusting(&trusted).spawn().await;
    let said = |server: &str, words: &str| {
        let named = |line: &&str| line.contains("not connected") && line.contains(server);
        gateway
            .log()
            .lines()
            .filter(named)
            .any(|line| line.contains("invalid peer certificate") && line.contains(words))
    };
    holds("an unknown issuer is told", || {
        said("strange", "UnknownIssuer; if a private CA issued it")
    })
    .await;
    holds("another name is told", || {
        said("misnamed", "elsewhere.example")
    })
    .await;
    for server in [&strange, &misnamed] {
        assert_eq!(server.mock.counters().total(), 0, "nothing was sent");
        assert!(server.versions.lock().unwrap().is_empty());
    }
}
