//! The load generator: closed loops, one request at a time on each connection, every answer
//! checked.

use super::http::Connection;
use super::target::{BenchRequest, LoadTarget, RepeatedRequest};
use super::wire::{ProtocolEra, message_in, raw_value, text_size};
use anyhow::{Context, Result, anyhow, bail, ensure};
use hdrhistogram::Histogram;
use memchr::memmem;
use serde_json::Value;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// How long one answer may take beyond the end of a slice.
const PATIENCE: Duration = Duration::from_secs(15);

/// What was measured: calls, the time they took, and each one's latency in nanoseconds.
pub(crate) struct LoadTally {
    pub(crate) calls: u64,
    pub(crate) seconds: f64,
    pub(crate) latency: Histogram<u64>,
}

impl LoadTally {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            calls: 0,
            seconds: 0.0,
            latency: Histogram::new_with_bounds(1_000, 60_000_000_000, 3)?,
        })
    }

    fn add(&mut self, other: &Self) -> Result<()> {
        self.calls += other.calls;
        self.latency
            .add(&other.latency)
            .map_err(|error| anyhow!("{error}"))
    }
}

/// All connections to one target, kept from slice to slice.
pub(crate) struct ConnectionFleet {
    workers: Vec<LoadWorker>,
    /// The target streams its answers as events.
    pub(crate) sse: bool,
}

impl ConnectionFleet {
    /// Opens the connections, does the handshakes, and looks closely at one answer on each.
    pub(crate) async fn open(target: &LoadTarget, connections: usize) -> Result<Self> {
        let mut workers = Vec::with_capacity(connections);
        for _ in 0..connections {
            let worker = timeout(PATIENCE, LoadWorker::open(target.clone()));
            workers.push(
                worker
                    .await
                    .context("no answer in time to the first requests")??,
            );
        }
        let sse = workers.iter().any(|worker| worker.sse);
        Ok(Self { workers, sse })
    }

    /// Runs for `length`, or for `calls` on each connection, whichever ends first.
    pub(crate) async fn run(
        &mut self,
        length: Duration,
        calls: u64,
        into: &mut LoadTally,
    ) -> Result<()> {
        let mut running = JoinSet::new();
        let start = Instant::now();
        for worker in self.workers.drain(..) {
            running.spawn(worker.run(start + length, calls));
        }
        let all = async {
            while let Some(done) = running.join_next().await {
                let (worker, tally) = done??;
                into.add(&tally)?;
                self.workers.push(worker);
            }
            anyhow::Ok(())
        };
        timeout(length + PATIENCE, all)
            .await
            .context("calls without an answer")??;
        into.seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Ends the sessions, so that they do not pile up in what is measured.
    pub(crate) async fn close(self) {
        for mut worker in self.workers {
            let Some(session) = &worker.session else {
                continue;
            };
            let request = worker.target.delete(session);
            // A server may refuse to end a session, or may not answer: the connection goes either
            // way.
            let _ = timeout(Duration::from_secs(2), worker.connection.exchange(&request)).await;
        }
    }
}

struct LoadWorker {
    target: LoadTarget,
    connection: Connection,
    template: BenchRequest,
    session: Option<String>,
    least: usize,
    sse: bool,
}

impl LoadWorker {
    async fn open(target: LoadTarget) -> Result<Self> {
        let mut connection = Connection::open(target.address).await?;
        let mut session = None;
        if target.era == ProtocolEra::Legacy && !target.fixed {
            let head = connection.exchange(&target.initialize()).await?;
            ensure!(
                head.status == 200,
                "initialize: {}",
                describe(head.status, &connection.body)
            );
            session = head.session;
            let head = connection
                .exchange(&target.initialized(session.as_deref()))
                .await?;
            ensure!(
                head.status / 100 == 2,
                "initialized: {}",
                describe(head.status, &connection.body)
            );
        }
        let template = target.template(session.as_deref());
        let mut worker = Self {
            target,
            connection,
            template,
            session,
            least: 0,
            sse: false,
        };
        worker.first().await?;
        Ok(worker)
    }

    /// One call whose answer is parsed and looked at closely.
    async fn first(&mut self) -> Result<()> {
        let id = self.template.advance();
        let head = self.connection.exchange(&self.template.bytes).await?;
        let body = &self.connection.body;
        ensure!(head.status == 200, "{}", describe(head.status, body));
        let message: Value = serde_json::from_slice(message_in(body, head.sse))
            .with_context(|| format!("not understood: {}", describe(head.status, body)))?;
        ensure!(
            message["id"] == id,
            "asked with id {id}, answered with id {}",
            message["id"]
        );
        ensure!(
            message["result"].is_object(),
            "{}",
            describe(head.status, body)
        );
        self.least = match &self.target.op {
            RepeatedRequest::Call { tool, .. } => {
                let text = message["result"]["content"][0]["text"]
                    .as_str()
                    .unwrap_or_default();
                ensure!(
                    text.len() == text_size(tool),
                    "the wrong text: {}",
                    describe(head.status, body)
                );
                text.len()
            }
            RepeatedRequest::List { tools } => {
                let count = message["result"]["tools"].as_array().map_or(0, Vec::len);
                ensure!(count == *tools, "{count} tools instead of {tools}");
                count * 100
            }
        };
        let modern = self.target.era == ProtocolEra::Modern;
        ensure!(
            !modern || message["result"]["resultType"] == "complete",
            "{}",
            describe(head.status, body)
        );
        self.sse = head.sse;
        Ok(())
    }

    async fn run(mut self, until: Instant, most: u64) -> Result<(Self, LoadTally)> {
        let mut tally = LoadTally::new()?;
        let mut sent = Instant::now();
        while sent < until && tally.calls < most {
            let id = self.template.advance();
            let head = self.connection.exchange(&self.template.bytes).await?;
            self.check(id, head.status)?;
            let now = Instant::now();
            tally
                .latency
                .saturating_record(u64::try_from((now - sent).as_nanos()).unwrap_or(u64::MAX));
            tally.calls += 1;
            sent = now;
        }
        Ok((self, tally))
    }

    /// The id that was sent, a result and no error: by scanning, which costs next to nothing.
    fn check(&self, id: u64, status: u16) -> Result<()> {
        let body = &self.connection.body;
        let mut digits = [0; 9];
        let mut rest = id;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
        }
        let same_id = raw_value(body, "\"id\"") == Some(&digits);
        let ends = [
            body.get(..256).unwrap_or(body),
            body.get(body.len().saturating_sub(256)..)
                .unwrap_or_default(),
        ];
        let bad = |part: &[u8]| {
            memmem::find(part, b"\"error\"").is_some()
                || raw_value(part, "\"isError\"") == Some(b"true")
        };
        if status != 200 || !same_id || body.len() < self.least || ends.into_iter().any(bad) {
            bail!("id {id}: {}", describe(status, body));
        }
        Ok(())
    }
}

fn describe(status: u16, body: &[u8]) -> String {
    let start = String::from_utf8_lossy(body.get(..300).unwrap_or(body)).into_owned();
    format!("HTTP {status}, {start}")
}
