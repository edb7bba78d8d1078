//! Tests of renewals against a token endpoint that rotates refresh tokens, as strict ones do.

mod token_server;

use std::path::PathBuf;

use futures_util::future::join_all;
use moongate_transport::credential_source::{CredentialDirectory, CredentialTarget};
use moongate_transport::fetcher::FetchRules;
use moongate_transport::trust::tls_without_roots;
use tempfile::TempDir;

use super::*;
use crate::login_directory::{LoginDirectory, LoginServer};
use crate::secret_text::SecretText;
use crate::settings::ServerAuth;

use token_server::{EndpointMode, TokenServer};

/// State folder with one login.
struct Fixture {
    _dir: TempDir,
    state_folder: PathBuf,
    folder: LoginFolder,
    server: TokenServer,
}

impl Fixture {
    /// Login at this endpoint, made this many minutes ago. Its token is valid for an hour.
    async fn new(mode: EndpointMode, minutes: i64) -> Self {
        let server = TokenServer::start(mode).await;
        let dir = tempfile::tempdir().unwrap();
        let state_folder = dir.path().join("state");
        let folder = LoginFolder::open(&state_folder).unwrap();
        let grant = server.grant(minutes);
        folder.write_grant(&server.target(), &grant).unwrap();
        Fixture {
            _dir: dir,
            state_folder,
            folder,
            server,
        }
    }

    /// Source as another process has it.
    fn source(&self) -> GrantSource {
        let folder = LoginFolder::open(&self.state_folder).unwrap();
        let fetcher = Fetcher::new(tls_without_roots(), &FetchRules::default());
        let renewals = TaskTracker::new();
        GrantSource::new(folder, Arc::new(fetcher), self.server.target(), renewals)
    }

    /// Logins as another process has them.
    fn logins(&self) -> LoginDirectory {
        let folder = LoginFolder::open(&self.state_folder).unwrap();
        let fetcher = Fetcher::new(tls_without_roots(), &FetchRules::default());
        let logins = LoginDirectory::new(Some(folder), Arc::new(fetcher));
        logins.replace(vec![self.login_server()]);
        logins
    }

    fn login_server(&self) -> LoginServer {
        LoginServer {
            target: self.server.target(),
            auth: ServerAuth::default(),
        }
    }

    fn find(&self, logins: &LoginDirectory) -> Arc<dyn CredentialSource> {
        let target = self.server.target();
        let found = logins.find_source(&CredentialTarget {
            server: &target.server,
            url: &target.url,
            person: None,
        });
        found.unwrap()
    }

    fn stored(&self) -> LoginGrant {
        let stored = self.folder.read_grant(&self.server.target());
        stored.unwrap().unwrap()
    }

    /// Path of the login's file with this ending.
    fn only_file(&self, ending: &str) -> PathBuf {
        let entries = std::fs::read_dir(self.state_folder.join("logins")).unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        let found = paths.find(|path| path.extension() == Some(ending.as_ref()));
        found.unwrap()
    }

    /// Replaces the file with a folder, which can be neither read nor locked.
    fn replace_by_folder(&self, ending: &str) -> PathBuf {
        let path = self.only_file(ending);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        path
    }

    /// Keeps files in the folder from being replaced, even by root.
    fn block_writes(&self) -> PathBuf {
        let in_the_way = self.state_folder.join("logins/.new/x");
        std::fs::create_dir_all(&in_the_way).unwrap();
        self.state_folder.join("logins/.new")
    }
}

async fn header(source: &GrantSource) -> Option<HeaderValue> {
    source.authorization().await.unwrap()
}

async fn token(source: &GrantSource) -> String {
    let header = header(source).await.unwrap();
    assert!(header.is_sensitive());
    header.to_str().unwrap().to_owned()
}

fn challenge(status: u16) -> AuthChallenge {
    AuthChallenge {
        status,
        values: vec!["Bearer error=\"insufficient_scope\"".to_owned()],
    }
}

/// Waits until a background renewal has brought another token.
async fn wait_for(source: &GrantSource, expected: &str) {
    let renewed = async {
        while token(source).await != expected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), renewed).await;
    waited.unwrap();
}

/// Moves the clock past the pause after a failure, while nothing is sent.
async fn advance(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn fifty_requests_at_the_end_of_a_token_share_one_refresh() {
    let fixture = Fixture::new(EndpointMode::Rotating, 61).await;
    let source = fixture.source();
    let tokens = join_all((0..50).map(|_| token(&source))).await;
    assert!(
        tokens.iter().all(|token| token == "Bearer access-1"),
        "{tokens:?}"
    );
    assert_eq!(fixture.server.count(), 1);
    let stored = fixture.stored();
    assert_eq!(stored.access.expose(), "access-1");
    assert_eq!(stored.refresh.unwrap().expose(), "refresh-1");
    assert_eq!(stored.renewal, 1);
    assert_eq!(source.problem(), None);
}

#[tokio::test]
async fn processes_that_share_a_login_refresh_it_once() {
    let fixture = Fixture::new(EndpointMode::Rotating, 61).await;
    let sources = [fixture.source(), fixture.source(), fixture.source()];
    let tokens = join_all(sources.iter().map(token)).await;
    assert_eq!(tokens, ["Bearer access-1"; 3]);
    assert_eq!(fixture.server.count(), 1);
}

#[tokio::test]
async fn a_due_refresh_runs_in_the_background() {
    let fixture = Fixture::new(EndpointMode::Rotating, 50).await;
    let source = fixture.source();
    let tokens = join_all((0..50).map(|_| token(&source))).await;
    assert!(
        tokens.iter().all(|token| token == "Bearer access-0"),
        "{tokens:?}"
    );
    wait_for(&source, "Bearer access-1").await;
    assert_eq!(fixture.server.count(), 1);
}

#[tokio::test]
async fn a_fresh_token_is_sent_as_it_is() {
    let fixture = Fixture::new(EndpointMode::Rotating, 1).await;
    let source = fixture.source();
    assert!(source.has_login());
    assert_eq!(token(&source).await, "Bearer access-0");
    assert_eq!(fixture.server.count(), 0);
}

#[tokio::test]
async fn an_old_refresh_token_stays_and_the_scope_is_the_one_asked_for() {
    let fixture = Fixture::new(EndpointMode::Keeping, 61).await;
    assert_eq!(token(&fixture.source()).await, "Bearer access-1");
    let stored = fixture.stored();
    assert_eq!(stored.refresh.unwrap().expose(), "refresh-0");
    assert_eq!(stored.scope_asked.as_deref(), Some("read write"));
    let form = fixture.server.state.lock().requests[0].clone();
    assert!(form.contains("scope=read+write"), "{form}");
}

#[tokio::test]
async fn a_login_that_was_ended_is_never_refreshed_again() {
    let fixture = Fixture::new(EndpointMode::Ending, 61).await;
    let source = fixture.source();
    for _ in 0..3 {
        assert_eq!(header(&source).await, None);
    }
    assert!(fixture.stored().ended);
    let other = fixture.source();
    assert!(!other.has_login() && !source.has_login());
    assert_eq!(header(&other).await, None);
    assert!(!other.on_refusal(None, &challenge(401)).await);
    assert_eq!(fixture.server.count(), 1);
    // Only a new login works.
    let grant = fixture.server.grant(1);
    let target = fixture.server.target();
    fixture.folder.write_grant(&target, &grant).unwrap();
    assert!(source.on_refusal(None, &challenge(401)).await);
    assert_eq!(token(&source).await, "Bearer access-0");
}

#[tokio::test]
async fn a_valid_token_is_used_while_its_server_is_down() {
    let fixture = Fixture::new(EndpointMode::Down, 59).await;
    let source = fixture.source();
    for _ in 0..50 {
        assert_eq!(token(&source).await, "Bearer access-0");
    }
    while source.problem().is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(token(&source).await, "Bearer access-0");
    assert_eq!(fixture.server.count(), 1);
    assert!(!fixture.stored().ended);
    fixture.server.set_mode(EndpointMode::Rotating);
    advance(5).await;
    wait_for(&source, "Bearer access-2").await;
    assert_eq!(source.problem(), None);
}

#[tokio::test]
async fn without_a_valid_token_a_server_that_is_down_is_an_error_but_ends_nothing() {
    let fixture = Fixture::new(EndpointMode::Down, 61).await;
    let source = fixture.source();
    for _ in 0..5 {
        let error = source.authorization().await.unwrap_err();
        assert!(matches!(error, LinkError::Unreachable(_)), "{error:?}");
        assert!(error.to_string().contains("cannot be renewed"), "{error}");
    }
    assert_eq!(fixture.server.count(), 1);
    assert!(source.has_login());
    fixture.server.set_mode(EndpointMode::Rotating);
    advance(5).await;
    assert_eq!(token(&source).await, "Bearer access-2");
}

#[tokio::test]
async fn a_lost_response_may_cost_the_login_but_causes_no_loop() {
    let fixture = Fixture::new(EndpointMode::Losing, 61).await;
    let source = fixture.source();
    source.authorization().await.unwrap_err();
    assert!(!fixture.stored().ended, "the server may have done nothing");
    fixture.server.set_mode(EndpointMode::Rotating);
    advance(5).await;
    for _ in 0..5 {
        assert_eq!(header(&source).await, None);
    }
    assert!(fixture.stored().ended);
    assert_eq!(fixture.server.count(), 2);
}

#[tokio::test]
async fn a_slow_response_with_the_next_refresh_token_is_waited_for() {
    let fixture = Fixture::new(EndpointMode::Holding, 61).await;
    let source = Arc::new(fixture.source());
    let request = tokio::spawn({
        let source = source.clone();
        async move { token(&source).await }
    });
    while fixture.server.count() == 0 {
        tokio::task::yield_now().await;
    }
    advance(25).await;
    // Anything with a timeout has ended by now.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!request.is_finished());
    fixture.server.set_mode(EndpointMode::Rotating);
    assert_eq!(request.await.unwrap(), "Bearer access-1");
    assert_eq!(fixture.stored().refresh.unwrap().expose(), "refresh-1");
}

#[tokio::test]
async fn a_process_exits_only_once_every_sent_renewal_is_on_disk() {
    let fixture = Fixture::new(EndpointMode::Holding, 50).await;
    let logins = fixture.logins();
    // For a server that is only being tried.
    let others = logins.of_others(vec![fixture.login_server()]);
    let source = fixture.find(&others);
    source.authorization().await.unwrap();
    while fixture.server.count() == 0 {
        tokio::task::yield_now().await;
    }
    let limit = Duration::from_millis(50);
    assert!(tokio::time::timeout(limit, logins.settle()).await.is_err());
    fixture.server.set_mode(EndpointMode::Rotating);
    logins.settle().await;
    assert_eq!(fixture.stored().refresh.unwrap().expose(), "refresh-1");
}

#[tokio::test]
async fn a_process_that_is_about_to_exit_sends_no_renewal() {
    let fixture = Fixture::new(EndpointMode::Rotating, 61).await;
    let logins = fixture.logins();
    let source = fixture.find(&logins);
    logins.settle().await;
    source.authorization().await.unwrap_err();
    assert_eq!(fixture.server.count(), 0);
}

#[tokio::test]
async fn an_abandoned_request_loses_no_response() {
    let fixture = Fixture::new(EndpointMode::Rotating, 61).await;
    let source = Arc::new(fixture.source());
    let request = tokio::spawn({
        let source = source.clone();
        async move { source.authorization().await }
    });
    while fixture.server.count() == 0 {
        tokio::task::yield_now().await;
    }
    request.abort();
    assert_eq!(token(&source).await, "Bearer access-1");
    assert_eq!(fixture.server.count(), 1);
}

#[tokio::test]
async fn a_token_that_cannot_be_written_is_used_and_written_later() {
    let fixture = Fixture::new(EndpointMode::Rotating, 61).await;
    let source = fixture.source();
    let in_the_way = fixture.block_writes();
    assert_eq!(token(&source).await, "Bearer access-1");
    let problem = source.problem().unwrap().cause;
    assert!(problem.contains("only in memory"), "{problem}");
    assert_eq!(fixture.stored().access.expose(), "access-0");
    // The token in the file is older, and does not come back.
    source.reload();
    assert_eq!(token(&source).await, "Bearer access-1");
    std::fs::remove_dir_all(in_the_way).unwrap();
    advance(5).await;
    while source.problem().is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(fixture.stored().access.expose(), "access-1");
    assert_eq!(fixture.server.count(), 1);
}

#[tokio::test]
async fn a_valid_token_is_not_renewed_while_the_disk_is_full() {
    let fixture = Fixture::new(EndpointMode::Rotating, 50).await;
    let source = fixture.source();
    let in_the_way = fixture.block_writes();
    assert_eq!(token(&source).await, "Bearer access-0");
    while source.problem().is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let problem = source.problem().unwrap().cause;
    assert!(problem.contains("cannot be written to disk"), "{problem}");
    assert_eq!(fixture.server.count(), 0);
    std::fs::remove_dir_all(in_the_way).unwrap();
    advance(5).await;
    wait_for(&source, "Bearer access-1").await;
    assert_eq!(fixture.stored().access.expose(), "access-1");
    assert_eq!(source.problem(), None);
    let entries = std::fs::read_dir(fixture.state_folder.join("logins")).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    assert!(paths.all(|path| path.extension() != Some("space".as_ref())));
}

#[tokio::test]
async fn a_refused_token_is_renewed_once() {
    let fixture = Fixture::new(EndpointMode::Rotating, 1).await;
    let source = fixture.source();
    let first = header(&source).await;
    assert!(!source.on_refusal(first.as_ref(), &challenge(403)).await);
    let refusal = challenge(401);
    let refusals = (0..20).map(|_| source.on_refusal(first.as_ref(), &refusal));
    assert_eq!(join_all(refusals).await, [true; 20]);
    assert_eq!(token(&source).await, "Bearer access-1");
    let second = header(&source).await;
    assert!(!source.on_refusal(second.as_ref(), &challenge(401)).await);
    assert_eq!(fixture.server.count(), 1);
}

#[tokio::test]
async fn a_new_token_that_is_refused_is_tried_again_once() {
    let fixture = Fixture::new(EndpointMode::Rotating, 0).await;
    let source = fixture.source();
    let sent = header(&source).await;
    for expected in [true, false] {
        assert!(!source.on_refusal(sent.as_ref(), &challenge(401)).await);
        assert!(!source.take_retry());
        advance(31).await;
        assert_eq!(source.take_retry(), expected);
        assert!(!source.take_retry());
    }
    assert_eq!(fixture.server.count(), 0);
}

#[tokio::test]
async fn scope_that_calls_need_is_kept_until_a_logout() {
    let fixture = Fixture::new(EndpointMode::Rotating, 1).await;
    let source = fixture.source();
    let target = fixture.server.target();
    let sent = header(&source).await;
    let wanted = || fixture.folder.wanted_scope(&target).unwrap();
    for (status, scope, expected) in [
        (401, "other", None),
        (403, "write", Some("write")),
        (403, "write", Some("write")),
        (403, "admin", Some("write admin")),
    ] {
        let value = format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
        let refusal = AuthChallenge {
            status,
            values: vec![value],
        };
        // Only a 401 leads to another token.
        let repeats = source.on_refusal(sent.as_ref(), &refusal).await;
        assert_eq!(repeats, status == 401, "{scope}");
        assert_eq!(wanted().as_deref(), expected, "{scope}");
    }
    fixture.folder.remove_grant(&target).unwrap();
    assert_eq!(wanted(), None);
}

#[tokio::test]
async fn a_refused_token_that_another_process_has_renewed_is_only_read_again() {
    let fixture = Fixture::new(EndpointMode::Rotating, 1).await;
    let sources = [fixture.source(), fixture.source()];
    let first = header(&sources[0]).await;
    for source in &sources {
        assert!(source.on_refusal(first.as_ref(), &challenge(401)).await);
        assert_eq!(token(source).await, "Bearer access-1");
    }
    assert_eq!(fixture.server.count(), 1);
}

#[tokio::test]
async fn a_login_without_a_refresh_token_ends_with_its_token() {
    let fixture = Fixture::new(EndpointMode::Rotating, 1).await;
    let target = fixture.server.target();
    for (minutes, has_login) in [(50, true), (61, false)] {
        let grant = LoginGrant {
            refresh: None,
            ..fixture.server.grant(minutes)
        };
        fixture.folder.write_grant(&target, &grant).unwrap();
        let source = fixture.source();
        assert_eq!(source.has_login(), has_login);
        let sent = header(&source).await;
        assert_eq!(sent.is_some(), has_login);
        assert!(!source.on_refusal(sent.as_ref(), &challenge(401)).await);
    }
    assert_eq!(fixture.server.count(), 0);
}

#[tokio::test]
async fn a_logout_elsewhere_is_not_undone_by_a_renewal() {
    let fixture = Fixture::new(EndpointMode::Rotating, 61).await;
    let source = fixture.source();
    let target = fixture.server.target();
    fixture.folder.remove_grant(&target).unwrap();
    assert_eq!(header(&source).await, None);
    assert_eq!(fixture.server.count(), 0);
    assert_eq!(fixture.folder.read_grant(&target).unwrap(), None);
}

#[tokio::test]
async fn a_login_that_another_one_replaced_meanwhile_ends_nothing() {
    let fixture = Fixture::new(EndpointMode::Rotating, 61).await;
    let target = fixture.server.target();
    let file = GrantFile::new(fixture.folder.clone(), target.clone());
    let before = file.version().unwrap();
    let later = fixture.server.grant(0);
    fixture.folder.write_grant(&target, &later).unwrap();
    let ended = LoginGrant {
        ended: true,
        ..fixture.server.grant(61)
    };
    let stored = file.replace(before, ended);
    assert!(stored.failure.is_none());
    assert_eq!(stored.login.grant.unwrap().grant, later);
    assert_eq!(fixture.stored(), later);
}

#[tokio::test]
async fn an_unreadable_file_does_not_cost_new_tokens() {
    let fixture = Fixture::new(EndpointMode::Rotating, 61).await;
    let target = fixture.server.target();
    let file = GrantFile::new(fixture.folder.clone(), target.clone());
    let before = file.version().unwrap();
    let path = fixture.replace_by_folder("grant");
    let renewed = LoginGrant {
        access: SecretText::new("access-1"),
        renewal: 1,
        ..fixture.server.grant(0)
    };
    let stored = file.replace(before, renewed.clone());
    assert!(stored.failure.is_some());
    let held = stored.login.grant.unwrap();
    assert!(held.is_unsaved);
    assert_eq!(held.grant, renewed);
    assert_eq!(stored.login.version, before);
    std::fs::remove_dir(&path).unwrap();
}

#[tokio::test]
async fn a_problem_with_the_file_ends_when_it_can_be_read_again() {
    let fixture = Fixture::new(EndpointMode::Rotating, 1).await;
    let source = fixture.source();
    let path = fixture.only_file("grant");
    let text = std::fs::read(&path).unwrap();
    fixture.replace_by_folder("grant");
    source.reload();
    assert!(source.problem().is_some());
    assert_eq!(token(&source).await, "Bearer access-0");
    std::fs::remove_dir(&path).unwrap();
    std::fs::write(&path, text).unwrap();
    source.reload();
    assert_eq!(source.problem(), None);
}

#[tokio::test]
async fn without_the_lock_nothing_is_renewed() {
    let fixture = Fixture::new(EndpointMode::Rotating, 61).await;
    let target = fixture.server.target();
    drop(fixture.folder.lock_refresh(&target).unwrap());
    let path = fixture.replace_by_folder("lock");
    let source = fixture.source();
    let error = source.authorization().await.unwrap_err();
    assert!(error.to_string().contains("cannot be renewed"), "{error}");
    assert_eq!(fixture.server.count(), 0);
    std::fs::remove_dir(path).unwrap();
    advance(5).await;
    assert_eq!(token(&source).await, "Bearer access-1");
}

#[tokio::test]
async fn no_text_contains_a_token() {
    let fixture = Fixture::new(EndpointMode::Down, 61).await;
    let source = fixture.source();
    let error = source.authorization().await.unwrap_err();
    let shown = format!("{error} {error:?} {:?}", source.problem());
    assert!(
        !shown.contains("access-") && !shown.contains("refresh-"),
        "{shown}"
    );
}
