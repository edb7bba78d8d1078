//! What every fault is tested in: the program with a healthy server beside the faulty ones, clients of both eras, and
//! what must hold after any fault.
//!
//! The gateway is a process of its own, so that its descriptors, its children and its log are nobody else's. The
//! faulty servers are the same fault in every way that it can come: a server of each era, as a child that all share,
//! as one for each client, and behind HTTP. After each row [`Rig::end`] checks, beside what the row asserts:
//! U1 the same process, no panic; U2 calls of a healthy server all succeeded meanwhile; U3 each request had one outcome;
//! U4 descriptors, children, sessions and gauges are what they were; U5 no secret is in an answer, a log, a metric or on
//! the way to a server that it is not for; U6 the fault was counted; U7 the faulty server works again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use moongate::mock::{Handle, Script};
use serde_json::{Value, json};

use super::table;
use crate::support::{Client, ERAS, Era, Http, Process, Reply, Setup, legacy, marked, modern, only, serve, until};

/// What the gateway's client must show, and nobody else may see.
const KEY: &str = "canary-of-the-client-5b1f7c20";
/// The gauges that go back to what they were.
const GAUGES: [&str; 8] = [
    "moongate_sessions",
    "moongate_streams",
    "moongate_inflight",
    "moongate_parked",
    "moongate_queue_depth",
    "moongate_tasks",
    "moongate_replay_bytes",
    "moongate_connections",
];
/// Connections to one server behind HTTP that may be kept for later calls: a pool's, no leak's.
const POOLED: usize = 64;

/// A row in the making.
pub(crate) struct Setting {
    row: &'static str,
    test: &'static str,
    setup: Setup,
    /// What a shell does before it becomes the gateway.
    first: Option<&'static str>,
    secret: String,
    bads: Vec<Bad>,
    webs: Vec<Handle>,
    counts: Vec<(&'static str, &'static [&'static str])>,
}

/// A faulty server.
#[derive(Clone)]
pub(crate) struct Bad {
    /// Its name in the config.
    pub(crate) name: String,
    /// Its own era.
    pub(crate) era: Era,
    /// How it is reached.
    pub(crate) how: How,
}

/// How a faulty server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// A child that all clients share.
    Shared,
    /// A child for each client.
    Own,
    /// HTTP; the place of its mock in [`Rig::webs`].
    Web(usize),
    /// TCP, over one connection for all; the same.
    Tcp(usize),
    /// TCP, over a connection for each client; the same.
    OwnTcp(usize),
}

impl How {
    /// What the table calls it.
    fn name(self) -> &'static str {
        match self {
            How::Shared => "shared child",
            How::Own => "own child",
            How::Web(_) => "HTTP",
            How::Tcp(_) => "shared TCP",
            How::OwnTcp(_) => "own TCP",
        }
    }
}

/// A row that is being tested.
pub(crate) struct Rig {
    row: &'static str,
    test: &'static str,
    /// The gateway.
    pub(crate) gateway: Process,
    /// The faulty servers.
    pub(crate) bads: Vec<Bad>,
    /// Those of them that are behind HTTP.
    pub(crate) webs: Vec<Handle>,
    ok: Handle,
    admin: Http,
    admin_url: String,
    secret: String,
    counts: Vec<(&'static str, &'static [&'static str])>,
    before: Levels,
    counted: Vec<f64>,
    said: Arc<Mutex<Vec<u8>>>,
    healthy: Healthy,
    ways: Mutex<BTreeSet<String>>,
}

impl Setting {
    /// A gateway with its healthy server, for this row and test.
    pub(crate) fn new(row: &'static str, test: &'static str) -> Self {
        let secret = format!("canary-of-a-server-{}-{row}-{test}", std::process::id());
        let setup = Setup::new().with("auth.keys.1", &format!("name = \"one\"\nkey = {KEY:?}"));
        Setting { row, test, setup, first: None, secret, bads: Vec::new(), webs: Vec::new(), counts: Vec::new() }
    }

    /// The fault is counted in this metric, in a series with these labels.
    pub(crate) fn counts(mut self, metric: &'static str, labels: &'static [&'static str]) -> Self {
        self.counts.push((metric, labels));
        self
    }

    /// The fault in children: of both eras, shared and one for each client.
    pub(crate) fn children(self, tools: &[&str], fault: impl Fn(Script) -> Script, settings: &str) -> Self {
        self.shared(tools, &fault, settings).own(tools, &fault, settings)
    }

    /// The fault in children that all share.
    pub(crate) fn shared(mut self, tools: &[&str], fault: impl Fn(Script) -> Script, settings: &str) -> Self {
        for (name, era) in [("old", Era::Legacy), ("new", Era::Modern)] {
            self.setup = self.setup.stdio(name, &fault(script(era, tools)));
            self = self.child(name, era, How::Shared, settings);
        }
        self
    }

    /// The fault in children of which each client has its own.
    pub(crate) fn own(mut self, tools: &[&str], fault: impl Fn(Script) -> Script, settings: &str) -> Self {
        for (name, era) in [("old_own", Era::Legacy), ("new_own", Era::Modern)] {
            self.setup = self.setup.stdio(name, &fault(script(era, tools)));
            self = self.child(name, era, How::Own, &format!("share = \"session\"\n{settings}"));
        }
        self
    }

    /// The fault in children of another kind, shared and one for each client: a line for the shell, in which `MOCK` is
    /// the mock over stdio.
    pub(crate) fn shell(mut self, line: &str, tools: &[&str], settings: &str) -> Self {
        let own = format!("share = \"session\"\n{settings}");
        for (name, era, how, settings) in [
            ("old", Era::Legacy, How::Shared, settings),
            ("new", Era::Modern, How::Shared, settings),
            ("old_own", Era::Legacy, How::Own, &own),
            ("new_own", Era::Modern, How::Own, &own),
        ] {
            let file = self.setup.path(&format!("{name}.json"));
            std::fs::write(&file, serde_json::to_string(&script(era, tools)).unwrap()).unwrap();
            let record = self.setup.path(&format!("{name}.record"));
            let mock = format!("{} mock {} --stdio --record {}", table::PROGRAM, file.display(), record.display());
            let line = line.replace("MOCK", &mock);
            self.setup = self.setup.with(
                &format!("servers.{name}"),
                &format!("command = \"sh\"\nargs = [\"-c\", {}]", serde_json::to_string(&line).unwrap()),
            );
            self = self.child(name, era, how, settings);
        }
        self
    }

    fn child(mut self, name: &str, era: Era, how: How, settings: &str) -> Self {
        let lines = format!("env = {{ CANARY = {:?} }}\n{settings}", self.secret);
        self.setup = self.setup.with(&format!("servers.{name}"), lines.trim_end());
        self.bads.push(Bad { name: name.to_owned(), era, how });
        self
    }

    /// The fault behind HTTP, in both eras.
    pub(crate) async fn webs(mut self, tools: &[&str], fault: impl Fn(Script) -> Script, settings: &str) -> Self {
        for (name, era) in [("old_web", Era::Legacy), ("new_web", Era::Modern)] {
            let mock = serve(fault(script(era, tools))).await;
            let url = mock.url.clone();
            self.webs.push(mock);
            self = self.url(name, era, &url, settings);
        }
        self
    }

    /// The fault behind HTTP, in front of the mock that was added last: whoever listens at `url` passes on to it.
    pub(crate) fn url(mut self, name: &str, era: Era, url: &str, settings: &str) -> Self {
        let headers = format!("headers = {{ X-Canary = {:?} }}\n{settings}", self.secret);
        self.setup = self.setup.http(name, url).with(&format!("servers.{name}"), headers.trim_end());
        self.bads.push(Bad { name: name.to_owned(), era, how: How::Web(self.webs.len() - 1) });
        self
    }

    /// A server over TCP at an address where somebody passes on to `mock`.
    pub(crate) fn tcp(mut self, name: &str, era: Era, is_own: bool, address: &str, settings: &str) -> Self {
        let n = self.webs.len() - 1;
        let (share, how) = if is_own { ("session", How::OwnTcp(n)) } else { ("auto", How::Tcp(n)) };
        let lines = format!("tcp = {address:?}\nshare = {share:?}\n{settings}");
        self.setup = self.setup.with(&format!("servers.{name}"), lines.trim_end());
        self.bads.push(Bad { name: name.to_owned(), era, how });
        self
    }

    /// Adds a mock on TCP that something else stands in front of; gives its address.
    pub(crate) async fn behind_tcp(&mut self, script: Script) -> std::net::SocketAddr {
        let mock = moongate::mock::serve_tcp(script, crate::support::loopback(), None).await.unwrap();
        let address = mock.addr.unwrap();
        self.webs.push(mock);
        address
    }

    /// Lines for a table of the config.
    pub(crate) fn with(mut self, table: &str, lines: &str) -> Self {
        self.setup = self.setup.with(table, lines);
        self
    }

    /// The gateway keeps its state in a file; a limit of its files' sizes fails its writes and does not end it.
    pub(crate) fn keeping_state(mut self) -> Self {
        let dir = self.setup.path("state");
        self.setup = self.setup.with("gateway", &format!("state_dir = {dir:?}"));
        self.first = Some("trap '' XFSZ");
        self
    }

    /// The gateway trusts this authority of servers.
    pub(crate) fn trusting(mut self, authority: &crate::support::tls::Authority) -> Self {
        self.setup = self.setup.trusting(authority);
        self
    }

    /// Adds a mock that something else stands in front of; gives its address.
    pub(crate) async fn behind(&mut self, era: Era, tools: &[&str]) -> std::net::SocketAddr {
        let mock = serve(script(era, tools)).await;
        let address = mock.addr.unwrap();
        self.webs.push(mock);
        address
    }

    /// Starts everything, uses it once in every way, and notes what there is.
    pub(crate) async fn start(self) -> Rig {
        self.start_without(&[]).await
    }

    /// The same, with servers that cannot be used before their fault is over.
    pub(crate) async fn start_without(self, faulty: &[&str]) -> Rig {
        let ok = serve(only(legacy(), &["echo"])).await;
        let setup = self.setup.http("ok", &ok.url);
        let gateway = match self.first {
            Some(first) => setup.spawn_after(first).await,
            None => setup.spawn().await,
        };
        let admin_url = until("the address for operators is printed", || {
            let log = gateway.log();
            let url = log.split_once("metrics and health on ").and_then(|(_, rest)| rest.lines().next());
            std::future::ready(url.map(str::to_owned))
        })
        .await;
        let mut rig = Rig {
            row: self.row,
            test: self.test,
            gateway,
            bads: self.bads,
            webs: self.webs,
            ok,
            admin: Http::new(),
            admin_url,
            secret: self.secret,
            counts: self.counts,
            before: Levels::default(),
            counted: Vec::new(),
            said: Arc::default(),
            healthy: Healthy::default(),
            ways: Mutex::default(),
        };
        rig.listed("ok").await;
        for bad in rig.bads.clone().iter().filter(|bad| !faulty.contains(&&*bad.name)) {
            rig.listed(&bad.name).await;
        }
        rig.works(faulty).await;
        rig.before = rig.settled().await;
        rig.counted = rig.counted().await;
        rig.healthy = Healthy::start(&rig.gateway.mcp());
        rig
    }
}

/// What a server of a rig has: these tools, and `echo`.
pub(crate) fn script(era: Era, tools: &[&str]) -> Script {
    only(if era == Era::Legacy { legacy() } else { modern() }, &[tools, &["echo"]].concat())
}

impl Rig {
    /// A client of the gateway; its session is its own to end, with [`User::leave`].
    pub(crate) async fn user(&self, era: Era) -> User {
        let client = Client::with_key(&self.gateway.mcp(), era, Some(KEY)).await;
        User { client, said: self.said.clone() }
    }

    /// Does this with each faulty server and a client of each era.
    pub(crate) async fn each(&self, act: impl AsyncFn(&Bad, &User)) {
        for bad in &self.bads {
            for era in ERAS {
                let user = self.user(era).await;
                act(bad, &user).await;
                self.went(bad, era);
                user.leave().await;
            }
        }
    }

    /// The same, with all of them at once.
    pub(crate) async fn all(&self, act: impl AsyncFn(&Bad, &User)) {
        let ways = self.bads.iter().flat_map(|bad| ERAS.map(|era| (bad, era)));
        let acts = ways.map(async |(bad, era)| {
            let user = self.user(era).await;
            act(bad, &user).await;
            self.went(bad, era);
            user.leave().await;
        });
        futures_util::future::join_all(acts).await;
    }

    /// Notes that a client of this era met the fault at this server.
    pub(crate) fn went(&self, bad: &Bad, era: Era) {
        let name = |era| if era == Era::Legacy { "old" } else { "new" };
        let way = format!("{} {}/{}", bad.how.name(), name(era), name(bad.era));
        self.ways.lock().unwrap().insert(way);
    }

    /// The mock behind a faulty server that is no child.
    pub(crate) fn web(&self, bad: &Bad) -> Option<&Handle> {
        match bad.how {
            How::Web(n) | How::Tcp(n) | How::OwnTcp(n) => Some(&self.webs[n]),
            How::Shared | How::Own => None,
        }
    }

    /// How often a faulty server got a message of this method.
    pub(crate) fn got(&self, bad: &Bad, method: &str) -> usize {
        match self.web(bad) {
            Some(mock) if method == "notifications/cancelled" => mock.counters().cancelled.len(),
            Some(mock) => mock.counters().of(method).try_into().unwrap(),
            None => self.record(bad).matches(&format!("\"{method}\"")).count(),
        }
    }

    /// The processes of a faulty child, all of its connections.
    pub(crate) fn pids(&self, bad: &Bad) -> Vec<u32> {
        let file = format!("/{}.json", bad.name);
        let is_its = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            memchr::memmem::find(&line, file.as_bytes()).is_some()
        };
        marked(&self.secret).into_iter().filter(is_its).collect()
    }

    /// What a faulty child received.
    pub(crate) fn record(&self, bad: &Bad) -> String {
        crate::support::record_of(self.gateway.dir.path(), &bad.name)
    }

    /// What the status says of a server.
    pub(crate) async fn status(&self, server: &str) -> Value {
        let status = self.admin.get(&format!("{}/api/v1/status", self.admin_url)).await.json();
        crate::support::server_of(&status, server)
    }

    /// A page for operators.
    pub(crate) async fn page(&self, path: &str) -> Reply {
        self.admin.get(&format!("{}{path}", self.admin_url)).await
    }

    /// The sum of a metric's series that have all of these labels.
    pub(crate) async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        sum(&self.page("/metrics").await.text_body(), name, labels)
    }

    async fn listed(&self, server: &str) {
        let labels = [format!("mcp_server=\"{server}\""), "kind=\"tools\"".to_owned()];
        let labels = labels.each_ref().map(String::as_str);
        let listed = async || (self.metric("moongate_catalog_items", &labels).await > 0.0).then_some(());
        until(&format!("{server} is in the catalogue"), listed).await;
    }

    async fn counted(&self) -> Vec<f64> {
        let text = self.page("/metrics").await.text_body();
        self.counts.iter().map(|(name, labels)| sum(&text, name, labels)).collect()
    }

    /// U7: each faulty server answers clients of both eras.
    async fn works(&self, faulty: &[&str]) {
        for bad in self.bads.iter().filter(|bad| !faulty.contains(&&*bad.name)) {
            for era in ERAS {
                let user = self.user(era).await;
                let nonce = format!("{}-{era:?}-{}", bad.name, self.row);
                let answers = async || {
                    let reply = user.call(bad, "echo", json!({"nonce": nonce})).await;
                    let result = reply.answer()["result"].clone();
                    let text = result["content"][0]["text"].as_str().unwrap_or_default().to_owned();
                    (result["isError"] != true && text.contains(&nonce)).then_some(())
                };
                until(&format!("U7: {} works for {era:?} clients", bad.name), answers).await;
                user.leave().await;
            }
        }
    }

    /// What there is once nothing moves any more.
    async fn settled(&self) -> Levels {
        let mut before = self.levels().await;
        crate::support::within("it is quiet", async {
            loop {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let now = self.levels().await;
                if now == before && now.quiet() {
                    return now;
                }
                before = now;
            }
        })
        .await
    }

    async fn levels(&self) -> Levels {
        let text = self.page("/metrics").await.text_body();
        let gauges = GAUGES.map(|name| (name, sum(&text, name, &[]) as i64)).into();
        Levels { gauges, ..Levels::of(self.gateway.pid(), &self.secret) }
    }

    /// The fault is over: checks what must hold after any, and notes the row.
    pub(crate) async fn end(mut self) {
        let calls = self.healthy.stop().await;
        assert!(calls > 0, "U2: the healthy server was called meanwhile");
        self.works(&[]).await;
        let after = self.counted().await;
        for (((name, labels), before), after) in self.counts.iter().zip(&self.counted).zip(after) {
            assert!(after > *before, "U6: {name} {labels:?} did not move: {before} before, {after} after");
        }
        let mut seen = Levels::default();
        let back = tokio::time::timeout(crate::support::LONG, async {
            loop {
                seen = self.levels().await;
                if seen.within(&self.before, POOLED * (self.webs.len() + 1)) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        assert!(back.await.is_ok(), "U4: not back to\n{:?}\nbut\n{seen:?}", self.before);
        let log = self.gateway.log();
        assert!(!log.contains("panicked"), "U1: {log}");
        assert!(crate::support::alive(self.gateway.pid()), "U1: the gateway is gone: {log}");
        self.no_secrets(&log).await;
        table::passed(self.row, self.test, &self.ways.lock().unwrap(), &self.counts);
    }

    /// U5.
    async fn no_secrets(&self, log: &str) {
        let said = String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned();
        let status = self.page("/api/v1/status").await.text_body();
        let metrics = self.page("/metrics").await.text_body();
        let to_ok = format!("{:?}", self.ok.seen());
        let secrets = [("the client's key", KEY), ("the server's secret", &*self.secret)];
        for (what, secret) in secrets {
            for (whose, text) in
                [("log", log), ("answers", &*said), ("status", &*status), ("metrics", &*metrics), ("ok", &*to_ok)]
            {
                assert!(!text.contains(secret), "U5: {what} is in {whose}");
            }
        }
        for bad in &self.bads {
            let received = match self.web(bad) {
                Some(mock) => format!("{:?}", mock.seen()),
                None => self.record(bad),
            };
            assert!(!received.contains(KEY), "U5: the client's key went to {}", bad.name);
        }
    }
}

/// A client of a rig's gateway.
pub(crate) struct User {
    /// It.
    pub(crate) client: Client,
    said: Arc<Mutex<Vec<u8>>>,
}

impl User {
    /// A call of a faulty server's tool.
    pub(crate) async fn call(&self, bad: &Bad, tool: &str, arguments: Value) -> Reply {
        self.request("tools/call", json!({"name": format!("{}__{tool}", bad.name), "arguments": arguments})).await
    }

    /// A request, to its one outcome.
    pub(crate) async fn request(&self, method: &str, params: Value) -> Reply {
        let id = self.client.next.fetch_add(1, Ordering::Relaxed);
        let reply = self.client.request_as(id, method, params).await;
        self.said.lock().unwrap().extend_from_slice(&reply.body);
        assert_one_outcome(&reply, &json!(id));
        reply
    }

    /// Ends its session, if it has one.
    pub(crate) async fn leave(self) {
        if self.client.session.is_some() {
            let status = self.client.raw("DELETE", &[], "").await.status();
            assert!(status.is_success() || status == 404, "{status}");
        }
    }
}

/// U3.
pub(crate) fn assert_one_outcome(reply: &Reply, id: &Value) {
    let messages = reply.messages();
    let outcomes: Vec<_> = messages.iter().filter(|message| message.get("method").is_none()).collect();
    assert_eq!(outcomes.len(), 1, "U3: {messages:?}");
    assert_eq!(outcomes[0]["id"], *id, "U3: {messages:?}");
    assert_ne!(outcomes[0].get("result").is_some(), outcomes[0].get("error").is_some(), "U3: {messages:?}");
}

/// Calls of the healthy server for as long as the fault lasts, by clients of both eras.
#[derive(Default)]
struct Healthy {
    stop: Arc<AtomicBool>,
    calls: Vec<tokio::task::JoinHandle<()>>,
    done: Vec<Arc<AtomicU64>>,
}

impl Healthy {
    fn start(url: &str) -> Self {
        let mut healthy = Healthy::default();
        for era in ERAS {
            let (url, stop, done) = (url.to_owned(), healthy.stop.clone(), Arc::new(AtomicU64::new(0)));
            healthy.done.push(done.clone());
            healthy.calls.push(tokio::spawn(async move {
                let client = Client::with_key(&url, era, Some(KEY)).await;
                while !stop.load(Ordering::Relaxed) {
                    let n = done.load(Ordering::Relaxed);
                    let text = client.call("ok__echo", json!({"n": n})).await.text();
                    assert_eq!(text, format!("{{\"n\":{n}}}"), "U2");
                    done.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                User { client, said: Arc::default() }.leave().await;
            }));
        }
        healthy
    }

    /// Ends it; gives how many calls there were, in the era that had the fewest.
    async fn stop(&mut self) -> u64 {
        let begun = || self.done.iter().all(|done| done.load(Ordering::Relaxed) > 0).then_some(());
        until("U2: both clients of the healthy server were served", || std::future::ready(begun())).await;
        self.stop.store(true, Ordering::Relaxed);
        for calls in self.calls.drain(..) {
            crate::support::within("U2: the last healthy call", calls).await.expect("U2: a healthy call failed");
        }
        self.done.iter().map(|done| done.load(Ordering::Relaxed)).min().unwrap_or_default()
    }
}

/// What a gateway holds at a time.
#[derive(Clone, Debug, Default, PartialEq)]
struct Levels {
    gauges: BTreeMap<&'static str, i64>,
    /// Its own children.
    children: usize,
    zombies: usize,
    /// Servers and all that they started.
    marked: usize,
    sockets: usize,
    /// Descriptors that are no sockets.
    files: usize,
}

impl Levels {
    fn of(pid: u32, mark: &str) -> Self {
        let children = children(pid);
        let zombies = children.iter().filter(|child| !crate::support::alive(**child)).count();
        let links = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        let links: Vec<String> = links
            .filter_map(|entry| Some(std::fs::read_link(entry.ok()?.path()).ok()?.to_string_lossy().into_owned()))
            .collect();
        let sockets = links.iter().filter(|link| link.starts_with("socket:")).count();
        Levels {
            gauges: BTreeMap::new(),
            children: children.len(),
            zombies,
            marked: marked(mark).len(),
            sockets,
            files: links.len() - sockets,
        }
    }

    /// Whether nobody uses the gateway.
    fn quiet(&self) -> bool {
        self.zombies == 0 && ["moongate_sessions", "moongate_inflight"].iter().all(|name| self.gauges[name] == 0)
    }

    /// Whether there is no more than there was; connections to servers may be pooled.
    fn within(&self, before: &Levels, pooled: usize) -> bool {
        let gauges = self.gauges.iter().all(|(name, level)| level <= &before.gauges[name]);
        let processes = self.children == before.children && self.marked == before.marked && self.zombies == 0;
        gauges && processes && self.files <= before.files && self.sockets <= before.sockets + pooled
    }
}

/// The processes whose parent this is.
fn children(pid: u32) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let parent = |child: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let rest = stat.rsplit_once(')').map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        rest.split_whitespace().nth(1).and_then(|ppid| ppid.parse().ok()) == Some(pid)
    };
    pids.filter(parent).collect()
}

fn sum(text: &str, name: &str, labels: &[&str]) -> f64 {
    let series = |line: &&str| {
        let (series, _) = line.rsplit_once(' ').unwrap_or_default();
        let (metric, tags) = series.split_once('{').unwrap_or((series, ""));
        metric == name && labels.iter().all(|label| tags.contains(label))
    };
    let value = |line: &str| line.rsplit_once(' ').and_then(|(_, value)| value.parse::<f64>().ok());
    text.lines().filter(series).filter_map(value).sum()
}
