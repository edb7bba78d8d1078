//! The processes that are counted: one gateway for all rows, and plain proxies before the same
//! upstreams.

use crate::args::CountArgs;
use crate::counter::CallCounter;
use crate::harness::cases::{AskedFor, BenchCase};
use crate::harness::gateway::BenchGateway;
use crate::harness::load::{ConnectionFleet, LoadTally};
use crate::harness::servers::{BenchUpstreams, ServerProcess, plain};
use crate::harness::target::LoadTarget;
use crate::table::CallCosts;
use anyhow::{Context, Result, ensure};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::time::Duration;

/// How long the calls of a slice may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often a row is counted.
const SLICES: u64 = 5;

/// Everything that runs while rows are counted.
pub(crate) struct CountStage {
    upstreams: BenchUpstreams,
    gateway: BenchGateway,
    counter: CallCounter,
    /// Rows that differ only in what the gateway does have the same ceiling: an upstream, and what
    /// is asked of it.
    ceilings: HashMap<(SocketAddr, AskedFor), CallCosts>,
    calls: u64,
}

impl CountStage {
    pub(crate) async fn start(args: &CountArgs) -> Result<Self> {
        let upstreams = BenchUpstreams::start(0).await?;
        let counter = CallCounter::new()?;
        let gateway = upstreams.gateway(&args.bin, &counter.wrapper()).await?;
        Ok(Self {
            upstreams,
            gateway,
            counter,
            ceilings: HashMap::new(),
            calls: args.calls,
        })
    }

    pub(crate) async fn stop(self) {
        self.gateway.process.stop(PATIENCE).await;
    }

    /// Counts calls through the gateway.
    pub(crate) async fn gateway(&mut self, case: &BenchCase) -> Result<CallCosts> {
        let target = self.gateway.target(case);
        count(
            &mut self.counter,
            self.gateway.process.pid,
            &target,
            self.calls,
        )
        .await
        .context("the gateway")
    }

    /// Counts the same calls through a plain proxy. It is a new one for each kind of call, because
    /// hyper sizes the buffers of a connection that it keeps by what it read before.
    pub(crate) async fn ceiling(&mut self, case: &BenchCase) -> Result<&CallCosts> {
        let upstream = self.upstreams.serving(case).address();
        match self.ceilings.entry((upstream, case.ask)) {
            Entry::Occupied(counted) => Ok(counted.into_mut()),
            Entry::Vacant(place) => {
                let mut counter = CallCounter::new()?;
                let proxy = ServerProcess::start_under(
                    &counter.wrapper(),
                    "ceiling",
                    &[upstream.to_string()],
                )
                .await?;
                let target = plain(proxy.address(), case);
                let costs = count(&mut counter, proxy.pid(), &target, self.calls)
                    .await
                    .context("the ceiling")?;
                Ok(place.insert(costs))
            }
        }
    }
}

/// Counts calls on one connection, once all that is made for the first of them is there. They are
/// counted in slices, and the cheapest slice is the one without work that belongs to no call, such
/// as that of timers.
async fn count(
    counter: &mut CallCounter,
    pid: u32,
    target: &LoadTarget,
    calls: u64,
) -> Result<CallCosts> {
    let calls = calls.div_ceil(SLICES);
    let mut fleet = ConnectionFleet::open(target, 1).await?;
    let sse = fleet.sse;
    run(&mut fleet, calls).await?;
    counter.zero(pid).await?;
    let mut slices = Vec::new();
    for _ in 0..SLICES {
        run(&mut fleet, calls).await?;
        slices.push(counter.dump(pid).await?);
    }
    fleet.close().await;
    let profile = slices
        .into_iter()
        .min_by_key(|slice| slice.instructions)
        .context("no slice was counted")?;
    ensure!(
        profile.named_share() > 0.5,
        "its binary has no symbols, and allocations are counted by name: build it with \
         CARGO_PROFILE_DIST_STRIP=none"
    );
    Ok(CallCosts {
        profile,
        calls,
        sse,
    })
}

async fn run(fleet: &mut ConnectionFleet, calls: u64) -> Result<()> {
    let mut tally = LoadTally::new()?;
    fleet.run(PATIENCE, calls, &mut tally).await?;
    ensure!(
        tally.calls == calls,
        "{} of {calls} calls in {PATIENCE:?}",
        tally.calls
    );
    Ok(())
}
