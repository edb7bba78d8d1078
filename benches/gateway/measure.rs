//! One row at a time: its targets take turns in short slices, so that noise hits all alike.

use crate::args::BenchArgs;
use crate::harness::cases::BenchCase;
use crate::harness::load::{ConnectionFleet, LoadTally};
use crate::stage::{BenchStage, TableColumn};
use crate::usage::{cpu, cpu_between};
use anyhow::Result;
use std::time::Duration;

/// What one target did in one row.
pub(crate) struct CaseFigures {
    pub(crate) name: String,
    pub(crate) tally: LoadTally,
    /// Calls and CPU nanoseconds of the process in each slice; none without a separate process.
    pub(crate) slices: Vec<(u64, u64)>,
    pub(crate) sse: bool,
    pub(crate) failed: Option<String>,
}

/// A measured row; the first figures are what it is about.
pub(crate) struct MeasuredRow {
    pub(crate) case: BenchCase,
    pub(crate) figures: Vec<CaseFigures>,
}

struct RowInProgress {
    lane: TableColumn,
    fleet: Option<ConnectionFleet>,
    figures: CaseFigures,
}

/// Measures one row.
pub(crate) async fn row(
    stage: &mut BenchStage,
    case: BenchCase,
    args: &BenchArgs,
) -> Result<MeasuredRow> {
    let slice = args.slice();
    let mut all = Vec::new();
    for lane in stage.lanes(&case, args).await? {
        all.push(
            open(
                lane,
                case.connections,
                slice.min(Duration::from_millis(300)),
            )
            .await?,
        );
    }
    let count = all.len();
    for turn in 0..args.slices {
        // Each turn begins with another one, so that none always follows the same.
        all.rotate_left(usize::from(turn > 0 && count > 1));
        for one in &mut all {
            step(one, slice).await;
        }
    }
    let back = usize::try_from(args.slices - 1).unwrap_or(0) % count.max(1);
    all.rotate_right(back);
    let mut figures = Vec::new();
    for one in all {
        if let Some(fleet) = one.fleet {
            fleet.close().await;
        }
        figures.push(one.figures);
    }
    Ok(MeasuredRow { case, figures })
}

async fn open(lane: TableColumn, connections: usize, warm: Duration) -> Result<RowInProgress> {
    let mut figures = CaseFigures {
        name: lane.name.clone(),
        tally: LoadTally::new()?,
        slices: Vec::new(),
        sse: false,
        failed: None,
    };
    let opened = async {
        let mut fleet = ConnectionFleet::open(&lane.target, connections).await?;
        fleet.run(warm, u64::MAX, &mut LoadTally::new()?).await?;
        anyhow::Ok(fleet)
    };
    let fleet = match opened.await {
        Ok(fleet) => {
            figures.sse = fleet.sse;
            Some(fleet)
        }
        Err(error) => {
            figures.failed = Some(format!("{error:#}"));
            None
        }
    };
    Ok(RowInProgress {
        lane,
        fleet,
        figures,
    })
}

async fn step(one: &mut RowInProgress, slice: Duration) {
    let Some(fleet) = &mut one.fleet else { return };
    let (before, done) = (one.lane.pid.map(cpu), one.figures.tally.calls);
    if let Err(error) = fleet.run(slice, u64::MAX, &mut one.figures.tally).await {
        one.figures.failed = Some(format!("{error:#}"));
        one.fleet = None;
        return;
    }
    if let (Some(pid), Some(before)) = (one.lane.pid, before) {
        let calls = one.figures.tally.calls - done;
        one.figures
            .slices
            .push((calls, cpu_between(&before, &cpu(pid))));
    }
}
