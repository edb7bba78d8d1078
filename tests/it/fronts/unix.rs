//! Listening on Unix sockets.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use moongate::app::GatewayApp;
use rustix::process::Signal;
use serde_json::json;
use tokio::net::UnixStream;

use crate::fronts::pipe::PROGRAM;
use crate::harness::{Era, Gateway, Setup, body_of, holds, legacy, modern_meta, within};

async fn send(socket: &Path, request: Request<Full<Bytes>>) -> (StatusCode, String) {
    let stream = within("it connects", UnixStream::connect(socket))
        .await
        .unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let response = within("an answer", sender.send_request(request))
        .await
        .unwrap();
    let status = response.status();
    (
        status,
        String::from_utf8(
            response
                .into_body()
                .collect()
                .await
                .unwrap()
                .to_bytes()
                .to_vec(),
        )
        .unwrap(),
    )
}

fn call(headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
    let params = json!({"name": "s__echo", "arguments": {"n": 1}, "_meta": modern_meta()});
    let mut request = Request::post("/mcp")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "s__echo");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request
        .body(Full::new(Bytes::from(body_of(1, "tools/call", params))))
        .unwrap()
}

/// A gateway on a Unix socket beside its port.
async fn gateway() -> Gateway {
    let setup = Setup::new().stdio("s", &legacy());
    let listen = format!(
        "listen = [\"127.0.0.1:0\", \"unix:{}\"]",
        setup.path("m.sock").display()
    );
    let gateway = setup.with("gateway", &listen).start().await;
    gateway.ready(&["s"]).await;
    gateway
}

#[tokio::test]
async fn clients_connect_whatever_they_call_the_host_and_pages_do_not() {
    let gateway = gateway().await;
    let socket = gateway.dir.path().join("m.sock");
    assert_eq!(gateway.app.sockets, [format!("unix:{}", socket.display())]);
    assert_eq!(
        std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777,
        0o600
    );
    for host in [&[("host", "moongate.internal")][..], &[]] {
        let (status, body) = send(&socket, call(host)).await;
        assert!(
            status == 200 && body.contains(r#"{\"n\":1}"#),
            "{status} {body}"
        );
    }
    let (status, body) = send(
        &socket,
        call(&[("host", "x"), ("origin", "https://evil.test")]),
    )
    .await;
    assert!(
        status == 403 && body.contains("origin_not_allowed"),
        "{status} {body}"
    );
    // On the port the host still matters.
    let reply = gateway
        .client(Era::Modern)
        .await
        .raw("GET", &[("host", "evil.test".to_owned())], "")
        .await;
    assert_eq!(reply.status(), 403);
    gateway.app.stop().await;
    assert!(!socket.exists(), "it goes with the gateway");
}

#[tokio::test]
async fn configured_keys_are_required_on_a_unix_socket() {
    let setup = Setup::new().stdio("s", &legacy()).with(
        "auth.keys",
        "name = \"me\"\nkey = \"a-key-of-somebody-01234\"",
    );
    let socket = setup.path("m.sock");
    let lines = format!(
        "listen = [\"127.0.0.1:0\", \"unix:{}\"]\nsocket_mode = \"0660\"",
        socket.display()
    );
    let gateway = setup.with("gateway", &lines).start().await;
    gateway.ready(&["s"]).await;
    assert_eq!(
        std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777,
        0o660
    );
    assert_eq!(send(&socket, call(&[])).await.0, 401);
    assert_eq!(
        send(
            &socket,
            call(&[("authorization", "Bearer a-key-of-somebody-01234")])
        )
        .await
        .0,
        200
    );
}

#[tokio::test]
async fn a_socket_of_the_living_is_refused_and_of_the_dead_replaced() {
    let setup = Setup::new();
    let socket = setup.path("m.sock");
    let lines = format!("listen = \"unix:{}\"\nadmin = false", socket.display());
    let setup = setup.with("gateway", &lines);
    let config = setup.file();
    let plan = || setup.load().unwrap().plan;
    let mut first = tokio::process::Command::new(PROGRAM);
    first
        .args(["serve", "--config"])
        .arg(&config)
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true);
    let mut first = first.spawn().unwrap();
    let connects = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
    holds("it listens", connects).await;
    let Err(error) = GatewayApp::start(plan(), None).await else {
        panic!("two listen")
    };
    let said = format!("{error:#}");
    assert!(
        said.contains("m.sock") && said.contains("another process listens there"),
        "{said}"
    );
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(first.id().unwrap().cast_signed()).unwrap(),
        Signal::KILL,
    )
    .unwrap();
    within("it ends", first.wait()).await.unwrap();
    assert!(socket.exists(), "what a kill -9 leaves behind");
    let app = GatewayApp::start(plan(), None).await.unwrap();
    assert!(connects());
    app.stop().await;
    assert!(!socket.exists());
}

#[tokio::test]
async fn the_admin_api_is_served_on_a_unix_socket() {
    let setup = Setup::new();
    let socket = setup.path("a.sock");
    let setup = setup.with("gateway", &format!("admin = \"unix:{}\"", socket.display()));
    let app = GatewayApp::start(setup.load().unwrap().plan, None)
        .await
        .unwrap();
    assert_eq!(app.admin_socket, Some(format!("unix:{}", socket.display())));
    let status = Request::get("/api/v1/status")
        .body(Full::default())
        .unwrap();
    assert_eq!(send(&socket, status).await.0, 200);
    let mut health = tokio::process::Command::new(PROGRAM);
    health.args(["health", "--admin", &format!("unix:{}", socket.display())]);
    assert!(
        within("health ends", health.status())
            .await
            .unwrap()
            .success()
    );
    // Nobody but this machine can, so it may do what only this machine may; unless a proxy brought
    // it.
    let restart = || Request::post("/api/v1/servers/x/restart");
    assert_eq!(
        send(&socket, restart().body(Full::default()).unwrap())
            .await
            .0,
        404,
        "there is no such server"
    );
    let proxied = restart()
        .header("x-forwarded-for", "192.0.2.1")
        .body(Full::default())
        .unwrap();
    assert_eq!(send(&socket, proxied).await.0, 403);
    app.stop().await;
}

/// What `moongate` says with these arguments.
async fn run(args: &[&str]) -> (Option<i32>, String) {
    let mut command = tokio::process::Command::new(PROGRAM);
    let output = command
        .args(args)
        .env_remove("MOONGATE_KEY")
        .kill_on_drop(true)
        .output();
    let output = within("it ends", output).await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[tokio::test]
async fn verbs_and_bridges_find_a_gateway_by_its_socket() {
    let gateway = gateway().await;
    let url = format!("unix:{}", gateway.dir.path().join("m.sock").display());
    let (code, said) = run(&["tools", "--url", &url]).await;
    assert!(code == Some(0) && said.contains("s__echo"), "{said}");
    for protocol in ["2025-11-25", "2026-07-28"] {
        let (code, said) = run(&[
            "call",
            "s__add",
            "a=1",
            "b=2",
            "--protocol",
            protocol,
            "--url",
            &url,
        ])
        .await;
        assert!(code == Some(0) && said.contains('3'), "{protocol}: {said}");
    }
    // The endpoint of one server, under its own names.
    let (code, said) = run(&["tools", "--url", &format!("{url}:/mcp/s")]).await;
    assert!(
        code == Some(0) && said.contains("echo") && !said.contains("s__echo"),
        "{said}"
    );
    let mut pipe = crate::fronts::pipe::StdioProcess::launch(&["--url", &url], &[]);
    pipe.initialize("2025-11-25", json!({})).await;
    pipe.ask(
        1,
        "tools/call",
        json!({"name": "s__echo", "arguments": {"n": 1}}),
    )
    .await;
    assert_eq!(pipe.result(1).await["content"][0]["text"], r#"{"n":1}"#);
    let nowhere = format!("unix:{}", gateway.dir.path().join("none.sock").display());
    let (code, said) = run(&["tools", "--url", &nowhere]).await;
    assert!(
        code == Some(1) && said.contains("there is no socket at") && said.contains("none.sock"),
        "{said}"
    );
    let (code, said) = run(&["tools", "--url", "unix:"]).await;
    assert!(code == Some(2) && said.contains("unix:PATH"), "{said}");
}
