//! How fast a gateway recovers: from a child's crash in the middle of calls, from its own end, from
//! reloads under load.

use crate::admin;
use crate::args::SoakArgs;
use crate::client::{Client, KEYS, MODERN};
use crate::judge::{Outcome, judge};
use crate::levels::touch;
use crate::processes;
use crate::signals::{self, ProcessSignal};
use crate::soak::SoakRun;
use crate::world::{ConfigVariant, SERVERS, ServerCarrier, ServerFate, SoakWorld};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};

/// Calls that are open when their child dies.
const OPEN: usize = 50;
/// Rounds of crashes, over all servers that may die; of ends of the gateway.
const CRASHES: usize = 12;
const ENDS: usize = 5;
/// How long reloads go on, and the pause between two.
const LOAD: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(500);
const CALLERS: usize = 16;

/// Measures all of it, and prints a table.
pub(crate) async fn measure(args: &SoakArgs) -> Result<()> {
    let (answered, back, replayed) = crashes(args).await?;
    let killed = ends(args, ProcessSignal::Kill).await?;
    let stopped = ends(args, ProcessSignal::Terminate).await?;
    let (calls, errors, reloads, longest) = under_load(args).await?;
    println!("| what | median | most |\n|---|---:|---:|");
    let row = |what: &str, times: &[Duration]| {
        println!("| {what} | {} | {} |", ms(median(times)), ms(most(times)))
    };
    row(
        &format!("a child dies, {OPEN} calls open: all are answered after"),
        &answered,
    );
    row("the same: the next call has succeeded after", &back);
    row(
        "`kill -9` of the gateway: no process of its servers is left after",
        &killed,
    );
    row("SIGTERM: the same", &stopped);
    println!("\nCalls that ran a second time after {CRASHES} crashes: {replayed}.");
    println!(
        "{reloads} reloads in {LOAD:?} under {calls} calls: {errors} errors; the longest call \
         took {}.",
        ms(longest)
    );
    Ok(())
}

fn ms(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1e3)
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn most(times: &[Duration]) -> Duration {
    times.iter().copied().max().unwrap_or_default()
}

async fn started(args: &SoakArgs) -> Result<Rc<SoakRun>> {
    let soak = Rc::new(SoakRun::new(
        SoakWorld::start(&args.bin, None).await?,
        args.seed.unwrap_or(1),
        args.rate,
    ));
    touch(&soak).await?;
    Ok(soak)
}

/// Crashes in turns: how long until all open calls were answered, and until one succeeded; and how
/// many ran again.
async fn crashes(args: &SoakArgs) -> Result<(Vec<Duration>, Vec<Duration>, u64)> {
    let soak = started(args).await?;
    let mortal: Vec<&'static str> = SERVERS
        .iter()
        .filter(|spec| spec.fate == ServerFate::Mortal && spec.how == ServerCarrier::Pipe)
        .map(|spec| spec.name)
        .collect();
    let (mut answered, mut back, mut replayed) = (Vec::new(), Vec::new(), 0);
    for (round, name) in mortal.iter().cycle().take(CRASHES).enumerate() {
        let revision = [MODERN, "2025-11-25"][round % 2];
        let mut open = Vec::new();
        for n in 0..OPEN {
            let mut client = Client::new(soak.world.address, revision, n % KEYS.len());
            client.open().await?;
            open.push(spawn_local(hanging(client, name)));
        }
        let waits = async || {
            Ok::<_, anyhow::Error>(
                admin::metrics(soak.world.admin)
                    .await?
                    .sum("moongate_inflight", &[]),
            )
        };
        while waits().await? < OPEN as f64 {
            sleep(Duration::from_millis(5)).await;
        }
        let status = admin::status(soak.world.admin).await?;
        let pid = status
            .iter()
            .find(|status| status["name"] == *name)
            .and_then(|status| status["pid"].as_u64());
        kill(
            pid.context("the server has no process")?,
            ProcessSignal::Kill,
        )?;
        let dead = Instant::now();
        for call in open {
            call.await??;
        }
        answered.push(dead.elapsed());
        let mut client = Client::new(soak.world.address, revision, 0);
        client.open().await?;
        let counters = counters(&mut client, name, dead).await?;
        back.push(dead.elapsed());
        replayed += counters["methods"]["tools/call"]
            .as_u64()
            .context("no counters")?
            .saturating_sub(1);
        eprintln!(
            "{name}: all answered after {:?}, the next success after {:?}",
            answered.last(),
            back.last()
        );
    }
    Ok((answered, back, replayed))
}

/// A call that ends with its server.
async fn hanging(mut client: Client, server: &str) -> Result<()> {
    let request = client.call(&format!("{server}__sleep"), json!({"ms": 60_000}), None);
    let answer = client.exchange(&request.bytes).await?;
    match judge(&answer, request.id, "an error", |_| false) {
        Outcome::Failed(why) if why.contains(server) => Ok(()),
        other => bail!("the call's server has died: {other:?}"),
    }
}

/// What a new server has seen, in its first answer.
async fn counters(client: &mut Client, server: &str, since: Instant) -> Result<Value> {
    loop {
        let request = client.call(&format!("{server}__mock_counters"), json!({}), None);
        let answer = client.exchange(&request.bytes).await?;
        let result = answer
            .messages
            .last()
            .map(|message| &message["result"])
            .unwrap_or(&Value::Null);
        if let (false, Some(text)) = (
            result["isError"] == true,
            result["content"][0]["text"].as_str(),
        ) {
            return Ok(serde_json::from_str(text)?);
        }
        ensure!(
            since.elapsed() < Duration::from_secs(30),
            "{server} does not come back: {answer:?}"
        );
    }
}

fn kill(pid: u64, signal: ProcessSignal) -> Result<()> {
    signals::send(u32::try_from(pid)?, signal)
}

/// Ends of the gateway: how long until nothing of it is left.
async fn ends(args: &SoakArgs, signal: ProcessSignal) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for _ in 0..ENDS {
        let soak = started(args).await?;
        let below = processes::descendants(soak.world.pid);
        ensure!(below.len() > 10, "the gateway has no children");
        kill(u64::from(soak.world.pid), signal)?;
        let began = Instant::now();
        while below.iter().any(|pid| processes::alive(*pid)) {
            ensure!(
                began.elapsed() < Duration::from_secs(30),
                "processes are left"
            );
            sleep(Duration::from_millis(2)).await;
        }
        times.push(began.elapsed());
    }
    Ok(times)
}

/// Calls of servers that are not changed, and of such that are, while the config changes: calls,
/// errors, reloads, and the longest call.
async fn under_load(args: &SoakArgs) -> Result<(u64, u64, u64, Duration)> {
    let soak = started(args).await?;
    soak.begin(LOAD);
    let longest = Rc::new(Cell::new(Duration::ZERO));
    let mut callers = Vec::new();
    for n in 0..CALLERS {
        let (soak, longest) = (soak.clone(), longest.clone());
        callers.push(spawn_local(async move {
            let mut client = Client::new(
                soak.world.address,
                ["2025-11-25", MODERN][n % 2],
                n % KEYS.len(),
            );
            client.open().await?;
            while soak.turn().await {
                let fits =
                    |fate: ServerFate| matches!(fate, ServerFate::Calm | ServerFate::Changing);
                let spec = soak.server(|spec| {
                    fits(spec.fate) && spec.how != ServerCarrier::Own && spec.name != "asks"
                });
                let began = Instant::now();
                crate::calls::echo(&soak, &mut client, spec, false).await;
                longest.set(longest.get().max(began.elapsed()));
            }
            client.end().await
        }));
    }
    let (mut variant, mut reloads) = (ConfigVariant::default(), 0);
    while soak.pause(PAUSE).await {
        variant.replaced += 1;
        variant.tuned += 1;
        crate::chaos::change(&soak, &variant, 1).await?;
        reloads += 1;
    }
    for caller in callers {
        caller.await??;
    }
    let calls = soak.tally(|tally| tally.count("calls"));
    let errors =
        soak.tally(|tally| tally.count("broken promises") + tally.count("allowed failures"));
    Ok((calls, errors, reloads, longest.get()))
}
