//! Scope sets, and the scopes that a login asks for.
//!
//! Owns the choice between the config, a challenge and published lists, and the limit for logins
//! that ask for more. Does not know where the lists come from. Invariant: a set is small, and holds
//! only scopes that RFC 6749 allows.

use crate::challenge::BearerChallenge;

/// Maximum number of scopes in a set.
const COUNT_MAX: usize = 100;
/// Maximum length of a set as text, in bytes.
const LENGTH_MAX: usize = 4096;
/// Scope for a refresh token.
const OFFLINE: &str = "offline_access";
/// Maximum number of authorizations in a row for which a server may ask for more scope.
// Together with the first login, that makes three authorizations for one operation.
const STEP_UPS_MAX: u8 = 2;

/// Set of scopes, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScopeSet(Vec<String>);

impl ScopeSet {
    /// Parses scopes separated by spaces.
    pub(crate) fn parse(text: &str) -> Self {
        Self::of(text.split(' '))
    }

    /// Creates a set of scopes. Leaves out those that no authorization server can have.
    pub(crate) fn of<'a>(scopes: impl IntoIterator<Item = &'a str>) -> Self {
        let mut set = ScopeSet::default();
        set.extend(scopes);
        set
    }

    fn extend<'a>(&mut self, scopes: impl IntoIterator<Item = &'a str>) {
        for scope in scopes {
            let length: usize = self.0.iter().map(|other| other.len() + 1).sum();
            let is_full = self.0.len() >= COUNT_MAX || length + scope.len() > LENGTH_MAX;
            if is_scope(scope) && !is_full && !self.contains(scope) {
                self.0.push(scope.to_owned());
            }
        }
    }

    /// Adds the scopes of another set.
    pub(crate) fn union(&mut self, other: &ScopeSet) {
        self.extend(other.0.iter().map(String::as_str));
    }

    fn contains(&self, scope: &str) -> bool {
        self.0.iter().any(|other| other == scope)
    }

    fn covers(&self, other: &ScopeSet) -> bool {
        other.0.iter().all(|scope| self.contains(scope))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the scopes as the parameter `scope`. `None` if there are none.
    pub(crate) fn into_text(self) -> Option<String> {
        (!self.is_empty()).then(|| self.0.join(" "))
    }
}

/// True for a scope that RFC 6749, section 3.3, allows.
pub fn is_scope(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    !text.is_empty() && text.bytes().all(is_part)
}

/// True if a `scope` parameter asks for a refresh token.
pub(crate) fn asks_offline(scope: &str) -> bool {
    scope.split(' ').any(|scope| scope == OFFLINE)
}

/// Sources of scopes for a login.
#[derive(Clone, Copy, Default)]
pub(crate) struct ScopeSources<'a> {
    /// Scopes in the config.
    pub(crate) configured: Option<&'a [String]>,
    /// Challenge from the server.
    pub(crate) challenge: Option<&'a BearerChallenge>,
    /// Scopes in the metadata of the protected resource.
    pub(crate) resource: Option<&'a [String]>,
    /// Scopes in the metadata of the authorization server.
    pub(crate) server: Option<&'a [String]>,
    /// Earlier login at the same authorization server.
    pub(crate) before: Option<EarlierScope<'a>>,
}

/// Scopes of an earlier login.
#[derive(Clone, Copy)]
pub(crate) struct EarlierScope<'a> {
    /// Scopes that it asked for.
    pub(crate) asked: Option<&'a str>,
    /// Authorizations in a row for more scope.
    pub(crate) step_ups: u8,
}

/// Scopes that a login asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ScopeChoice {
    /// Parameter `scope`.
    pub(crate) asked: Option<String>,
    /// Authorizations in a row for more scope, including this one.
    pub(crate) step_ups: u8,
}

/// The server asks for scope that several authorizations did not grant.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StepUpLimit;

impl ScopeSources<'_> {
    /// Chooses the scopes: those of the config, or else of the challenge, or else of the resource.
    /// Further scope is added to what was asked for before.
    ///
    /// # Errors
    /// The server has asked for the same scope too often.
    pub(crate) fn choose(&self) -> Result<ScopeChoice, StepUpLimit> {
        let challenged = self
            .challenge
            .and_then(|challenge| challenge.scope.as_deref());
        let challenged = challenged.map(ScopeSet::parse).unwrap_or_default();
        let earlier = self.before.and_then(|before| before.asked);
        let earlier = earlier.map(ScopeSet::parse).unwrap_or_default();
        let step_ups = self.count_step_up(&earlier, &challenged)?;
        let mut scopes = self.usual(&challenged);
        // 2026-07-28, basic/authorization, "Step-Up Authorization Flow": "Determine required scopes
        // by computing the union of the client's previously requested scope set and the scopes from
        // the current challenge."
        if step_ups > 0 {
            scopes.union(&challenged);
        }
        // "Scope Selection Strategy": "When re-authorizing, clients SHOULD include these scopes
        // alongside any previously granted scopes". Scopes of the config may also become fewer.
        if step_ups > 0 || self.configured.is_none() {
            scopes.union(&earlier);
        }
        self.settle_offline(&mut scopes);
        Ok(ScopeChoice {
            asked: scopes.into_text(),
            step_ups,
        })
    }

    /// Counts authorizations in a row for the same scope. 0 if this one asks for no more.
    fn count_step_up(&self, earlier: &ScopeSet, challenged: &ScopeSet) -> Result<u8, StepUpLimit> {
        let wants_more = self
            .challenge
            .is_some_and(BearerChallenge::wants_more_scope);
        let Some(before) = self.before.filter(|_| wants_more) else {
            return Ok(0);
        };
        if !earlier.covers(challenged) {
            return Ok(1);
        }
        // "Clients SHOULD implement retry limits and SHOULD track scope upgrade attempts".
        match before.step_ups.saturating_add(1) {
            count if count <= STEP_UPS_MAX => Ok(count),
            _ => Err(StepUpLimit),
        }
    }

    fn usual(&self, challenged: &ScopeSet) -> ScopeSet {
        if let Some(configured) = self.configured {
            return ScopeSet::of(configured.iter().map(String::as_str));
        }
        if !challenged.is_empty() {
            return challenged.clone();
        }
        let published = self.resource.unwrap_or_default();
        ScopeSet::of(published.iter().map(String::as_str))
    }

    /// Asks for a refresh token only if the authorization server lists its scope.
    fn settle_offline(&self, scopes: &mut ScopeSet) {
        let names_it = |list: &[String]| list.iter().any(|scope| scope == OFFLINE);
        if self.configured.is_some_and(names_it) {
            return;
        }
        let is_listed = self.server.is_some_and(names_it);
        if !is_listed {
            scopes.0.retain(|scope| scope != OFFLINE);
        } else if self.configured.is_none() && !scopes.is_empty() {
            // On its own, it would replace the authorization server's default scopes.
            scopes.extend([OFFLINE]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn challenge(scope: &str, wants_more: bool) -> BearerChallenge {
        BearerChallenge {
            scope: (!scope.is_empty()).then(|| scope.to_owned()),
            error: wants_more.then(|| "insufficient_scope".to_owned()),
            ..BearerChallenge::default()
        }
    }

    #[test]
    fn a_set_is_small_and_has_only_scopes() {
        let text = "read  write read a\"b c\\d \u{e9} e\tf";
        assert_eq!(ScopeSet::parse(text).into_text().unwrap(), "read write");
        assert_eq!(ScopeSet::parse("  ").into_text(), None);
        let many: Vec<String> = (0..1000).map(|n| format!("scope{n}")).collect();
        assert_eq!(ScopeSet::parse(&many.join(" ")).0.len(), COUNT_MAX);
        let long = format!("{} short", "x".repeat(LENGTH_MAX + 1));
        assert_eq!(ScopeSet::parse(&long).into_text().unwrap(), "short");
    }

    #[test]
    fn the_config_comes_before_the_challenge_and_the_challenge_before_the_resource() {
        let configured = list("mine");
        let published = list("profile files");
        let given = challenge("files:read", false);
        let silent = challenge("", false);
        let sources = ScopeSources {
            configured: Some(&configured),
            challenge: Some(&given),
            resource: Some(&published),
            ..ScopeSources::default()
        };
        let asked = |sources: ScopeSources<'_>| sources.choose().unwrap().asked;
        assert_eq!(asked(sources).as_deref(), Some("mine"));
        let sources = ScopeSources {
            configured: None,
            ..sources
        };
        assert_eq!(asked(sources).as_deref(), Some("files:read"));
        for challenge in [Some(&silent), None] {
            let sources = ScopeSources {
                challenge,
                ..sources
            };
            assert_eq!(asked(sources).as_deref(), Some("profile files"));
        }
        assert_eq!(asked(ScopeSources::default()), None);
    }

    /// Scopes of the resource, of the authorization server, and of the request.
    type ScopeCase<'a> = (Option<&'a [String]>, Option<&'a [String]>, Option<&'a str>);

    #[test]
    fn offline_access_is_asked_for_where_the_authorization_server_lists_it() {
        let offline = list("read offline_access");
        let plain = list("read");
        let cases: [ScopeCase<'_>; 6] = [
            (Some(&plain), Some(&offline), Some("read offline_access")),
            (Some(&plain), Some(&plain), Some("read")),
            (Some(&plain), None, Some("read")),
            (Some(&offline), Some(&plain), Some("read")),
            (Some(&offline), None, Some("read")),
            (None, Some(&offline), None),
        ];
        for (resource, server, expected) in cases {
            let sources = ScopeSources {
                resource,
                server,
                ..ScopeSources::default()
            };
            let asked = sources.choose().unwrap().asked;
            assert_eq!(asked.as_deref(), expected, "{resource:?} {server:?}");
        }
        let asks = |configured: &[String], server: &[String]| {
            let sources = ScopeSources {
                configured: Some(configured),
                server: Some(server),
                ..ScopeSources::default()
            };
            sources.choose().unwrap().asked.unwrap()
        };
        assert_eq!(asks(&plain, &offline), "read");
        assert_eq!(asks(&offline, &plain), "read offline_access");
    }

    #[test]
    fn more_scope_is_added_to_what_was_asked_for_before() {
        let configured = list("mine");
        let more = challenge("write", true);
        let before = EarlierScope {
            asked: Some("read"),
            step_ups: 0,
        };
        let sources = ScopeSources {
            challenge: Some(&more),
            before: Some(before),
            ..ScopeSources::default()
        };
        let choice = sources.choose().unwrap();
        assert_eq!(choice.asked.as_deref(), Some("write read"));
        assert_eq!(choice.step_ups, 1);
        let sources = ScopeSources {
            configured: Some(&configured),
            ..sources
        };
        let choice = sources.choose().unwrap();
        assert_eq!(choice.asked.as_deref(), Some("mine write read"));
        // A login that is not for more scope keeps the earlier one, unless the config says
        // otherwise.
        let refused = challenge("", false);
        let sources = ScopeSources {
            challenge: Some(&refused),
            ..sources
        };
        assert_eq!(sources.choose().unwrap().asked.as_deref(), Some("mine"));
        let sources = ScopeSources {
            configured: None,
            ..sources
        };
        let choice = sources.choose().unwrap();
        assert_eq!(choice.asked.as_deref(), Some("read"));
        assert_eq!(choice.step_ups, 0);
    }

    #[test]
    fn a_server_that_is_never_satisfied_gets_three_authorizations() {
        let more = challenge("admin", true);
        let mut before = EarlierScope {
            asked: Some("admin"),
            step_ups: 0,
        };
        let mut authorizations = 1;
        while let Ok(choice) = (ScopeSources {
            challenge: Some(&more),
            before: Some(before),
            ..ScopeSources::default()
        })
        .choose()
        {
            before.step_ups = choice.step_ups;
            authorizations += 1;
        }
        assert_eq!(authorizations, 3);
        // A different scope means a different operation.
        let other = challenge("billing", true);
        let sources = ScopeSources {
            challenge: Some(&other),
            before: Some(before),
            ..ScopeSources::default()
        };
        assert_eq!(sources.choose().unwrap().step_ups, 1);
    }
}
