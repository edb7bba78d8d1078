//! What every fault is tested in: the program with a healthy server beside the faulty ones, clients
//! of both eras, and what must hold after any fault.
//!
//! The gateway is a process of its own, so that its descriptors, its children and its log are
//! nobody else's. The faulty servers are the same fault in every way that it can come: a server of
//! each era, as a child that all share, as one for each client, and behind HTTP. After each row
//! [`Rig::end`] checks, beside what the row asserts: U1 the same process, no panic; U2 calls of a
//! healthy server all succeeded meanwhile; U3 each request had one outcome; U4 descriptors,
//! children, sessions and gauges are what they were; U5 no secret is in an answer, a log, a metric
//! or on the way to a server that it is not for; U6 the fault was counted; U7 the faulty server
//! works again.

mod ends;
mod setting;
mod users;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use moongate_mock::MockHandle;
use serde_json::{Value, json};

use crate::harness::{ERAS, Era, HttpClient, HttpReply, McpClient, Process, marked, until};
use ends::ResourceLevels;
pub(crate) use setting::{FaultCarrier, FaultyServer, RowSetup, script};
use users::HealthyTraffic;
pub(crate) use users::{RigClient, assert_one_outcome};

/// What the gateway's client must show, and nobody else may see.
const KEY: &str = "canary-of-the-client-5b1f7c20";

/// A row that is being tested.
pub(crate) struct FaultRig {
    row: &'static str,
    test: &'static str,
    /// The gateway.
    pub(crate) gateway: Process,
    /// The faulty servers.
    pub(crate) bads: Vec<FaultyServer>,
    /// Those of them that are behind HTTP.
    pub(crate) http_servers: Vec<MockHandle>,
    ok: MockHandle,
    admin: HttpClient,
    admin_url: String,
    secret: String,
    counts: Vec<(&'static str, &'static [&'static str])>,
    before: ResourceLevels,
    counted: Vec<f64>,
    said: Arc<Mutex<Vec<u8>>>,
    healthy: HealthyTraffic,
    ways: Mutex<BTreeSet<String>>,
}

impl FaultRig {
    /// A client of the gateway; its session is its own to end, with [`User::leave`].
    pub(crate) async fn user(&self, era: Era) -> RigClient {
        let client = McpClient::with_key(&self.gateway.mcp(), era, Some(KEY)).await;
        RigClient {
            client,
            said: self.said.clone(),
        }
    }

    /// Does this with each faulty server and a client of each era.
    pub(crate) async fn each(&self, act: impl AsyncFn(&FaultyServer, &RigClient)) {
        for bad in &self.bads {
            for era in ERAS {
                let user = self.user(era).await;
                act(bad, &user).await;
                self.record_coverage(bad, era);
                user.leave().await;
            }
        }
    }

    /// The same, with all of them at once.
    pub(crate) async fn all(&self, act: impl AsyncFn(&FaultyServer, &RigClient)) {
        let ways = self.bads.iter().flat_map(|bad| ERAS.map(|era| (bad, era)));
        let acts = ways.map(async |(bad, era)| {
            let user = self.user(era).await;
            act(bad, &user).await;
            self.record_coverage(bad, era);
            user.leave().await;
        });
        futures_util::future::join_all(acts).await;
    }

    /// Notes that a client of this era met the fault at this server.
    pub(crate) fn record_coverage(&self, bad: &FaultyServer, era: Era) {
        let name = |era| if era == Era::Legacy { "old" } else { "new" };
        let way = format!("{} {}/{}", bad.carrier.name(), name(era), name(bad.era));
        self.ways.lock().unwrap().insert(way);
    }

    /// The mock behind a faulty server that isn't a child process.
    pub(crate) fn web(&self, bad: &FaultyServer) -> Option<&MockHandle> {
        match bad.carrier {
            FaultCarrier::Web(n) | FaultCarrier::Tcp(n) | FaultCarrier::TcpPerClient(n) => {
                Some(&self.http_servers[n])
            }
            FaultCarrier::SharedChild | FaultCarrier::ChildPerClient => None,
        }
    }

    /// How often a faulty server got a message of this method.
    pub(crate) fn got(&self, bad: &FaultyServer, method: &str) -> usize {
        match self.web(bad) {
            Some(mock) if method == "notifications/cancelled" => mock.counters().cancelled.len(),
            Some(mock) => mock.counters().of(method).try_into().unwrap(),
            None => self.record(bad).matches(&format!("\"{method}\"")).count(),
        }
    }

    /// The processes of a faulty child, all of its connections.
    pub(crate) fn pids(&self, bad: &FaultyServer) -> Vec<u32> {
        let file = format!("/{}.json", bad.name);
        let is_its = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            memchr::memmem::find(&line, file.as_bytes()).is_some()
        };
        marked(&self.secret).into_iter().filter(is_its).collect()
    }

    /// What a faulty child received.
    pub(crate) fn record(&self, bad: &FaultyServer) -> String {
        crate::harness::record_of(self.gateway.dir.path(), &bad.name)
    }

    /// What the status says of a server.
    pub(crate) async fn status(&self, server: &str) -> Value {
        let status = self
            .admin
            .get(&format!("{}/api/v1/status", self.admin_url))
            .await
            .json();
        crate::harness::server_of(&status, server)
    }

    /// A page for operators.
    pub(crate) async fn page(&self, path: &str) -> HttpReply {
        self.admin.get(&format!("{}{path}", self.admin_url)).await
    }

    /// The sum of a metric's series that have all of these labels.
    pub(crate) async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        sum(&self.page("/metrics").await.text_body(), name, labels)
    }

    async fn listed(&self, server: &str) {
        let labels = [
            format!("mcp_server=\"{server}\""),
            "kind=\"tools\"".to_owned(),
        ];
        let labels = labels.each_ref().map(String::as_str);
        let listed =
            async || (self.metric("moongate_catalog_items", &labels).await > 0.0).then_some(());
        until(&format!("{server} is in the catalogue"), listed).await;
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
                    let text = result["content"][0]["text"]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned();
                    (result["isError"] != true && text.contains(&nonce)).then_some(())
                };
                until(
                    &format!("U7: {} works for {era:?} clients", bad.name),
                    answers,
                )
                .await;
                user.leave().await;
            }
        }
    }
}

/// The sum of a metric's series that have all of these labels.
fn sum(text: &str, name: &str, labels: &[&str]) -> f64 {
    let series = |line: &&str| {
        let (series, _) = line.rsplit_once(' ').unwrap_or_default();
        let (metric, tags) = series.split_once('{').unwrap_or((series, ""));
        metric == name && labels.iter().all(|label| tags.contains(label))
    };
    let value = |line: &str| {
        line.rsplit_once(' ')
            .and_then(|(_, value)| value.parse::<f64>().ok())
    };
    text.lines().filter(series).filter_map(value).sum()
}
