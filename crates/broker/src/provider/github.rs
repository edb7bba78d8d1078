//! People at GitHub, which has no ID tokens.
//!
//! Owns what its API says about a person, and pins organizations and teams to their first ids. Does
//! not send people there. Invariant: a name whose id has changed matches nobody.

use std::collections::{BTreeMap, BTreeSet};

use http::StatusCode;
use moongate_access::auth::ProviderSettings;
use moongate_oauth::SecretText;
use moongate_tokens::log_name;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use crate::login_store::LoginStore;
use crate::person_facts::PersonFacts;
use crate::provider::facts::{WantedFacts, person_facts};
use crate::provider::fault::{ProviderFault, StepFault};
use crate::provider::metadata::ProviderEndpoints;
use crate::provider::presets::reads_emails;
use crate::provider::provider_http::{ProviderAnswer, ProviderHttp};

/// Entries per page.
const PAGE: usize = 50;
/// Maximum number of pages.
const PAGES_MAX: usize = 10;
/// Maximum number of findings.
const FINDINGS_MAX: usize = 20;
/// Prefix of refresh tokens. Only GitHub Apps have them; other tokens do not expire.
const REFRESH_PREFIX: &str = "ghr_";

/// Names whose owner has changed, for operators.
#[derive(Default)]
pub(crate) struct GitHubFindings(Mutex<BTreeSet<String>>);

impl GitHubFindings {
    fn add(&self, name: &str) {
        let mut findings = self.0.lock();
        if findings.len() < FINDINGS_MAX {
            let name = log_name(name);
            let text = format!(
                "GitHub's {name} has changed hands since the first login, so it no longer matches \
                 anybody: check who owns the name now"
            );
            if findings.insert(text) {
                tracing::warn!("GitHub name has another owner: {name}");
            }
        }
    }

    /// Returns all findings.
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().iter().cloned().collect()
    }
}

/// Returns the endpoints of GitHub, or of a GitHub Enterprise Server.
pub(crate) fn endpoints_of(issuer: &str, url: &Url) -> ProviderEndpoints {
    ProviderEndpoints {
        issuer: issuer.to_owned(),
        authorization: below(url, "login/oauth/authorize"),
        token: below(url, "login/oauth/access_token"),
        userinfo: None,
        keys: None,
        scopes: Vec::new(),
        takes_posted_secret: true,
        sends_issuer: false,
    }
}

/// Returns a URL below a base URL.
fn below(url: &Url, path: &str) -> Url {
    let mut below = url.clone();
    let base = url.path().trim_end_matches('/').to_owned();
    below.set_path(&format!("{base}/{path}"));
    below
}

/// Returns true if a renewal exchanges the stored token instead of using it directly.
pub(crate) fn is_refresh_token(token: &SecretText) -> bool {
    token.expose().starts_with(REFRESH_PREFIX)
}

/// Requests about one person.
pub(crate) struct GitHubPerson<'a> {
    pub(crate) http: &'a ProviderHttp,
    pub(crate) settings: &'a ProviderSettings,
    pub(crate) store: &'a LoginStore,
    pub(crate) findings: &'a GitHubFindings,
    pub(crate) wanted: &'a WantedFacts,
    /// Access token of the person.
    pub(crate) token: &'a SecretText,
}

#[derive(Deserialize)]
struct GitHubUser {
    id: u64,
}

#[derive(Deserialize)]
struct GitHubEmail {
    email: String,
    primary: bool,
    verified: bool,
}

#[derive(Deserialize)]
struct GitHubMembership {
    state: String,
    organization: GitHubOrganization,
}

#[derive(Deserialize)]
struct GitHubOrganization {
    id: u64,
    login: String,
}

#[derive(Deserialize)]
struct GitHubTeam {
    id: u64,
    slug: String,
    organization: GitHubOrganization,
}

/// Organization or team that GitHub lists for a person.
struct ListedName<'a> {
    id: u64,
    name: &'a str,
}

impl GitHubPerson<'_> {
    /// Asks who a person is. `orgs` are the organizations whose members may log in. Returns subject
    /// and facts.
    pub(crate) async fn ask(&self, orgs: &[String]) -> Result<(String, PersonFacts), StepFault> {
        let user: GitHubUser = self.get("user", None).await?;
        let memberships: Vec<GitHubMembership> = self
            .get_all("user/memberships/orgs", "state=active&")
            .await?;
        let own = self.own_organizations(orgs, &memberships).await?;
        if !orgs.iter().any(|name| has_name(&own, name)) {
            return Err(ProviderFault::NotAMember.into());
        }
        let kept = self
            .wanted
            .values("orgs")
            .filter(|name| has_name(&own, name));
        let mut claims: BTreeMap<String, Vec<String>> = BTreeMap::new();
        claims.insert("orgs".to_owned(), kept.map(str::to_owned).collect());
        claims.insert("teams".to_owned(), self.own_teams(&own).await?);
        claims.retain(|_, names| !names.is_empty());
        let email = self.email().await?;
        let subject = user.id.to_string();
        let facts = person_facts(self.settings, &subject, email.as_deref(), claims, false);
        Ok((subject, facts))
    }

    /// Finds the ids of the configured organizations that the person belongs to.
    async fn own_organizations(
        &self,
        orgs: &[String],
        memberships: &[GitHubMembership],
    ) -> Result<BTreeMap<String, u64>, StepFault> {
        let teams = self.wanted.values("teams");
        let of_teams = teams.filter_map(|name| Some(name.split_once('/')?.0));
        let names: BTreeSet<String> = orgs
            .iter()
            .map(String::as_str)
            .chain(self.wanted.values("orgs"))
            .chain(of_teams)
            .map(str::to_ascii_lowercase)
            .collect();
        let listed: Vec<ListedName<'_>> = memberships
            .iter()
            .filter(|membership| membership.state == "active")
            .map(|membership| ListedName {
                id: membership.organization.id,
                name: &membership.organization.login,
            })
            .collect();
        let mut own = BTreeMap::new();
        for name in names {
            if let Some(id) = self.first_id(&name, &name, &listed).await? {
                own.insert(name, id);
            }
        }
        Ok(own)
    }

    /// Finds the person's teams that some role names.
    async fn own_teams(&self, own: &BTreeMap<String, u64>) -> Result<Vec<String>, StepFault> {
        let mut found = Vec::new();
        let names: Vec<String> = self.wanted.values("teams").map(str::to_owned).collect();
        if names.is_empty() {
            return Ok(found);
        }
        let teams: Vec<GitHubTeam> = self.get_all("user/teams", "").await?;
        for wanted in names {
            let key = wanted.to_ascii_lowercase();
            let Some((organization, slug)) = key.split_once('/') else {
                continue;
            };
            // A new owner of the organization's name may have created a team with that name.
            let Some(id) = own.get(organization) else {
                continue;
            };
            let listed: Vec<ListedName<'_>> = teams
                .iter()
                .filter(|team| team.organization.id == *id)
                .map(|team| ListedName {
                    id: team.id,
                    name: &team.slug,
                })
                .collect();
            if self.first_id(&key, slug, &listed).await?.is_some() {
                found.push(wanted);
            }
        }
        Ok(found)
    }

    /// Returns the first id of a name, if the person has it. Pins a name that is seen for the first
    /// time. The id is stored under `key`.
    async fn first_id(
        &self,
        key: &str,
        name: &str,
        listed: &[ListedName<'_>],
    ) -> Result<Option<u64>, StepFault> {
        let named = listed
            .iter()
            .find(|listed| listed.name.eq_ignore_ascii_case(name))
            .map(|listed| listed.id);
        let Some(pinned) = self.store.pinned_id(key) else {
            let Some(id) = named else {
                return Ok(None);
            };
            let pinning = self.store.pin_id(key, id);
            pinning.await.map_err(|_| ProviderFault::Down)?;
            // Another login may have pinned the name in the meantime.
            return Ok(named.filter(|_| self.store.pinned_id(key) == named));
        };
        if named.is_some_and(|id| id != pinned) {
            self.findings.add(key);
        }
        let has_pinned = listed.iter().any(|listed| listed.id == pinned);
        Ok(has_pinned.then_some(pinned))
    }

    /// Returns the primary address of the person, if it is verified.
    async fn email(&self) -> Result<Option<String>, StepFault> {
        if !reads_emails(self.settings) {
            return Ok(None);
        }
        let emails: Vec<GitHubEmail> = self.get("user/emails", None).await?;
        let primary = emails.into_iter().find(|email| email.primary);
        Ok(primary
            .filter(|email| email.verified)
            .map(|email| email.email))
    }

    /// Fetches all pages of a list. `filter` is the start of the query.
    async fn get_all<T: DeserializeOwned>(
        &self,
        path: &str,
        filter: &str,
    ) -> Result<Vec<T>, StepFault> {
        let mut all = Vec::new();
        for page in 1..=PAGES_MAX {
            let query = format!("{filter}per_page={PAGE}&page={page}");
            let entries: Vec<T> = self.get(path, Some(&query)).await?;
            let is_last = entries.len() < PAGE;
            all.extend(entries);
            if is_last {
                return Ok(all);
            }
        }
        Err(ProviderFault::TooManyGroups.into())
    }

    async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: Option<&str>,
    ) -> Result<T, StepFault> {
        let mut url = below(&api_base(&self.http.issuer), path);
        url.set_query(query);
        read(&self.http.get(&url, Some(self.token)).await?)
    }
}

fn has_name(own: &BTreeMap<String, u64>, name: &str) -> bool {
    own.contains_key(&name.to_ascii_lowercase())
}

/// Returns the base URL of the API.
fn api_base(issuer: &Url) -> Url {
    let mut base = issuer.clone();
    if issuer.host_str() == Some("github.com") && base.set_host(Some("api.github.com")).is_ok() {
        return base;
    }
    below(issuer, "api/v3")
}

/// Reads an API response.
fn read<T: DeserializeOwned>(answer: &ProviderAnswer) -> Result<T, StepFault> {
    match answer.status {
        StatusCode::OK => answer.json().ok_or(ProviderFault::BadAnswer.into()),
        // The person revoked the token, or the account is gone.
        StatusCode::UNAUTHORIZED => Err(StepFault::Ended),
        // Organization policies and rate limits are 403 or 404, too, so these are inconclusive.
        _ => Err(ProviderFault::Down.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refused_token_ends_a_login() {
        let down = StepFault::Provider(ProviderFault::Down);
        for (status, fault) in [
            (401, StepFault::Ended),
            (403, down),
            (404, down),
            (429, down),
            (500, down),
            (304, down),
        ] {
            let found: Result<GitHubUser, _> = read(&ProviderAnswer::of(status, r#"{"id":1}"#));
            assert_eq!(found.err(), Some(fault), "{status}");
        }
        let found: GitHubUser = read(&ProviderAnswer::of(200, r#"{"id":7,"x":1}"#)).unwrap();
        assert_eq!(found.id, 7);
        for body in ["", "[]", r#"{"id":"7"}"#, r#"{"id":-7}"#] {
            let found: Result<GitHubUser, _> = read(&ProviderAnswer::of(200, body));
            assert!(found.is_err(), "{body}");
        }
    }

    #[test]
    fn the_api_is_at_its_own_host_or_below_an_enterprise_server() {
        for (issuer, api, token) in [
            (
                "https://github.com",
                "https://api.github.com/",
                "https://github.com/login/oauth/access_token",
            ),
            (
                "https://git.example.com/",
                "https://git.example.com/api/v3",
                "https://git.example.com/login/oauth/access_token",
            ),
        ] {
            let url = Url::parse(issuer).unwrap();
            assert_eq!(api_base(&url).as_str(), api);
            assert_eq!(endpoints_of(issuer, &url).token.as_str(), token);
        }
        let user = below(&Url::parse("https://api.github.com/").unwrap(), "user");
        assert_eq!(user.as_str(), "https://api.github.com/user");
    }

    #[test]
    fn findings_have_a_bound_and_cannot_break_a_line() {
        let findings = GitHubFindings::default();
        for n in 0..100 {
            findings.add(&format!("acme{n}\n"));
        }
        let all = findings.all();
        assert_eq!(all.len(), FINDINGS_MAX);
        assert!(all.iter().all(|text| !text.contains('\n')));
    }

    #[test]
    fn tokens_of_apps_are_exchanged_and_others_used() {
        assert!(is_refresh_token(&SecretText::new("ghr_abc")));
        assert!(!is_refresh_token(&SecretText::new("gho_abc")));
    }
}
