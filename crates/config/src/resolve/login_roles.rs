//! Keys by which roles may match people of the company's login.
//!
//! Owns the keys of `match` that each provider supports. Does not compare claims
//! (`moongate_tokens`). Invariant: a role that can never match anybody is an error.

use super::broker::is_github_name;
use super::resolver::PlanResolver;
use crate::broker_keys::OAuthLogin;
use crate::choices::LoginProvider;
use crate::keys::PeopleMatch;
use crate::problem::ProblemKind;
use crate::tree::ConfigPath;

/// Keys for which a provider has no claims, with those to use instead.
fn unknown_keys(provider: Option<LoginProvider>) -> (&'static [&'static str], &'static str) {
    match provider {
        Some(LoginProvider::GitHub) => (&["groups", "app_roles", "claim"], "use `orgs` or `teams`"),
        Some(LoginProvider::Google) => (
            &["groups", "app_roles", "orgs", "teams"],
            "use `email`, such as \"*@example.com\" for a whole domain",
        ),
        Some(LoginProvider::Entra) | None => (
            &["orgs", "teams"],
            "use `groups`, or `provider = \"github\"` in `[auth.oauth]`",
        ),
    }
}

impl PlanResolver<'_> {
    /// Checks a role's `match`. `login` is the company's login if the role matches its people.
    pub(super) fn check_login_match(
        &mut self,
        login: Option<&OAuthLogin>,
        people: &PeopleMatch,
        path: &ConfigPath,
    ) {
        let provider = login.and_then(|login| login.provider);
        let (unknown, fix) = unknown_keys(provider);
        for key in unknown {
            let key = path.key(key);
            if self.is_written(&key) {
                let message = format!("`{key}` is not available from this login");
                self.error_at_key(ProblemKind::Conflict, &key, message, fix);
            }
        }
        match provider {
            Some(LoginProvider::GitHub) => {
                let orgs = login.and_then(|login| login.orgs.as_deref());
                self.check_github_match(orgs.unwrap_or_default(), people, path);
            }
            Some(LoginProvider::Google) if people.anyone => {
                let fix = "write `email = [\"*@example.com\"]` with your domain instead";
                self.reject_anyone(path, fix);
            }
            _ => {}
        }
    }

    // Anybody can have an account at either.
    fn reject_anyone(&mut self, path: &ConfigPath, fix: &str) {
        let path = path.key("anyone");
        let message = format!("`{path}` cannot be used with a login that anybody can sign up for");
        self.error_at_key(ProblemKind::Conflict, &path, message, fix);
    }

    fn check_github_match(&mut self, orgs: &[String], people: &PeopleMatch, path: &ConfigPath) {
        if people.anyone {
            let fix = "write `orgs` or `teams` instead";
            return self.reject_anyone(path, fix);
        }
        let names = people.orgs.as_deref().unwrap_or_default();
        for (i, name) in names.iter().enumerate() {
            self.check_org(orgs, name, &path.key("orgs").item(i));
        }
        let teams = people.teams.as_deref().unwrap_or_default();
        for (i, name) in teams.iter().enumerate() {
            let path = path.key("teams").item(i);
            match name.split_once('/') {
                Some((org, team)) if is_github_name(team.trim()) => {
                    self.check_org(orgs, org, &path);
                }
                _ => {
                    let shown = self.quoted_value(&path);
                    let message = format!("`{path}`: {shown} is not the name of a team");
                    let fix = "write organisation and team, such as \"example/platform\"";
                    self.error(ProblemKind::Value, &path, message, fix);
                }
            }
        }
        // An address can be added to any account.
        let is_member = people.orgs.is_some() || people.teams.is_some();
        if people.email.is_some() && !is_member {
            let path = path.key("email");
            let message = format!("`{path}` alone is not enough for people at GitHub");
            let fix = "add `orgs` or `teams`; all keys must match";
            self.error_at_key(ProblemKind::Conflict, &path, message, fix);
        }
    }

    /// Reports an organisation whose members cannot log in.
    fn check_org(&mut self, orgs: &[String], name: &str, path: &ConfigPath) {
        let is_known = orgs
            .iter()
            .any(|org| org.trim().eq_ignore_ascii_case(name.trim()));
        // A login without organisations has its own error.
        if is_known || orgs.is_empty() {
            return;
        }
        let shown = self.quoted_value(path);
        let message = format!("`{path}`: {shown} is not in `auth.oauth.orgs`");
        let fix = "add the organisation there, or correct its name";
        self.error(ProblemKind::Conflict, path, message, fix);
    }
}
