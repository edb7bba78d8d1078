//! What goes wrong while everybody calls: children die, servers restart, the config changes, the
//! disk takes nothing.

use crate::admin::{self, MetricsSample};
use crate::processes;
use crate::signals::{self, ProcessSignal};
use crate::soak::SoakRun;
use crate::world::{ConfigVariant, SERVERS, ServerCarrier, ServerFate};
use anyhow::{Context, Result, ensure};
#[cfg(target_os = "linux")]
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep};

/// Between two kills of children; each server's share stays below the attempts that the gateway
/// makes in a minute.
const KILLS: Duration = Duration::from_millis(1550);
/// Between two restarts of servers over HTTP, TCP and WebSocket.
const RESTARTS: Duration = Duration::from_secs(13);
/// Between two changes of the config.
const RELOADS: Duration = Duration::from_secs(10);
/// Between two outages of the disk, and their length.
const OUTAGES: Duration = Duration::from_secs(40);
const OUTAGE: Duration = Duration::from_secs(4);
/// How long the gateway may take to notice a changed config, or that the disk is back.
const PATIENCE: Duration = Duration::from_secs(45);

/// Starts all of it; it ends with the phase, with the config and the disk as they were.
pub(crate) fn start(soak: &Rc<SoakRun>) -> Vec<JoinHandle<()>> {
    let noted = |soak: Rc<SoakRun>,
                 what: &'static str,
                 work: std::pin::Pin<Box<dyn Future<Output = Result<()>>>>| {
        spawn_local(async move {
            if let Err(error) = work.await {
                soak.broken(what, format!("{error:#}"));
            }
        })
    };
    vec![
        noted(soak.clone(), "kills", Box::pin(kills(soak.clone()))),
        noted(
            soak.clone(),
            "restarts of servers",
            Box::pin(restarts(soak.clone())),
        ),
        noted(
            soak.clone(),
            "changes of the config",
            Box::pin(reloads(soak.clone())),
        ),
        noted(
            soak.clone(),
            "outages of the disk",
            Box::pin(outages(soak.clone())),
        ),
    ]
}

/// Kills children: those that all share in turns, and every fourth time one of a single session.
async fn kills(soak: Rc<SoakRun>) -> Result<()> {
    let shared: Vec<&'static str> = SERVERS
        .iter()
        .filter(|spec| spec.fate == ServerFate::Mortal && spec.how == ServerCarrier::Pipe)
        .map(|spec| spec.name)
        .collect();
    let mut turn = 0;
    while soak.pause(KILLS).await {
        turn += 1;
        let (name, pid) = if turn % 4 == 0 {
            (
                "killed_own",
                soak.pick(&processes::with_argument(soak.world.pid, "killed_own.json"))
                    .copied(),
            )
        } else {
            // Counted without the turns of the others, so that it hits all alike.
            let name = shared[(turn - turn / 4) % shared.len()];
            (name, pid_of(&soak, name).await?)
        };
        let Some(pid) = pid else { continue };
        // Who of its sessions calls next, and when, says nothing of how fast such a child is back.
        soak.tally(|tally| {
            if name == "killed_own" {
                tally.ends.returns(name)
            } else {
                tally.ends.ended(name)
            }
        });
        if signals::send(pid, ProcessSignal::Kill).is_ok() {
            soak.add("children killed");
        }
    }
    Ok(())
}

async fn pid_of(soak: &SoakRun, server: &str) -> Result<Option<u32>> {
    let status = admin::status(soak.world.admin).await?;
    let found = status
        .iter()
        .find(|status| status["name"] == server)
        .context("a server is not in the status")?;
    Ok(found["pid"]
        .as_u64()
        .and_then(|pid| u32::try_from(pid).ok())
        .filter(|_| found["state"] == "ready"))
}

/// Kills servers that are no children, and starts them again a moment later.
async fn restarts(soak: Rc<SoakRun>) -> Result<()> {
    let mut turn = 0;
    while soak.pause(RESTARTS).await {
        let name = ["killed_web", "killed_tcp", "killed_web_new", "killed_ws"][turn % 4];
        turn += 1;
        soak.tally(|tally| tally.ends.stopped(name));
        soak.world.kill_web(name).await;
        sleep(Duration::from_millis(soak.dice(400))).await;
        soak.world.web(name).await?;
        soak.tally(|tally| tally.ends.returns(name));
        soak.add("servers over sockets restarted");
    }
    Ok(())
}

/// Changes the config, by turns over the file, a signal and an order; sometimes to nonsense.
async fn reloads(soak: Rc<SoakRun>) -> Result<()> {
    let mut turn = 0_u32;
    while soak.pause(RELOADS).await {
        turn += 1;
        let before = soak.world.variant.borrow().clone();
        let mut next = before.clone();
        match turn % 6 {
            0 => {
                nonsense(&soak, turn).await?;
                continue;
            }
            1 => next.guests[0] = !next.guests[0],
            2 => next.replaced += 1,
            3 => next.tuned += 1,
            4 => next.guests[1] = !next.guests[1],
            _ => {
                restart(&soak, turn).await?;
                continue;
            }
        }
        change(&soak, &next, turn).await?;
    }
    // As it was, so that before and after can be compared.
    if *soak.world.variant.borrow() != ConfigVariant::default() {
        change(&soak, &ConfigVariant::default(), 0).await?;
    }
    Ok(())
}

/// Changes the config, and waits until that is applied.
pub(crate) async fn change(soak: &SoakRun, next: &ConfigVariant, turn: u32) -> Result<()> {
    let before = reloaded(soak, "applied").await?;
    // Calls of a guest may fail from now on, and until it has come.
    let guests = |soak: &SoakRun| {
        soak.tally(|tally| ["guest", "guest_new"].map(|name| tally.ends.returns(name)))
    };
    guests(soak);
    soak.world.write(next)?;
    ask(soak, turn).await?;
    until("a change of the config is applied", async || {
        Ok(reloaded(soak, "applied").await? > before)
    })
    .await?;
    guests(soak);
    soak.add("reloads");
    Ok(())
}

/// How many reloads ended like this.
async fn reloaded(soak: &SoakRun, outcome: &str) -> Result<f64> {
    Ok(admin::metrics(soak.world.admin)
        .await?
        .sum("moongate_config_reloads_total", &[outcome]))
}

/// Has the file read: nobody says so every third time, since it is watched.
async fn ask(soak: &SoakRun, turn: u32) -> Result<()> {
    match turn % 3 {
        1 => signals::send(soak.world.pid, ProcessSignal::Reload)?,
        2 => drop(admin::order(soak.world.admin, "/api/v1/reload").await?),
        _ => {}
    }
    Ok(())
}

/// A config that cannot be used, which must change nothing.
async fn nonsense(soak: &SoakRun, turn: u32) -> Result<()> {
    let before = reloaded(soak, "refused").await?;
    let good = soak.world.text(&soak.world.variant.borrow())?;
    let bad = match turn % 4 {
        0 => format!("{good}\n[servers.pipe"),
        _ => format!("{good}\n[servers.bad]\ncomand = \"x\"\n"),
    };
    soak.world.write_text(&bad)?;
    until("a config that is none is refused", async || {
        Ok(reloaded(soak, "refused").await? > before)
    })
    .await?;
    soak.world.write_text(&good)?;
    let failed = async || {
        Ok(admin::metrics(soak.world.admin)
            .await?
            .sum("moongate_config_reload_failed", &[])
            == 0.0)
    };
    until("the config is good again", failed).await?;
    soak.add("bad configs refused");
    Ok(())
}

/// Has a server restarted that nobody may miss.
async fn restart(soak: &SoakRun, turn: u32) -> Result<()> {
    let name = ["replaced", "tuned"][usize::try_from(turn / 6 % 2)?];
    let told = admin::order(soak.world.admin, &format!("/api/v1/servers/{name}/restart")).await?;
    ensure!(told.contains("restarted"), "a restart of {name}: {told}");
    soak.add("servers restarted by order");
    Ok(())
}

/// The disk takes nothing more for a while: every write of a file fails (`RLIMIT_FSIZE` of the
/// gateway's process).
async fn outages(soak: Rc<SoakRun>) -> Result<()> {
    let look = async || admin::metrics(soak.world.admin).await;
    let errors = |metrics: &MetricsSample| metrics.sum("moongate_store_errors_total", &[]);
    while soak.pause(OUTAGES - OUTAGE).await {
        let before = errors(&look().await?);
        let whole = limit(soak.world.pid, Some(0))?;
        soak.pause(OUTAGE).await;
        let during = look().await;
        limit(soak.world.pid, whole)?;
        let during = during?;
        if soak.is_over() {
            break;
        }
        ensure!(
            errors(&during) > before,
            "the gateway did not notice that the disk takes nothing"
        );
        let waiting = during.sum("moongate_store_waiting", &[]);
        until("the state is written again", async || {
            let now = look().await?;
            Ok(now.sum("moongate_store_waiting", &[]) < waiting / 2.0 + 50.0)
        })
        .await?;
        soak.add("store outages");
    }
    Ok(())
}

/// Sets the largest size of the files that a process may write; gives what it was.
#[cfg(target_os = "linux")]
fn limit(pid: u32, bytes: Option<u64>) -> Result<Option<u64>> {
    let pid = Pid::from_raw(pid.cast_signed());
    // The upper limit is ours, too: the gateway has it from us.
    let now = rustix::process::getrlimit(Resource::Fsize);
    Ok(prlimit(
        pid,
        Resource::Fsize,
        Rlimit {
            current: bytes,
            maximum: now.maximum,
        },
    )?
    .current)
}

#[cfg(not(target_os = "linux"))]
fn limit(_: u32, _: Option<u64>) -> Result<Option<u64>> {
    anyhow::bail!("only Linux limits the files of another process")
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !holds().await? {
        ensure!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
