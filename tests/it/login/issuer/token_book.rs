//! Codes and tokens of the test authorization server.
//!
//! Owns what was issued to whom, and what is still valid. Does not speak HTTP. Invariant: a code
//! works once, and a replaced refresh token ends its whole login when it comes again.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use tokio::time::Instant;

/// Time for which a token is valid beyond its announced lifetime. A request that left in time may
/// arrive late on a busy machine.
const GRACE: Duration = Duration::from_secs(5);

/// Login that a code stands for.
#[derive(Clone)]
pub(super) struct CodeRecord {
    pub(super) client: String,
    pub(super) redirect: String,
    /// PKCE challenge, by S256.
    pub(super) challenge: String,
    pub(super) resource: Option<String>,
}

/// Tokens as issued.
pub(super) struct GivenTokens {
    pub(super) access: String,
    pub(super) refresh: String,
}

struct LoginRecord {
    client: String,
    resource: Option<String>,
    is_revoked: bool,
}

struct AccessRecord {
    login: usize,
    /// Announced expiry.
    end: Instant,
}

struct RefreshRecord {
    login: usize,
    is_current: bool,
}

/// Everything that was ever issued.
#[derive(Default)]
pub(super) struct TokenBook {
    codes: HashMap<String, CodeRecord>,
    logins: Vec<LoginRecord>,
    access: HashMap<String, AccessRecord>,
    refresh: HashMap<String, RefreshRecord>,
    newest_end: Option<Instant>,
    secrets: Vec<String>,
    reuses: usize,
}

impl TokenBook {
    /// Makes a text that nobody can guess, and that tests find wherever it leaks.
    pub(super) fn make_secret(&mut self, kind: &str) -> String {
        let mut secret = format!("canary-{kind}-");
        for byte in moongate_random::random_bytes::<12>() {
            write!(secret, "{byte:02x}").unwrap();
        }
        self.secrets.push(secret.clone());
        secret
    }

    /// Remembers a secret that a client made.
    pub(super) fn add_secret(&mut self, secret: &str) {
        self.secrets.push(secret.to_owned());
    }

    /// Lists all secrets so far.
    pub(super) fn secrets(&self) -> Vec<String> {
        self.secrets.clone()
    }

    pub(super) fn add_code(&mut self, record: CodeRecord) -> String {
        let code = self.make_secret("code");
        self.codes.insert(code.clone(), record);
        code
    }

    pub(super) fn take_code(&mut self, code: &str) -> Option<CodeRecord> {
        self.codes.remove(code)
    }

    /// Gives the first tokens of a login.
    pub(super) fn start_login(&mut self, record: &CodeRecord, life: Duration) -> GivenTokens {
        self.logins.push(LoginRecord {
            client: record.client.clone(),
            resource: record.resource.clone(),
            is_revoked: false,
        });
        self.give(self.logins.len() - 1, life)
    }

    /// Gives the next tokens of a login, or the code of an error.
    pub(super) fn renew(
        &mut self,
        refresh: &str,
        client: &str,
        resource: Option<&str>,
        life: Duration,
    ) -> Result<GivenTokens, &'static str> {
        let record = self.refresh.get_mut(refresh).ok_or("invalid_grant")?;
        let number = record.login;
        let login = &mut self.logins[number];
        if login.is_revoked || login.client != client {
            return Err("invalid_grant");
        }
        if login.resource.as_deref() != resource {
            return Err("invalid_target");
        }
        // RFC 9700, section 4.14.2: whichever came first, one of the two is a thief.
        if !std::mem::take(&mut record.is_current) {
            login.is_revoked = true;
            self.reuses += 1;
            return Err("invalid_grant");
        }
        Ok(self.give(number, life))
    }

    fn give(&mut self, login: usize, life: Duration) -> GivenTokens {
        let access = self.make_secret("access");
        let refresh = self.make_secret("refresh");
        let end = Instant::now() + life;
        self.newest_end = Some(end);
        self.access
            .insert(access.clone(), AccessRecord { login, end });
        let is_current = true;
        self.refresh
            .insert(refresh.clone(), RefreshRecord { login, is_current });
        GivenTokens { access, refresh }
    }

    /// Ends the login that a token belongs to.
    pub(super) fn revoke(&mut self, token: &str) {
        let access = self.access.get(token).map(|record| record.login);
        let refresh = self.refresh.get(token).map(|record| record.login);
        if let Some(login) = access.or(refresh) {
            self.logins[login].is_revoked = true;
        }
    }

    /// Returns true for a token that a resource should accept.
    pub(super) fn is_good(&self, token: &str, resource: &str) -> bool {
        self.access.get(token).is_some_and(|record| {
            let login = &self.logins[record.login];
            let is_for_it = login.resource.as_deref() == Some(resource);
            is_for_it && !login.is_revoked && Instant::now() < record.end + GRACE
        })
    }

    /// Returns the announced expiry of the last access token.
    pub(super) fn newest_end(&self) -> Option<Instant> {
        self.newest_end
    }

    /// Counts the refresh tokens that came again.
    pub(super) fn reuses(&self) -> usize {
        self.reuses
    }

    /// Counts the logins that are still valid.
    pub(super) fn live_logins(&self) -> usize {
        self.logins.iter().filter(|login| !login.is_revoked).count()
    }
}
