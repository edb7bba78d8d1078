//! Tests of credential commands: what a token is, and when a command runs again.

#![cfg(unix)] // the commands need a Unix shell

use std::path::Path;

use futures_util::future::join_all;

use super::*;
use crate::secret_text::SecretText;

const TTL: Duration = Duration::from_secs(600);

fn source(script: &str) -> CommandSource {
    let settings = CommandSettings {
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: vec![("WORD".to_owned(), SecretText::new("hush"))],
        ttl: TTL,
    };
    CommandSource::new("github".to_owned(), settings)
}

/// Script that counts its runs in a file, and prints their number.
fn counting(file: &Path) -> String {
    let file = file.display();
    format!("echo x >> {file}; echo token-$(grep -c x {file})")
}

async fn sent(source: &CommandSource) -> String {
    let header = source.authorization().await.unwrap().unwrap();
    assert!(header.is_sensitive());
    header.to_str().unwrap().to_owned()
}

async fn failure(source: &CommandSource) -> String {
    let error = source.authorization().await.unwrap_err();
    assert!(matches!(error, LinkError::Unreachable(_)), "{error:?}");
    error.to_string()
}

fn challenge(status: u16) -> AuthChallenge {
    AuthChallenge {
        status,
        values: Vec::new(),
    }
}

/// Moves the clock while no command runs.
async fn advance(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn one_run_serves_all_requests_until_its_ttl_has_passed() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&counting(&dir.path().join("runs")));
    let all = join_all((0..50).map(|_| sent(&source))).await;
    assert!(
        all.iter().all(|header| header == "Bearer token-1"),
        "{all:?}"
    );
    advance(TTL).await;
    assert_eq!(sent(&source).await, "Bearer token-2");
}

#[tokio::test]
async fn a_refusal_leads_to_one_run_in_thirty_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&counting(&dir.path().join("runs")));
    let first = source.authorization().await.unwrap();
    assert!(!source.on_refusal(first.as_ref(), &challenge(401)).await);
    advance(REFUSAL_PAUSE).await;
    assert!(!source.on_refusal(first.as_ref(), &challenge(403)).await);
    let refusal = challenge(401);
    let refusals = (0..20).map(|_| source.on_refusal(first.as_ref(), &refusal));
    assert_eq!(join_all(refusals).await, [true; 20]);
    let second = source.authorization().await.unwrap();
    assert_eq!(second.as_ref().unwrap(), "Bearer token-2");
    assert!(!source.on_refusal(second.as_ref(), &challenge(401)).await);
    assert_eq!(sent(&source).await, "Bearer token-2");
}

#[tokio::test]
async fn the_same_token_again_does_not_repeat_a_request() {
    let source = source("echo same");
    let first = source.authorization().await.unwrap();
    advance(REFUSAL_PAUSE).await;
    assert!(!source.on_refusal(first.as_ref(), &challenge(401)).await);
}

#[tokio::test]
async fn a_failure_names_the_key_and_quotes_nothing() {
    for (script, expected) in [
        ("echo canary >&2; exit 4", "status 4"),
        ("kill -9 $$", "a signal"),
        ("echo canary; echo canary", "more than one line"),
        ("printf 'canary\\rcanary'", "more than one line"),
        ("echo Bearer canary", "characters that a token cannot have"),
        (
            "printf 'canary\\303\\251'",
            "characters that a token cannot have",
        ),
        ("printf ' \\n \\n'", "printed nothing"),
        ("while :; do echo canary; done", "more than 16 KiB"),
        ("echo $WORD; exit 1", "status 1"),
    ] {
        let text = failure(&source(script)).await;
        assert!(text.starts_with("servers.github.auth.command: "), "{text}");
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("canary") && !text.contains("hush"), "{text}");
    }
    let settings = CommandSettings {
        command: "/no/such/program".to_owned(),
        ..source("").settings
    };
    let missing = CommandSource::new("github".to_owned(), settings);
    assert!(failure(&missing).await.ends_with("was not found"));
}

#[tokio::test]
async fn a_failed_run_fails_other_requests_for_a_moment() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("runs");
    let source = source(&format!("{}; exit 1", counting(&file)));
    failure(&source).await;
    failure(&source).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "x\n");
    advance(FAILURE_PAUSE).await;
    failure(&source).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "x\nx\n");
}

#[tokio::test]
async fn a_command_that_hangs_ends_after_ten_seconds() {
    // The paused clock jumps ahead once only the command is left to wait for.
    tokio::time::pause();
    let text = failure(&source("sleep 600")).await;
    assert!(text.ends_with("did not finish within 10 s"), "{text}");
}

#[tokio::test]
async fn a_dropped_request_does_not_cost_the_next_one_its_run() {
    let dir = tempfile::tempdir().unwrap();
    let gate = dir.path().join("gate");
    let script = format!("test -e {} || sleep 600; echo token", gate.display());
    let source = Arc::new(source(&script));
    let first = tokio::spawn({
        let source = source.clone();
        async move { source.authorization().await }
    });
    tokio::task::yield_now().await;
    first.abort();
    std::fs::write(&gate, "").unwrap();
    assert_eq!(sent(&source).await, "Bearer token");
}

#[tokio::test]
async fn the_command_gets_its_variables() {
    assert_eq!(sent(&source("echo $WORD")).await, "Bearer hush");
}
