//! What a gateway holds while nobody uses it: the same before and after.

use crate::admin::{self, MetricsSample};
use crate::calls;
use crate::client::{Client, KEYS, MODERN};
use crate::processes;
use crate::soak::SoakRun;
use crate::world::{SERVERS, ServerCarrier, ServerFate, SoakWorld};
use anyhow::{Result, bail};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// What goes up and down, and is zero while nobody uses the gateway.
const QUIET: &[&str] = &[
    "moongate_sessions",
    "moongate_streams",
    "moongate_inflight",
    "moongate_parked",
    "moongate_tasks",
    "moongate_replay_bytes",
    "moongate_outbox_bytes",
    "moongate_backlog_bytes",
    "moongate_queue_depth",
    "moongate_store_waiting",
];
/// What goes up and down, and must come back to what it was.
const STEADY: &[&str] = &[
    "moongate_connections",
    "moongate_subscriptions",
    "moongate_server_connections",
    "moongate_server_up",
    "moongate_catalog_items",
    "moongate_catalog_bytes",
    "moongate_catalog_left_out",
    "moongate_catalog_stale",
    "moongate_store_open",
    "moongate_config_reload_failed",
];
/// Connections to one server that may be kept for later calls.
const POOLED: usize = 64;
/// How long what is left may take to go: sessions end in their time, connections that were kept
/// within two minutes.
const PATIENCE: Duration = Duration::from_secs(150);
/// How long the levels must stand still to count.
const STILL: Duration = Duration::from_secs(3);
/// Longer than connections to servers are kept, which is looked at every 50 seconds.
const POOL_TIME: Duration = Duration::from_secs(105);

/// One look.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IdleLevels {
    /// Every series of the gauges.
    pub(crate) gauges: BTreeMap<String, f64>,
    /// By kind.
    pub(crate) descriptors: BTreeMap<String, usize>,
    /// By what they run.
    pub(crate) children: BTreeMap<String, usize>,
    pub(crate) zombies: usize,
    /// Processes of servers, whoever started them.
    pub(crate) processes: usize,
    /// Every value of every label of all metrics.
    labels: BTreeSet<String>,
    pub(crate) series: usize,
    /// In bytes: see [`memory`].
    pub(crate) memory: f64,
}

impl IdleLevels {
    async fn look(world: &SoakWorld) -> Result<Self> {
        let metrics = admin::metrics(world.admin).await?;
        let (mut children, mut zombies) = (BTreeMap::new(), 0);
        for (pid, words) in processes::children(world.pid) {
            if processes::is_zombie(pid) {
                zombies += 1;
            } else {
                let script = words
                    .iter()
                    .find_map(|word| word.rsplit_once('/')?.1.strip_suffix(".json"));
                let name = script
                    .unwrap_or(words.get(1).map_or("", |word| word))
                    .to_owned();
                *children.entry(name).or_default() += 1;
            }
        }
        Ok(Self {
            gauges: metrics.of(&[QUIET, STEADY].concat()),
            descriptors: processes::descriptors(world.pid, &world.ports),
            children,
            zombies,
            processes: processes::marked(&world.mark()),
            labels: metrics.labels(),
            series: metrics.count(),
            memory: memory(&metrics).0,
        })
    }

    fn is_quiet(&self) -> bool {
        let none = |name: &&str| {
            self.gauges
                .iter()
                .filter(|(series, _)| series.starts_with(*name))
                .all(|(_, v)| *v == 0.0)
        };
        let ready = self
            .gauges
            .iter()
            .filter(|(series, _)| series.contains("state=\"ready\""))
            .all(|(_, v)| *v == 1.0);
        self.zombies == 0 && ready && QUIET.iter().all(none)
    }

    /// What is not as it was; `pooled`: connections to servers count too.
    pub(crate) fn differences(&self, before: &Self, pooled: bool) -> Vec<String> {
        // A gauge without a series is 0: the first dedicated connection of a server may come late.
        let held = |levels: &Self| {
            let held = levels.gauges.iter().filter(|(_, value)| **value != 0.0);
            held.map(|(name, value)| (name.clone(), *value))
                .collect::<BTreeMap<_, _>>()
        };
        let mut all = different("", &held(before), &held(self));
        let kinds = |levels: &Self| {
            let mut kinds = levels.descriptors.clone();
            // Some are kept for later calls: no more than there may be.
            let most = POOLED
                * SERVERS
                    .iter()
                    .filter(|spec| matches!(spec.how, ServerCarrier::Web | ServerCarrier::Polled))
                    .count();
            if !pooled
                && kinds
                    .get("pooled connection")
                    .is_some_and(|kept| *kept <= most)
            {
                kinds.remove("pooled connection");
            }
            kinds
        };
        all.extend(different("descriptors: ", &kinds(before), &kinds(self)));
        all.extend(different("children: ", &before.children, &self.children));
        if self.processes != before.processes {
            all.push(format!(
                "processes of servers: {} before, {} after",
                before.processes, self.processes
            ));
        }
        if self.zombies > 0 {
            all.push(format!("{} zombies", self.zombies));
        }
        // Counters stay for good: but none may be about something that a client made up.
        let known = |label: &&String| before.labels.contains(*label) || is_word(label);
        let unknown: Vec<&String> = self.labels.iter().filter(|label| !known(label)).collect();
        if !unknown.is_empty() {
            all.push(format!(
                "metrics with labels that were not there before: {unknown:?}"
            ));
        }
        all
    }
}

/// Returns true for a label that may come late: a server, a tool, or the name or code of a failure.
/// What clients make up here is none of these.
fn is_word(label: &str) -> bool {
    let server = label.split("__").next().unwrap_or(label);
    let is_name = label
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    is_name || is_error_code(label) || SERVERS.iter().any(|spec| spec.name == server)
}

/// Returns true for a code of JSON-RPC, of which a read or a prompt of a server that died is the
/// first to have some.
fn is_error_code(label: &str) -> bool {
    // The gateway names a fixed set of them, whatever servers answer.
    label
        .parse()
        .is_ok_and(|code: i32| (-32768..=-32000).contains(&code))
}

fn different<T: PartialEq + std::fmt::Debug>(
    what: &str,
    before: &BTreeMap<String, T>,
    after: &BTreeMap<String, T>,
) -> Vec<String> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changed = names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name));
    changed
        .map(|name| {
            format!(
                "{what}{name}: {:?} before, {:?} after",
                before.get(name),
                after.get(name)
            )
        })
        .collect()
}

/// Calls every server once for each principal and in both eras, so that what is opened by use is
/// open.
pub(crate) async fn touch(soak: &SoakRun) -> Result<()> {
    for key in 0..KEYS.len() {
        for revision in [MODERN, "2025-11-25"] {
            let mut client = Client::new(soak.world.address, revision, key);
            client.open().await?;
            for spec in SERVERS
                .iter()
                .filter(|spec| spec.fate != ServerFate::Guest && spec.how != ServerCarrier::Own)
            {
                let end = Instant::now() + PATIENCE;
                loop {
                    let request =
                        client.call(&format!("{}__echo", spec.name), json!({"key": key}), None);
                    let answer = client.exchange(&request.bytes).await?;
                    if answer.messages.iter().any(|message| {
                        message["result"]["isError"] != true && message["error"].is_null()
                    }) {
                        break;
                    }
                    if Instant::now() > end {
                        bail!("{} does not work: {answer:?}", spec.name);
                    }
                    sleep(Duration::from_millis(100)).await;
                }
            }
            // Before a server on a pipe has asked once, nobody knows that clients must not share
            // it.
            if let Some(spec) = SERVERS
                .iter()
                .find(|spec| spec.name == "asks")
                .filter(|_| !client.is_modern())
            {
                calls::asked(soak, &mut client, spec).await;
            }
            client.end().await?;
        }
    }
    Ok(())
}

/// Waits until nothing moves any more; `pooled`: connections that are kept are gone, too.
pub(crate) async fn settled(soak: &SoakRun, pooled: bool) -> Result<IdleLevels> {
    touch(soak).await?;
    if pooled {
        sleep(POOL_TIME).await;
    }
    let (mut before, mut since) = (IdleLevels::look(&soak.world).await?, Instant::now());
    let end = Instant::now() + PATIENCE;
    while !before.is_quiet() || since.elapsed() < STILL {
        if Instant::now() > end {
            bail!("it does not come to rest: {before:#?}");
        }
        sleep(Duration::from_millis(200)).await;
        let now = IdleLevels::look(&soak.world).await?;
        if now.gauges != before.gauges
            || now.children != before.children
            || now.processes != before.processes
            || now.descriptors != before.descriptors
        {
            since = Instant::now();
        }
        before = now;
    }
    Ok(before)
}

/// Waits until everything is as it was; what is not, and the last look.
pub(crate) async fn back(
    soak: &SoakRun,
    before: &IdleLevels,
    pooled: bool,
) -> Result<(Vec<String>, IdleLevels)> {
    touch(soak).await?;
    let end = Instant::now() + PATIENCE;
    loop {
        let now = IdleLevels::look(&soak.world).await?;
        let left = now.differences(before, pooled);
        if left.is_empty() || Instant::now() > end {
            return Ok((left, now));
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// The gateway's memory in bytes, and whether it is what it has allocated, or what the system has
/// given it.
pub(crate) fn memory(metrics: &MetricsSample) -> (f64, bool) {
    match metrics.get("moongate_heap_bytes") {
        Some(bytes) => (bytes, true),
        None => (
            metrics
                .get("process_resident_memory_bytes")
                .unwrap_or_default(),
            false,
        ),
    }
}
