//! What a row is made of: the faulty servers in every way that they can be reached, what they are
//! told, and the gateway in front of them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use moongate_mock::{MockHandle, MockScript};

use super::ends::ResourceLevels;
use super::users::HealthyTraffic;
use super::{FaultRig, KEY};
use crate::faults::table;
use crate::harness::tls::Authority;
use crate::harness::{Era, HttpClient, Setup, legacy, modern, only, serve};

/// A row in the making.
pub(crate) struct RowSetup {
    row: &'static str,
    test: &'static str,
    setup: Setup,
    /// What a shell does before it becomes the gateway.
    first: Option<&'static str>,
    secret: String,
    faulty_servers: Vec<FaultyServer>,
    http_servers: Vec<MockHandle>,
    counts: Vec<(&'static str, &'static [&'static str])>,
}

/// A faulty server.
#[derive(Clone)]
pub(crate) struct FaultyServer {
    /// Its name in the config.
    pub(crate) name: String,
    /// Its own era.
    pub(crate) era: Era,
    /// How it is reached.
    pub(crate) carrier: FaultCarrier,
}

/// How a faulty server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultCarrier {
    /// A child that all clients share.
    SharedChild,
    /// A child for each client.
    ChildPerClient,
    /// HTTP; the place of its mock in [`Rig::webs`].
    Web(usize),
    /// TCP, over one connection for all; the same.
    Tcp(usize),
    /// TCP, over a connection for each client; the same.
    TcpPerClient(usize),
}

impl FaultCarrier {
    /// What the table calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            FaultCarrier::SharedChild => "shared child",
            FaultCarrier::ChildPerClient => "own child",
            FaultCarrier::Web(_) => "HTTP",
            FaultCarrier::Tcp(_) => "shared TCP",
            FaultCarrier::TcpPerClient(_) => "own TCP",
        }
    }
}

impl RowSetup {
    /// A gateway with its healthy server, for this row and test.
    pub(crate) fn new(row: &'static str, test: &'static str) -> Self {
        let secret = format!("canary-of-a-server-{}-{row}-{test}", std::process::id());
        let setup = Setup::new().with("auth.keys.1", &format!("name = \"one\"\nkey = {KEY:?}"));
        RowSetup {
            row,
            test,
            setup,
            first: None,
            secret,
            faulty_servers: Vec::new(),
            http_servers: Vec::new(),
            counts: Vec::new(),
        }
    }

    /// The fault is counted in this metric, in a series with these labels.
    pub(crate) fn counts(mut self, metric: &'static str, labels: &'static [&'static str]) -> Self {
        self.counts.push((metric, labels));
        self
    }

    /// The fault in children: of both eras, shared and one for each client.
    pub(crate) fn children(
        self,
        tools: &[&str],
        fault: impl Fn(MockScript) -> MockScript,
        settings: &str,
    ) -> Self {
        self.shared(tools, &fault, settings)
            .own(tools, &fault, settings)
    }

    /// The fault in children that all share.
    pub(crate) fn shared(
        mut self,
        tools: &[&str],
        fault: impl Fn(MockScript) -> MockScript,
        settings: &str,
    ) -> Self {
        for (name, era) in [("old", Era::Legacy), ("new", Era::Modern)] {
            self.setup = self.setup.stdio(name, &fault(script(era, tools)));
            self = self.child(name, era, FaultCarrier::SharedChild, settings);
        }
        self
    }

    /// The fault in children of which each client has its own.
    pub(crate) fn own(
        mut self,
        tools: &[&str],
        fault: impl Fn(MockScript) -> MockScript,
        settings: &str,
    ) -> Self {
        for (name, era) in [("old_own", Era::Legacy), ("new_own", Era::Modern)] {
            self.setup = self.setup.stdio(name, &fault(script(era, tools)));
            self = self.child(
                name,
                era,
                FaultCarrier::ChildPerClient,
                &format!("share = \"session\"\n{settings}"),
            );
        }
        self
    }

    /// The fault in children of another kind, shared and one for each client: a line for the shell,
    /// in which `MOCK` is the mock over stdio.
    pub(crate) fn shell(mut self, line: &str, tools: &[&str], settings: &str) -> Self {
        let own = format!("share = \"session\"\n{settings}");
        for (name, era, how, settings) in [
            ("old", Era::Legacy, FaultCarrier::SharedChild, settings),
            ("new", Era::Modern, FaultCarrier::SharedChild, settings),
            ("old_own", Era::Legacy, FaultCarrier::ChildPerClient, &own),
            ("new_own", Era::Modern, FaultCarrier::ChildPerClient, &own),
        ] {
            let file = self.setup.path(&format!("{name}.json"));
            std::fs::write(&file, serde_json::to_string(&script(era, tools)).unwrap()).unwrap();
            let record = self.setup.path(&format!("{name}.record"));
            let mock = format!(
                "{} mock {} --stdio --record {}",
                table::PROGRAM,
                file.display(),
                record.display()
            );
            let line = line.replace("MOCK", &mock);
            self.setup = self.setup.with(
                &format!("servers.{name}"),
                &format!(
                    "command = \"sh\"\nargs = [\"-c\", {}]",
                    serde_json::to_string(&line).unwrap()
                ),
            );
            self = self.child(name, era, how, settings);
        }
        self
    }

    fn child(mut self, name: &str, era: Era, how: FaultCarrier, settings: &str) -> Self {
        let lines = format!("env = {{ CANARY = {:?} }}\n{settings}", self.secret);
        self.setup = self
            .setup
            .with(&format!("servers.{name}"), lines.trim_end());
        self.faulty_servers.push(FaultyServer {
            name: name.to_owned(),
            era,
            carrier: how,
        });
        self
    }

    /// The fault behind HTTP, in both eras.
    pub(crate) async fn http_servers(
        mut self,
        tools: &[&str],
        fault: impl Fn(MockScript) -> MockScript,
        settings: &str,
    ) -> Self {
        for (name, era) in [("old_web", Era::Legacy), ("new_web", Era::Modern)] {
            let mock = serve(fault(script(era, tools))).await;
            let url = mock.url.clone();
            self.http_servers.push(mock);
            self = self.url(name, era, &url, settings);
        }
        self
    }

    /// The fault behind HTTP, in front of the mock that was added last: whoever listens at `url`
    /// passes on to it.
    pub(crate) fn url(mut self, name: &str, era: Era, url: &str, settings: &str) -> Self {
        let headers = format!("headers = {{ X-Canary = {:?} }}\n{settings}", self.secret);
        self.setup = self
            .setup
            .http(name, url)
            .with(&format!("servers.{name}"), headers.trim_end());
        self.faulty_servers.push(FaultyServer {
            name: name.to_owned(),
            era,
            carrier: FaultCarrier::Web(self.http_servers.len() - 1),
        });
        self
    }

    /// A server over TCP at an address where somebody passes on to `mock`.
    pub(crate) fn tcp(
        mut self,
        name: &str,
        era: Era,
        is_own: bool,
        address: &str,
        settings: &str,
    ) -> Self {
        let n = self.http_servers.len() - 1;
        let (share, how) = if is_own {
            ("session", FaultCarrier::TcpPerClient(n))
        } else {
            ("auto", FaultCarrier::Tcp(n))
        };
        let lines = format!("tcp = {address:?}\nshare = {share:?}\n{settings}");
        self.setup = self
            .setup
            .with(&format!("servers.{name}"), lines.trim_end());
        self.faulty_servers.push(FaultyServer {
            name: name.to_owned(),
            era,
            carrier: how,
        });
        self
    }

    /// Adds a mock on TCP that something else stands in front of; gives its address.
    pub(crate) async fn behind_tcp(&mut self, script: MockScript) -> SocketAddr {
        let mock = moongate_mock::serve_tcp(script, crate::harness::loopback(), None)
            .await
            .unwrap();
        let address = mock.addr.unwrap();
        self.http_servers.push(mock);
        address
    }

    /// Lines for a table of the config.
    pub(crate) fn with(mut self, table: &str, lines: &str) -> Self {
        self.setup = self.setup.with(table, lines);
        self
    }

    /// The gateway keeps its state in a file; a limit of its files' sizes fails its writes and does
    /// not end it.
    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "only Linux can limit the files of the gateway")
    )]
    pub(crate) fn keeping_state(mut self) -> Self {
        let dir = self.setup.path("state");
        self.setup = self.setup.with(
            "gateway",
            &format!("state_dir = {dir:?}\nstate = \"embedded\""),
        );
        self.first = Some("trap '' XFSZ");
        self
    }

    /// The gateway trusts this authority of servers.
    pub(crate) fn trusting(mut self, authority: &Authority) -> Self {
        self.setup = self.setup.trusting(authority);
        self
    }

    /// Adds a mock that something else stands in front of; gives its address.
    pub(crate) async fn behind(&mut self, era: Era, tools: &[&str]) -> SocketAddr {
        let mock = serve(script(era, tools)).await;
        let address = mock.addr.unwrap();
        self.http_servers.push(mock);
        address
    }

    /// Starts everything, uses it once in every way, and notes what there is.
    pub(crate) async fn start(self) -> FaultRig {
        self.start_without(&[]).await
    }

    /// The same, with servers that cannot be used before their fault is over.
    pub(crate) async fn start_without(self, faulty: &[&str]) -> FaultRig {
        let ok = serve(only(legacy(), &["echo"])).await;
        let setup = self.setup.http("ok", &ok.url);
        let gateway = match self.first {
            Some(first) => setup.spawn_after(first).await,
            None => setup.spawn().await,
        };
        let admin_url = gateway.admin_url().await;
        let mut rig = FaultRig {
            row: self.row,
            test: self.test,
            gateway,
            bads: self.faulty_servers,
            http_servers: self.http_servers,
            ok,
            admin: HttpClient::new(),
            admin_url,
            secret: self.secret,
            counts: self.counts,
            before: ResourceLevels::default(),
            counted: Vec::new(),
            said: Arc::default(),
            healthy: HealthyTraffic::default(),
            ways: Mutex::default(),
        };
        rig.listed("ok").await;
        for bad in rig
            .bads
            .clone()
            .iter()
            .filter(|bad| !faulty.contains(&&*bad.name))
        {
            rig.listed(&bad.name).await;
        }
        rig.works(faulty).await;
        rig.before = rig.settled().await;
        rig.counted = rig.counted().await;
        rig.healthy = HealthyTraffic::start(&rig.gateway.mcp());
        rig
    }
}

/// What a server of a rig has: these tools, and `echo`.
pub(crate) fn script(era: Era, tools: &[&str]) -> MockScript {
    only(
        if era == Era::Legacy {
            legacy()
        } else {
            modern()
        },
        &[tools, &["echo"]].concat(),
    )
}
