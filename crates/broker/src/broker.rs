//! Authorization server in front of the company's login.
//!
//! Owns its parts and people's current roles. Does not answer requests (`*_route.rs`) or
//! authenticate (`broker_method.rs`). Invariant: all parts share one store, one set of secrets and
//! one provider.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::extract::Request;
use jiff::Timestamp;
use moongate_access::auth::{BrokerSettings, PrincipalTable, RoleMatch};
use moongate_listener::TrustedProxies;
use moongate_oauth::RootSecrets;
use moongate_session::store::{StateStore, StoredState};
use moongate_telemetry::Metrics;
use moongate_tokens::{PersonKey, ResourceNames, roles_of};
use moongate_transport::fetcher::FetchRules;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use crate::clients::Clients;
use crate::code_table::CodeTable;
use crate::consent_forms::ConsentForms;
use crate::end_cause::{EndCause, EndOutcome};
use crate::login_id::LoginId;
use crate::login_row::LiveLogin;
use crate::login_store::{EarlierState, LoginStore, LostSecret};
use crate::person_facts::PersonFacts;
use crate::person_login::PersonLogin;
use crate::person_row::PersonRow;
use crate::provider::client::ProviderClient;
use crate::redirect_rules::RedirectRules;
use crate::renewal_locks::RenewalLocks;
use crate::request_rates::{RequestRates, peer_of};
use crate::token_seals::TokenSeals;
use crate::transactions::Transactions;

/// Time for which logins stay valid while the company's login is down.
const RECHECK_GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// Longest wait for the company's login when the gateway stops.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Parts that a broker is made of.
pub struct BrokerParts {
    /// Settings.
    pub settings: BrokerSettings,
    /// Roles, with the people whom each matches.
    pub matches: Vec<RoleMatch>,
    /// Proxies in front of people.
    pub proxies: TrustedProxies,
    /// Table in which people are interned as principals.
    pub principals: Arc<PrincipalTable>,
    /// State store of the gateway, which keeps the logins.
    pub store: StateStore,
    /// Secrets that seal tokens and rows.
    pub secrets: Arc<RootSecrets>,
    /// Secret from which each person's secrets are derived.
    pub person_secret: [u8; 32],
    /// Metrics of the gateway.
    pub metrics: Arc<Metrics>,
    /// Rules for fetching URLs that others supply.
    pub rules: FetchRules,
}

/// Authorization server in front of the company's login.
pub struct Broker {
    pub(crate) settings: BrokerSettings,
    pub(crate) issuer: String,
    pub(crate) resources: ResourceNames,
    pub(crate) store: Arc<LoginStore>,
    pub(crate) seals: TokenSeals,
    pub(crate) codes: CodeTable,
    pub(crate) clients: Clients,
    pub(crate) redirects: RedirectRules,
    pub(crate) rates: RequestRates,
    pub(crate) transactions: Transactions,
    pub(crate) forms: ConsentForms,
    pub(crate) provider: Arc<ProviderClient>,
    pub(crate) person_key: PersonKey,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) principals: Arc<PrincipalTable>,
    /// Renewals in progress at the company's login.
    pub(crate) renewals: RenewalLocks,
    /// Work that would lose a token if the store closed before its end.
    pub(crate) unsettled: TaskTracker,
    /// Notified when other roles are in use.
    pub(crate) roles_changed: Notify,
    matches: ArcSwap<Vec<RoleMatch>>,
    proxies: ArcSwap<TrustedProxies>,
}

impl Broker {
    /// Creates a broker. Its logins are missing until they are restored.
    pub fn new(parts: BrokerParts) -> Arc<Self> {
        let BrokerParts {
            settings,
            matches,
            proxies,
            principals,
            store,
            secrets,
            person_secret,
            metrics,
            rules,
        } = parts;
        let store = LoginStore::new(store, &secrets, principals.clone(), metrics.clone());
        let provider = ProviderClient::new(&settings, &rules, store.clone(), metrics.clone());
        provider.replace_roles(Arc::from(matches.as_slice()));
        Arc::new(Broker {
            issuer: settings.issuer(),
            resources: ResourceNames::new(&settings.public_url),
            seals: TokenSeals::new(&secrets),
            codes: CodeTable::default(),
            clients: Clients::new(&settings, &rules, store.clone(), metrics.clone()),
            redirects: RedirectRules::new(&settings),
            rates: RequestRates::new(metrics.clone()),
            transactions: Transactions::new(metrics.clone()),
            forms: ConsentForms::new(&secrets),
            person_key: PersonKey::new(&person_secret),
            renewals: RenewalLocks::default(),
            unsettled: TaskTracker::new(),
            roles_changed: Notify::new(),
            matches: ArcSwap::from_pointee(matches),
            proxies: ArcSwap::from_pointee(proxies),
            settings,
            store,
            provider,
            metrics,
            principals,
        })
    }

    /// Restores the logins of the previous process. Without contents, logins end with this process.
    ///
    /// Fails if the store has logins but the secret that sealed them is gone.
    pub fn restore(&self, contents: Option<&mut StoredState>) -> Result<(), LostSecret> {
        let authority = self.settings.provider.authority();
        self.store.restore(contents.map(|contents| EarlierState {
            contents,
            authority,
        }))
    }

    /// Replaces the roles with those of a new config, from the next request on.
    pub fn replace_roles(&self, matches: Vec<RoleMatch>) {
        if **self.matches.load() == matches {
            return;
        }
        self.provider.replace_roles(Arc::from(matches.as_slice()));
        self.matches.store(Arc::new(matches));
        // New roles may need facts that were not kept so far.
        self.roles_changed.notify_one();
    }

    /// Replaces the trusted proxies with those of a new config, from the next request on.
    pub fn replace_proxies(&self, proxies: TrustedProxies) {
        self.proxies.store(Arc::new(proxies));
    }

    /// Returns the peer whose limits a request counts against. `None`: it came over a Unix socket.
    pub(crate) fn peer_of(&self, request: &Request) -> Option<IpAddr> {
        peer_of(request, &self.proxies.load())
    }

    /// Returns the current roles.
    pub(crate) fn matches(&self) -> Arc<Vec<RoleMatch>> {
        self.matches.load_full()
    }

    /// Returns the names of the roles that currently match a person.
    pub(crate) fn roles_of_facts(&self, facts: &PersonFacts) -> Vec<String> {
        let matches = self.matches.load();
        let roles = roles_of(&matches, &self.settings.provider.issuer, facts);
        roles.into_iter().map(str::to_owned).collect()
    }

    /// Returns the time from which a person is refused unless the company's login confirms them
    /// first.
    pub(crate) fn checked_until(&self, person: &PersonRow) -> Timestamp {
        // Without a token, the provider cannot be asked about the person.
        let length = match &person.token {
            Some(_) => self.settings.recheck.saturating_add(RECHECK_GRACE),
            None => self.settings.unchecked,
        };
        later(person.checked, length)
    }

    /// Lists the logins, for operators.
    pub fn people(&self) -> Vec<PersonLogin> {
        let logins = self.store.logins().into_iter();
        logins
            .filter_map(|login| self.person_login(login))
            .collect()
    }

    fn person_login(&self, login: LiveLogin) -> Option<PersonLogin> {
        let LiveLogin { id, row, .. } = login;
        let person = self.store.person(&row.mark)?;
        Some(PersonLogin {
            id,
            mark: row.mark,
            name: person.facts.name.clone(),
            roles: self.roles_of_facts(&person.facts),
            client: row.client_name,
            endpoint: row.endpoint,
            since: row.since,
            last_used: row.last_used,
            checked: person.checked,
            replays: row.replays,
        })
    }

    /// Returns findings about the company's login, for operators.
    pub fn findings(&self) -> Vec<String> {
        self.provider.findings()
    }

    /// Ends a login at an operator's request.
    pub async fn revoke(&self, id: LoginId) -> EndOutcome {
        self.store.end(id, EndCause::Operator).await
    }

    /// Waits for renewals and logins that are under way, before the store closes. What they get from
    /// the company's login is good once, and lost if nobody stores it. A login that does not answer
    /// is not waited for to its end.
    pub async fn settle(&self) {
        self.unsettled.close();
        let settling = tokio::time::timeout(SETTLE_TIMEOUT, self.unsettled.wait());
        if settling.await.is_err() {
            tracing::warn!("stopped without an answer from the company login");
        }
    }

    /// Returns true if a Host value names the host of the public URL, at whatever port.
    pub(crate) fn is_own_host(&self, host: &str) -> bool {
        self.resources.is_own_host(host)
    }
}

/// Adds a duration to a time, up to the last time that can be represented.
pub(crate) fn later(at: Timestamp, length: Duration) -> Timestamp {
    at.checked_add(length).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures_util::FutureExt as _;
    use http::HeaderValue;
    use moongate_listener::PeerAddress;
    use moongate_oauth::SecretText;

    use super::*;
    use crate::test_broker::{TestBroker, staff};

    #[tokio::test]
    async fn a_login_shows_with_the_roles_of_now_and_ends_by_its_id() {
        let test = TestBroker::in_memory();
        let live = test.login(|_| {}).await;
        let people = test.broker.people();
        assert_eq!(people.len(), 1);
        assert_eq!(people[0].id, live.id);
        assert_eq!(people[0].name, "ann@example.com");
        assert_eq!(people[0].roles, ["staff"]);
        test.broker.replace_roles(Vec::new());
        assert!(test.broker.people()[0].roles.is_empty());
        assert_ne!(test.broker.revoke(live.id).await, EndOutcome::Unknown);
        assert!(live.ended.is_cancelled());
        assert!(test.broker.people().is_empty());
        assert_eq!(test.broker.revoke(live.id).await, EndOutcome::Unknown);
    }

    #[tokio::test]
    async fn a_person_of_whom_nobody_can_ask_is_refused_earlier() {
        let test = TestBroker::in_memory();
        let mut person = test.person();
        let unchecked = test.broker.checked_until(&person);
        assert_eq!(
            unchecked,
            later(person.checked, test.broker.settings.unchecked)
        );
        person.token = Some(SecretText::new("provider token"));
        let hour = test.broker.settings.recheck;
        assert_eq!(
            test.broker.checked_until(&person),
            later(person.checked, hour + RECHECK_GRACE)
        );
        assert_eq!(later(Timestamp::MAX, hour), Timestamp::MAX);
    }

    #[tokio::test]
    async fn new_proxies_count_from_the_next_request_on() {
        let test = TestBroker::in_memory();
        let mut request = Request::new(Body::empty());
        let forwarded = HeaderValue::from_static("192.0.2.7");
        request.headers_mut().insert("x-forwarded-for", forwarded);
        let proxy = IpAddr::from([10, 0, 0, 1]);
        request.extensions_mut().insert(PeerAddress(proxy));
        assert_eq!(test.broker.peer_of(&request), Some(proxy));
        let mut proxies = TrustedProxies::default();
        assert!(proxies.add("10.0.0.1"));
        test.broker.replace_proxies(proxies);
        let person = IpAddr::from([192, 0, 2, 7]);
        assert_eq!(test.broker.peer_of(&request), Some(person));
        test.broker.replace_proxies(TrustedProxies::default());
        assert_eq!(test.broker.peer_of(&request), Some(proxy));
    }

    #[tokio::test]
    async fn new_roles_wake_the_recheck_and_the_same_do_not() {
        let test = TestBroker::in_memory();
        test.broker.replace_roles(vec![staff()]);
        let woken = test.broker.roles_changed.notified().now_or_never();
        assert!(woken.is_none());
        test.broker.replace_roles(Vec::new());
        let woken = test.broker.roles_changed.notified().now_or_never();
        assert!(woken.is_some());
    }
}
