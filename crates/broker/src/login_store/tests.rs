//! Tests of the login store, with and without a file.

use std::path::Path;

use moongate_access::auth::Person;
use moongate_model::{PrincipalSecret, RoleId};
use moongate_oauth::{SecretSettings, SecretText};
use moongate_session::store::{StorePhase, StoreSettings};

use crate::person_facts::PersonFacts;
use crate::person_row::ProvenPerson;

use super::*;

const AUTHORITY: &str = "https://login.test";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn secrets(current: &str, before: &[&str]) -> RootSecrets {
    let text = |secret: &str| SecretText::new(secret.repeat(32));
    let settings = SecretSettings {
        secret: Some(text(current)),
        before: before.iter().map(|&secret| text(secret)).collect(),
    };
    RootSecrets::open(None, &settings).unwrap()
}

/// Gateway with a login store.
struct Gateway {
    store: StateStore,
    logins: Arc<LoginStore>,
    principals: Arc<PrincipalTable>,
    metrics: Arc<Metrics>,
}

impl Gateway {
    fn new(store: StateStore, secrets: &RootSecrets) -> Self {
        let principals = Arc::new(PrincipalTable::default());
        let metrics = Arc::new(Metrics::new());
        let logins = LoginStore::new(store.clone(), secrets, principals.clone(), metrics.clone());
        Gateway {
            store,
            logins,
            principals,
            metrics,
        }
    }

    fn in_memory() -> Self {
        let gateway = Gateway::new(StateStore::memory(), &secrets("x", &[]));
        gateway.logins.restore(None).unwrap();
        gateway
    }

    /// Starts with a file. The outcome is that of `restore`.
    async fn open(file: &Path, secrets: &RootSecrets) -> (Self, Result<(), LostSecret>) {
        Gateway::open_for(file, secrets, AUTHORITY).await
    }

    /// Starts over a file, with this company login in the config.
    async fn open_for(
        file: &Path,
        secrets: &RootSecrets,
        authority: &str,
    ) -> (Self, Result<(), LostSecret>) {
        let settings = StoreSettings {
            file: Some(file.to_owned()),
            ..StoreSettings::default()
        };
        let store = StateStore::open(settings, Arc::new(Metrics::new()));
        store
            .phase()
            .wait_for(|phase| *phase == StorePhase::Open)
            .await
            .unwrap();
        let mut contents = store.take_contents().unwrap();
        let gateway = Gateway::new(store, secrets);
        let restored = gateway.logins.restore(Some(EarlierState {
            contents: &mut contents,
            authority,
        }));
        (gateway, restored)
    }

    /// Starts with a file that this secret opens.
    async fn at(file: &Path, secrets: &RootSecrets) -> Self {
        let (gateway, restored) = Gateway::open(file, secrets).await;
        restored.unwrap();
        gateway
    }

    async fn start(&self, subject: &str) -> LiveLogin {
        let person = person(subject, Some("hush"));
        let login = login(&person);
        self.logins.start(login, person).await.unwrap()
    }

    fn token_of(&self, mark: &PrincipalKey) -> Option<String> {
        let person = self.logins.person(mark)?;
        let token = person.token.as_ref()?;
        Some(token.expose().to_owned())
    }
}

fn person(subject: &str, token: Option<&str>) -> PersonRow {
    let person = ProvenPerson {
        subject: subject.to_owned(),
        facts: PersonFacts {
            name: subject.to_owned(),
            ..PersonFacts::default()
        },
        token: token.map(SecretText::new),
        wanted: [0; 8],
    };
    PersonRow::of(AUTHORITY, person, Timestamp::now())
}

fn login(person: &PersonRow) -> LoginRow {
    let now = Timestamp::now();
    LoginRow {
        mark: person.mark(),
        client: [1; 16],
        client_name: "shape".to_owned(),
        endpoint: "files".to_owned(),
        since: now,
        ends: now.checked_add(DAY).unwrap(),
        last_used: now,
        generation: 0,
        advanced: now,
        is_used: false,
        replays: 0,
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_before_the_rows_are_here() {
    let gateway = Gateway::new(StateStore::memory(), &secrets("x", &[]));
    let logins = &gateway.logins;
    let ann = person("ann", None);
    let fault = logins.start(login(&ann), ann.clone()).await.unwrap_err();
    assert_eq!(fault, StoreFault::NotReady);
    let id = LoginId::new_random();
    let fault = logins.advance(id, 0, Timestamp::now()).await.unwrap_err();
    assert_eq!(fault, StoreFault::NotReady);
    assert_eq!(logins.put_person(ann, 0).await, Err(StoreFault::NotReady));
    assert_eq!(logins.pin_id("acme", 1).await, Err(StoreFault::NotReady));
    assert_eq!(
        logins.end(id, EndCause::Operator).await,
        EndOutcome::Unknown
    );
    assert!(logins.client_seal().is_none());
    assert!(!logins.ready(Duration::from_secs(2)).await);
    logins.restore(None).unwrap();
    assert!(logins.ready(Duration::from_secs(2)).await);
    assert!(logins.client_seal().is_some());
}

#[tokio::test]
async fn an_ended_login_is_gone_at_once_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.redb");
    let secrets = secrets("x", &[]);
    let gateway = Gateway::at(&file, &secrets).await;
    let first = gateway.start("ann").await;
    let second = gateway.start("ann").await;
    let other = gateway.start("bob").await;
    let mark = first.row.mark;
    let ann = Person {
        key: mark,
        name: "ann",
        secret: PrincipalSecret::new([1; 32]),
        role: RoleId::of_set(0),
        expires: None,
    };
    gateway.principals.meet("test", ann).unwrap();
    let outcome = gateway.logins.end(first.id, EndCause::Revoked).await;
    assert_eq!(outcome, EndOutcome::Synced);
    assert!(first.ended.is_cancelled() && !second.ended.is_cancelled());
    assert!(gateway.logins.find(first.id).is_none());
    assert!(gateway.principals.find(&mark).is_some());
    let outcome = gateway.logins.end_person(&mark, EndCause::Operator).await;
    assert_eq!(outcome, EndOutcome::Synced);
    assert!(second.ended.is_cancelled() && gateway.logins.person(&mark).is_none());
    assert!(gateway.principals.find(&mark).is_none());
    assert_eq!(gateway.metrics.broker.logins.get(), 1);
    assert_eq!(gateway.metrics.broker.ended.get(LoginEnd("operator")), 1);
    let again = gateway.logins.end(first.id, EndCause::Revoked).await;
    assert_eq!(again, EndOutcome::Unknown);
    gateway.store.close().await;
    let next = Gateway::at(&file, &secrets).await;
    let left: Vec<LoginId> = next.logins.logins().iter().map(|login| login.id).collect();
    assert_eq!(left, [other.id]);
    assert!(next.logins.person(&mark).is_none());
    next.store.close().await;
}

#[tokio::test]
async fn a_disk_that_cannot_be_written_leaves_memory_as_it_was_and_ends_hold() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Gateway::at(&dir.path().join("state.redb"), &secrets("x", &[])).await;
    let live = gateway.start("ann").await;
    gateway.store.close().await;
    let logins = &gateway.logins;
    let bob = person("bob", None);
    let fault = logins.start(login(&bob), bob.clone()).await.unwrap_err();
    assert_eq!(fault, StoreFault::Unwritable);
    assert!(logins.person(&bob.mark()).is_none());
    assert!(logins.logins_of(&bob.mark()).is_empty());
    let now = Timestamp::now();
    let fault = logins.advance(live.id, 0, now).await.unwrap_err();
    assert_eq!(fault, StoreFault::Unwritable);
    assert_eq!(logins.find(live.id).unwrap().row, live.row);
    let outcome = logins.end(live.id, EndCause::Operator).await;
    assert_eq!(outcome, EndOutcome::InMemory);
    assert!(live.ended.is_cancelled() && logins.find(live.id).is_none());
}

#[tokio::test]
async fn logins_people_keys_and_pins_outlive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.redb");
    let secrets = secrets("x", &[]);
    let gateway = Gateway::at(&file, &secrets).await;
    let live = gateway.start("ann").await;
    let now = Timestamp::now();
    let advanced = gateway.logins.advance(live.id, 0, now).await.unwrap();
    assert_eq!(advanced.row.generation, 1);
    let again = gateway.logins.advance(live.id, 0, now).await.unwrap();
    assert_eq!(again.row, advanced.row);
    gateway.logins.record_replay(live.id);
    let sealed = gateway.logins.client_seal().unwrap().seal("client", b"a");
    gateway.logins.pin_id("acme", 7).await.unwrap();
    gateway.store.close().await;
    let next = Gateway::at(&file, &secrets).await;
    let found = next.logins.find(live.id).unwrap();
    assert_eq!(found.row.replays, 1);
    assert_eq!(found.row.generation, 1);
    assert_eq!(next.token_of(&live.row.mark).as_deref(), Some("hush"));
    let seal = next.logins.client_seal().unwrap();
    assert!(seal.open("client", &sealed).is_some());
    assert_eq!(next.logins.pinned_id("acme"), Some(7));
    next.store.close().await;
}

#[tokio::test]
async fn a_changed_secret_opens_rows_and_seals_them_again_and_a_leaked_one_ends_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.redb");
    let gateway = Gateway::at(&file, &secrets("x", &[])).await;
    let live = gateway.start("ann").await;
    let sealed = gateway.logins.client_seal().unwrap().seal("client", b"a");
    gateway.store.close().await;
    // The second start does not need the earlier secret, because the first one resealed everything.
    for before in [&["x"][..], &[]] {
        let next = Gateway::at(&file, &secrets("y", before)).await;
        assert!(next.logins.find(live.id).is_some(), "{before:?}");
        let seal = next.logins.client_seal().unwrap();
        assert!(seal.open("client", &sealed).is_some(), "{before:?}");
        next.store.close().await;
    }
    let leaked = Gateway::at(&file, &secrets("z", &[])).await;
    assert!(leaked.logins.logins().is_empty());
    assert!(leaked.logins.person(&live.row.mark).is_none());
    leaked.store.close().await;
    let back = Gateway::at(&file, &secrets("y", &[])).await;
    assert!(back.logins.logins().is_empty(), "what was dropped is gone");
    back.store.close().await;
}

#[tokio::test]
async fn a_new_secret_file_for_stored_logins_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.redb");
    let folder = dir.path().join("secrets");
    let open = || RootSecrets::open(Some(&folder), &SecretSettings::default()).unwrap();
    let gateway = Gateway::at(&file, &open()).await;
    gateway.start("ann").await;
    gateway.store.close().await;
    std::fs::remove_dir_all(&folder).unwrap();
    let (next, restored) = Gateway::open(&file, &open()).await;
    assert!(restored.is_err() && !next.logins.is_ready());
    next.store.close().await;
}

#[tokio::test]
async fn logins_of_another_company_login_than_that_of_the_config_are_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.redb");
    let secrets = secrets("x", &[]);
    let gateway = Gateway::at(&file, &secrets).await;
    let live = gateway.start("ann").await;
    gateway.store.close().await;
    for authority in ["https://other.test", AUTHORITY] {
        let (next, restored) = Gateway::open_for(&file, &secrets, authority).await;
        restored.unwrap();
        assert!(next.logins.find(live.id).is_none(), "{authority}");
        assert!(next.logins.person(&live.row.mark).is_none(), "{authority}");
        next.store.close().await;
    }
}

#[tokio::test]
async fn a_person_without_a_new_token_keeps_the_old_one() {
    let gateway = Gateway::in_memory();
    let live = gateway.start("ann").await;
    let mark = live.row.mark;
    let ann = person("ann", None);
    gateway.logins.start(login(&ann), ann).await.unwrap();
    assert_eq!(gateway.token_of(&mark).as_deref(), Some("hush"));
    let known = gateway.logins.person(&mark).unwrap();
    assert_eq!(known.version, 1);
    let renewed = person("ann", Some("newer"));
    let stale = gateway.logins.put_person(renewed.clone(), 0).await;
    assert_eq!(stale, Err(StoreFault::Gone));
    gateway.logins.put_person(renewed, 1).await.unwrap();
    assert_eq!(gateway.token_of(&mark).as_deref(), Some("newer"));
    gateway.logins.end_person(&mark, EndCause::Provider).await;
    let gone = gateway.logins.put_person(person("ann", None), 2).await;
    assert_eq!(gone, Err(StoreFault::Gone));
}

#[tokio::test(start_paused = true)]
async fn a_new_token_is_kept_in_memory_though_others_wait_for_the_disk() {
    let gateway = Gateway::in_memory();
    let live = gateway.start("ann").await;
    let mark = live.row.mark;
    let turn = gateway.logins.turn_of(&mark).await.unwrap();
    let renewed = person("ann", Some("newer"));
    let stored = gateway.logins.put_person(renewed, 0).await;
    assert_eq!(stored, Err(StoreFault::Unwritable));
    assert_eq!(gateway.token_of(&mark).as_deref(), Some("newer"));
    drop(turn);
}

#[tokio::test]
async fn one_login_too_many_ends_the_longest_unused() {
    let gateway = Gateway::in_memory();
    let first = gateway.start("ann").await;
    for _ in 0..99 {
        gateway.start("ann").await;
    }
    assert!(!first.ended.is_cancelled());
    gateway.start("ann").await;
    assert!(first.ended.is_cancelled());
    assert_eq!(gateway.logins.logins_of(&first.row.mark).len(), 100);
    assert_eq!(gateway.metrics.broker.ended.get(LoginEnd("crowded")), 1);
}

#[tokio::test]
async fn a_login_that_is_over_is_not_found_and_ends() {
    let gateway = Gateway::in_memory();
    let ann = person("ann", None);
    let over = LoginRow {
        ends: Timestamp::now(),
        ..login(&ann)
    };
    let live = gateway.logins.start(over, ann.clone()).await.unwrap();
    assert!(gateway.logins.find(live.id).is_none() && !live.ended.is_cancelled());
    assert!(gateway.logins.logins().is_empty());
    assert!(live.ended.is_cancelled() && gateway.logins.person(&ann.mark()).is_none());
    assert_eq!(gateway.metrics.broker.ended.get(LoginEnd("expired")), 1);
}
