//! What a gateway holds, and what must hold once a fault is over.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{FaultRig, KEY, sum};
use crate::faults::table;
use crate::harness::{LONG, alive, marked, within};

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

impl FaultRig {
    /// The metrics that count the fault.
    pub(super) async fn counted(&self) -> Vec<f64> {
        let text = self.page("/metrics").await.text_body();
        self.counts
            .iter()
            .map(|(name, labels)| sum(&text, name, labels))
            .collect()
    }

    /// What there is once nothing moves any more.
    pub(super) async fn settled(&self) -> ResourceLevels {
        let mut before = self.levels().await;
        within("it is quiet", async {
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

    /// Recounts the processes before the fault, once replaced ones have ended.
    ///
    /// A server of both eras that was opened in the wrong one is replaced. A shell that ignores the
    /// end of its input is killed for it only after two seconds, and would else count as one that
    /// was there before.
    pub(crate) async fn recount_processes(&mut self) {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let now = self.levels().await;
        (self.before.children, self.before.marked) = (now.children, now.marked);
    }

    async fn levels(&self) -> ResourceLevels {
        let text = self.page("/metrics").await.text_body();
        let gauges = GAUGES
            .map(|name| (name, sum(&text, name, &[]) as i64))
            .into();
        ResourceLevels {
            gauges,
            ..ResourceLevels::of(self.gateway.pid(), &self.secret)
        }
    }

    /// The fault is over: checks what must hold after any, and notes the row.
    pub(crate) async fn end(mut self) {
        let calls = self.healthy.stop().await;
        assert!(calls > 0, "U2: the healthy server was called meanwhile");
        self.works(&[]).await;
        let after = self.counted().await;
        for (((name, labels), before), after) in self.counts.iter().zip(&self.counted).zip(after) {
            assert!(
                after > *before,
                "U6: {name} {labels:?} did not move: {before} before, {after} after"
            );
        }
        let mut seen = ResourceLevels::default();
        let back = tokio::time::timeout(LONG, async {
            loop {
                seen = self.levels().await;
                if seen.within(&self.before, POOLED * (self.http_servers.len() + 1)) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        assert!(
            back.await.is_ok(),
            "U4: not back to\n{:?}\nbut\n{seen:?}",
            self.before
        );
        let log = self.gateway.log();
        assert!(!log.contains("panicked"), "U1: {log}");
        assert!(alive(self.gateway.pid()), "U1: the gateway is gone: {log}");
        self.no_secrets(&log).await;
        table::passed(
            self.row,
            self.test,
            &self.ways.lock().unwrap(),
            &self.counts,
        );
    }

    /// U5.
    async fn no_secrets(&self, log: &str) {
        let said = String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned();
        let status = self.page("/api/v1/status").await.text_body();
        let metrics = self.page("/metrics").await.text_body();
        let to_ok = format!("{:?}", self.ok.recorded_requests());
        let secrets = [
            ("the client's key", KEY),
            ("the server's secret", &*self.secret),
        ];
        for (what, secret) in secrets {
            for (whose, text) in [
                ("log", log),
                ("answers", &*said),
                ("status", &*status),
                ("metrics", &*metrics),
                ("ok", &*to_ok),
            ] {
                assert!(!text.contains(secret), "U5: {what} is in {whose}");
            }
        }
        for bad in &self.bads {
            let received = match self.web(bad) {
                Some(mock) => format!("{:?}", mock.recorded_requests()),
                None => self.record(bad),
            };
            assert!(
                !received.contains(KEY),
                "U5: the client's key went to {}",
                bad.name
            );
        }
    }
}

/// What a gateway holds at a time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ResourceLevels {
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

impl ResourceLevels {
    fn of(pid: u32, mark: &str) -> Self {
        let children = children(pid);
        let zombies = children.iter().filter(|child| !alive(**child)).count();
        let links = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten();
        let links: Vec<String> = links
            .filter_map(|entry| {
                Some(
                    std::fs::read_link(entry.ok()?.path())
                        .ok()?
                        .to_string_lossy()
                        .into_owned(),
                )
            })
            .collect();
        let sockets = links
            .iter()
            .filter(|link| link.starts_with("socket:"))
            .count();
        ResourceLevels {
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
        self.zombies == 0
            && ["moongate_sessions", "moongate_inflight"]
                .iter()
                .all(|name| self.gauges[name] == 0)
    }

    /// Whether there is no more than there was; connections to servers may be pooled.
    fn within(&self, before: &ResourceLevels, pooled: usize) -> bool {
        let gauges = self
            .gauges
            .iter()
            .all(|(name, level)| level <= &before.gauges[name]);
        let processes =
            self.children == before.children && self.marked == before.marked && self.zombies == 0;
        gauges && processes && self.files <= before.files && self.sockets <= before.sockets + pooled
    }
}

/// The processes whose parent this is.
fn children(pid: u32) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let parent = |child: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let rest = stat
            .rsplit_once(')')
            .map(|(_, rest)| rest.to_owned())
            .unwrap_or_default();
        rest.split_whitespace()
            .nth(1)
            .and_then(|ppid| ppid.parse().ok())
            == Some(pid)
    };
    pids.filter(parent).collect()
}
