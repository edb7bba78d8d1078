//! Logins in progress at the provider.
//!
//! Owns their number and lifetime. Does not read cookies or talk to the provider. Invariant: a
//! login starts with approval, and its answer counts once, in the browser that approved it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use moongate_oauth::SecretText;
use moongate_telemetry::{BrokerLimit, Metrics};
use parking_lot::Mutex;

use crate::authorize_request::AuthorizeRequest;
use crate::client_record::ClientRecord;
use crate::login_cookies::cookie_hash;
use crate::provider::client::SentRequest;
use crate::redirect_rules::RedirectKind;

/// Maximum number of logins in progress.
const OPEN_MAX: usize = 2000;
/// Maximum number of one peer's logins in progress.
const PEER_MAX: usize = 20;
/// Time that a login may take at the provider.
const LIFETIME: SignedDuration = SignedDuration::from_mins(10);
/// Length of an IPv6 network prefix: one customer has all addresses below it.
const NETWORK_BITS: u32 = 64;

/// Login in progress at the provider.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    /// Client's request, as the person approved it.
    pub(crate) request: AuthorizeRequest,
    /// Client.
    pub(crate) client: Arc<ClientRecord>,
    /// Kind of the redirect address.
    pub(crate) redirect: RedirectKind,
    /// Secrets of our request to the provider.
    pub(crate) sent: SentRequest,
    /// SHA-256 of the secret in the browser's cookie.
    pub(crate) cookie: [u8; 32],
    /// Time of approval.
    pub(crate) started: Timestamp,
    /// True if the provider was asked a second time, for a token that it did not issue.
    pub(crate) asked_again: bool,
}

impl Transaction {
    fn is_over(&self, now: Timestamp) -> bool {
        now.duration_since(self.started) >= LIFETIME
    }
}

/// Table of logins in progress.
pub(crate) struct Transactions {
    open: Mutex<OpenTransactions>,
    metrics: Arc<Metrics>,
}

/// Logins in progress, by the hash of their `state`.
#[derive(Default)]
struct OpenTransactions {
    by_state: HashMap<[u8; 32], OpenTransaction>,
    /// Number of logins that have started so far.
    started: u64,
}

struct OpenTransaction {
    transaction: Transaction,
    peer: Option<IpAddr>,
    /// Sequence number of the start.
    number: u64,
}

impl Transactions {
    /// Creates an empty table.
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Transactions {
            open: Mutex::default(),
            metrics,
        }
    }

    /// Adds a login. If the table is full, the busiest peer loses its oldest one.
    pub(crate) fn begin(&self, state: &SecretText, peer: Option<IpAddr>, transaction: Transaction) {
        let peer = peer.map(network_of);
        let now = transaction.started;
        let mut open = self.open.lock();
        open.by_state
            .retain(|_, other| !other.transaction.is_over(now));
        if let Some(crowded) = open.crowded_peer(peer) {
            open.remove_oldest_of(crowded);
            self.metrics.broker.refused.inc(BrokerLimit("transactions"));
        }
        open.started += 1;
        let added = OpenTransaction {
            transaction,
            peer,
            number: open.started,
        };
        open.by_state.insert(cookie_hash(state.expose()), added);
    }

    /// Removes and returns the login with this `state`, if one of the hashed cookies belongs to it.
    /// With wrong cookies it remains, so that nobody can end another browser's login.
    pub(crate) fn take(&self, state: &str, cookies: &[[u8; 32]]) -> Option<Transaction> {
        self.take_at(state, cookies, Timestamp::now())
    }

    fn take_at(&self, state: &str, cookies: &[[u8; 32]], now: Timestamp) -> Option<Transaction> {
        let state = cookie_hash(state);
        let mut open = self.open.lock();
        let found = &open.by_state.get(&state)?.transaction;
        if !cookies.contains(&found.cookie) || found.is_over(now) {
            return None;
        }
        open.by_state.remove(&state).map(|open| open.transaction)
    }
}

impl OpenTransactions {
    /// Returns the peer that has to make room for another login from this one.
    fn crowded_peer(&self, peer: Option<IpAddr>) -> Option<Option<IpAddr>> {
        let mut counts: HashMap<Option<IpAddr>, usize> = HashMap::new();
        for open in self.by_state.values() {
            *counts.entry(open.peer).or_default() += 1;
        }
        if counts.get(&peer).is_some_and(|count| *count >= PEER_MAX) {
            return Some(peer);
        }
        if self.by_state.len() < OPEN_MAX {
            return None;
        }
        let busiest = counts.into_iter().max_by_key(|(_, count)| *count);
        busiest.map(|(peer, _)| peer)
    }

    fn remove_oldest_of(&mut self, peer: Option<IpAddr>) {
        let of_peer = self.by_state.iter().filter(|(_, open)| open.peer == peer);
        let oldest = of_peer.min_by_key(|(_, open)| open.number);
        if let Some(state) = oldest.map(|(state, _)| *state) {
            self.by_state.remove(&state);
        }
    }
}

/// Returns the network of an address, below which one customer can choose freely.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & (u128::MAX << NETWORK_BITS);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use crate::client_record::{ClientOrigin, ClientProof};

    use super::*;

    fn transaction(cookie: u8) -> Transaction {
        Transaction {
            request: AuthorizeRequest {
                client_id: "mgc_1".to_owned(),
                redirect: "http://127.0.0.1:7000/callback".to_owned(),
                state: None,
                challenge: "c".repeat(43),
                endpoint: String::new(),
                scope: "mcp offline_access".to_owned(),
                is_all_servers: true,
            },
            client: Arc::new(ClientRecord {
                id: "mgc_1".to_owned(),
                name: "Client".to_owned(),
                host: None,
                origin: ClientOrigin::Registered,
                redirects: vec!["http://127.0.0.1/callback".to_owned()],
                proof: ClientProof::None,
            }),
            redirect: RedirectKind::Loopback,
            sent: SentRequest {
                verifier: SecretText::new("verifier-text"),
                nonce: SecretText::new("nonce-text"),
            },
            cookie: [cookie; 32],
            started: Timestamp::UNIX_EPOCH,
            asked_again: false,
        }
    }

    fn peer(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    fn begin(table: &Transactions, state: &str, peer: Option<IpAddr>) {
        table.begin(&SecretText::new(state), peer, transaction(1));
    }

    fn take(table: &Transactions, state: &str, cookies: &[[u8; 32]]) -> bool {
        table
            .take_at(state, cookies, Timestamp::UNIX_EPOCH)
            .is_some()
    }

    fn table() -> Transactions {
        Transactions::new(Arc::new(Metrics::new()))
    }

    fn dropped(table: &Transactions) -> u64 {
        table
            .metrics
            .broker
            .refused
            .get(BrokerLimit("transactions"))
    }

    #[test]
    fn the_answer_counts_once_and_in_the_browser_of_the_yes_alone() {
        let table = table();
        begin(&table, "state", None);
        assert!(!take(&table, "state", &[]), "no cookie");
        assert!(!take(&table, "state", &[[2; 32]]), "another browser");
        assert!(!take(&table, "other", &[[1; 32]]), "another state");
        assert!(!take(&table, "", &[[1; 32]]), "no state");
        assert!(take(&table, "state", &[[2; 32], [1; 32]]));
        assert!(!take(&table, "state", &[[1; 32]]), "a replay");
    }

    #[test]
    fn logins_in_two_tabs_do_not_disturb_each_other() {
        let table = table();
        table.begin(&SecretText::new("first"), None, transaction(1));
        table.begin(&SecretText::new("second"), None, transaction(2));
        let both = [[1; 32], [2; 32]];
        let second = table.take_at("second", &both, Timestamp::UNIX_EPOCH);
        assert_eq!(second.unwrap().cookie, [2; 32]);
        assert!(take(&table, "first", &both));
    }

    #[test]
    fn a_login_ends_after_ten_minutes() {
        let table = table();
        begin(&table, "state", None);
        let end = Timestamp::UNIX_EPOCH.checked_add(LIFETIME).unwrap();
        assert!(table.take_at("state", &[[1; 32]], end).is_none());
        let mut late = transaction(1);
        late.started = end;
        table.begin(&SecretText::new("late"), None, late);
        assert_eq!(table.open.lock().by_state.len(), 1, "the old one is gone");
    }

    #[test]
    fn a_flood_of_one_peer_costs_itself_alone() {
        let table = table();
        begin(&table, "honest", peer("192.0.2.1"));
        for n in 0..100 {
            begin(&table, &format!("flood-{n}"), peer("192.0.2.2"));
        }
        assert_eq!(table.open.lock().by_state.len(), PEER_MAX + 1);
        assert_eq!(dropped(&table), 80);
        assert!(!take(&table, "flood-79", &[[1; 32]]));
        assert!(take(&table, "flood-80", &[[1; 32]]));
        assert!(take(&table, "honest", &[[1; 32]]));
    }

    #[test]
    fn a_flood_of_many_peers_spares_the_peer_with_one_login() {
        let table = table();
        begin(&table, "honest", peer("192.0.2.1"));
        for n in 0..3000 {
            let address = format!("10.0.{}.{}", n % 200, n % 7);
            begin(&table, &format!("flood-{n}"), peer(&address));
        }
        assert_eq!(table.open.lock().by_state.len(), OPEN_MAX);
        assert!(take(&table, "honest", &[[1; 32]]));
    }

    #[test]
    fn the_addresses_of_one_network_are_one_peer() {
        let table = table();
        for n in 0..30 {
            let address = format!("2001:db8:1:2::{n:x}");
            begin(&table, &format!("flood-{n}"), peer(&address));
        }
        begin(&table, "honest", peer("2001:db8:1:3::1"));
        assert_eq!(table.open.lock().by_state.len(), PEER_MAX + 1);
        let mapped = network_of("::ffff:192.0.2.1".parse().unwrap());
        assert_eq!(Some(mapped), peer("192.0.2.1"));
    }

    #[test]
    fn debug_hides_the_secrets_of_the_request() {
        let shown = format!("{:?}", transaction(1));
        assert!(!shown.contains("verifier-text") && !shown.contains("nonce-text"));
    }
}
