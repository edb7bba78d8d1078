//! The certificate of the listener, which is read again with the config.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use rustix::process::Signal;

use crate::harness::tls::{Authority, connect, shown};
use crate::harness::{Process, Setup, until, within};

/// How often the pair was read again with this outcome.
async fn reads(process: &Process, outcome: &str) -> f64 {
    let metrics = process.admin("/metrics").await.text_body();
    let series = format!("moongate_tls_reloads_total{{outcome=\"{outcome}\"}} ");
    metrics
        .lines()
        .find_map(|line| line.strip_prefix(&series)?.parse().ok())
        .unwrap_or_default()
}

#[tokio::test]
async fn a_hangup_takes_a_new_certificate_and_leaves_connections_and_a_bad_one_alone() {
    let authority = Authority::new("ours");
    let first = authority.sign();
    let second = authority.sign();
    let setup = Setup::new();
    let cert = setup.path("cert.pem");
    let key = setup.path("key.pem");
    first.write(cert.parent().unwrap());
    let tls = format!("tls = {{ cert = {cert:?}, key = {key:?} }}\nreload = {{ watch = false }}");
    let process = setup.with("gateway", &tls).spawn().await;
    let address: SocketAddr = process.base.trim_start_matches("https://").parse().unwrap();
    let old = connect(address, authority.client(&["http/1.1"], None))
        .await
        .unwrap();
    assert_eq!(shown(address, &authority).await, first.certificate);
    // Half of a pair, as between the two writes of whoever renews it.
    std::fs::write(&cert, &second.pem).unwrap();
    process.signal(Signal::HUP);
    until("half a pair is refused", || async {
        (reads(&process, "refused").await >= 1.0).then_some(())
    })
    .await;
    assert_eq!(shown(address, &authority).await, first.certificate);
    second.write(cert.parent().unwrap());
    process.signal(Signal::HUP);
    until("the new pair is taken", || async {
        (reads(&process, "loaded").await >= 1.0).then_some(())
    })
    .await;
    assert_eq!(shown(address, &authority).await, second.certificate);
    std::fs::remove_file(&key).unwrap();
    process.signal(Signal::HUP);
    until("no key is refused", || async {
        (reads(&process, "refused").await >= 2.0).then_some(())
    })
    .await;
    assert_eq!(shown(address, &authority).await, second.certificate);
    // Who was connected before is served on.
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(old))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::get("/livez")
        .header("host", "localhost")
        .body(Full::<Bytes>::default())
        .unwrap();
    assert_eq!(
        within("an answer", sender.send_request(request))
            .await
            .unwrap()
            .status(),
        200
    );
}
