//! Rate limits of the public routes.
//!
//! Owns the buckets of routes, peers, clients and logins. Does not answer. Invariant: one peer does
//! not use up the share of all, nobody that of a login, and none of these buckets slows `/mcp`.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use moongate_access::policy::{RequestRate, TokenBucket};
use moongate_listener::{PeerAddress, TrustedProxies};
use moongate_telemetry::{BrokerLimit, Metrics};
use parking_lot::Mutex;

use crate::login_id::LoginId;
use crate::login_row::ClientMark;

/// Requests a minute of one login at `/token`. A client's processes may all come at once.
const LOGIN_RATE: u32 = 60;
/// Requests a minute of one client at `/token`, for all of its logins.
const CLIENT_RATE: u32 = 600;
/// Maximum number of peers with a bucket.
const PEERS_MAX: usize = 1_000;
/// Maximum number of clients with a bucket.
const CLIENTS_MAX: usize = 10_000;
/// Maximum number of logins with a bucket.
const LOGINS_MAX: usize = 10_000;
/// Word for metrics of `/token` and `/revoke`.
const TOKEN_WORD: &str = "token";

/// Route with a rate for each peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RatedRoute {
    /// `/register`.
    Register,
    /// `/authorize`, both of its methods.
    Authorize,
}

impl RatedRoute {
    /// Returns the requests a minute of one peer.
    fn peer_rate(self) -> u32 {
        match self {
            RatedRoute::Register => 30,
            RatedRoute::Authorize => 60,
        }
    }

    /// Returns the word for metrics.
    fn word(self) -> &'static str {
        match self {
            RatedRoute::Register => "register",
            RatedRoute::Authorize => "authorize",
        }
    }
}

/// Buckets by caller.
struct Buckets<K> {
    by_key: Mutex<HashMap<K, TokenBucket>>,
    count_max: usize,
}

impl<K: Eq + Hash> Buckets<K> {
    fn new(count_max: usize) -> Self {
        let by_key = Mutex::default();
        Buckets { by_key, count_max }
    }

    /// Takes from the bucket of a key. Returns false if it is empty or the table is full.
    fn take(&self, key: K, count: u32) -> bool {
        let mut buckets = self.by_key.lock();
        if buckets.len() >= self.count_max && !buckets.contains_key(&key) {
            // A full bucket equals a new one.
            buckets.retain(|_, bucket| !bucket.is_full());
            if buckets.len() >= self.count_max {
                return false;
            }
        }
        let bucket = buckets.entry(key).or_insert_with(|| bucket(count));
        bucket.take(1).is_ok()
    }
}

/// Rates of all routes.
pub(crate) struct RequestRates {
    register: TokenBucket,
    authorize: TokenBucket,
    token: TokenBucket,
    peers: Buckets<(RatedRoute, Option<IpAddr>)>,
    clients: Buckets<ClientMark>,
    logins: Buckets<LoginId>,
    metrics: Arc<Metrics>,
}

fn bucket(count: u32) -> TokenBucket {
    let per = Duration::from_secs(60);
    TokenBucket::new(RequestRate { count, per })
}

impl RequestRates {
    /// Creates full buckets.
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        RequestRates {
            // Twenty peers' worth. A registration stores nothing, and two peers must not keep all
            // new clients out.
            register: bucket(600),
            authorize: bucket(600),
            token: bucket(6_000),
            peers: Buckets::new(PEERS_MAX),
            clients: Buckets::new(CLIENTS_MAX),
            logins: Buckets::new(LOGINS_MAX),
            metrics,
        }
    }

    /// Counts a request from a peer. Returns false if there were too many. All Unix sockets share a
    /// bucket.
    pub(crate) fn admit(&self, route: RatedRoute, peer: Option<IpAddr>) -> bool {
        // The peer's bucket comes first, so that its refused requests cost nobody else anything.
        let key = (route, peer.map(network_of));
        if !self.peers.take(key, route.peer_rate()) {
            self.refuse("peers");
            return false;
        }
        let bucket = match route {
            RatedRoute::Register => &self.register,
            RatedRoute::Authorize => &self.authorize,
        };
        let is_admitted = bucket.take(1).is_ok();
        if !is_admitted {
            self.refuse(route.word());
        }
        is_admitted
    }

    /// Takes a request to `/token` or `/revoke` with a grant. Returns false if there were too many.
    // Not by peer, because many people may be behind one address. Not without a grant either: the
    // ids of clients are public, so anybody could use up what their logins need.
    pub(crate) fn admit_owner(&self, client: &ClientMark, login: Option<LoginId>) -> bool {
        // The narrowest comes first, so that the refused requests of a login cost no other one
        // anything.
        let is_admitted = login.is_none_or(|login| self.logins.take(login, LOGIN_RATE))
            && self.clients.take(*client, CLIENT_RATE)
            && self.token.take(1).is_ok();
        if !is_admitted {
            self.refuse(TOKEN_WORD);
        }
        is_admitted
    }

    fn refuse(&self, limit: &'static str) {
        self.metrics.broker.refused.inc(BrokerLimit(limit));
    }
}

/// Returns the address that identifies a peer. An IPv6 subscriber has a whole /64.
fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let network = address.to_bits() & (u128::MAX << 64);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
    }
}

/// Returns the peer that a request came from, as trusted proxies name it. `None`: it came over a
/// Unix socket.
pub(crate) fn peer_of(request: &Request, proxies: &TrustedProxies) -> Option<IpAddr> {
    let peer = request.extensions().get::<PeerAddress>();
    let direct = peer.map(|PeerAddress(address)| *address);
    proxies.client_address(direct, request.headers())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn rates() -> RequestRates {
        RequestRates::new(Arc::new(Metrics::new()))
    }

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    fn admitted(rates: &RequestRates, route: RatedRoute, peer: Option<IpAddr>) -> usize {
        (0..1_000).filter(|_| rates.admit(route, peer)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_one_peer_leaves_room_for_others() {
        let rates = rates();
        let authorize = RatedRoute::Authorize;
        assert_eq!(admitted(&rates, authorize, ip("192.0.2.1")), 60);
        assert_eq!(admitted(&rates, authorize, ip("::ffff:192.0.2.1")), 0);
        assert_eq!(admitted(&rates, authorize, ip("2001:db8::1")), 60);
        assert_eq!(admitted(&rates, authorize, ip("2001:db8::2:1")), 0);
        assert_eq!(admitted(&rates, authorize, ip("2001:db8:0:1::1")), 60);
        assert_eq!(admitted(&rates, authorize, None), 60);
        assert_eq!(admitted(&rates, RatedRoute::Register, ip("192.0.2.1")), 30);
        assert!(rates.metrics.broker.refused.get(BrokerLimit("peers")) > 0);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(admitted(&rates, authorize, ip("192.0.2.1")), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn few_peers_keep_nobody_from_a_registration() {
        let rates = rates();
        for n in 1..=9 {
            let peer = Some(IpAddr::from([192, 0, 2, n]));
            assert_eq!(admitted(&rates, RatedRoute::Register, peer), 30);
        }
        assert!(rates.admit(RatedRoute::Register, ip("198.51.100.1")));
    }

    #[tokio::test(start_paused = true)]
    async fn many_peers_share_the_rate_of_a_route() {
        let rates = rates();
        let peers = (0..=255).map(|n| Some(IpAddr::from([192, 0, 2, n])));
        let all: usize = peers
            .map(|peer| admitted(&rates, RatedRoute::Register, peer))
            .sum();
        assert_eq!(all, 600);
        assert!(rates.metrics.broker.refused.get(BrokerLimit("register")) > 0);
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_count_by_login_and_client() {
        let rates = rates();
        let admits = |client: u8, login: u8| {
            let login = LoginId::of([login; 16]);
            rates.admit_owner(&[client; 16], Some(login))
        };
        assert_eq!((0..1_000).filter(|_| admits(1, 1)).count(), 60);
        assert!(admits(1, 2), "another login");
        let of_client: usize = (3..=255)
            .map(|login| (0..10).filter(|_| admits(1, login)).count())
            .sum();
        assert_eq!(of_client, 600 - 61);
        assert!(admits(2, 2), "another client");
    }

    #[tokio::test(start_paused = true)]
    async fn few_peers_have_a_bucket_and_idle_ones_make_room() {
        let buckets: Buckets<usize> = Buckets::new(PEERS_MAX);
        assert!((0..PEERS_MAX).all(|key| buckets.take(key, 60)));
        assert!(!buckets.take(PEERS_MAX, 60));
        assert!(buckets.take(0, 60));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(buckets.take(PEERS_MAX, 60));
        assert_eq!(buckets.by_key.lock().len(), 1);
    }

    #[test]
    fn a_peer_is_read_from_the_connection_unless_that_is_a_proxy() {
        let nobody = TrustedProxies::default();
        let mut request = Request::new(Body::empty());
        let forged = http::HeaderValue::from_static("192.0.2.7");
        request.headers_mut().insert("x-forwarded-for", forged);
        assert_eq!(peer_of(&request, &nobody), None);
        let peer = ip("192.0.2.1").unwrap();
        request.extensions_mut().insert(PeerAddress(peer));
        assert_eq!(peer_of(&request, &nobody), Some(peer));
        let mut proxies = TrustedProxies::default();
        assert!(proxies.add("192.0.2.1"));
        assert_eq!(peer_of(&request, &proxies), ip("192.0.2.7"));
    }
}
