//! Parked calls: exchanges whose server waits for input while the client is away.
//!
//! Owns the table, its limit and its clock. Does not know how a client finds its exchange again: it
//! gives out only a [`ParkTicket`]. Invariant: an exchange is returned once, to the principal that
//! it was parked for. An expired one is dropped, which cancels it.

use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use moongate_jsonrpc::json::{ByteString, JsonObject};
use moongate_model::{Exchange, InputRequest, InputResponses, Principal};
use moongate_telemetry::{Limit, MemoryHolder, MemoryRelief, Metrics};

/// Name of one parked exchange. Random, so that none can be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ParkTicket(pub [u8; 16]);

/// Exchange whose server waits for input responses.
pub struct ParkedCall {
    /// Exchange. Nobody reads it meanwhile, so the server's messages wait in its bounded queues.
    pub exchange: Exchange,
    /// Open input requests. Never empty.
    pub inputs: Vec<OpenInput>,
}

/// Input requests that get their responses together.
pub struct OpenInput {
    /// Requests of this round.
    pub requests: Vec<OpenInputRequest>,
    /// Channel for the responses.
    pub responder: oneshot::Sender<InputResponses>,
}

/// Input request, with its response as soon as there is one.
pub struct OpenInputRequest {
    /// Key that the client responds under. Unique within the exchange.
    pub exposed_key: ByteString,
    /// Key of the server.
    pub key: ByteString,
    /// Input request of the server.
    pub request: InputRequest,
    /// Response of the client.
    pub response: Option<JsonObject>,
}

/// Limits of parked calls.
#[derive(Clone, Debug, PartialEq)]
pub struct ParkedCallSettings {
    /// Maximum number of parked calls.
    pub max: usize,
    /// Time after which an unclaimed exchange is cancelled.
    pub input_timeout: Duration,
}

/// Table of parked calls.
pub struct ParkedCalls {
    table: Mutex<HashMap<ParkTicket, ParkedEntry>>,
    settings: ArcSwap<ParkedCallSettings>,
    metrics: Arc<Metrics>,
    changed: Notify,
}

struct ParkedEntry {
    parked: ParkedCall,
    owner: ParkedOwner,
    until: Instant,
}

/// Client that an exchange is parked for.
#[derive(Clone)]
pub struct ParkedOwner {
    /// Principal that may take it.
    pub principal: Arc<Principal>,
    /// Holder of its memory. Tells clients without a key apart, which are one principal.
    pub holder: MemoryHolder,
}

impl ParkedEntry {
    /// Returns true if the exchange is parked for this holder, or its messages are of this server.
    fn belongs_to(&self, holder: &MemoryHolder) -> bool {
        match holder {
            MemoryHolder::Server(name) => self
                .parked
                .exchange
                .server()
                .is_some_and(|server| **name == **server),
            client => self.owner.holder == *client,
        }
    }
}

impl ParkedCalls {
    /// Creates an empty table.
    pub fn new(settings: ParkedCallSettings, metrics: Arc<Metrics>) -> Self {
        let settings = ArcSwap::from_pointee(settings);
        ParkedCalls {
            table: Mutex::default(),
            settings,
            metrics,
            changed: Notify::new(),
        }
    }

    /// Parks an exchange until it is claimed or expires.
    ///
    /// Where there are too many, the oldest of the client with the most makes room. An absent user
    /// never costs another client its place. Returns `None` if the limit is zero.
    pub fn park(&self, owner: ParkedOwner, parked: ParkedCall) -> Option<ParkTicket> {
        if self.settings.load().max == 0 {
            return None;
        }
        let ticket = ParkTicket(moongate_random::random_bytes());
        self.insert(ticket, owner, parked);
        Some(ticket)
    }

    fn insert(&self, ticket: ParkTicket, owner: ParkedOwner, parked: ParkedCall) {
        let until = Instant::now() + self.settings.load().input_timeout;
        let mut table = self.table.lock();
        // One at a time, even after a reload lowered the limit. Each newcomer then only takes an
        // old place.
        let evicted = if table.len() >= self.settings.load().max {
            oldest(&table)
        } else {
            None
        };
        let evicted = evicted.and_then(|oldest| table.remove(&oldest));
        table.insert(
            ticket,
            ParkedEntry {
                parked,
                owner,
                until,
            },
        );
        self.count(&table);
        // The evicted exchange is dropped after the lock is released: that cancels it, which may
        // take a while.
        drop(table);
        if evicted.is_some() {
            self.metrics.calls.refused.inc(Limit::Parked);
        }
        // Wakes `expire_forever`, which may sleep until a later time.
        self.changed.notify_one();
    }

    /// Takes an exchange out of the table.
    pub fn take(&self, ticket: &ParkTicket, principal: &Principal) -> Option<ParkedCall> {
        let mut table = self.table.lock();
        // A foreign ticket stays parked, and looks like an unknown one.
        if *table.get(ticket)?.owner.principal != *principal {
            return None;
        }
        let entry = table.remove(ticket)?;
        self.count(&table);
        // The expiry task may be a moment behind.
        (entry.until > Instant::now()).then_some(entry.parked)
    }

    /// Parks an exchange again under its ticket, after its client sent something other than a
    /// response. Its time and its place start again.
    pub fn repark(&self, ticket: ParkTicket, owner: ParkedOwner, parked: ParkedCall) {
        self.insert(ticket, owner, parked);
    }

    /// Drops expired exchanges for as long as it runs. At the end it drops all.
    pub async fn expire_forever(self: Arc<Self>) {
        loop {
            // A scan at each change or expiry. A sorted queue would need upkeep for every `take`,
            // too.
            let next = self.table.lock().values().map(|entry| entry.until).min();
            let expired = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    // An empty table waits for `changed` alone.
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = expired => self.expire(),
                () = self.changed.notified() => {}
            }
        }
    }

    /// Changes the limits, for exchanges parked from now on.
    pub fn adjust(&self, settings: ParkedCallSettings) {
        self.settings.store(Arc::new(settings));
    }

    /// Cancels the exchanges of principals that no longer exist.
    pub fn retain(&self, known: impl Fn(&Principal) -> bool) {
        let mut table = self.table.lock();
        let removed: Vec<ParkedEntry> = table
            .extract_if(|_, entry| !known(&entry.owner.principal))
            .map(|(_, e)| e)
            .collect();
        self.count(&table);
        drop(table);
        // Dropping an exchange cancels it, which may take a while.
        drop(removed);
    }

    /// Cancels all parked exchanges.
    pub fn clear(&self) {
        // Dropped after the lock is released: dropping an exchange cancels it.
        let all = std::mem::take(&mut *self.table.lock());
        self.count(&HashMap::new());
        drop(all);
    }

    fn expire(&self) {
        let now = Instant::now();
        // Dropped after the lock is released: dropping an exchange cancels it, which may take a
        // while.
        let mut expired = Vec::new();
        let mut table = self.table.lock();
        let overdue: Vec<ParkTicket> = table
            .iter()
            .filter(|(_, e)| e.until <= now)
            .map(|(ticket, _)| *ticket)
            .collect();
        expired.extend(overdue.iter().filter_map(|ticket| table.remove(ticket)));
        self.count(&table);
        drop(table);
        self.metrics
            .inputs
            .parked_expired
            .inc_by(expired.len() as u64);
    }

    fn count(&self, table: &HashMap<ParkTicket, ParkedEntry>) {
        self.metrics
            .inputs
            .parked
            .set(i64::try_from(table.len()).unwrap_or(i64::MAX));
    }
}

impl MemoryRelief for ParkedCalls {
    /// Ends the longest parked exchange of a client, or of a server.
    fn end_oldest(&self, holder: &MemoryHolder) -> bool {
        let mut table = self.table.lock();
        let ended = oldest_of(&table, holder).and_then(|oldest| table.remove(&oldest));
        self.count(&table);
        // Dropped after the lock is released, as in `insert`.
        drop(table);
        if ended.is_some() {
            self.metrics.calls.refused.inc(Limit::Parked);
        }
        ended.is_some()
    }
}

/// Finds the longest parked exchange of the client with the most.
fn oldest(table: &HashMap<ParkTicket, ParkedEntry>) -> Option<ParkTicket> {
    let mut counts: HashMap<&MemoryHolder, (usize, Reverse<Instant>)> = HashMap::new();
    for entry in table.values() {
        let (count, oldest) = counts
            .entry(&entry.owner.holder)
            .or_insert((0, Reverse(entry.until)));
        *count += 1;
        // The lesser time is the greater one here: of two clients with as many, the one that waits
        // longer makes room.
        *oldest = (*oldest).max(Reverse(entry.until));
    }
    let (most, _) = counts.into_iter().max_by_key(|(_, rank)| *rank)?;
    oldest_of(table, most)
}

fn oldest_of(
    table: &HashMap<ParkTicket, ParkedEntry>,
    holder: &MemoryHolder,
) -> Option<ParkTicket> {
    let candidates = table.iter().filter(|(_, entry)| entry.belongs_to(holder));
    candidates
        .min_by_key(|(_, entry)| entry.until)
        .map(|(ticket, _)| *ticket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_model::{Error, InputKind, McpErrorKind, Outcome};
    use moongate_testing::principal;

    fn parked() -> (ParkedCall, oneshot::Receiver<InputResponses>) {
        let (responder, responses) = oneshot::channel();
        let input_request = InputRequest {
            kind: InputKind::Roots,
            method: ByteString::literal("roots/list"),
            params: JsonObject::new(),
            progress: None,
        };
        let request = OpenInputRequest {
            exposed_key: ByteString::literal("input-1"),
            key: ByteString::literal("request"),
            request: input_request,
            response: None,
        };
        let end = Err(Error::new(McpErrorKind::Cancelled, "test"));
        let exchange = Exchange::ready(end.map(|()| Outcome::default()));
        (
            ParkedCall {
                exchange,
                inputs: vec![OpenInput {
                    requests: vec![request],
                    responder,
                }],
            },
            responses,
        )
    }

    /// Client with a key.
    fn owner(id: u32) -> ParkedOwner {
        ParkedOwner {
            principal: principal(id),
            holder: MemoryHolder::Principal(id),
        }
    }

    /// Client without a key.
    fn peer(last: u8) -> ParkedOwner {
        let holder = MemoryHolder::Peer([192, 0, 2, last].into());
        ParkedOwner {
            principal: Arc::new(Principal::anonymous()),
            holder,
        }
    }

    fn parking(max: usize) -> Arc<ParkedCalls> {
        let settings = ParkedCallSettings {
            max,
            input_timeout: Duration::from_secs(60),
        };
        Arc::new(ParkedCalls::new(settings, Arc::new(Metrics::new())))
    }

    #[tokio::test(start_paused = true)]
    async fn an_exchange_is_given_back_once_to_its_principal() {
        let parking = parking(10);
        let (exchange, _answers) = parked();
        let ticket = parking.park(owner(1), exchange).unwrap();
        assert!(parking.take(&ticket, &principal(2)).is_none());
        assert_eq!(parking.metrics.inputs.parked.get(), 1);
        assert!(parking.take(&ticket, &principal(1)).is_some());
        assert!(parking.take(&ticket, &principal(1)).is_none());
        assert_eq!(parking.metrics.inputs.parked.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn reparked_calls_are_bounded_too() {
        let parking = parking(1);
        tokio::spawn(parking.clone().expire_forever());
        let (first, first_answers) = parked();
        let ticket = parking.park(owner(1), first).unwrap();
        let first = parking.take(&ticket, &principal(1)).unwrap();
        let (second, second_answers) = parked();
        parking.park(owner(1), second).unwrap();
        parking.repark(ticket, owner(1), first);
        assert_eq!(parking.metrics.inputs.parked.get(), 1);
        assert!(second_answers.await.is_err(), "the older one made room");
        // The expiry task may have seen an empty table meanwhile.
        let first = parking.take(&ticket, &principal(1)).unwrap();
        tokio::time::sleep(Duration::from_secs(200)).await;
        parking.repark(ticket, owner(1), first);
        let dropped = tokio::time::timeout(Duration::from_secs(61), first_answers).await;
        assert!(dropped.expect("it is kept for ever").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn unclaimed_parked_calls_expire() {
        let parking = parking(10);
        let expiring = tokio::spawn(parking.clone().expire_forever());
        let (exchange, answers) = parked();
        let ticket = parking.park(owner(1), exchange).unwrap();
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert_eq!(parking.metrics.inputs.parked.get(), 1);
        assert!(
            answers.await.is_err(),
            "dropping it tells the server's side that no answer comes"
        );
        assert_eq!(parking.metrics.inputs.parked_expired.get(), 1);
        assert!(parking.take(&ticket, &principal(1)).is_none());
        expiring.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn the_principal_with_most_parked_calls_is_evicted_first() {
        let parking = parking(3);
        let mut tickets = Vec::new();
        let mut kept = Vec::new();
        for id in [1, 2, 2] {
            let (exchange, answers) = parked();
            tickets.push(parking.park(owner(id), exchange).unwrap());
            kept.push(answers);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let (exchange, answers) = parked();
        kept.push(answers);
        parking.park(owner(1), exchange).unwrap();
        assert!(
            parking.take(&tickets[1], &principal(2)).is_none(),
            "the oldest of the one with the most"
        );
        assert!(parking.take(&tickets[0], &principal(1)).is_some());
        assert!(parking.take(&tickets[2], &principal(2)).is_some());
        let none = ParkedCalls::new(
            ParkedCallSettings {
                max: 0,
                input_timeout: Duration::ZERO,
            },
            Arc::new(Metrics::new()),
        );
        assert!(none.park(owner(1), parked().0).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_of_much_memory_loses_its_oldest_parked_call() {
        let parking = parking(10);
        let mut tickets = Vec::new();
        for id in [2, 1, 1] {
            tickets.push(parking.park(owner(id), parked().0).unwrap());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(parking.end_oldest(&MemoryHolder::Principal(1)));
        assert!(
            parking.take(&tickets[1], &principal(1)).is_none(),
            "the older one of this principal"
        );
        assert!(parking.take(&tickets[2], &principal(1)).is_some());
        assert!(!parking.end_oldest(&MemoryHolder::Principal(1)));
        assert!(!parking.end_oldest(&MemoryHolder::Server("2".into())));
        assert!(parking.take(&tickets[0], &principal(2)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn clients_without_a_key_are_told_apart_by_their_addresses() {
        let parking = parking(3);
        let first = peer(1);
        let second = peer(2);
        let kept = parking.park(second.clone(), parked().0).unwrap();
        assert!(
            !parking.end_oldest(&first.holder),
            "the memory of one client ends no call of another"
        );
        assert!(!parking.end_oldest(&MemoryHolder::Local));
        // The table makes room in the same way.
        for _ in 0..3 {
            tokio::time::advance(Duration::from_millis(1)).await;
            parking.park(first.clone(), parked().0).unwrap();
        }
        assert_eq!(parking.metrics.inputs.parked.get(), 3);
        assert!(parking.take(&kept, &second.principal).is_some());
        assert!(parking.end_oldest(&first.holder));
    }

    fn parked_by(server: &'static str) -> ParkedCall {
        let (call, _) = parked();
        ParkedCall {
            exchange: call.exchange.run_by(Some(ByteString::literal(server))),
            ..call
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_holds_much_memory_loses_a_call_of_its_own() {
        let parking = parking(10);
        let other = parking.park(owner(1), parked_by("other")).unwrap();
        tokio::time::advance(Duration::from_millis(1)).await;
        let own = parking.park(owner(2), parked_by("a")).unwrap();
        assert!(parking.end_oldest(&MemoryHolder::Server("a".into())));
        assert!(parking.take(&own, &principal(2)).is_none());
        assert!(!parking.end_oldest(&MemoryHolder::Server("a".into())));
        assert!(parking.take(&other, &principal(1)).is_some());
    }
}
