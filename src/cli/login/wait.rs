//! Wait for a login's answer, wherever it arrives.
//!
//! Owns what is watched: our listener, the files that a running gateway writes, and pasted lines.
//! Does not start logins. Invariant: an answer that isn't for this login is refused, and the wait
//! continues.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::bail;
use moongate_oauth::{
    AuthorizationResponse, GrantVersion, LoginError, LoginFolder, LoginGrant, LoginTarget,
    PendingLogin, finish_login,
};
use moongate_transport::fetcher::Fetcher;
use tokio::net::TcpStream;
use tokio::time::{Instant, interval, sleep_until, timeout};

use super::answer_listener::{AnswerListener, AnswerSocket, BrowserAnswer};
use super::input_lines::{InputLine, InputLines};
use crate::app::logins::CallbackPage;
use crate::cli::process::print_message;

/// Longest wait. After it, the login's files are too old.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Pause between two checks of the files.
const CHECK_PAUSE: Duration = Duration::from_millis(500);
/// Time for a gateway that took the answer to get its tokens. It may wait 30 s for the
/// authorization server, and 5 s to write. If a refresh is running, it waits for that before it
/// takes the answer.
const EXCHANGE_MAX: Duration = Duration::from_secs(40);

/// Number of consecutive checks after which an address counts as free.
const FREE_CHECKS: u32 = 6;
/// Longest wait for a connection to a program on this machine.
const CONNECT_MAX: Duration = Duration::from_millis(200);

/// Length from which a terminal may have truncated a line, in bytes. macOS passes on 1024 with the
/// line end, Linux 4096.
const CUT_LINE: usize = 1023;

/// Wait for the answer of one login.
pub(super) struct LoginWait<'a> {
    fetcher: &'a Fetcher,
    folder: &'a LoginFolder,
    pending: &'a PendingLogin,
    listener: Option<AnswerListener>,
    /// Address to listen on once nobody else does.
    address: Option<SocketAddr>,
    /// Number of consecutive checks that found nobody there.
    free_checks: u32,
    /// Version of the grant that is already known.
    known: Option<GrantVersion>,
    /// Its contents, if they can be read.
    before: Option<LoginGrant>,
    /// Time at which another process was found to have the answer.
    taken: Option<Instant>,
}

/// State of a login after something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitStep {
    Finished,
    Waiting,
}

impl<'a> LoginWait<'a> {
    /// Creates the wait for a login that was stored. `known` is the grant from before.
    pub(super) fn new(
        (fetcher, folder): (&'a Fetcher, &'a LoginFolder),
        pending: &'a PendingLogin,
        listener: Option<AnswerListener>,
        known: Option<GrantVersion>,
    ) -> Self {
        // A damaged grant counts as none, and one that is newer than the login belongs to it.
        let before = folder.read_grant(&pending.target()).unwrap_or_default();
        LoginWait {
            fetcher,
            folder,
            pending,
            listener,
            address: None,
            free_checks: 0,
            known,
            before: before.filter(|before| before.obtained < pending.started),
            taken: None,
        }
    }

    /// Listens on this address itself, once nobody else does.
    pub(super) fn at(self, address: Option<SocketAddr>) -> Self {
        LoginWait { address, ..self }
    }

    /// Waits until the login has a grant.
    pub(super) async fn run(mut self, input: &mut InputLines) -> anyhow::Result<()> {
        let deadline = Instant::now() + WAIT_MAX;
        let mut checks = interval(CHECK_PAUSE);
        loop {
            let step = tokio::select! {
                answer = next_answer(&mut self.listener) => self.take_answer(answer).await?,
                line = input.next() => self.take_line(line).await?,
                _ = checks.tick() => {
                    self.take_free_port().await;
                    self.check_files()?
                }
                () = sleep_until(deadline) => {
                    let server = &self.pending.target_server;
                    bail!("no answer came within 10 minutes: run `moongate login {server}` again");
                }
            };
            if step == WaitStep::Finished {
                return Ok(());
            }
        }
    }

    /// Listens where the answer will arrive, if the gateway there is gone. A restarting gateway has
    /// a few seconds to come back, because it cannot listen there afterwards.
    async fn take_free_port(&mut self) {
        let Some(address) = self.address.filter(|_| self.listener.is_none()) else {
            return;
        };
        let connecting = timeout(CONNECT_MAX, TcpStream::connect(address)).await;
        let is_free = matches!(
            &connecting,
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused
        );
        self.free_checks = if is_free { self.free_checks + 1 } else { 0 };
        if self.free_checks < FREE_CHECKS {
            return;
        }
        if let Ok(socket) = AnswerSocket::bind(address).await {
            print_message(&format!(
                "No program is listening on {address} any more, so this command receives the \
                 answer there."
            ));
            let path = self.pending.client.redirect.path();
            self.listener = Some(socket.serve(path, None));
        }
    }

    /// Takes an answer from our listener. It may be for a login that another process is waiting
    /// for.
    async fn take_answer(&self, answer: BrowserAnswer) -> Result<WaitStep, LoginError> {
        let read = AuthorizationResponse::from_query(answer.query());
        let is_ours = read.as_ref().is_ok_and(|response| self.is_ours(response));
        let end = match read {
            Ok(response) => self.finish(&response, Some(answer.path())).await,
            Err(error) => Err(error),
        };
        answer.reply(&CallbackPage::of(&end)).await;
        if is_ours {
            step_after(end.map(drop))
        } else {
            Ok(WaitStep::Waiting)
        }
    }

    fn is_ours(&self, response: &AuthorizationResponse) -> bool {
        response.state() == Some(self.pending.state.expose())
    }

    /// Takes a pasted line.
    async fn take_line(&self, line: InputLine) -> Result<WaitStep, LoginError> {
        let may_be_cut = matches!(&line, InputLine::Text(text) if text.len() >= CUT_LINE);
        let response = match self.read_line(line) {
            Ok(Some(response)) => response,
            Ok(None) => return Ok(WaitStep::Waiting),
            Err(error) => {
                print_message(&describe_wrong_line(&error, may_be_cut));
                return Ok(WaitStep::Waiting);
            }
        };
        let end = self.finish(&response, None).await;
        step_after(end.map(drop))
    }

    /// Finishes the login of an answer, which may be a different login.
    async fn finish(
        &self,
        response: &AuthorizationResponse,
        path: Option<&str>,
    ) -> Result<LoginTarget, LoginError> {
        let end = finish_login(self.fetcher, self.folder, response, path).await;
        if end.is_err() && self.is_ours(response) {
            // The reason is in the error, and nobody else waits for it.
            let _ = self.folder.take_failure(self.pending.state.expose());
        }
        end
    }

    /// Reads a pasted line. `None` if the line is empty. An error leaves the login as it is.
    fn read_line(&self, line: InputLine) -> Result<Option<AuthorizationResponse>, LoginError> {
        let text = match line {
            InputLine::Text(text) => text,
            InputLine::Unreadable => return Err(LoginError::NotAnAnswer),
        };
        if text.trim().is_empty() {
            return Ok(None);
        }
        let response = AuthorizationResponse::from_address(&text)?;
        // Checked before the login is taken, which can happen only once. A refusal by the right
        // authorization server ends the login.
        match response.check_pasted(self.pending) {
            Ok(_) | Err(LoginError::Refused { .. }) => Ok(Some(response)),
            Err(error) => Err(error),
        }
    }

    /// Checks whether another process has finished the login, or has failed to.
    fn check_files(&mut self) -> anyhow::Result<WaitStep> {
        let target = self.pending.target();
        // A temporary failure must not end the login. The next check comes soon.
        let Ok(version) = self.folder.grant_version(&target) else {
            return Ok(WaitStep::Waiting);
        };
        if version != self.known {
            let grant = self.folder.read_grant(&target)?;
            if grant.as_ref().is_some_and(|grant| self.is_new(grant)) {
                return Ok(WaitStep::Finished);
            }
            self.known = version;
            self.before = grant;
        }
        let state = self.pending.state.expose();
        if self.folder.is_pending(state) {
            return Ok(WaitStep::Waiting);
        }
        if let Ok(Some(reason)) = self.folder.take_failure(state) {
            bail!("{reason}");
        }
        let taken = if let Some(taken) = self.taken {
            taken
        } else {
            print_message(&self.describe_taker());
            *self.taken.insert(Instant::now())
        };
        if taken.elapsed() > EXCHANGE_MAX {
            bail!(
                "a running gateway received the answer, but the login failed there: the page in \
                 your browser says why"
            );
        }
        Ok(WaitStep::Waiting)
    }

    /// Describes who received the answer, before the login's result is known.
    fn describe_taker(&self) -> String {
        // With our own listener, we can't know which process was first.
        let taker = if self.listener.is_some() {
            "Another process".to_owned()
        } else {
            let origin = self.pending.client.redirect.origin();
            format!("The gateway at {}", origin.ascii_serialization())
        };
        format!(
            "{taker} received the answer. If the login fails, the page in your browser says why."
        )
    }

    /// True for the grant of this login, which may have been renewed since. The previous login may
    /// also be renewed meanwhile, or end. It keeps its client, and its renewal number only grows.
    fn is_new(&self, grant: &LoginGrant) -> bool {
        let continues = |before: &LoginGrant| {
            let is_later = grant.renewal > before.renewal || grant.obtained == before.obtained;
            grant.client == before.client && is_later
        };
        grant.obtained >= self.pending.started && !self.before.as_ref().is_some_and(continues)
    }
}

/// Waits for an answer from our listener, if there is one.
async fn next_answer(listener: &mut Option<AnswerListener>) -> BrowserAnswer {
    match listener {
        Some(listener) => listener.next().await,
        None => std::future::pending().await,
    }
}

/// Describes a pasted line that isn't an answer to this login.
fn describe_wrong_line(error: &LoginError, may_be_cut: bool) -> String {
    if may_be_cut {
        // A shell's line editor accepts longer lines than a program that reads a terminal.
        format!(
            "{error}. The terminal may have cut the line: run `curl 'ADDRESS'` with the whole \
             address in another terminal"
        )
    } else {
        error.to_string()
    }
}

fn step_after(end: Result<(), LoginError>) -> Result<WaitStep, LoginError> {
    match end {
        Ok(()) => Ok(WaitStep::Finished),
        // Another process was first, and its grant may arrive in a moment.
        Err(LoginError::UnknownState) => Ok(WaitStep::Waiting),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use moongate_transport::fetcher::FetchRules;
    use tempfile::TempDir;
    use tokio::net::TcpListener;

    use super::*;
    use crate::app::logins::fixtures::{grant_of, pending_login};

    /// Grant of the previous login.
    fn earlier(pending: &PendingLogin, renewal: u64) -> LoginGrant {
        LoginGrant {
            obtained: pending.started - SignedDuration::from_hours(1),
            ..grant_of(pending, renewal)
        }
    }

    /// Folder with a waiting login.
    struct Fixture {
        _dir: TempDir,
        folder: LoginFolder,
        fetcher: Fetcher,
        pending: PendingLogin,
    }

    impl Fixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let folder = LoginFolder::open(&dir.path().join("state")).unwrap();
            let pending = pending_login("state-of-this-login");
            folder.put_pending(&pending).unwrap();
            Fixture {
                _dir: dir,
                folder,
                fetcher: Fetcher::with_system_roots(&FetchRules::default()),
                pending,
            }
        }

        fn target(&self) -> LoginTarget {
            self.pending.target()
        }

        fn wait(&self) -> LoginWait<'_> {
            let known = self.folder.grant_version(&self.target()).unwrap();
            LoginWait::new((&self.fetcher, &self.folder), &self.pending, None, known)
        }

        fn address(&self, query: &str) -> InputLine {
            InputLine::Text(format!("{}?{query}", self.pending.client.redirect))
        }
    }

    #[tokio::test]
    async fn a_wrong_line_is_refused_and_the_login_still_waits() {
        let fixture = Fixture::new();
        let wait = fixture.wait();
        for line in [
            InputLine::Text(String::new()),
            InputLine::Text("what now?".to_owned()),
            InputLine::Unreadable,
            fixture.address("code=x&state=another"),
            fixture.address("code=x&state=state-of-this-login&iss=https://evil.example"),
            fixture.address("error=access_denied&state=another"),
            InputLine::Text(
                "http://127.0.0.1:8080/oauth/callback/other?code=x&state=state-of-this-login"
                    .to_owned(),
            ),
        ] {
            let step = wait.take_line(line).await.unwrap();
            assert_eq!(step, WaitStep::Waiting);
            assert!(fixture.folder.is_pending("state-of-this-login"));
        }
    }

    #[test]
    fn a_line_that_may_be_cut_is_named_so() {
        let error = LoginError::NotAnAnswer;
        assert_eq!(describe_wrong_line(&error, false), error.to_string());
        let cut = describe_wrong_line(&error, true);
        assert!(cut.contains("`curl 'ADDRESS'`"), "{cut}");
    }

    #[tokio::test]
    async fn a_refusal_of_the_authorization_server_ends_the_wait() {
        let fixture = Fixture::new();
        let line = fixture.address("error=access_denied&state=state-of-this-login");
        let error = fixture.wait().take_line(line).await.unwrap_err();
        assert!(matches!(error, LoginError::Refused { .. }), "{error}");
        assert!(!fixture.folder.is_pending("state-of-this-login"));
    }

    #[tokio::test]
    async fn a_grant_of_another_process_ends_the_wait_and_a_renewal_does_not() {
        let fixture = Fixture::new();
        let write = |grant: &LoginGrant| {
            let target = fixture.target();
            fixture.folder.write_grant(&target, grant).unwrap();
        };
        write(&earlier(&fixture.pending, 3));
        let mut wait = fixture.wait();
        assert_eq!(wait.check_files().unwrap(), WaitStep::Waiting);
        let renewed = grant_of(&fixture.pending, 4);
        let ended = LoginGrant {
            ended: true,
            ..renewed.clone()
        };
        for same in [renewed, ended, grant_of(&fixture.pending, 5)] {
            write(&same);
            assert_eq!(wait.check_files().unwrap(), WaitStep::Waiting);
        }
        write(&grant_of(&fixture.pending, 0));
        assert_eq!(wait.check_files().unwrap(), WaitStep::Finished);
    }

    #[tokio::test]
    async fn a_grant_that_was_renewed_at_once_ends_the_wait() {
        let renewed = |client: &str, pending: &PendingLogin| {
            let mut renewed = grant_of(pending, 1);
            client.clone_into(&mut renewed.client.id);
            renewed
        };
        for (before, client) in [
            (None, "client"),
            (Some(3), "client"),
            (Some(0), "new client"),
        ] {
            let fixture = Fixture::new();
            let target = fixture.target();
            if let Some(renewal) = before {
                let earlier = earlier(&fixture.pending, renewal);
                fixture.folder.write_grant(&target, &earlier).unwrap();
            }
            let mut wait = fixture.wait();
            let renewed = renewed(client, &fixture.pending);
            fixture.folder.write_grant(&target, &renewed).unwrap();
            let step = wait.check_files().unwrap();
            assert_eq!(step, WaitStep::Finished, "{before:?} {client}");
        }
    }

    #[tokio::test]
    async fn the_reason_of_a_failure_elsewhere_ends_the_wait() {
        let fixture = Fixture::new();
        let mut wait = fixture.wait();
        let query = "error=access_denied&state=state-of-this-login";
        let response = AuthorizationResponse::from_query(query).unwrap();
        let path = fixture.pending.client.redirect.path();
        let (fetcher, folder) = (&fixture.fetcher, &fixture.folder);
        let failed = finish_login(fetcher, folder, &response, Some(path)).await;
        let reason = failed.unwrap_err().to_string();
        let error = wait.check_files().unwrap_err();
        assert_eq!(error.to_string(), reason);
        assert!(reason.contains("access_denied"), "{reason}");
    }

    #[tokio::test]
    async fn the_port_of_a_gateway_that_is_gone_is_taken() {
        let fixture = Fixture::new();
        let gateway = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = gateway.local_addr().unwrap();
        let mut wait = fixture.wait().at(Some(address));
        for _ in 0..FREE_CHECKS {
            wait.take_free_port().await;
        }
        assert!(wait.listener.is_none());
        drop(gateway);
        for _ in 1..FREE_CHECKS {
            wait.take_free_port().await;
        }
        assert!(wait.listener.is_none());
        wait.take_free_port().await;
        assert!(wait.listener.is_some());
    }

    #[test]
    fn the_gateway_with_the_answer_is_named() {
        let fixture = Fixture::new();
        assert_eq!(
            fixture.wait().describe_taker(),
            "The gateway at http://127.0.0.1:8080 received the answer. If the login fails, \
             the page in your browser says why."
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_failed_elsewhere_ends_the_wait() {
        let fixture = Fixture::new();
        let mut wait = fixture.wait();
        fixture.folder.take_pending("state-of-this-login").unwrap();
        assert_eq!(wait.check_files().unwrap(), WaitStep::Waiting);
        tokio::time::advance(EXCHANGE_MAX).await;
        assert_eq!(wait.check_files().unwrap(), WaitStep::Waiting);
        tokio::time::advance(Duration::from_secs(1)).await;
        let error = wait.check_files().unwrap_err().to_string();
        assert!(error.contains("the login failed there"), "{error}");
    }
}
