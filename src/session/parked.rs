//! Exchanges whose server waits while their client is away to answer.
//!
//! Owns the table, its cap and its clock. Does not know how a client finds its exchange again: a [`Ticket`] is all that
//! it gives. Invariant: an exchange is given back to the principal that it was parked for, once; one that nobody
//! fetches is dropped at its time, which cancels it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::json::{ByteString, JsonObject};
use crate::model::{Exchange, InputRequest, InputResponses, Principal};
use crate::telemetry::Metrics;

/// Names one parked exchange; random, so that none is found by guessing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub [u8; 16]);

/// An exchange whose server waits for answers.
pub struct ParkedCall {
    /// The exchange. Nobody reads it meanwhile: what the server says waits in its bounded queues.
    pub exchange: Exchange,
    /// What is not answered yet; never empty.
    pub inputs: Vec<OpenInput>,
}

/// Requests that are answered together.
pub struct OpenInput {
    /// The requests.
    pub requests: Vec<OpenInputRequest>,
    /// Where the answers go.
    pub responses: oneshot::Sender<InputResponses>,
}

/// One request, and its answer as soon as there is one.
pub struct OpenInputRequest {
    /// The key that the client answers under; unique within the exchange.
    pub exposed_key: ByteString,
    /// The server's key.
    pub key: ByteString,
    /// What is asked.
    pub request: InputRequest,
    /// The answer.
    pub response: Option<JsonObject>,
}

/// How many exchanges may be parked, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct ParkedCallSettings {
    /// At most so many.
    pub max: usize,
    /// An exchange that nobody fetches for this long is cancelled.
    pub life: Duration,
}

/// All parked exchanges.
pub struct ParkedCalls {
    table: Mutex<HashMap<Ticket, ParkedEntry>>,
    settings: ArcSwap<ParkedCallSettings>,
    metrics: Arc<Metrics>,
    changed: Notify,
}

struct ParkedEntry {
    parked: ParkedCall,
    principal: Arc<Principal>,
    until: Instant,
}

impl ParkedCalls {
    /// An empty table.
    pub fn new(settings: ParkedCallSettings, metrics: Arc<Metrics>) -> Self {
        let settings = ArcSwap::from_pointee(settings);
        ParkedCalls { table: Mutex::default(), settings, metrics, changed: Notify::new() }
    }

    /// How long an exchange waits.
    pub fn time_to_live(&self) -> Duration {
        self.settings.load().life
    }

    /// Keeps an exchange until it is fetched or its time is over.
    ///
    /// Where there are too many, the oldest one of the principal that has the most makes room: nobody's walk away from
    /// the screen costs another their place. `None`: none may be kept at all.
    pub fn park(&self, principal: Arc<Principal>, parked: ParkedCall) -> Option<Ticket> {
        if self.settings.load().max == 0 {
            return None;
        }
        let ticket = Ticket(crate::random::random_bytes());
        self.insert(ticket, principal, parked);
        Some(ticket)
    }

    fn insert(&self, ticket: Ticket, principal: Arc<Principal>, parked: ParkedCall) {
        let until = Instant::now() + self.settings.load().life;
        let mut table = self.lock();
        let evicted = if table.len() >= self.settings.load().max { oldest(&table) } else { None };
        let evicted = evicted.and_then(|oldest| table.remove(&oldest));
        table.insert(ticket, ParkedEntry { parked, principal, until });
        self.count(&table);
        drop(table);
        if evicted.is_some() {
            self.metrics.refused.with_label_values(&["parked"]).inc();
        }
        self.changed.notify_one();
    }

    /// Gives an exchange back.
    pub fn take(&self, ticket: &Ticket, principal: &Principal) -> Option<ParkedCall> {
        let mut table = self.lock();
        if *table.get(ticket)?.principal != *principal {
            return None;
        }
        let entry = table.remove(ticket)?;
        self.count(&table);
        (entry.until > Instant::now()).then_some(entry.parked)
    }

    /// Puts an exchange back under its ticket, after its client brought something that is no answer. It has its time
    /// and its place anew.
    pub fn repark(&self, ticket: Ticket, principal: Arc<Principal>, parked: ParkedCall) {
        self.insert(ticket, principal, parked);
    }

    /// Drops what nobody fetched in time, for as long as it runs; then drops all.
    pub async fn expire_forever(self: Arc<Self>) {
        loop {
            let next = self.lock().values().map(|entry| entry.until).min();
            let expired = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = expired => self.expire(),
                () = self.changed.notified() => {}
            }
        }
    }

    /// Changes how many there may be and for how long, for those that are parked from now on.
    pub fn adjust(&self, settings: ParkedCallSettings) {
        self.settings.store(Arc::new(settings));
    }

    /// Cancels what is parked for principals that are no longer there.
    pub fn retain(&self, known: impl Fn(&Principal) -> bool) {
        let mut table = self.lock();
        let gone: Vec<ParkedEntry> = table.extract_if(|_, entry| !known(&entry.principal)).map(|(_, e)| e).collect();
        self.count(&table);
        drop(table);
        // Dropping an exchange cancels it, which may take a while.
        drop(gone);
    }

    /// Cancels everything that is parked.
    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.lock());
        self.count(&HashMap::new());
        drop(all);
    }

    fn expire(&self) {
        let now = Instant::now();
        // Dropped after the lock: dropping an exchange cancels it, which may take a while.
        let mut expired = Vec::new();
        let mut table = self.lock();
        let late: Vec<Ticket> = table.iter().filter(|(_, e)| e.until <= now).map(|(ticket, _)| *ticket).collect();
        expired.extend(late.iter().filter_map(|ticket| table.remove(ticket)));
        self.count(&table);
        drop(table);
        self.metrics.parked_expired.inc_by(expired.len() as u64);
    }

    fn count(&self, table: &HashMap<Ticket, ParkedEntry>) {
        self.metrics.parked.set(i64::try_from(table.len()).unwrap_or(i64::MAX));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ticket, ParkedEntry>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The longest parked exchange of the principal that has the most.
fn oldest(table: &HashMap<Ticket, ParkedEntry>) -> Option<Ticket> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for entry in table.values() {
        *counts.entry(entry.principal.id).or_default() += 1;
    }
    let (most, _) = counts.into_iter().max_by_key(|(id, count)| (*count, *id))?;
    let theirs = table.iter().filter(|(_, entry)| entry.principal.id == most);
    theirs.min_by_key(|(_, entry)| entry.until).map(|(ticket, _)| *ticket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Error, InputKind, McpErrorKind, Outcome};

    fn principal(id: u32) -> Arc<Principal> {
        Arc::new(Principal { name: format!("p{id}"), id })
    }

    fn parked() -> (ParkedCall, oneshot::Receiver<InputResponses>) {
        let (answer, answers) = oneshot::channel();
        let question = InputRequest {
            kind: InputKind::Roots,
            method: ByteString::literal("roots/list"),
            params: JsonObject::new(),
        };
        let request = OpenInputRequest {
            exposed_key: ByteString::literal("input-1"),
            key: ByteString::literal("request"),
            request: question,
            response: None,
        };
        let end = Err(Error::new(McpErrorKind::Cancelled, "test"));
        let exchange = Exchange::ready(end.map(|()| Outcome::default()));
        (ParkedCall { exchange, inputs: vec![OpenInput { requests: vec![request], responses: answer }] }, answers)
    }

    fn parking(max: usize) -> Arc<ParkedCalls> {
        let settings = ParkedCallSettings { max, life: Duration::from_secs(60) };
        Arc::new(ParkedCalls::new(settings, Arc::new(Metrics::new())))
    }

    #[tokio::test(start_paused = true)]
    async fn an_exchange_is_given_back_once_to_its_principal() {
        let parking = parking(10);
        let (exchange, _answers) = parked();
        let ticket = parking.park(principal(1), exchange).unwrap();
        assert!(parking.take(&ticket, &principal(2)).is_none());
        assert_eq!(parking.metrics.parked.get(), 1);
        assert!(parking.take(&ticket, &principal(1)).is_some());
        assert!(parking.take(&ticket, &principal(1)).is_none());
        assert_eq!(parking.metrics.parked.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_put_back_is_bounded_too() {
        let parking = parking(1);
        tokio::spawn(parking.clone().expire_forever());
        let (first, first_answers) = parked();
        let ticket = parking.park(principal(1), first).unwrap();
        let first = parking.take(&ticket, &principal(1)).unwrap();
        let (second, second_answers) = parked();
        parking.park(principal(1), second).unwrap();
        parking.repark(ticket, principal(1), first);
        assert_eq!(parking.metrics.parked.get(), 1);
        assert!(second_answers.await.is_err(), "the older one made room");
        // Whoever drops what is late may have seen an empty table meanwhile.
        let first = parking.take(&ticket, &principal(1)).unwrap();
        tokio::time::sleep(Duration::from_secs(200)).await;
        parking.repark(ticket, principal(1), first);
        let dropped = tokio::time::timeout(Duration::from_secs(61), first_answers).await;
        assert!(dropped.expect("it is kept for ever").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_fetches_is_dropped_at_its_time() {
        let parking = parking(10);
        let expiring = tokio::spawn(parking.clone().expire_forever());
        let (exchange, answers) = parked();
        let ticket = parking.park(principal(1), exchange).unwrap();
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert_eq!(parking.metrics.parked.get(), 1);
        assert!(answers.await.is_err(), "dropping it tells the server's side that no answer comes");
        assert_eq!(parking.metrics.parked_expired.get(), 1);
        assert!(parking.take(&ticket, &principal(1)).is_none());
        expiring.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn who_parks_most_makes_room() {
        let parking = parking(3);
        let mut tickets = Vec::new();
        let mut kept = Vec::new();
        for id in [1, 2, 2] {
            let (exchange, answers) = parked();
            tickets.push(parking.park(principal(id), exchange).unwrap());
            kept.push(answers);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let (exchange, answers) = parked();
        kept.push(answers);
        parking.park(principal(1), exchange).unwrap();
        assert!(parking.take(&tickets[1], &principal(2)).is_none(), "the oldest of the one with the most");
        assert!(parking.take(&tickets[0], &principal(1)).is_some());
        assert!(parking.take(&tickets[2], &principal(2)).is_some());
        let none = ParkedCalls::new(ParkedCallSettings { max: 0, life: Duration::ZERO }, Arc::new(Metrics::new()));
        assert!(none.park(principal(1), parked().0).is_none());
    }
}
