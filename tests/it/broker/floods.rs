//! Floods of registrations, authorization requests and documents: each meets its limit, and does
//! not slow anybody who is logged in.

use rustix::process::Signal;

use super::client::LoginClient;
use super::documents::DocumentRule;
use super::shapes::{CLAUDE_CODE, OPENCODE, ShapeIdentity};
use super::world::{Company, people};
use crate::harness::{HttpClient, Process};

/// Requests of a flood, which are more than one address may send in a minute.
const FLOOD: usize = 120;

/// Counts the requests that a limit refused.
async fn refused(gateway: &Process, limit: &str) -> bool {
    let metrics = gateway.admin("/metrics").await.text_body();
    let series = format!("moongate_broker_refused_total{{limit=\"{limit}\"}}");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
    line.is_some_and(|value| value.trim().parse::<f64>().unwrap() > 0.0)
}

#[tokio::test]
async fn floods_meet_their_limits_and_slow_no_call() {
    let company = Company::start().await;
    let mut gateway = company.gateway().await;
    let login = company.log_in().await;
    let ShapeIdentity::Registration(body) = OPENCODE.identity else {
        panic!("it registers");
    };
    let mut limited = 0;
    for _ in 0..FLOOD {
        let reply = login.client.register(body).await;
        match reply.status {
            201 => {}
            429 => limited += 1,
            _ => panic!("{reply:?}"),
        }
    }
    assert!(limited > 0, "no registration was refused");
    let mut limited = 0;
    for _ in 0..FLOOD {
        let reply = HttpClient::new().get(&login.client.address()).await;
        match reply.status {
            200 => {}
            429 => limited += 1,
            _ => panic!("{reply:?}"),
        }
    }
    assert!(limited > 0, "no request for a login was refused");
    for limit in ["register", "authorize"] {
        let metric = refused(&gateway, limit).await || refused(&gateway, "peers").await;
        assert!(metric, "{limit}");
    }
    // Renewals have a limit of their own.
    let host = &company.documents;
    let renewed = login.client.refresh(&login.tokens.refresh, host).await;
    login.client.call(&renewed.access).await;
    assert_eq!(people(&gateway).await.len(), 1);
    gateway.signal(Signal::TERM);
    gateway.ended().await;
    let _gateway = company.gateway().await;
    company.valid_login().await;
}

/// Opens the page of a login as a proxy does. Returns the HTTP status.
async fn page_status(client: &LoginClient, forwarded_for: &str) -> u16 {
    let headers = [("x-forwarded-for", forwarded_for)];
    let http = HttpClient::new();
    let reply = http.send("GET", &client.address(), &headers, "").await;
    reply.status
}

#[tokio::test]
async fn people_behind_one_trusted_proxy_do_not_share_a_limit() {
    let proxies = "trusted_proxies = [\"127.0.0.1\"]";
    let company = Company::start().await.with("gateway", proxies);
    let _gateway = company.gateway().await;
    let client = company.client(&OPENCODE).await;
    let mut limited = 0;
    for n in 0..FLOOD {
        // The proxy appends the real address to whatever the person's client sent.
        let forwarded_for = format!("198.51.100.{n}, 192.0.2.1");
        match page_status(&client, &forwarded_for).await {
            200 => {}
            429 => limited += 1,
            status => panic!("{status}"),
        }
    }
    assert!(limited > 0, "nothing of the flood was refused");
    assert_eq!(page_status(&client, "192.0.2.2").await, 200);
    assert_eq!(page_status(&client, "[2001:db8::1]:4711").await, 200);
}

#[tokio::test]
async fn documents_that_never_come_hold_up_nobody() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let login = company.log_in().await;
    let host = &company.documents;
    let client = LoginClient::discover(&company.mcp(), &CLAUDE_CODE).await;
    let mut addresses = Vec::new();
    for n in 0..8 {
        let path = format!("/slow/{n}");
        host.publish(&path, DocumentRule::Drips);
        let mut slow = client.clone();
        slow.id = host.url(&path);
        addresses.push(slow.address());
    }
    let http = HttpClient::new();
    let floods = addresses.iter().map(|address| http.get(address));
    let calls = async {
        for _ in 0..10 {
            login.client.call(&login.tokens.access).await;
        }
    };
    let (replies, ()) = tokio::join!(futures_util::future::join_all(floods), calls);
    for reply in replies {
        assert!(reply.status >= 400, "{reply:?}");
    }
    login.client.revoke(&login.tokens.refresh, host).await;
    company.server.reset_record();
    company.assert_unharmed(&gateway, "slow documents").await;
}
