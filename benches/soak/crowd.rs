//! Who calls: callers that stay, visitors that come and go, listeners, and one that tries other
//! people's sessions.

use crate::calls;
use crate::client::{Client, KEYS, MODERN, Stream};
use crate::soak::SoakRun;
use crate::world::{SERVERS, ServerCarrier, ServerFate, ServerSpec};
use anyhow::{Result, ensure};
use serde_json::json;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, timeout};

/// The most callers; and the calls a second of each, so that no session of theirs ends for being
/// idle.
const CALLERS: f64 = 120.0;
const EACH: f64 = 3.0;
/// Those of them that have children of their own, each a process.
const FEW: usize = 12;
const LISTENERS: usize = 16;
const VISITORS: usize = 8;
/// One session for so many calls.
const CALLS_PER_SESSION: f64 = 40.0;
const REVISIONS: [&str; 5] = ["2025-11-25", MODERN, "2025-06-18", MODERN, "2025-03-26"];

/// Starts everybody; they end with the phase.
pub(crate) fn start(soak: &Rc<SoakRun>, rate: f64) -> Vec<JoinHandle<()>> {
    let mut tasks = Vec::new();
    for n in 0..(rate / EACH).clamp(1.0, CALLERS) as usize {
        tasks.push(spawn_local(caller(soak.clone(), n)));
    }
    for n in 0..LISTENERS {
        tasks.push(spawn_local(listener(soak.clone(), n)));
    }
    let pause = Duration::from_secs_f64(VISITORS as f64 * CALLS_PER_SESSION / rate.max(1.0));
    for n in 0..VISITORS {
        tasks.push(spawn_local(visitor(soak.clone(), n, pause)));
    }
    tasks.push(spawn_local(intruder(soak.clone())));
    tasks
}

/// Opens a session; it must work.
async fn opened(soak: &SoakRun, client: &mut Client) -> bool {
    if let Err(error) = client.open().await {
        soak.broken("sessions not opened", format!("{error:#}"));
        return false;
    }
    if client.session.is_some() {
        soak.add("sessions");
    }
    true
}

async fn ended(soak: &SoakRun, client: &mut Client) {
    match client.end().await {
        Ok(200..=204) => soak.add("sessions deleted"),
        other => soak.broken("sessions not ended", format!("{other:?}")),
    }
}

async fn caller(soak: Rc<SoakRun>, n: usize) {
    let mut client = Client::new(
        soak.world.address,
        REVISIONS[n % REVISIONS.len()],
        (n / 2) % KEYS.len(),
    );
    if !opened(&soak, &mut client).await {
        return;
    }
    if let Some(session) = &client.session {
        soak.board.borrow_mut().push((session.clone(), client.key));
    }
    let few = n < FEW;
    while soak.turn().await {
        one(&soak, &mut client, few).await;
    }
    if let Some(session) = client.session.clone() {
        soak.board
            .borrow_mut()
            .retain(|(other, _)| *other != session);
        ended(&soak, &mut client).await;
    }
}

/// One call of some kind.
async fn one(soak: &SoakRun, client: &mut Client, few: bool) {
    let spec = present(soak, calls::any(soak, client, few));
    let lasting = spec.fate != ServerFate::Guest;
    match soak.dice(1000) {
        0..20 => calls::list(soak, client).await,
        20..40 if lasting => calls::read(soak, client, spec).await,
        40..60 if lasting => calls::prompt(soak, client, spec).await,
        60..100 => calls::steps(soak, client, spec).await,
        100..110 => calls::echo(soak, client, spec, true).await,
        110..120 if !client.is_modern() => calls::resumed(soak, client, spec).await,
        120..130 => {
            let slow = |spec: &ServerSpec| {
                spec.name != "asks"
                    && !matches!(spec.how, ServerCarrier::Own | ServerCarrier::Polled)
            };
            let spec = soak.server(|spec| spec.fate == ServerFate::Calm && slow(spec));
            calls::cancelled(soak, client, spec).await;
        }
        150..155 => calls::nothing(soak, client).await,
        // A revision that has no questions cannot be asked.
        130..150 if client.revision > "2025-06" => {
            let pipe = few && !client.is_modern();
            let asks = |spec: &ServerSpec| {
                spec.how == ServerCarrier::Web && spec.fate == ServerFate::Calm
                    || pipe && spec.name == "asks"
            };
            calls::asked(soak, client, soak.server(asks)).await;
        }
        _ => calls::echo(soak, client, spec, false).await,
    }
}

/// A guest only while the config has it.
fn present(soak: &SoakRun, spec: &'static ServerSpec) -> &'static ServerSpec {
    let guests = soak.world.variant.borrow().guests;
    let absent = (spec.name == "guest" && !guests[0]) || (spec.name == "guest_new" && !guests[1]);
    if absent { &SERVERS[0] } else { spec }
}

/// Opens sessions, uses them a little, and ends half of them; the other half is left for the
/// gateway to end.
async fn visitor(soak: Rc<SoakRun>, n: usize, pause: Duration) {
    let mut round = n;
    loop {
        soak.held().await;
        let began = Instant::now();
        let legacy: Vec<&str> = REVISIONS
            .into_iter()
            .filter(|revision| *revision != MODERN)
            .collect();
        let mut client = Client::new(
            soak.world.address,
            legacy[round % legacy.len()],
            round % KEYS.len(),
        );
        round += 1;
        if opened(&soak, &mut client).await {
            for _ in 0..1 + soak.dice(2) {
                // A child of its own for one in thirty.
                let own = soak.dice(30) == 0;
                let spec = present(&soak, calls::any(&soak, &client, own));
                calls::echo(&soak, &mut client, spec, false).await;
            }
            if soak.dice(2) == 0 {
                ended(&soak, &mut client).await;
            } else {
                soak.add("sessions abandoned");
            }
        }
        if !soak.pause(pause.saturating_sub(began.elapsed())).await {
            return;
        }
    }
}

/// Opens idle streams, breaks them, comes back, and leaves.
async fn listener(soak: Rc<SoakRun>, n: usize) {
    let mut round = n;
    while soak
        .pause(Duration::from_millis(100 + soak.dice(400)))
        .await
    {
        let mut client = Client::new(
            soak.world.address,
            REVISIONS[round % REVISIONS.len()],
            round % KEYS.len(),
        );
        round += 1;
        if !opened(&soak, &mut client).await {
            continue;
        }
        let heard = if client.is_modern() {
            subscribed(&soak, &mut client).await
        } else {
            listens(&soak, &client).await
        };
        if let Err(error) = heard {
            soak.broken(
                "streams not as they should be",
                format!("{}: {error:#}", client.revision),
            );
        }
        if client.session.is_some() && soak.dice(2) == 0 {
            ended(&soak, &mut client).await;
        }
    }
}

async fn subscribed(soak: &SoakRun, client: &mut Client) -> Result<()> {
    let wanted =
        json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
    let request = client.request(
        "subscriptions/listen",
        None,
        json!({"notifications": wanted}),
    );
    let mut stream = client.stream(&request.bytes).await?;
    ensure!(
        stream.status() == 200 && stream.is_stream(),
        "HTTP {}",
        stream.status()
    );
    soak.add("streams");
    hear(soak, &mut stream).await.map(|_| ())
}

async fn listens(soak: &SoakRun, client: &Client) -> Result<()> {
    let mut stream = client.stream(&client.get(None)).await?;
    ensure!(
        stream.status() == 200 && stream.is_stream(),
        "HTTP {}",
        stream.status()
    );
    soak.add("streams");
    let last = hear(soak, &mut stream).await?;
    drop(stream);
    if let Some(last) = last {
        let mut stream = client.stream(&client.get(Some(&last))).await?;
        ensure!(
            stream.status() == 200,
            "HTTP {} for what followed on {last}",
            stream.status()
        );
        soak.add("streams resumed");
        hear(soak, &mut stream).await?;
    }
    Ok(())
}

/// Listens for a while; gives the last id. Only notifications belong here.
async fn hear(soak: &SoakRun, stream: &mut Stream) -> Result<Option<String>> {
    let until = Instant::now() + Duration::from_millis(200 + soak.dice(3000));
    let mut last = None;
    while !soak.is_over() {
        let Ok(events) = timeout(
            until.saturating_duration_since(Instant::now()),
            stream.more(),
        )
        .await
        else {
            break;
        };
        let events = events?;
        ensure!(!events.is_empty(), "the gateway ended it");
        for event in events {
            last = event.id.or(last);
            if let Some(message) = event.message {
                let method = message["method"].as_str().unwrap_or_default();
                ensure!(
                    method.starts_with("notifications/") && message.get("id").is_none(),
                    "it carries {message}"
                );
                soak.add("notifications");
            }
        }
    }
    Ok(last)
}

/// Tries the sessions of others: they must look like none.
async fn intruder(soak: Rc<SoakRun>) {
    while soak.pause(Duration::from_millis(250)).await {
        let Some((session, owner)) = soak.pick(&soak.board.borrow()).cloned() else {
            continue;
        };
        let key = (owner + 1 + usize::from(soak.dice(2) == 1)) % KEYS.len();
        let mut client = Client::new(soak.world.address, "2025-11-25", key);
        client.session = Some(session);
        let bytes = match soak.dice(3) {
            0 => client.call("pipe__echo", json!({}), None).bytes,
            1 => client.get(None),
            _ => client.verb("DELETE", client.session.as_deref(), ""),
        };
        soak.add("sessions of others tried");
        match client.stream(&bytes).await {
            Ok(stream) if stream.status() == 404 => {}
            Ok(stream) => soak.broken(
                "wrong user",
                format!("HTTP {} for another's session", stream.status()),
            ),
            Err(error) => soak.broken("wrong user", format!("another's session: {error:#}")),
        }
    }
}
