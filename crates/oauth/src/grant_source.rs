//! Credential of a login that renews itself.
//!
//! Owns when a token is renewed, and who waits for it. Does not talk to the authorization server
//! (`token_endpoint.rs`). Invariant: a login has one renewal at a time across all processes. A new
//! token is on disk before it is used, unless the disk cannot be written.

mod grant_file;
mod held_grant;
mod refusal_retry;
mod retry_pause;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderValue;
use jiff::Timestamp;
use moongate_transport::LinkError;
use moongate_transport::credential_source::{AuthChallenge, CredentialSource};
use moongate_transport::fetcher::Fetcher;
use parking_lot::Mutex;
use tokio::task::{JoinError, spawn_blocking};
use tokio_util::task::TaskTracker;

use crate::challenge::BearerChallenge;
use crate::folder_error::FolderError;
use crate::grant::LoginGrant;
use crate::grant_source::grant_file::{GrantFile, RenewalLock, StoredLogin};
use crate::grant_source::held_grant::{GrantStage, HeldGrant, HeldLogin};
use crate::grant_source::refusal_retry::RefusalRetry;
use crate::grant_source::retry_pause::RetryPause;
use crate::login_folder::LoginFolder;
use crate::login_problem::{LoginProblem, LoginProblemKind};
use crate::settings::LoginTarget;
use crate::token_endpoint::{self, TokenFailure, TokenSet};

/// Credential of a login. It is renewed at 80 % of its lifetime, by one process at a time, and
/// synced to disk before it is used.
pub struct GrantSource {
    state: Arc<GrantState>,
}

/// State that a renewal shares with the source.
struct GrantState {
    file: GrantFile,
    fetcher: Arc<Fetcher>,
    target: LoginTarget,
    held: ArcSwap<HeldLogin>,
    /// Locked during a renewal, and while a login that a renewal could not write is written.
    renewing: tokio::sync::Mutex<()>,
    pause: Mutex<RetryPause>,
    /// Pause while a renewed login cannot be written and the old token is still valid.
    disk_pause: Mutex<RetryPause>,
    refusal_retry: Mutex<RefusalRetry>,
    has_background_renewal: AtomicBool,
    has_saver: AtomicBool,
    problems: Mutex<LoginProblems>,
    /// Renewals whose request has been sent. Closed when the process is about to exit.
    renewals: TaskTracker,
}

/// Problems that the operator should see.
#[derive(Default)]
struct LoginProblems {
    file: Option<LoginProblem>,
    renewal: Option<LoginProblem>,
}

/// Reason for a renewal.
enum RenewalReason {
    /// It is due.
    Due,
    /// The server refused this token.
    Refused(HeaderValue),
}

/// Facts about a login that the directory compares and shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoginFacts {
    obtained: Timestamp,
    renewal: u64,
    /// Time at which the token expires, if known.
    pub(crate) expires: Option<Timestamp>,
    /// True if it renews itself.
    pub(crate) renews: bool,
    /// True if only a new login helps.
    pub(crate) is_over: bool,
}

impl LoginFacts {
    /// Returns true if `later` is another login or has ended, rather than a renewal of this one.
    pub(crate) fn is_followed_by_another(&self, later: &LoginFacts) -> bool {
        // A login counts its renewals from zero.
        let is_new = later.renewal == 0 && later.obtained != self.obtained;
        is_new || later.renewal < self.renewal || later.is_over != self.is_over
    }
}

impl GrantSource {
    /// Creates the source of a login. Blocks while it reads the grant. `renewals` tracks each
    /// renewal from its request to the end of its write, and none is sent once it is closed.
    pub fn new(
        folder: LoginFolder,
        fetcher: Arc<Fetcher>,
        target: LoginTarget,
        renewals: TaskTracker,
    ) -> Self {
        let nothing = HeldLogin {
            grant: None,
            version: None,
        };
        let state = GrantState {
            file: GrantFile::new(folder, target.clone()),
            fetcher,
            target,
            held: ArcSwap::from_pointee(nothing),
            renewing: tokio::sync::Mutex::new(()),
            pause: Mutex::default(),
            disk_pause: Mutex::default(),
            refusal_retry: Mutex::default(),
            has_background_renewal: AtomicBool::new(false),
            has_saver: AtomicBool::new(false),
            problems: Mutex::default(),
            renewals,
        };
        state.reload();
        GrantSource {
            state: Arc::new(state),
        }
    }

    /// Returns true if there is a login that has not ended.
    pub fn has_login(&self) -> bool {
        self.facts().is_some_and(|facts| !facts.is_over)
    }

    /// Returns what keeps the login from being renewed or written to disk.
    pub fn problem(&self) -> Option<LoginProblem> {
        let problems = self.state.problems.lock();
        problems.file.clone().or_else(|| problems.renewal.clone())
    }

    /// Returns true once when a token that was refused while it was new can be tried again.
    pub(crate) fn take_retry(&self) -> bool {
        self.state.refusal_retry.lock().take() && self.has_login()
    }

    /// Reads the grant if another process has changed it. Blocks while it does.
    pub(crate) fn reload(&self) {
        self.state.reload();
    }

    pub(crate) fn facts(&self) -> Option<LoginFacts> {
        let held = self.state.held.load();
        let held = held.grant.as_ref()?;
        Some(LoginFacts {
            obtained: held.grant.obtained,
            renewal: held.grant.renewal,
            expires: held.grant.expires,
            renews: held.grant.refresh.is_some(),
            is_over: held.stage(Timestamp::now()) == GrantStage::Over,
        })
    }
}

impl CredentialSource for GrantSource {
    fn authorization(&self) -> BoxFuture<'_, Result<Option<HeaderValue>, LinkError>> {
        let now = Timestamp::now();
        let held = self.state.held.load();
        let Some(grant) = &held.grant else {
            return std::future::ready(Ok(None)).boxed();
        };
        match grant.stage(now) {
            GrantStage::Expired => return self.state.wait_renewed().boxed(),
            GrantStage::Due => self.state.renew_in_background(),
            GrantStage::Fresh | GrantStage::Over => {}
        }
        std::future::ready(Ok(grant.header(now).cloned())).boxed()
    }

    fn on_refusal<'a>(
        &'a self,
        sent: Option<&'a HeaderValue>,
        challenge: &'a AuthChallenge,
    ) -> BoxFuture<'a, bool> {
        if challenge.refuses_token() {
            return self.state.renew_refused(sent).boxed();
        }
        // More scope needs a person, whose next login asks for it.
        let challenge = BearerChallenge::of(challenge);
        match challenge.and_then(BearerChallenge::into_wanted_scope) {
            Some(scope) => self.state.keep_wanted(scope).boxed(),
            None => std::future::ready(false).boxed(),
        }
    }

    fn is_personal(&self) -> bool {
        false
    }
}

impl GrantState {
    /// Waits until the token is renewed. Fails while that is not possible, because a request
    /// without a token would make the server look as if it needed a login.
    async fn wait_renewed(self: &Arc<Self>) -> Result<Option<HeaderValue>, LinkError> {
        self.renew(RenewalReason::Due).await;
        let held = self.held.load();
        let now = Timestamp::now();
        match &held.grant {
            Some(grant) if grant.stage(now) == GrantStage::Expired => {
                let problem = self.problems.lock().renewal.clone();
                let cause = problem.map(|problem| problem.cause);
                let cause = cause.unwrap_or_else(|| "the new token has expired".to_owned());
                Err(LinkError::Unreachable(format!(
                    "the login at {} cannot be renewed: {cause}",
                    self.target.server
                )))
            }
            grant => Ok(grant.as_ref().and_then(|grant| grant.header(now)).cloned()),
        }
    }

    /// Renews a token that the server refused. Returns true if there is a new one.
    async fn renew_refused(self: &Arc<Self>, sent: Option<&HeaderValue>) -> bool {
        let state = self.clone();
        let _ = spawn_blocking(move || state.reload()).await;
        if self.has_other(sent) {
            return true;
        }
        let now = Timestamp::now();
        self.plan_retry(sent, now);
        let is_worth_it = |grant: &HeldGrant| grant.is_worth_renewal(now);
        let Some(sent) = sent.filter(|_| self.held.load().grant.as_ref().is_some_and(is_worth_it))
        else {
            return false;
        };
        self.renew(RenewalReason::Refused(sent.clone())).await;
        self.has_other(Some(sent))
    }

    /// Schedules another attempt if the refused token is new. Some servers learn about a token
    /// late, and a server that refused one is not tried again for minutes.
    fn plan_retry(&self, sent: Option<&HeaderValue>, now: Timestamp) {
        let held = self.held.load();
        let grant = held.grant.as_ref().zip(sent);
        let refused = grant.filter(|(grant, sent)| grant.has_header(sent));
        if let Some(wait) = refused.and_then(|(grant, _)| grant.time_as_new(now)) {
            self.refusal_retry.lock().plan(wait);
        }
    }

    /// Keeps the scope that a call needs until the next login. Returns false: the call failed.
    async fn keep_wanted(self: &Arc<Self>, scope: String) -> bool {
        let state = self.clone();
        let kept = spawn_blocking(move || state.file.add_wanted_scope(&scope)).await;
        if let Ok(Err(failure)) = kept {
            let server = &self.target.server;
            tracing::warn!(server, cause = %failure, "wanted scope not kept");
        }
        false
    }

    /// Returns true if there is a different token to send.
    fn has_other(&self, sent: Option<&HeaderValue>) -> bool {
        let held = self.held.load();
        let grant = held.grant.as_ref();
        let header = grant.and_then(|grant| grant.header(Timestamp::now()));
        header.is_some() && header != sent
    }

    /// Starts a renewal, unless one is running or the last one has just failed.
    fn renew_in_background(self: &Arc<Self>) {
        let is_paused = self.pause.lock().is_active() || self.disk_pause.lock().is_active();
        if is_paused || self.has_background_renewal.swap(true, Ordering::AcqRel) {
            return;
        }
        let state = self.clone();
        tokio::spawn(async move {
            state.renew(RenewalReason::Due).await;
            state.has_background_renewal.store(false, Ordering::Release);
        });
    }

    /// Renews the token, if the reason for it still holds when its turn comes.
    async fn renew(self: &Arc<Self>, reason: RenewalReason) {
        // In a task, because a request's client may leave, but the response must not be lost with
        // it. It has the next refresh token, and the old one may work only once.
        let renewing = tokio::spawn(self.clone().run_renewal(reason));
        if let Err(failure) = renewing.await {
            self.pause_after(describe(&failure));
        }
    }

    async fn run_renewal(self: Arc<Self>, reason: RenewalReason) {
        let _turn = self.renewing.lock().await;
        if !reason.holds(&self.held.load()) || self.pause.lock().is_active() {
            return;
        }
        let state = self.clone();
        let locked = spawn_blocking(move || state.lock_and_reload()).await;
        let lock = match locked {
            Ok(Ok(lock)) => lock,
            Ok(Err(failure)) => return self.pause_after(failure.to_string()),
            Err(failure) => return self.pause_after(describe(&failure)),
        };
        // Another process may have renewed it, or logged in or out.
        let held = self.held.load_full();
        let Some(grant) = held.grant.as_ref().filter(|_| reason.holds(&held)) else {
            return;
        };
        // Before the check, so that whoever closes them waits for this one, unless it isn't sent.
        let _renewal = self.renewals.token();
        if self.renewals.is_closed() {
            return;
        }
        let state = self.clone();
        let reserving = spawn_blocking(move || state.file.reserve_space(lock));
        let lock = match reserving.await {
            Ok(lock) => lock,
            Err(failure) => return self.pause_after(describe(&failure)),
        };
        // The refresh token may work only once. If the new one were only in memory, another process
        // would send the old one again, and some authorization servers end the login for that.
        if let Some(failure) = lock.failure.as_ref().filter(|_| reason.can_wait(grant)) {
            return self.pause_for_disk(failure);
        }
        let grant = &grant.grant;
        let obtained = Timestamp::now();
        match token_endpoint::refresh(&self.fetcher, &self.target, grant).await {
            Ok(tokens) => {
                self.end_pause();
                let renewed = renewed_grant(grant, tokens, obtained);
                self.store(lock, &held, renewed).await;
            }
            Err(TokenFailure::Ended(cause)) => {
                self.end_pause();
                let server = &self.target.server;
                tracing::warn!(server, cause, "login ended");
                let ended = LoginGrant {
                    ended: true,
                    ..grant.clone()
                };
                self.store(lock, &held, ended).await;
            }
            Err(TokenFailure::Unavailable(cause)) => self.pause_after(cause),
        }
    }

    /// Takes the lock across processes, and reads what its last holder wrote. Blocks.
    fn lock_and_reload(&self) -> Result<RenewalLock, FolderError> {
        let lock = self.file.lock()?;
        if self.file.version()? != self.held.load().version {
            let read = self.file.read()?;
            self.held.store(Arc::new(read));
        }
        Ok(lock)
    }

    /// Writes the grant that replaces `before`, and then uses it.
    async fn store(self: &Arc<Self>, mut lock: RenewalLock, before: &HeldLogin, grant: LoginGrant) {
        let state = self.clone();
        let version = before.version;
        // Kept here as well, so that the token is still in memory if the write panics.
        let unwritten = grant.clone();
        let writing = spawn_blocking(move || {
            lock.free_space();
            let stored = state.file.replace(version, grant);
            drop(lock);
            stored
        });
        match writing.await {
            Ok(stored) => self.hold(stored),
            Err(failure) => {
                let grant = Some(HeldGrant::unsaved(unwritten));
                self.held.store(Arc::new(HeldLogin { grant, version }));
                let problem = LoginProblem::memory_only(describe(&failure));
                self.set_file_problem(Some(problem));
            }
        }
        self.save_later();
    }

    /// Uses a login from now on.
    fn hold(&self, stored: StoredLogin) {
        let problem = stored.failure.map(|failure| {
            LoginProblem::memory_only(format!(
                "the renewed login is only in memory and ends with this process: {failure}"
            ))
        });
        self.held.store(Arc::new(stored.login));
        self.set_file_problem(problem);
    }

    /// Writes a grant that is only in memory, as soon as the disk allows. Called after a renewal.
    fn save_later(self: &Arc<Self>) {
        let held = self.held.load();
        let is_unsaved = held.grant.as_ref().is_some_and(|grant| grant.is_unsaved);
        if !is_unsaved || self.has_saver.swap(true, Ordering::AcqRel) {
            return;
        }
        let state = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut pause = RetryPause::default();
            loop {
                tokio::time::sleep(pause.start()).await;
                // The server may have been removed from the config.
                let Some(state) = state.upgrade() else {
                    return;
                };
                let _turn = state.renewing.lock().await;
                if state.save_again().await {
                    state.has_saver.store(false, Ordering::Release);
                    return;
                }
            }
        });
    }

    /// Tries to write a grant that is only in memory. Returns true if nothing is left to write.
    async fn save_again(self: &Arc<Self>) -> bool {
        let state = self.clone();
        let writing = spawn_blocking(move || {
            let held = state.held.load_full();
            let Some(held_grant) = held.grant.as_ref().filter(|grant| grant.is_unsaved) else {
                return true;
            };
            let Ok(_lock) = state.file.lock() else {
                return false;
            };
            let stored = state.file.replace(held.version, held_grant.grant.clone());
            let is_saved = stored.failure.is_none();
            state.hold(stored);
            is_saved
        });
        writing.await.unwrap_or(false)
    }

    /// Reads the grant if another process has changed it. Blocks.
    fn reload(&self) {
        let held = self.held.load_full();
        let read = match self.file.version() {
            Ok(version) if version == held.version => return self.clear_file_problem(&held),
            Ok(_) => self.file.read(),
            Err(failure) => Err(failure),
        };
        match read {
            Ok(read) => {
                // A renewal that came first knows the file's newer state.
                let found = self.held.compare_and_swap(&held, Arc::new(read));
                if Arc::ptr_eq(&found, &held) {
                    self.set_file_problem(None);
                    self.end_pause();
                }
            }
            Err(failure) => self.set_file_problem(Some(LoginProblem::of_folder(&failure))),
        }
    }

    /// Clears the problem of a file that has the login in memory.
    fn clear_file_problem(&self, held: &Arc<HeldLogin>) {
        let is_unsaved = held.grant.as_ref().is_some_and(|grant| grant.is_unsaved);
        let mut problems = self.problems.lock();
        // Under the lock, because the problem of a renewal that has failed to write since must
        // stay.
        if !is_unsaved && Arc::ptr_eq(&self.held.load(), held) {
            problems.file = None;
        }
    }

    /// Records a failed renewal, and delays the next one.
    fn pause_after(&self, cause: String) {
        let pause = self.pause.lock().start();
        let kind = LoginProblemKind::Renewal;
        self.report_pause(pause, LoginProblem { kind, cause });
    }

    /// Records that a renewal waits for the disk, at most until the old token expires.
    fn pause_for_disk(&self, failure: &FolderError) {
        let pause = self.disk_pause.lock().start();
        let cause = format!("a renewed login cannot be written to disk: {failure}");
        let kind = LoginProblemKind::Folder;
        self.report_pause(pause, LoginProblem { kind, cause });
    }

    fn report_pause(&self, pause: Duration, problem: LoginProblem) {
        let cause = &problem.cause;
        let server = &self.target.server;
        tracing::warn!(server, cause, ?pause, "login renewal failed");
        self.problems.lock().renewal = Some(problem);
    }

    fn end_pause(&self) {
        *self.pause.lock() = RetryPause::default();
        *self.disk_pause.lock() = RetryPause::default();
        self.problems.lock().renewal = None;
    }

    fn set_file_problem(&self, problem: Option<LoginProblem>) {
        let mut problems = self.problems.lock();
        if problems.file == problem {
            return;
        }
        if let Some(LoginProblem { cause, .. }) = &problem {
            let server = &self.target.server;
            tracing::warn!(server, cause, "login file not usable");
        }
        problems.file = problem;
    }
}

impl RenewalReason {
    /// Returns true if a login's token is still valid without the renewal.
    fn can_wait(&self, grant: &HeldGrant) -> bool {
        match self {
            RenewalReason::Due => grant.stage(Timestamp::now()) == GrantStage::Due,
            RenewalReason::Refused(_) => false,
        }
    }

    /// Returns true if a login should be renewed for this reason.
    fn holds(&self, held: &HeldLogin) -> bool {
        let Some(grant) = &held.grant else {
            return false;
        };
        let can_renew = grant.grant.refresh.is_some() && !grant.grant.ended;
        let is_due = match grant.stage(Timestamp::now()) {
            GrantStage::Due | GrantStage::Expired => true,
            GrantStage::Fresh | GrantStage::Over => false,
        };
        let is_refused = match self {
            RenewalReason::Due => false,
            RenewalReason::Refused(sent) => grant.has_header(sent),
        };
        can_renew && (is_due || is_refused)
    }
}

/// Builds the grant from a refresh. Keeps the requested scope, because a server that grants less
/// just once would otherwise reduce it for good.
fn renewed_grant(grant: &LoginGrant, tokens: TokenSet, obtained: Timestamp) -> LoginGrant {
    LoginGrant {
        expires: tokens.expires_at(obtained),
        access: tokens.access,
        // RFC 6749, section 6: "The authorization server MAY issue a new refresh token".
        refresh: tokens.refresh.or_else(|| grant.refresh.clone()),
        obtained,
        renewal: grant.renewal.saturating_add(1),
        ..grant.clone()
    }
}

fn describe(failure: &JoinError) -> String {
    format!("the renewal was interrupted: {failure}")
}

#[cfg(test)]
mod tests;
