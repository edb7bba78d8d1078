//! Access token issuers and people's roles: `auth.jwt`, `auth.roles`.
//!
//! Owns the checks for unsafe ones. Does not verify tokens (`moongate_tokens`). Invariant: a role
//! matches people of one issuer, and never everybody by mistake.

use std::collections::BTreeMap;

use moongate_access::auth::{RoleMatch, SignatureAlgorithm, TokenIssuer, TokenSettings};
use moongate_access::policy::{GlobList, RoleAccess};
use moongate_listener::is_loopback_host;
use moongate_oauth::is_scope;
use url::Url;

use super::resolver::PlanResolver;
use crate::broker_keys::OAuthLogin;
use crate::choices::LoginProvider;
use crate::file::ConfigFile;
use crate::keys::{JwtIssuer, PeopleMatch, PeopleRole};
use crate::problem::ProblemKind;
use crate::suggest::{alternatives, listed};
use crate::tree::ConfigPath;

/// Issuers whose people a role can match.
struct RoleIssuers<'f> {
    /// True if a company login is configured, even with mistakes.
    has_login: bool,
    login: Option<&'f OAuthLogin>,
    /// Issuers in `auth.jwt`, and that of the company's login.
    names: Vec<String>,
}

impl RoleIssuers<'_> {
    /// Returns the company's login if a role matches its people.
    fn login_of(&self, people: &PeopleMatch) -> Option<&OAuthLogin> {
        let named = people.issuer.as_deref().map(str::trim);
        self.login
            .filter(|login| named.is_none() || named == login.issuer().as_deref())
    }
}

impl PlanResolver<'_> {
    /// Resolves the issuers. `None`: no tokens are accepted.
    pub(super) fn tokens(
        &mut self,
        file: &ConfigFile,
        public_url: Option<&Url>,
    ) -> Option<TokenSettings> {
        let jwt = &file.auth.jwt;
        if jwt.is_empty() {
            return None;
        }
        let path = ConfigPath::of(&["auth", "jwt"]);
        if file.auth.roles.is_empty() {
            let message = "`auth.jwt` opens nothing without `[[auth.roles]]`";
            let fix = "add a role, such as `name = \"staff\"` with `match = { issuer = \"...\", \
                       groups = [\"...\"] }`";
            self.error_at_key(ProblemKind::Missing, &path, message, fix);
        }
        let mut issuers: Vec<TokenIssuer> = Vec::new();
        for (i, settings) in jwt.iter().enumerate() {
            let path = path.item(i);
            self.check_audience(file.auth.oauth.as_ref(), settings, &path.key("audience"));
            let Some(issuer) = self.token_issuer(settings, &path) else {
                continue;
            };
            if issuers.iter().any(|other| other.issuer == issuer.issuer) {
                let path = path.key("issuer");
                let message = format!("`{path}`: there is another entry for this issuer");
                let fix = "keep one of the two";
                self.error(ProblemKind::Conflict, &path, message, fix);
            }
            issuers.push(issuer);
        }
        let public_url = self.public_url_for_tokens(public_url, &path)?;
        Some(TokenSettings {
            public_url,
            issuers,
        })
    }

    /// Checks the URL that clients see, which is the audience of tokens.
    // RFC 9728, section 1.2: a resource identifier is "an HTTPS URI". Plain HTTP would show tokens
    // to the network.
    pub(super) fn public_url_for_tokens(
        &mut self,
        url: Option<&Url>,
        path: &ConfigPath,
    ) -> Option<Url> {
        let setting = ConfigPath::of(&["gateway", "public_url"]);
        let Some(url) = url else {
            if !self.is_written(&setting) {
                self.error_at_key(
                    ProblemKind::Missing,
                    path,
                    format!("`{path}` needs `gateway.public_url`, since tokens are for that URL"),
                    "add it, such as `public_url = \"https://mcp.example.com\"` in `[gateway]`",
                );
            }
            return None;
        };
        if is_plain_http(url) {
            let message = format!("`{setting}` must be an `https` URL, since `{path}` is set");
            let fix = "write `https://`; `http://` is only for a gateway on this machine";
            self.error(ProblemKind::Value, &setting, message, fix);
        }
        Some(url.clone())
    }

    fn token_issuer(&mut self, settings: &JwtIssuer, path: &ConfigPath) -> Option<TokenIssuer> {
        let audience = path.key("audience");
        self.check_values(
            &audience,
            settings.audience.as_deref(),
            "no token opens anything",
        );
        let algorithms = self.algorithms(&path.key("algorithms"), &settings.algorithms);
        let scope = path.key("scope");
        if !is_scope(&settings.scope) {
            let message = format!("`{scope}`: {} is not a scope", self.quoted_value(&scope));
            let fix = "write one scope, such as \"mcp\"";
            self.error(ProblemKind::Value, &scope, message, fix);
        }
        let issuer = self.token_issuer_name(settings, &path.key("issuer"));
        let jwks_url = self.key_set_url(settings, &path.key("jwks_url"));
        Some(TokenIssuer {
            issuer: issuer?,
            audience: settings.audience.clone(),
            algorithms,
            jwks_url: jwks_url?,
            scope: settings.scope.clone(),
        })
    }

    /// Refuses the company login's client as an audience: ID tokens are for it, and other programs
    /// may get hold of those.
    fn check_audience(
        &mut self,
        login: Option<&OAuthLogin>,
        settings: &JwtIssuer,
        path: &ConfigPath,
    ) {
        let client = login.and_then(|login| login.client_id.as_deref());
        let Some(client) = client.map(str::trim).filter(|client| !client.is_empty()) else {
            return;
        };
        let mut audiences = settings.audience.iter().flatten();
        if let Some(i) = audiences.position(|audience| audience.trim() == client) {
            let path = path.item(i);
            let message = format!(
                "`{path}` is `auth.oauth.client_id`, so ID tokens of logins would be access tokens"
            );
            let fix = "register an API of its own at the issuer, and write its audience";
            self.error(ProblemKind::Conflict, &path, message, fix);
        }
    }

    fn token_issuer_name(&mut self, settings: &JwtIssuer, path: &ConfigPath) -> Option<String> {
        let Some(text) = settings.issuer.as_deref() else {
            let fix = "write the `issuer` of its metadata, such as \"https://login.example.com\"";
            self.report_missing(path, fix);
            return None;
        };
        self.issuer(path, text)?;
        // Compared verbatim, because tokens have it in exactly this form.
        Some(text.trim().to_owned())
    }

    fn key_set_url(&mut self, settings: &JwtIssuer, path: &ConfigPath) -> Option<Url> {
        let Some(text) = settings.jwks_url.as_deref() else {
            let fix = "write the `jwks_uri` of the issuer's metadata, which is at \
                       `/.well-known/openid-configuration`";
            self.report_missing(path, fix);
            return None;
        };
        let url = self.url(path, text, &["https", "http"])?;
        if is_plain_http(&url) {
            let message = format!(
                "`{path}`: {} is not an `https` URL",
                self.quoted_value(path)
            );
            let fix = "write `https://`; `http://` is only for an issuer on this machine";
            self.error(ProblemKind::Value, path, message, fix);
            return None;
        }
        Some(url)
    }

    pub(super) fn report_missing(&mut self, path: &ConfigPath, fix: &str) {
        // A value of the wrong type has its own error.
        if !self.is_written(path) {
            let message = format!("`{path}` is missing");
            self.error(ProblemKind::Missing, path, message, fix);
        }
    }

    fn algorithms(&mut self, path: &ConfigPath, names: &[String]) -> Vec<SignatureAlgorithm> {
        if names.is_empty() {
            let message = format!("`{path}` is empty, so no token opens anything");
            let fix = "name the algorithm of the issuer's signatures, such as \"RS256\"";
            self.error(ProblemKind::Missing, path, message, fix);
        }
        let mut algorithms = Vec::new();
        for (i, name) in names.iter().enumerate() {
            if let Some(algorithm) = SignatureAlgorithm::parse(name) {
                algorithms.push(algorithm);
                continue;
            }
            let path = path.item(i);
            let known = SignatureAlgorithm::ALL.map(SignatureAlgorithm::name);
            let message = if name.eq_ignore_ascii_case("none") {
                format!("`{path}`: with `none`, anybody could write tokens")
            } else if name.starts_with("HS") {
                format!("`{path}`: {name} needs a secret shared with the issuer")
            } else {
                format!("`{path}`: {} is not an algorithm", self.quoted_value(&path))
            };
            let fix = format!("use {}", alternatives(&known));
            self.error(ProblemKind::Value, &path, message, fix);
        }
        algorithms
    }

    /// Resolves people's roles, and whom each matches.
    pub(super) fn roles(&mut self, file: &ConfigFile) -> (Vec<RoleAccess>, Vec<RoleMatch>) {
        let path = ConfigPath::of(&["auth", "roles"]);
        let mut written = file.auth.roles.iter().enumerate();
        let needs_people = written.any(|(i, role)| !self.is_for_keys(file, role, &path.item(i)));
        let issuers = self.role_issuers(file);
        if file.auth.jwt.is_empty() && !issuers.has_login && needs_people {
            let message = "`auth.roles` is for people who log in, but there is neither \
                           `[auth.oauth]` nor `[[auth.jwt]]`";
            let fix = "add the company's login or the issuer of their tokens, or give the role to \
                       a key, with `role` and without `match`";
            self.error_at_key(ProblemKind::Missing, &path, message, fix);
        }
        let mut roles: Vec<RoleAccess> = Vec::new();
        let mut matches = Vec::new();
        for (i, role) in file.auth.roles.iter().enumerate() {
            let path = path.item(i);
            let access = self.role_access(role, &path);
            let people = if self.is_for_keys(file, role, &path) {
                None
            } else {
                self.role_match(role, &issuers, &path)
            };
            let Some(access) = access else {
                continue;
            };
            if roles.iter().any(|other| other.name == access.name) {
                let message = format!("two roles are called {:?}", access.name);
                let fix = "give each role its own name";
                self.error(ProblemKind::Conflict, &path.key("name"), message, fix);
            }
            roles.push(access);
            matches.extend(people);
        }
        (roles, matches)
    }

    fn role_issuers<'f>(&self, file: &'f ConfigFile) -> RoleIssuers<'f> {
        let login = file.auth.oauth.as_ref();
        let jwt = file.auth.jwt.iter();
        let mut names: Vec<String> = jwt
            .filter_map(|jwt| Some(jwt.issuer.as_deref()?.trim().to_owned()))
            .collect();
        names.extend(login.and_then(OAuthLogin::issuer));
        RoleIssuers {
            has_login: self.is_written(&ConfigPath::of(&["auth", "oauth"])),
            login,
            names,
        }
    }

    /// Returns true if a role is only for keys: one has it, and it has no `match`.
    pub(super) fn is_for_keys(
        &self,
        file: &ConfigFile,
        role: &PeopleRole,
        path: &ConfigPath,
    ) -> bool {
        let mut keys = file.auth.keys.iter();
        role.name.is_some()
            && keys.any(|key| key.role == role.name)
            && !self.is_written(&path.key("match"))
    }

    fn role_access(&mut self, role: &PeopleRole, path: &ConfigPath) -> Option<RoleAccess> {
        self.check_endpoint_names(&path.key("views"), role.views.as_ref());
        let tools = self
            .patterns(&path.key("tools"), role.tools.as_ref())
            .unwrap_or_else(GlobList::all);
        let endpoints = role.views.as_ref();
        Some(RoleAccess {
            name: role.name.clone()?,
            shared_role: None,
            endpoints: endpoints.map(|names| names.iter().cloned().collect()),
            tools: vec![tools],
            rate: role.rate.map(|rate| rate.0),
        })
    }

    fn role_match(
        &mut self,
        role: &PeopleRole,
        issuers: &RoleIssuers<'_>,
        path: &ConfigPath,
    ) -> Option<RoleMatch> {
        let people = &role.people;
        let path = path.key("match");
        // A value that is not a table has its own error.
        if self.is_written(&path) && !self.is_accepted(&path) {
            return None;
        }
        self.check_login_match(issuers.login_of(people), people, &path);
        let claims = self.role_claims(people, &path);
        self.check_emails(&path.key("email"), people.email.as_deref());
        let has_parts = !claims.is_empty() || people.email.is_some();
        if people.anyone && has_parts {
            let path = path.key("anyone");
            let message = format!("`{path}` lets everybody in, regardless of the other keys");
            let fix = "remove it, or remove the other keys";
            self.error_at_key(ProblemKind::Conflict, &path, message, fix);
        } else if !people.anyone && !has_parts {
            let message = format!("`{path}` matches nobody");
            let fix = fix_for_nobody(issuers.login_of(people));
            self.error(ProblemKind::Missing, &path, message, fix);
            return None;
        }
        let issuer = self.role_issuer(people, issuers, &path.key("issuer"))?;
        Some(RoleMatch {
            role: role.name.clone()?,
            issuer,
            anyone: people.anyone,
            claims,
            emails: people.email.clone(),
        })
    }

    /// Resolves the issuer whose people have a role. Otherwise another issuer could grant itself
    /// the role.
    fn role_issuer(
        &mut self,
        people: &PeopleMatch,
        issuers: &RoleIssuers<'_>,
        path: &ConfigPath,
    ) -> Option<String> {
        let Some(issuer) = people.issuer.as_deref().map(str::trim) else {
            if issuers.has_login {
                return issuers.login.and_then(OAuthLogin::issuer);
            }
            let fix = match issuers.names.as_slice() {
                [only] => format!("add `issuer = \"{only}\"`"),
                _ => "name the `issuer` of one entry of `[[auth.jwt]]`".to_owned(),
            };
            self.report_missing(path, &fix);
            return None;
        };
        // Without any issuer, an error has already been reported.
        let names: Vec<&str> = issuers.names.iter().map(String::as_str).collect();
        if !names.is_empty() && !names.contains(&issuer) {
            let message = format!(
                "`{path}`: {} is not the issuer of `[auth.oauth]` or of an entry of `[[auth.jwt]]`",
                self.quoted_value(path)
            );
            let fix = format!("write it exactly as there: {}", listed(&names));
            self.error(ProblemKind::Conflict, path, message, fix);
            return None;
        }
        Some(issuer.to_owned())
    }

    /// Resolves the claims that a role requires, by path.
    fn role_claims(
        &mut self,
        people: &PeopleMatch,
        path: &ConfigPath,
    ) -> BTreeMap<String, Vec<String>> {
        let mut claims = BTreeMap::new();
        let named = [
            ("groups", "groups", &people.groups),
            ("app_roles", "roles", &people.app_roles),
            ("orgs", "orgs", &people.orgs),
            ("teams", "teams", &people.teams),
        ];
        for (key, claim, values) in named {
            self.check_values(&path.key(key), values.as_deref(), "it matches nobody");
            let Some(values) = values else {
                continue;
            };
            // GitHub's names are case-insensitive, and people's facts have them in lower case.
            let has_case = !matches!(key, "orgs" | "teams");
            let values = values.iter().map(|value| match has_case {
                true => value.clone(),
                false => value.trim().to_ascii_lowercase(),
            });
            claims.insert(claim.to_owned(), values.collect());
        }
        for (claim, values) in &people.claim {
            let path = path.key("claim").key(claim);
            self.check_values(&path, Some(values.as_slice()), "it matches nobody");
            if claims.insert(claim.clone(), values.clone()).is_some() {
                let message = format!("`{path}` names the same claim as another key of `match`");
                let fix = "keep one of the two";
                self.error_at_key(ProblemKind::Conflict, &path, message, fix);
            }
        }
        claims
    }

    /// Reports a list that is empty, or contains an empty text.
    pub(super) fn check_values(
        &mut self,
        path: &ConfigPath,
        values: Option<&[String]>,
        effect: &str,
    ) {
        let Some(values) = values else {
            return;
        };
        if values.is_empty() {
            let message = format!("`{path}` is empty, so {effect}");
            let fix = "add a value, or remove it";
            self.error(ProblemKind::Missing, path, message, fix);
        }
        if let Some(i) = values.iter().position(|value| value.trim().is_empty()) {
            let path = path.item(i);
            let message = format!("`{path}` is empty");
            self.error(
                ProblemKind::Value,
                &path,
                message,
                "write a value, or remove it",
            );
        }
    }

    fn check_emails(&mut self, path: &ConfigPath, patterns: Option<&[String]>) {
        self.check_values(path, patterns, "it matches nobody");
        for (i, pattern) in patterns.into_iter().flatten().enumerate() {
            if is_email_pattern(pattern) {
                continue;
            }
            let path = path.item(i);
            let message = format!(
                "`{path}`: {} is not an email address",
                self.quoted_value(&path)
            );
            let fix = "write an address such as \"ann@example.com\", or \"*@example.com\" for a \
                       whole domain";
            self.error(ProblemKind::Value, &path, message, fix);
        }
    }
}

/// Returns what to do about a role that matches nobody.
fn fix_for_nobody(login: Option<&OAuthLogin>) -> &'static str {
    match login.and_then(|login| login.provider) {
        Some(LoginProvider::GitHub) => "add `orgs` or `teams`",
        Some(LoginProvider::Google) => "add `email`, such as \"*@example.com\"",
        Some(LoginProvider::Entra) | None => {
            "add `groups`, `app_roles`, `email` or `claim`; `anyone = true` matches everybody with \
             a token from the issuer"
        }
    }
}

/// Returns true if requests to a URL cross the network without TLS.
fn is_plain_http(url: &Url) -> bool {
    url.scheme() == "http" && !url.host_str().is_some_and(is_loopback_host)
}

/// Returns true for an address, or `*@` and a domain.
fn is_email_pattern(text: &str) -> bool {
    let Some((name, domain)) = text.rsplit_once('@') else {
        return false;
    };
    let is_text = text.bytes().all(|byte| byte.is_ascii_graphic());
    let is_name = !name.is_empty() && !name.contains('@') && (name == "*" || !name.contains('*'));
    is_text && is_name && !domain.is_empty() && !domain.contains('*')
}

#[cfg(test)]
mod tests;
