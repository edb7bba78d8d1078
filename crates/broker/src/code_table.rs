//! Authorization codes that have not been exchanged.
//!
//! Owns their lifetime: a minute to be used, then ten until they are forgotten. Does not check who
//! exchanges one. Invariant: a code is used once, and codes do not survive a restart.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use moongate_oauth::{SecretText, random_text};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::login_id::LoginId;
use crate::login_row::ClientMark;
use crate::person_row::ProvenPerson;

/// Time for which a code can be exchanged.
const CODE_LIFE: Duration = Duration::from_secs(60);
/// Time for which a used code is remembered, so that a second use ends its login.
const USED_LIFE: Duration = Duration::from_secs(10 * 60);
/// Maximum number of unused codes.
const WAITING_MAX: usize = 2_000;
/// Maximum number of used codes: as many as can be issued while one is remembered.
const USED_MAX: usize = 20_000;

/// Grant behind a code.
#[derive(Clone, Debug)]
pub(crate) struct CodeGrant {
    /// Client.
    pub(crate) client: ClientMark,
    /// Name that the client chose.
    pub(crate) client_name: String,
    /// Redirect address, verbatim as requested.
    pub(crate) redirect: String,
    /// PKCE challenge.
    pub(crate) challenge: String,
    /// Endpoint that the login is for.
    pub(crate) endpoint: String,
    /// Granted scope.
    pub(crate) scope: String,
    /// Person who approved.
    pub(crate) person: ProvenPerson,
}

/// State of a code.
#[derive(Debug)]
pub(crate) enum CodeState {
    /// Unused.
    Waiting(Arc<CodeGrant>),
    /// Used, with the login that it started, if any.
    Used(Option<LoginId>),
    /// Never issued, expired, or issued before a restart.
    Unknown,
}

/// Digest of a code, so that lookup timing reveals nothing about a code.
type CodeDigest = [u8; 32];

/// Table of codes.
#[derive(Default)]
pub(crate) struct CodeTable(Mutex<HeldCodes>);

#[derive(Default)]
struct HeldCodes {
    waiting: HashMap<CodeDigest, WaitingCode>,
    used: HashMap<CodeDigest, UsedCode>,
    /// Used codes in the order in which they are forgotten.
    forgetting: VecDeque<(Instant, CodeDigest)>,
}

struct WaitingCode {
    grant: Arc<CodeGrant>,
    until: Instant,
}

struct UsedCode {
    client: ClientMark,
    /// End of its life, had it not been used.
    until: Instant,
    login: Option<LoginId>,
    /// True if the code came again before its login had started.
    is_replayed: bool,
}

impl HeldCodes {
    fn forget_old(&mut self, now: Instant) {
        self.waiting.retain(|_, code| now < code.until);
        while let Some((until, digest)) = self.forgetting.front() {
            if now < *until && self.forgetting.len() <= USED_MAX {
                break;
            }
            self.used.remove(digest);
            self.forgetting.pop_front();
        }
    }
}

impl CodeTable {
    /// Issues a code for a grant. `None`: too many codes are unused.
    pub(crate) fn issue(&self, grant: CodeGrant) -> Option<SecretText> {
        let now = Instant::now();
        let mut held = self.0.lock();
        held.forget_old(now);
        if held.waiting.len() >= WAITING_MAX {
            return None;
        }
        let code = random_text();
        let waiting = WaitingCode {
            grant: Arc::new(grant),
            until: now + CODE_LIFE,
        };
        held.waiting.insert(digest_of(code.expose()), waiting);
        Some(code)
    }

    /// Returns the state of a code, without changing it.
    pub(crate) fn state(&self, code: &str) -> CodeState {
        let digest = digest_of(code);
        let mut held = self.0.lock();
        held.forget_old(Instant::now());
        if let Some(waiting) = held.waiting.get(&digest) {
            return CodeState::Waiting(waiting.grant.clone());
        }
        match held.used.get(&digest) {
            Some(used) => CodeState::Used(used.login),
            None => CodeState::Unknown,
        }
    }

    /// Uses up a code. `None`: it is unknown, expired or already used.
    pub(crate) fn take(&self, code: &str) -> Option<Arc<CodeGrant>> {
        let now = Instant::now();
        let digest = digest_of(code);
        let mut held = self.0.lock();
        held.forget_old(now);
        let taken = held.waiting.remove(&digest)?;
        let used = UsedCode {
            client: taken.grant.client,
            until: taken.until,
            login: None,
            is_replayed: false,
        };
        held.used.insert(digest, used);
        held.forgetting.push_back((now + USED_LIFE, digest));
        Some(taken.grant)
    }

    /// Lets a code be used again, since its login could not start. One that came twice meanwhile
    /// stays used.
    pub(crate) fn give_back(&self, code: &str, grant: Arc<CodeGrant>) {
        let digest = digest_of(code);
        let mut held = self.0.lock();
        let used = held.used.get(&digest);
        let Some(until) = used.filter(|used| !used.is_replayed).map(|used| used.until) else {
            return;
        };
        held.used.remove(&digest);
        held.waiting.insert(digest, WaitingCode { grant, until });
    }

    /// Records the login that a used code has started. Returns false if the code came again
    /// meanwhile, so that the login must end.
    pub(crate) fn set_login(&self, code: &str, login: LoginId) -> bool {
        match self.0.lock().used.get_mut(&digest_of(code)) {
            Some(used) => {
                used.login = Some(login);
                !used.is_replayed
            }
            None => true,
        }
    }

    /// Records that a client has sent a used code again. Returns the login that it has started, if
    /// it has. Other clients change nothing.
    pub(crate) fn record_replay(&self, code: &str, client: &ClientMark) -> Option<LoginId> {
        let mut held = self.0.lock();
        let used = held.used.get_mut(&digest_of(code));
        let used = used.filter(|used| used.client == *client)?;
        used.is_replayed = true;
        used.login
    }
}

fn digest_of(code: &str) -> CodeDigest {
    let digest = digest(&SHA256, code.as_bytes());
    *digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use crate::person_facts::PersonFacts;

    use super::*;

    fn grant() -> CodeGrant {
        CodeGrant {
            client: [1; 16],
            client_name: "shape".to_owned(),
            redirect: "http://127.0.0.1:1/callback".to_owned(),
            challenge: "challenge".to_owned(),
            endpoint: "files".to_owned(),
            scope: "mcp offline_access".to_owned(),
            person: ProvenPerson {
                subject: "1".to_owned(),
                facts: PersonFacts::default(),
                token: Some(SecretText::new("hush")),
                wanted: [0; 8],
            },
        }
    }

    fn login_of(state: &CodeState) -> Option<LoginId> {
        match state {
            CodeState::Used(login) => *login,
            CodeState::Waiting(_) | CodeState::Unknown => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_code_is_taken_once_and_its_second_use_names_its_login() {
        let table = CodeTable::default();
        let code = table.issue(grant()).unwrap();
        assert!(matches!(
            table.state(code.expose()),
            CodeState::Waiting(grant) if grant.endpoint == "files"
        ));
        assert!(table.take(code.expose()).is_some());
        assert!(table.take(code.expose()).is_none());
        assert!(matches!(table.state(code.expose()), CodeState::Used(None)));
        let login = LoginId::new_random();
        assert!(table.set_login(code.expose(), login));
        assert_eq!(login_of(&table.state(code.expose())), Some(login));
        tokio::time::advance(USED_LIFE - Duration::from_secs(1)).await;
        assert_eq!(login_of(&table.state(code.expose())), Some(login));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(matches!(table.state(code.expose()), CodeState::Unknown));
    }

    #[tokio::test(start_paused = true)]
    async fn a_replay_by_the_same_client_counts_before_the_login_and_after_it() {
        let table = CodeTable::default();
        let login = LoginId::new_random();
        for (client, is_own) in [([1; 16], true), ([2; 16], false)] {
            let code = table.issue(grant()).unwrap();
            table.take(code.expose()).unwrap();
            assert_eq!(table.record_replay(code.expose(), &client), None);
            assert_eq!(table.set_login(code.expose(), login), !is_own);
            let ended = table.record_replay(code.expose(), &client);
            assert_eq!(ended, is_own.then_some(login));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_code_that_is_given_back_lives_no_longer_and_not_after_a_replay() {
        let table = CodeTable::default();
        let code = table.issue(grant()).unwrap();
        let code = code.expose();
        tokio::time::advance(CODE_LIFE / 2).await;
        let taken = table.take(code).unwrap();
        table.give_back(code, taken);
        assert!(matches!(table.state(code), CodeState::Waiting(_)));
        tokio::time::advance(CODE_LIFE / 2).await;
        assert!(matches!(table.state(code), CodeState::Unknown));
        let code = table.issue(grant()).unwrap();
        let code = code.expose();
        let taken = table.take(code).unwrap();
        table.record_replay(code, &[1; 16]);
        table.give_back(code, taken);
        assert!(matches!(table.state(code), CodeState::Used(None)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_code_lives_a_minute_and_another_text_is_none() {
        let table = CodeTable::default();
        let code = table.issue(grant()).unwrap();
        for text in ["", "x", &code.expose()[1..]] {
            assert!(matches!(table.state(text), CodeState::Unknown), "{text}");
            assert!(table.take(text).is_none(), "{text}");
            table.set_login(text, LoginId::new_random());
            assert!(matches!(table.state(text), CodeState::Unknown), "{text}");
        }
        tokio::time::advance(CODE_LIFE).await;
        assert!(matches!(table.state(code.expose()), CodeState::Unknown));
        assert!(table.take(code.expose()).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn few_codes_wait_and_few_used_ones_are_known() {
        let table = CodeTable::default();
        for _ in 0..WAITING_MAX {
            assert!(table.issue(grant()).is_some());
        }
        assert!(table.issue(grant()).is_none());
        tokio::time::advance(CODE_LIFE).await;
        let first = table.issue(grant()).unwrap();
        table.take(first.expose()).unwrap();
        for n in 0..USED_MAX {
            let digest = digest_of(&n.to_string());
            let mut held = table.0.lock();
            let used = UsedCode {
                client: [1; 16],
                until: Instant::now(),
                login: None,
                is_replayed: false,
            };
            held.used.insert(digest, used);
            held.forgetting
                .push_back((Instant::now() + USED_LIFE, digest));
        }
        assert!(matches!(table.state(first.expose()), CodeState::Unknown));
        assert_eq!(table.0.lock().used.len(), USED_MAX);
    }

    #[test]
    fn debug_hides_the_token_of_the_company_login() {
        assert!(!format!("{:?}", grant()).contains("hush"));
    }
}
