//! Tests of persisted sessions: owners, limits, and what expires.

use bytes::Bytes;

use super::*;
use crate::{ReplaySettings, SessionSettings};
use moongate_telemetry::Metrics;
use moongate_testing as testing;

const IDLE: Duration = Duration::from_secs(60);

fn settings(max: usize) -> SessionSettings {
    let replay = ReplaySettings {
        bytes: 1000,
        total: 1000,
        events: 10,
        time: IDLE,
    };
    SessionSettings {
        max,
        idle: IDLE,
        outbox: 1000,
        outbox_total: 1000,
        subscriptions: 10,
        replay,
    }
}

fn row(n: u8, owner: u8, used: u64) -> (Bytes, Bytes) {
    let record = SessionRecord {
        owner: [owner; 16],
        login_end: Some(100 + u64::from(owner)),
        scope: "files".to_owned(),
        used,
        began: None,
        revision: "2025-11-25".to_owned(),
        capabilities: RawJson::literal(r#"{"roots":{ }}"#),
        info: None,
        log: Some("error".to_owned()),
        subscriptions: vec!["a://1".to_owned()],
        tasks: vec!["t".to_owned()],
        unanswered: vec![(7, RawJson::literal("3"))],
    };
    (
        Bytes::copy_from_slice(&digest(&n.to_string())),
        serde_json::to_vec(&record).unwrap().into(),
    )
}

fn sessions(max: usize, rows: Vec<(Bytes, Bytes)>) -> Sessions {
    let sessions = Sessions::persistent(
        settings(max),
        Arc::new(Metrics::new()),
        StateStore::memory(),
    );
    let mut contents = StoredState::of(1, StoreTable::Sessions, rows);
    sessions.load_persisted(&mut contents, |key, login_end| {
        assert_eq!(login_end, Some(100 + u64::from(key[0])));
        [[1; 16], [2; 16]].contains(key)
    });
    sessions
}

fn find(
    sessions: &Sessions,
    id: &str,
    principal: u32,
    scope: &'static str,
) -> Option<SessionRecord> {
    sessions.persisted_record(
        id,
        &testing::principal(principal),
        &ByteString::literal(scope),
    )
}

fn owner() -> Caller {
    (*testing::caller(1, None)).clone()
}

#[tokio::test]
async fn a_session_comes_back_for_its_owner_and_its_endpoint_only() {
    let sessions = sessions(10, vec![row(1, 1, unix_now())]);
    assert!(find(&sessions, "1", 2, "files").is_none(), "another's");
    assert!(find(&sessions, "1", 1, "").is_none(), "another endpoint");
    assert!(find(&sessions, "2", 1, "files").is_none(), "another id");
    let record = find(&sessions, "1", 1, "files").unwrap();
    assert_eq!(
        record.capabilities,
        RawJson::literal(r#"{"roots":{ }}"#),
        "as it was spelled"
    );
    assert_eq!(record.log(), LogFilter::AtLeast(LogLevel::Error));
    let (session, first) = sessions
        .restore_session("1", owner(), ByteString::literal("files"), &record)
        .unwrap();
    assert!(
        first == RestoredFrom::FromPreviousProcess
            && session.tasks.contains(&ByteString::literal("t"))
    );
    assert_eq!(
        session.missed.take_lost_request(7),
        Some(RequestId::number(3))
    );
    assert_eq!(session.missed.take_lost_request(7), None);
    let (again, first) = sessions
        .restore_session("1", owner(), ByteString::literal("files"), &record)
        .unwrap();
    assert!(
        first == RestoredFrom::AlreadyActive && Arc::ptr_eq(&session, &again),
        "two requests at once"
    );
    assert!(find(&sessions, "1", 1, "files").is_none());
    assert!(
        sessions
            .find(
                "1",
                &session.identity.principal,
                &ByteString::literal("files")
            )
            .is_some()
    );
    sessions.close(&session);
    assert!(
        sessions
            .restore_session("1", owner(), ByteString::literal("files"), &record)
            .is_none(),
        "what ended stays so"
    );
}

#[tokio::test]
async fn a_row_has_the_end_of_its_owners_logins() {
    let sessions = sessions(10, Vec::new());
    let scope = ByteString::literal("files");
    let session = sessions.open(owner(), scope, None).unwrap();
    for login_end in [None, Some(77)] {
        session.identity.principal.set_login_end(login_end);
        assert_eq!(session.record().login_end, login_end);
    }
    let row = r#"{"owner":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"scope":"","used":1,
        "revision":"2025-11-25","capabilities":{},"subscriptions":[],"tasks":[],"owed":[]}"#;
    let earlier: SessionRecord = serde_json::from_str(row).unwrap();
    assert_eq!(earlier.login_end, None);
}

#[tokio::test]
async fn expired_and_orphaned_sessions_are_not_restored() {
    let now = unix_now();
    let broken = (
        Bytes::copy_from_slice(&digest("4")),
        Bytes::from_static(b"{"),
    );
    let sessions = sessions(
        10,
        vec![row(1, 1, now - 61), row(2, 3, now), row(3, 1, now), broken],
    );
    assert!(
        find(&sessions, "1", 1, "files").is_none() && find(&sessions, "2", 1, "files").is_none()
    );
    assert!(find(&sessions, "3", 1, "files").is_some());
    assert_eq!(sessions.metrics.clients.sessions.get(), 1);
}

#[tokio::test]
async fn the_cap_holds_and_the_last_used_stay() {
    let now = unix_now();
    let sessions = sessions(
        2,
        vec![
            row(1, 1, now - 30),
            row(2, 1, now - 10),
            row(3, 2, now - 20),
        ],
    );
    assert!(find(&sessions, "1", 1, "files").is_none());
    // A waiting session of the same principal makes room.
    sessions
        .open(
            (*testing::caller(1, None)).clone(),
            ByteString::literal(""),
            None,
        )
        .unwrap();
    assert!(
        find(&sessions, "2", 1, "files").is_none() && find(&sessions, "3", 2, "files").is_some()
    );
    // This principal has no waiting session. The principal with the most has to make room, and
    // its session is in use.
    sessions
        .open(
            (*testing::caller(1, None)).clone(),
            ByteString::literal(""),
            None,
        )
        .unwrap();
    assert!(find(&sessions, "3", 2, "files").is_some(), "not another's");
    assert_eq!(sessions.metrics.clients.sessions.get(), 2);
}
