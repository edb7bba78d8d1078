//! A new process that takes over from an old one: by a socket that both may have, or by one that a
//! third opened.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::process::{Child, Command};

use crate::fronts::pipe::PROGRAM;
use crate::harness::{Setup, body_of, holds, modern, modern_meta, serve, within};

fn call(address: &str) -> Request<Full<Bytes>> {
    let params = json!({"name": "s__echo", "arguments": {}, "_meta": modern_meta()});
    Request::post(format!("{address}/mcp"))
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "s__echo")
        .body(Full::new(Bytes::from(body_of(1, "tools/call", params))))
        .unwrap()
}

/// Calls without a pause until told to stop; counts what was answered, and gives what went wrong.
async fn load(base: String, stop: Arc<AtomicBool>, answered: Arc<AtomicUsize>) -> Vec<String> {
    // The pool sends a request again only if its connection was gone before any of it was sent.
    let pool: Pool<HttpConnector, Full<Bytes>> = Pool::builder(TokioExecutor::new()).build_http();
    let mut wrong = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        match within("an answer", pool.request(call(&base))).await {
            Ok(response) => {
                let status = response.status();
                let body = response
                    .into_body()
                    .collect()
                    .await
                    .map(|body| body.to_bytes());
                match body {
                    Ok(body)
                        if status == 200 && String::from_utf8_lossy(&body).contains("content") =>
                    {
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    other => wrong.push(format!("{status}: {other:?}")),
                }
            }
            Err(e) => wrong.push(format!("{e:?}")),
        }
    }
    wrong
}

#[tokio::test]
async fn a_second_process_takes_the_port_over_under_load() {
    let mock = serve(modern()).await;
    let setup = || {
        Setup::new()
            .http("s", &mock.url)
            .with("gateway", "reuse_port = true")
    };
    let mut old = setup().spawn().await;
    let port = old.base.rsplit_once(':').unwrap().1.to_owned();
    let listed = async |url: &str| {
        let client = crate::harness::McpClient::open(url, crate::harness::Era::Modern).await;
        crate::harness::until("it lists", || async {
            (!client.tools().await.is_empty()).then_some(())
        })
        .await;
    };
    listed(&old.mcp()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..8)
        .map(|_| tokio::spawn(load(old.base.clone(), stop.clone(), answered.clone())))
        .collect();
    let some_more = async |what: &str| {
        let before = answered.load(Ordering::Relaxed);
        holds(what, || answered.load(Ordering::Relaxed) > before + 200).await;
    };
    some_more("the old one answers").await;
    // Not on the port before it can serve: it has an address of its own to be looked at.
    let again = format!("listen = [\"127.0.0.1:0\", \"127.0.0.1:{port}\"]\nreuse_port = true");
    let new = Setup::new()
        .http("s", &mock.url)
        .with("gateway", &again)
        .spawn()
        .await;
    listed(&new.mcp()).await;
    some_more("both answer").await;
    old.signal(Signal::TERM);
    assert!(old.ended().await.success());
    some_more("the new one answers").await;
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        let wrong = caller.await.unwrap();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

/// Calls as one principal until told to stop, each with a nonce; gives what went wrong. A call
/// whose connection ended before anything was answered is sent once more, as clients do.
async fn roll(
    base: String,
    key: &'static str,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
) -> Vec<String> {
    let pool: Pool<HttpConnector, Full<Bytes>> = Pool::builder(TokioExecutor::new()).build_http();
    let mut wrong = Vec::new();
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        n += 1;
        let nonce = format!("{key}-{n}");
        let mut attempts = 0;
        let body = loop {
            attempts += 1;
            let params =
                json!({"name": "s__echo", "arguments": {"nonce": nonce}, "_meta": modern_meta()});
            let mut request = call(&base);
            *request.body_mut() = Full::new(Bytes::from(body_of(n, "tools/call", params)));
            request
                .headers_mut()
                .insert("authorization", format!("Bearer {key}").parse().unwrap());
            match within("an answer", pool.request(request)).await {
                Ok(response) => {
                    break response
                        .into_body()
                        .collect()
                        .await
                        .map(|b| b.to_bytes())
                        .unwrap_or_default();
                }
                Err(_) if attempts < 3 => {}
                Err(error) => break Bytes::from(format!("{error:?}")),
            }
        };
        let body = String::from_utf8_lossy(&body).into_owned();
        if body.contains(&nonce) && body.contains(&format!("\"id\":{n}")) {
            answered.fetch_add(1, Ordering::Relaxed);
        } else {
            wrong.push(body);
        }
    }
    wrong
}

/// Fault F64, as far as one machine has it: two processes on a port, replaced one after the other
/// under load.
#[tokio::test]
async fn processes_on_one_port_are_replaced_in_turn_and_no_call_is_lost_or_anothers() {
    const KEYS: [&str; 2] = ["mg_one_0123456789", "mg_two_0123456789"];
    let mock = serve(modern()).await;
    let setup = |listen: &str| {
        let keyed = KEYS
            .iter()
            .enumerate()
            .fold(Setup::new(), |setup, (n, key)| {
                setup.with(
                    &format!("auth.keys.{n}"),
                    &format!("name = \"key{n}\"\nkey = {key:?}"),
                )
            });
        keyed
            .http("s", &mock.url)
            .with("gateway", &format!("listen = {listen}\nreuse_port = true"))
    };
    let listed = async |url: &str| {
        let client =
            crate::harness::McpClient::with_key(url, crate::harness::Era::Modern, Some(KEYS[0]))
                .await;
        crate::harness::until("it lists", || async {
            (!client.tools().await.is_empty()).then_some(())
        })
        .await;
    };
    let first = setup("\"127.0.0.1:0\"").spawn().await;
    let (base, port) = (
        first.base.clone(),
        first.base.rsplit_once(':').unwrap().1.to_owned(),
    );
    listed(&first.mcp()).await;
    let again = format!("[\"127.0.0.1:0\", \"127.0.0.1:{port}\"]");
    let second = setup(&again).spawn().await;
    listed(&second.mcp()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicUsize::new(0));
    let callers = (0..6).map(|n| {
        tokio::spawn(roll(
            base.clone(),
            KEYS[n % 2],
            stop.clone(),
            answered.clone(),
        ))
    });
    let callers: Vec<_> = callers.collect();
    let mut serving = std::collections::VecDeque::from([first, second]);
    for round in 0..10 {
        let before = answered.load(Ordering::Relaxed);
        holds("calls are answered", || {
            answered.load(Ordering::Relaxed) > before + 30
        })
        .await;
        let mut old = serving.pop_front().unwrap();
        old.signal(Signal::TERM);
        assert!(old.ended().await.success(), "round {round}: {}", old.log());
        let new = setup(&again).spawn().await;
        listed(&new.mcp()).await;
        serving.push_back(new);
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        let wrong = caller.await.unwrap();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

#[tokio::test]
async fn without_the_setting_the_port_is_one_processes_own() {
    let first = Setup::new().spawn().await;
    let port = first.base.rsplit_once(':').unwrap().1.to_owned();
    let second = Setup::new().with(
        "gateway",
        &format!("listen = \"127.0.0.1:{port}\"\nreuse_port = true"),
    );
    let Err(error) = moongate::app::GatewayApp::start(second.load().unwrap().plan, None).await
    else {
        panic!("two listen")
    };
    assert!(format!("{error:#}").contains("gateway.listen"), "{error:#}");
}

/// Starts the program as systemd does: the socket is descriptor 3, and its environment says so.
fn activated(
    listener: &TcpListener,
    config: &std::path::Path,
    notify: &std::path::Path,
    name: &str,
) -> Child {
    let script = "exec 3<&0 0</dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" serve \
                  --config \"$1\"";
    let socket = OwnedFd::from(listener.try_clone().unwrap());
    let mut command = Command::new("sh");
    command
        .args(["-c", script, PROGRAM])
        .arg(config)
        .env("NOTIFY_SOCKET", notify)
        .env("LISTEN_FDNAMES", name);
    command
        .stdin(Stdio::from(socket))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true);
    command.spawn().unwrap()
}

fn told(socket: &UnixDatagram) -> String {
    let mut text = [0; 256];
    socket
        .recv(&mut text)
        .map(|n| String::from_utf8_lossy(&text[..n]).into_owned())
        .unwrap_or_default()
}

#[tokio::test]
async fn the_service_managers_socket_is_served_and_outlives_the_process() {
    for (listen, name) in [
        ("systemd", "moongate.socket"),
        ("systemd:clients", "clients"),
    ] {
        let setup = Setup::new().with("gateway", &format!("listen = {listen:?}\nadmin = false"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let path = setup.path("notify");
        let notify = UnixDatagram::bind(&path).unwrap();
        notify.set_nonblocking(true).unwrap();
        let config = setup.file();
        for _ in 0..2 {
            // Who connects while nobody is there waits in line.
            let http = crate::harness::HttpClient::new();
            let early =
                tokio::spawn(async move { http.get(&format!("http://{address}/livez")).await });
            let mut child = activated(&listener, &config, &path, name);
            assert_eq!(early.await.unwrap().status, 200);
            holds("it says that it is ready", || {
                told(&notify).contains("READY=1")
            })
            .await;
            kill_process(
                Pid::from_raw(child.id().unwrap().cast_signed()).unwrap(),
                Signal::TERM,
            )
            .unwrap();
            assert!(within("it ends", child.wait()).await.unwrap().success());
            holds("it said that it stops", || {
                told(&notify).contains("STOPPING=1")
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_socket_that_nobody_handed_over_is_an_error() {
    let setup = Setup::new().with("gateway", "listen = \"systemd\"");
    let Err(error) = moongate::app::GatewayApp::start(setup.load().unwrap().plan, None).await
    else {
        panic!("it listens")
    };
    assert!(format!("{error:#}").contains("LISTEN_FDS"), "{error:#}");
}
