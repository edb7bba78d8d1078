//! One test body over every link: whatever goes wrong with a server or its connection shows in the
//! same way, however the server is reached. (That everything works over every link is
//! `tests/it/pairs.rs`.)
//!
//! The server is a process of its own, which can be stopped, killed and started again; so is the
//! gateway, since what it trusts is read from its environment.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use moongate_mock::{HttpRules, MockScript, Revision};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::harness::relay::Relay;
use crate::harness::tls::Authority;
use crate::harness::{
    ERAS, Era, McpClient, Process, Setup, legacy, modern, record_of, until, within,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_moongate");

/// How the gateway reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkKind {
    Stdio,
    Http,
    Sse,
    Tcp,
    Unix,
    WebSocket,
    WebSocketTls,
}

impl LinkKind {
    fn is_pipe(self) -> bool {
        self != LinkKind::Http
    }

    /// The settings of a server at this address; a child's settings name its program.
    fn settings(self, address: &str, tls: Option<&Relay>) -> String {
        match self {
            LinkKind::Stdio => String::new(),
            LinkKind::Http => format!("url = \"http://{address}/mcp\""),
            LinkKind::Sse => format!("url = \"http://{address}/sse\""),
            LinkKind::Tcp => format!("tcp = {address:?}"),
            LinkKind::Unix => format!("unix = {address:?}"),
            LinkKind::WebSocket => format!("url = \"ws://{address}/mcp\""),
            LinkKind::WebSocketTls => format!("url = {:?}", tls.unwrap().url("wss")),
        }
    }
}

/// A server that is not the gateway's child.
struct LinkPeer {
    script: PathBuf,
    record: PathBuf,
    flag: &'static str,
    address: String,
    child: Child,
}

impl LinkPeer {
    async fn start(setup: &Setup, script: &MockScript, flag: &'static str) -> LinkPeer {
        let file = setup.path("peer.json");
        let record = setup.path("peer.record");
        std::fs::write(&file, serde_json::to_string(script).unwrap()).unwrap();
        let address = match flag {
            "--unix" => setup.path("peer.sock").to_str().unwrap().to_owned(),
            _ => "127.0.0.1:0".to_owned(),
        };
        let (child, address) = begin(&file, &record, flag, &address).await;
        LinkPeer {
            script: file,
            record,
            flag,
            address,
            child,
        }
    }

    /// Ends it without a word.
    async fn kill(&mut self) {
        self.child.kill().await.unwrap();
        if self.flag == "--unix" {
            // As servers do before they listen.
            std::fs::remove_file(&self.address).unwrap();
        }
    }

    /// Starts it again where it was.
    async fn again(&mut self) {
        (self.child, _) = begin(&self.script, &self.record, self.flag, &self.address).await;
    }
}

async fn begin(script: &Path, record: &Path, flag: &str, address: &str) -> (Child, String) {
    let mut command = Command::new(PROGRAM);
    command
        .arg("mock")
        .arg(script)
        .args([flag, address])
        .arg("--record")
        .arg(record);
    let mut child = command
        .stderr(Stdio::piped())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let said = within("the mock listens", lines.next_line())
        .await
        .unwrap()
        .unwrap();
    // Nobody reads on, and it says nothing more.
    let url = said.split_once("listening on ").unwrap().1.to_owned();
    let address = url
        .split_once("://")
        .map_or(url.as_str(), |(_, rest)| rest.split('/').next().unwrap());
    (
        child,
        if flag == "--unix" {
            url.clone()
        } else {
            address.to_owned()
        },
    )
}

/// A gateway with the server twice: `a` as it is, `b` with little time and small messages; and
/// `aside`, another server.
struct LinkRig {
    link: LinkKind,
    peer: Option<LinkPeer>,
    gateway: Process,
    _tls: Option<Relay>,
}

impl LinkRig {
    async fn start(link: LinkKind, script: MockScript) -> LinkRig {
        let mut setup = Setup::new().with("servers.b", "timeout = \"1s\"\nmax_message = \"64KiB\"");
        let script = match link {
            LinkKind::Sse => {
                let http = HttpRules {
                    streamable: false,
                    ..HttpRules::default()
                };
                MockScript {
                    http,
                    ..script.speaking(&[Revision::V2024_11_05])
                }
            }
            _ => script,
        };
        let flag = match link {
            LinkKind::Stdio => None,
            LinkKind::Http | LinkKind::Sse => Some("--http"),
            LinkKind::Tcp => Some("--tcp"),
            LinkKind::Unix => Some("--unix"),
            LinkKind::WebSocket | LinkKind::WebSocketTls => Some("--ws"),
        };
        let mut peer = None;
        if let Some(flag) = flag {
            peer = Some(LinkPeer::start(&setup, &script, flag).await);
        }
        let address = peer
            .as_ref()
            .map(|peer| peer.address.clone())
            .unwrap_or_default();
        let authority = Authority::new("test");
        let tls = match link {
            LinkKind::WebSocketTls => {
                Some(Relay::secure(address.parse().unwrap(), authority.sign().server(&[])).await)
            }
            _ => None,
        };
        let lines = link.settings(&address, tls.as_ref());
        for name in ["a", "b"] {
            setup = match link {
                LinkKind::Stdio => setup.stdio(name, &script),
                _ => setup.with(&format!("servers.{name}"), &lines),
            };
        }
        let gateway = setup
            .stdio("aside", &legacy())
            .trusting(&authority)
            .spawn()
            .await;
        let rig = LinkRig {
            link,
            peer,
            gateway,
            _tls: tls,
        };
        let client = rig.client(Era::Modern).await;
        until("all servers are listed", || async {
            let tools = client.tools().await;
            ["a__echo", "b__echo", "aside__echo"]
                .iter()
                .all(|tool| tools.iter().any(|t| t == tool))
                .then_some(())
        })
        .await;
        rig
    }

    async fn client(&self, era: Era) -> McpClient {
        McpClient::open(&self.gateway.mcp(), era).await
    }

    /// What a server has received that holds this text.
    fn received(&self, server: &str, text: &str) -> usize {
        let all = match &self.peer {
            Some(peer) => std::fs::read_to_string(&peer.record).unwrap_or_default(),
            None => record_of(self.gateway.dir.path(), server),
        };
        all.lines().filter(|line| line.contains(text)).count()
    }

    async fn pid(&self, server: &str) -> u32 {
        match &self.peer {
            Some(peer) => peer.child.id().unwrap(),
            None => {
                u32::try_from(self.gateway.status(server).await["pid"].as_u64().unwrap()).unwrap()
            }
        }
    }

    async fn signal(&self, server: &str, signal: Signal) {
        kill_process(
            Pid::from_raw(self.pid(server).await.cast_signed()).unwrap(),
            signal,
        )
        .unwrap();
    }

    async fn metric(&self, series: &str) -> f64 {
        let text = self.gateway.admin("/metrics").await.text_body();
        text.lines()
            .find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
            .unwrap_or_default()
    }

    /// Ends the server in the middle of whatever it does.
    async fn kill(&mut self) {
        match &mut self.peer {
            Some(peer) => peer.kill().await,
            None => self.signal("a", Signal::KILL).await,
        }
    }

    /// Starts it again, where the gateway does not.
    async fn again(&mut self) {
        if let Some(peer) = &mut self.peer {
            peer.again().await;
        }
    }

    /// Waits until a server answers again.
    async fn recovers(&self, client: &McpClient, server: &str) {
        let tool = format!("{server}__add");
        until(&format!("{server} answers again"), || async {
            let result = client.call(&tool, json!({"a": 1, "b": 2})).await.result();
            (result["isError"] != true).then(|| assert_eq!(result["content"][0]["text"], "3"))
        })
        .await;
    }
}

async fn what_is_no_message_is_skipped_and_counted(rig: &LinkRig, client: &McpClient) {
    let series = "moongate_garbage_total{mcp_server=\"a\"}";
    let before = rig.metric(series).await;
    assert_eq!(
        client.call("a__garbage", json!({})).await.text(),
        "after the garbage"
    );
    // In an event stream such lines are fields that nobody knows: it is the standard that has them
    // skipped.
    if rig.link.is_pipe() {
        assert!(rig.metric(series).await >= before + 3.0, "{:?}", rig.link);
    }
}

async fn large_messages_pass(client: &McpClient) {
    for size in [10 << 10, 2 << 20] {
        let text = client
            .call("a__echo", json!({"x": "y".repeat(size)}))
            .await
            .text();
        assert_eq!(text.len(), size + 8);
    }
    assert_eq!(
        client
            .call("a__big", json!({"bytes": 3 << 20}))
            .await
            .text()
            .len(),
        3 << 20
    );
}

async fn a_message_that_is_too_large_fails_and_names_the_limit(rig: &LinkRig, client: &McpClient) {
    let failure = client
        .call("b__big", json!({"bytes": 200_000}))
        .await
        .failure();
    assert!(
        failure.contains("max_message") && failure.contains("65536"),
        "{failure}"
    );
    rig.recovers(client, "b").await;
}

async fn a_call_that_hangs_is_given_up_and_cancelled(rig: &LinkRig, client: &McpClient) {
    // How many calls of this test were cancelled before.
    let hung = rig.received("b", r#""name":"hang""#);
    let before = rig.received("b", "notifications/cancelled");
    let failure = client.call("b__hang", json!({})).await.failure();
    assert!(failure.contains("servers.b.timeout"), "{failure}");
    // A modern server behind HTTP is told by the end of the request's connection, which the mock
    // counts.
    let closes = rig.link == LinkKind::Http && rig.received("b", "2026-07-28") > 0;
    until("the server is told", || async {
        let told = rig.received("b", "notifications/cancelled") > before;
        let counters = if closes {
            client.call("b__mock_counters", json!({})).await.text()
        } else {
            "{}".into()
        };
        let closed = serde_json::from_str::<Value>(&counters).unwrap()["cancelled"]
            .as_array()
            .map_or(0, Vec::len);
        (told || closed > hung).then_some(())
    })
    .await;
}

async fn a_server_that_stops_reading_costs_its_own_calls_alone(
    rig: &LinkRig,
    clients: &[McpClient],
) {
    let client = &clients[0];
    rig.signal("b", Signal::STOP).await;
    let calls = (0..4).map(|n| clients[n % 2].call("b__echo", json!({"x": "y".repeat(1 << 20)})));
    let calls = futures_util::future::join_all(calls);
    let (replies, aside) = tokio::join!(calls, client.call("aside__add", json!({"a": 1, "b": 2})));
    assert_eq!(aside.text(), "3");
    for reply in replies {
        let failure = reply.failure();
        assert!(failure.contains("servers.b.timeout"), "{failure}");
    }
    rig.signal("b", Signal::CONT).await;
    rig.recovers(client, "b").await;
}

async fn a_broken_connection_fails_its_calls_at_once_and_none_runs_twice(
    rig: &mut LinkRig,
    clients: &[McpClient],
) {
    let mark = "hang on";
    let waiting = (0..6).map(|n| {
        let client = clients[n % 2].clone();
        tokio::spawn(async move {
            client
                .call("a__hang", json!({"mark": mark}))
                .await
                .failure()
        })
    });
    let waiting: Vec<_> = waiting.collect();
    until("the calls are there", || {
        std::future::ready((rig.received("a", mark) == 6).then_some(()))
    })
    .await;
    rig.kill().await;
    for call in waiting {
        // The default timeout is longer than a test waits for anything.
        let failure = call.await.unwrap();
        assert!(
            failure.contains("Server \"a\" is not available") && !failure.contains("timeout"),
            "{failure}"
        );
    }
    rig.again().await;
    rig.recovers(&clients[0], "a").await;
    rig.recovers(&clients[1], "b").await;
    assert_eq!(rig.received("a", mark), 6, "no call is sent twice");
}

async fn a_server_that_was_started_again_is_there_for_the_next_call(
    rig: &mut LinkRig,
    client: &McpClient,
) {
    if let Some(peer) = &mut rig.peer {
        peer.kill().await;
    } else {
        return;
    }
    if rig.link.is_pipe() {
        until("the end is noticed", || async {
            (rig.gateway.status("a").await["state"] != "ready").then_some(())
        })
        .await;
        let reason = rig.gateway.status("a").await["reason"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            !reason.is_empty() && !reason.contains("panicked"),
            "{reason}"
        );
    }
    rig.again().await;
    assert_eq!(
        client.call("a__add", json!({"a": 1, "b": 2})).await.text(),
        "3"
    );
    rig.recovers(client, "b").await;
}

/// The body. What breaks connections comes once for both clients: each break makes the next pause
/// longer.
async fn over(link: LinkKind, script: MockScript) {
    let mut rig = LinkRig::start(link, script).await;
    let clients = [rig.client(ERAS[0]).await, rig.client(ERAS[1]).await];
    for client in &clients {
        what_is_no_message_is_skipped_and_counted(&rig, client).await;
        large_messages_pass(client).await;
        a_call_that_hangs_is_given_up_and_cancelled(&rig, client).await;
    }
    a_message_that_is_too_large_fails_and_names_the_limit(&rig, &clients[0]).await;
    a_server_that_stops_reading_costs_its_own_calls_alone(&rig, &clients).await;
    a_broken_connection_fails_its_calls_at_once_and_none_runs_twice(&mut rig, &clients).await;
    a_server_that_was_started_again_is_there_for_the_next_call(&mut rig, &clients[1]).await;
}

macro_rules! every_link {
    ($($name:ident = $link:ident, $script:expr);+;) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            over(LinkKind::$link, $script).await;
        })+
    };
}

every_link! {
    stdio_legacy = Stdio, legacy();
    stdio_modern = Stdio, modern();
    http_legacy = Http, legacy();
    http_modern = Http, modern();
    http_sse = Sse, legacy();
    tcp_legacy = Tcp, legacy();
    tcp_modern = Tcp, modern();
    unix_legacy = Unix, legacy();
    websocket_legacy = WebSocket, legacy();
    websocket_modern = WebSocket, modern();
    websocket_tls_legacy = WebSocketTls, legacy();
    websocket_tls_modern = WebSocketTls, modern();
}
