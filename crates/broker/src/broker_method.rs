//! Authentication by the broker's access tokens.
//!
//! Owns the steps from a request's token to a principal. Does not issue tokens (`token_route.rs`).
//! Invariant: a token opens nothing unless its login has a row, and a refusal does not reveal why
//! to clients.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use jiff::Timestamp;
use moongate_access::auth::{
    AuthError, AuthRefusal, Authenticator, CredentialFetch, LackedRight, Person, PrincipalTable,
    ProvenIdentity, RoleMatch, bearer,
};
use moongate_model::PrincipalKey;
use moongate_tokens::{PEOPLE, ResourceDocument, is_endpoint_name, roles_of};

use crate::broker::{Broker, later};
use crate::login_row::{LiveLogin, LoginRow};
use crate::person_row::PersonRow;
use crate::token_seals::{ACCESS_PREFIX, AccessClaims};

/// Scope of each token.
const SCOPE: &str = "mcp";
/// Longest wait for the logins of the previous process.
const READY_PATIENCE: Duration = Duration::from_secs(2);
/// Time for which a connection need not prove the same token again. It may miss a new generation or
/// changed roles for as long, but never the end of a login.
const PROOF_LIFE: Duration = Duration::from_secs(60);

/// Access tokens of the broker.
pub(crate) struct BrokerMethod {
    pub(crate) broker: Arc<Broker>,
    pub(crate) matches: Vec<RoleMatch>,
    pub(crate) principals: Arc<PrincipalTable>,
}

impl BrokerMethod {
    /// Finds the login and the person of a token that is valid at an endpoint.
    fn verify(
        &self,
        token: &str,
        endpoint: &str,
        now: Timestamp,
    ) -> Result<(AccessClaims, LiveLogin, Arc<PersonRow>), AuthError> {
        let store = &self.broker.store;
        let claims = self
            .broker
            .seals
            .open_access(token)
            .ok_or(AuthError::invalid("unknown token"))?;
        if claims.endpoint != endpoint {
            return Err(AuthError::invalid("token for another endpoint"));
        }
        if claims.expires <= now {
            return Err(AuthError::invalid("expired token"));
        }
        let live = store
            .find(claims.login)
            .ok_or(AuthError::invalid("token of a login that has ended"))?;
        if !is_current(&live.row, claims.generation) {
            return Err(AuthError::invalid("token that was renewed more than once"));
        }
        let person = store
            .person(&live.row.mark)
            .ok_or(AuthError::invalid("token of a login that has ended"))?;
        if self.broker.checked_until(&person) <= now {
            return Err(AuthError::invalid(
                "person whom the company login has not confirmed recently enough",
            ));
        }
        Ok((claims, live, person))
    }

    /// Interns the person of a login, with their current roles.
    fn admit(
        &self,
        claims: &AccessClaims,
        live: LiveLogin,
        person: &PersonRow,
        now: Timestamp,
    ) -> Result<ProvenIdentity, AuthError> {
        let Broker {
            settings,
            person_key,
            store,
            ..
        } = &*self.broker;
        // Counts as a use even if no role matches, because only people who use a login are
        // rechecked.
        store.record_use(live.id, claims.generation, now);
        let roles = roles_of(&self.matches, &settings.provider.issuer, &person.facts);
        if roles.is_empty() {
            return Err(AuthError::Forbidden(LackedRight::Role));
        }
        let role = self
            .principals
            .role_sets()
            .intern(&roles)
            .ok_or(AuthError::Unavailable("too many role sets"))?;
        let mark = live.row.mark;
        let principal = self.principals.meet(
            PEOPLE,
            Person {
                key: mark,
                name: &person.facts.name,
                secret: person_key.secret_of(&mark),
                role,
                // Ending the last login removes the person.
                expires: None,
            },
        )?;
        if live.ended.is_cancelled() {
            // It ended since the lookup, before there was a principal to remove.
            if !self.knows(&mark) {
                self.principals.remove(&mark);
            }
            return Err(AuthError::invalid("token of a login that has ended"));
        }
        let unchecked = self.broker.checked_until(person);
        let expires = later(now, PROOF_LIFE).min(claims.expires).min(unchecked);
        Ok(ProvenIdentity {
            principal,
            role,
            expires: Some(expires),
            login: Some(live.ended),
        })
    }

    /// Returns a refusal until the logins of the previous process are loaded.
    fn not_ready(&self) -> AuthRefusal {
        let broker = self.broker.clone();
        let fetch: CredentialFetch = Box::pin(async move {
            broker.store.ready(READY_PATIENCE).await;
        });
        AuthRefusal {
            error: AuthError::Unavailable("logins not loaded yet"),
            fetch: Some(fetch),
        }
    }
}

/// Returns true for the newest generation and the one before it, which other processes of the
/// client may still have.
fn is_current(row: &LoginRow, generation: u32) -> bool {
    row.generation
        .checked_sub(generation)
        .is_some_and(|age| age <= 1)
}

impl Authenticator for BrokerMethod {
    fn name(&self) -> &'static str {
        PEOPLE
    }

    fn advice(&self) -> &'static str {
        "Log in with OAuth, through the company's login"
    }

    fn authenticate(
        &self,
        headers: &HeaderMap,
        endpoint: &str,
    ) -> Result<ProvenIdentity, AuthRefusal> {
        // Any other credential may be a key.
        let token = bearer(headers).ok().flatten();
        let token = token
            .filter(|text| text.starts_with(ACCESS_PREFIX))
            .ok_or(AuthError::Missing)?;
        if !self.broker.store.is_ready() {
            return Err(self.not_ready());
        }
        let now = Timestamp::now();
        let (claims, live, person) = self.verify(token, endpoint, now)?;
        Ok(self.admit(&claims, live, &person, now)?)
    }

    fn admits_people(&self) -> bool {
        true
    }

    fn knows(&self, key: &PrincipalKey) -> bool {
        !self.broker.store.logins_of(key).is_empty()
    }

    fn challenge(&self, endpoint: &str, host: Option<&str>) -> Option<String> {
        // Under other allowed hosts, clients continue to use keys.
        if !self.broker.is_own_host(host?) || !is_endpoint_name(endpoint) {
            return None;
        }
        let metadata = self.broker.resources.metadata_url(endpoint);
        Some(format!(
            r#"resource_metadata="{metadata}", scope="{SCOPE}""#
        ))
    }

    fn document(&self, path: &str, host: Option<&str>) -> Option<String> {
        if !self.broker.is_own_host(host?) {
            return None;
        }
        let resources = &self.broker.resources;
        let endpoint = resources.endpoint_at(path)?;
        let issuers = vec![self.broker.issuer.clone()];
        let resource = resources.identifier(&endpoint);
        let document = ResourceDocument::new(resource, issuers, Some(SCOPE));
        serde_json::to_string(&document).ok()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::AUTHORIZATION;
    use moongate_access::auth::{AuthMethods, CachedIdentity};
    use moongate_model::PrincipalStanding;
    use moongate_oauth::SecretText;

    use super::*;
    use crate::broker_method_source::BrokerMethodSource;
    use crate::end_cause::EndCause;
    use crate::test_broker::TestBroker;

    fn methods(test: &TestBroker) -> Arc<AuthMethods> {
        let source = Arc::new(BrokerMethodSource(test.broker.clone()));
        let settings = test.auth_settings();
        let principals = test.principals.clone();
        AuthMethods::with_source(principals, Vec::new(), Some(source), &settings).0
    }

    fn sent(token: &str) -> HeaderMap {
        let value = HeaderValue::try_from(format!("Bearer {token}")).unwrap();
        HeaderMap::from_iter([(AUTHORIZATION, value)])
    }

    /// Authenticates a token. Returns the person's name, or why it was refused.
    fn authenticate(
        methods: &AuthMethods,
        token: &str,
        endpoint: &str,
    ) -> Result<String, &'static str> {
        let proven = methods.authenticate(&sent(token), endpoint, None);
        proven
            .map(|identity| identity.principal.name.clone())
            .map_err(|refused| refused.error.cause())
    }

    #[tokio::test]
    async fn a_token_opens_its_own_endpoint_alone() {
        let test = TestBroker::in_memory();
        let methods = methods(&test);
        let all = test.login(|_| {}).await;
        let files = test.login(|row| row.endpoint = "files".to_owned()).await;
        let all = test.access_token(&all, 0);
        let files = test.access_token(&files, 0);
        let ann = Ok("ann@example.com".to_owned());
        assert_eq!(authenticate(&methods, &all, ""), ann);
        assert_eq!(authenticate(&methods, &files, "files"), ann);
        let refused = Err("token for another endpoint");
        assert_eq!(authenticate(&methods, &all, "files"), refused);
        assert_eq!(authenticate(&methods, &files, ""), refused);
        assert_eq!(authenticate(&methods, &files, "mail"), refused);
        // Both logins belong to one person.
        assert_eq!(test.principals.count(), 1);
    }

    #[tokio::test]
    async fn other_tokens_open_nothing() {
        let test = TestBroker::in_memory();
        let methods = methods(&test);
        let live = test.login(|row| row.generation = 5).await;
        let refresh = test.refresh_token(&live, 5);
        let as_access = refresh.replace("mgr_", "mga_");
        for (token, cause) in [
            ("mga_", "unknown token"),
            ("mga_garbage", "unknown token"),
            (as_access.as_str(), "unknown token"),
            (refresh.as_str(), "unknown key"),
        ] {
            let refused = authenticate(&methods, token, "");
            assert_eq!(refused, Err(cause), "{token}");
        }
        for (generation, is_good) in [
            (3, false),
            (4, true),
            (5, true),
            (6, false),
            (u32::MAX, false),
        ] {
            let token = test.access_token(&live, generation);
            let proven = authenticate(&methods, &token, "");
            assert_eq!(proven.is_ok(), is_good, "{generation}: {proven:?}");
        }
        let expired = AccessClaims {
            login: live.id,
            generation: 5,
            expires: Timestamp::now(),
            endpoint: String::new(),
        };
        let expired: SecretText = test.broker.seals.seal_access(&expired);
        let refused = authenticate(&methods, expired.expose(), "");
        assert_eq!(refused, Err("expired token"));
    }

    #[tokio::test]
    async fn an_ended_login_is_refused_at_once_also_on_an_open_connection() {
        let test = TestBroker::in_memory();
        let methods = methods(&test);
        let live = test.login(|_| {}).await;
        let token = test.access_token(&live, 0);
        let mut cached: Option<CachedIdentity> = None;
        let headers = sent(&token);
        let proven = methods.authenticate(&headers, "", Some(&mut cached));
        let identity = proven.ok().unwrap();
        let ann = identity.principal.clone();
        // Streams end through this token, within a second.
        let login = identity.login.unwrap();
        assert!(!login.is_cancelled());
        test.broker.store.end(live.id, EndCause::Revoked).await;
        assert!(login.is_cancelled());
        let refused = methods.authenticate(&headers, "", Some(&mut cached));
        let cause = refused.err().map(|refused| refused.error.cause());
        assert_eq!(cause, Some("token of a login that has ended"));
        assert!(!test.principals.admits(&ann));
    }

    #[tokio::test]
    async fn a_stored_session_belongs_to_somebody_only_while_a_login_lives() {
        let test = TestBroker::in_memory();
        let methods = methods(&test);
        let live = test.login(|_| {}).await;
        let mark = live.row.mark;
        let is_known = || !matches!(methods.standing(&mark), PrincipalStanding::Unknown);
        // Nobody has logged in yet.
        assert!(is_known() && test.principals.find(&mark).is_none());
        test.broker.store.end(live.id, EndCause::Operator).await;
        assert!(!is_known());
    }

    #[tokio::test]
    async fn without_a_role_or_a_confirmation_nobody_gets_in() {
        let test = TestBroker::in_memory();
        let methods = methods(&test);
        let live = test.login(|_| {}).await;
        let token = test.access_token(&live, 0);
        let known = test.broker.store.person(&live.row.mark).unwrap();
        let mut person = (*known).clone();
        person.facts.claims.clear();
        let put = test.broker.store.put_person(person.clone(), known.version);
        put.await.unwrap();
        assert_eq!(authenticate(&methods, &token, ""), Err("no matching role"));
        let version = test.broker.store.person(&live.row.mark).unwrap().version;
        person.facts = known.facts.clone();
        person.checked = Timestamp::now() - Duration::from_secs(25 * 3600);
        test.broker.store.put_person(person, version).await.unwrap();
        let refused = authenticate(&methods, &token, "");
        let cause = "person whom the company login has not confirmed recently enough";
        assert_eq!(refused, Err(cause));
    }

    #[tokio::test(start_paused = true)]
    async fn logins_that_are_not_read_yet_are_waited_for() {
        let test = TestBroker::not_restored();
        let methods = methods(&test);
        let refused = methods
            .authenticate(&sent("mga_x"), "", None)
            .err()
            .unwrap();
        assert_eq!(refused.error.cause(), "logins not loaded yet");
        let fetch = refused.fetch.unwrap();
        test.broker.restore(None).unwrap();
        fetch.await;
        let refused = authenticate(&methods, "mga_x", "");
        assert_eq!(refused, Err("unknown token"));
    }

    #[tokio::test]
    async fn every_refusal_looks_the_same_and_other_hosts_see_no_oauth() {
        let test = TestBroker::in_memory();
        let methods = methods(&test);
        let refused = methods
            .authenticate(&sent("mga_x"), "", None)
            .err()
            .unwrap();
        let challenge = concat!(
            r#"Bearer resource_metadata="https://mcp.test/.well-known/"#,
            r#"oauth-protected-resource/mcp", scope="mcp", error="invalid_token""#
        );
        let shown = methods.challenge(&refused.error, "", Some("mcp.test"));
        assert_eq!(shown, challenge);
        let plain = methods.challenge(&refused.error, "", Some("127.0.0.1"));
        assert!(!plain.contains("resource_metadata"), "{plain}");
        let path = "/.well-known/oauth-protected-resource/mcp/files";
        let document = methods.document(path, Some("mcp.test")).unwrap();
        let expected = concat!(
            r#"{"resource":"https://mcp.test/mcp/files","#,
            r#""authorization_servers":["https://mcp.test"],"#,
            r#""scopes_supported":["mcp"],"bearer_methods_supported":["header"]}"#
        );
        assert_eq!(document, expected);
        assert_eq!(methods.document(path, Some("localhost")), None);
    }
}
