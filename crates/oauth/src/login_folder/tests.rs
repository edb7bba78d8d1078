//! Tests of the login folder: what is shared, what is refused, and what a crash leaves.

use std::fs;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;

use crate::authorization_request::tests::pending as any_pending;
use crate::grant::{ClientAuthMethod, ClientIdentity};
use crate::root_secret::SecretError;
use crate::secret_text::SecretText;

use super::*;

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

fn target() -> LoginTarget {
    LoginTarget {
        server: "linear".to_owned(),
        url: url("https://mcp.linear.app/mcp"),
    }
}

fn client() -> ClientIdentity {
    ClientIdentity {
        id: "client".to_owned(),
        secret: Some(SecretText::new("hush-client")),
        method: ClientAuthMethod::Basic,
        redirect: url("http://127.0.0.1:8080/oauth/callback/abc"),
    }
}

fn grant(access: &str) -> LoginGrant {
    let obtained = Timestamp::from_second(1_700_000_000).unwrap();
    LoginGrant {
        issuer: url("https://auth.linear.app"),
        token_endpoint: url("https://auth.linear.app/token"),
        revocation_endpoint: None,
        client: client(),
        scope_asked: Some("read".to_owned()),
        resource: Some("https://mcp.linear.app/mcp".to_owned()),
        access: SecretText::new(access),
        refresh: Some(SecretText::new("hush-refresh")),
        obtained,
        expires: Some(obtained + SignedDuration::from_hours(1)),
        renewal: 3,
        ended: false,
        step_ups: 0,
    }
}

/// Login that has been waiting for this long.
fn pending(state: &str, age: SignedDuration) -> PendingLogin {
    PendingLogin {
        state: SecretText::new(state),
        verifier: SecretText::new("hush-verifier"),
        client: client(),
        started: Timestamp::now() - age,
        ..any_pending()
    }
}

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// State folder that does not exist yet, and its logins.
fn folder() -> (TempDir, PathBuf, LoginFolder) {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let logins = LoginFolder::open(&state).unwrap();
    (dir, state, logins)
}

/// Path of the only grant.
fn grant_file(state: &Path) -> PathBuf {
    files_of(state, "grant").pop().unwrap()
}

fn files_of(state: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(state.join("logins")).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension() == Some(ending.as_ref()))
        .collect()
}

#[test]
fn reading_creates_nothing() {
    let (_dir, state, logins) = folder();
    assert_eq!(logins.read_grant(&target()).unwrap(), None);
    assert_eq!(logins.grant_version(&target()).unwrap(), None);
    assert!(!logins.remove_grant(&target()).unwrap());
    assert_eq!(logins.take_pending("state").unwrap(), None);
    assert!(!state.exists());
}

#[test]
fn another_folder_value_reads_what_was_written_until_it_is_removed() {
    let (_dir, state, logins) = folder();
    logins.write_grant(&target(), &grant("one")).unwrap();
    let other = LoginFolder::open(&state).unwrap();
    assert_eq!(other.read_grant(&target()).unwrap(), Some(grant("one")));
    other.write_grant(&target(), &grant("two")).unwrap();
    assert_eq!(logins.read_grant(&target()).unwrap(), Some(grant("two")));
    assert!(logins.remove_grant(&target()).unwrap());
    assert_eq!(other.read_grant(&target()).unwrap(), None);
    assert!(!other.remove_grant(&target()).unwrap());
    // A login without a grant starts like a new one.
    LoginFolder::open(&state).unwrap();
}

#[test]
fn the_version_changes_with_each_write() {
    let (_dir, _state, logins) = folder();
    let mut versions = Vec::new();
    for _ in 0..5 {
        logins.write_grant(&target(), &grant("same")).unwrap();
        let version = logins.grant_version(&target()).unwrap();
        assert!(version.is_some());
        assert_eq!(logins.grant_version(&target()).unwrap(), version);
        assert!(!versions.contains(&version));
        versions.push(version);
    }
    logins.remove_grant(&target()).unwrap();
    assert_eq!(logins.grant_version(&target()).unwrap(), None);
}

#[test]
fn a_changed_url_or_name_finds_nothing() {
    let (_dir, _state, logins) = folder();
    logins.write_grant(&target(), &grant("one")).unwrap();
    let moved = LoginTarget {
        url: url("https://mcp.linear.example/mcp"),
        ..target()
    };
    let renamed = LoginTarget {
        server: "Linear".to_owned(),
        ..target()
    };
    for other in [moved, renamed] {
        assert_eq!(logins.read_grant(&other).unwrap(), None);
        assert_eq!(logins.grant_version(&other).unwrap(), None);
        assert!(!logins.remove_grant(&other).unwrap());
    }
    assert!(logins.read_grant(&target()).unwrap().is_some());
}

#[test]
fn the_logins_of_all_configs_are_listed() {
    let (_dir, state, logins) = folder();
    assert_eq!(logins.stored_logins().unwrap(), StoredLogins::default());
    let earlier = LoginTarget {
        url: url("https://linear.example/sse"),
        ..target()
    };
    let broken = LoginTarget {
        server: "broken".to_owned(),
        ..target()
    };
    logins.write_grant(&broken, &grant("x")).unwrap();
    let damaged = grant_file(&state);
    fs::write(&damaged, "damaged").unwrap();
    for target in [&target(), &earlier] {
        logins.write_grant(target, &grant("x")).unwrap();
    }
    let found = logins.stored_logins().unwrap();
    assert_eq!(found.targets, [earlier, target()]);
    assert_eq!(found.damaged, std::slice::from_ref(&damaged));
    assert!(logins.remove_damaged(&damaged).unwrap());
    assert!(!logins.remove_damaged(&damaged).unwrap());
}

#[test]
fn nothing_secret_can_be_read_in_the_files() {
    let (_dir, state, logins) = folder();
    logins
        .write_grant(&target(), &grant("hush-access"))
        .unwrap();
    logins
        .put_pending(&pending("hush-state", SignedDuration::ZERO))
        .unwrap();
    for path in [grant_file(&state), files_of(&state, "pending").remove(0)] {
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("hush"), "{path:?}");
        assert!(!path.to_string_lossy().contains("hush"), "{path:?}");
    }
}

#[test]
fn debug_shows_no_secret() {
    let shown = format!(
        "{:?} {:?}",
        grant("hush-access"),
        pending("hush-state", SignedDuration::ZERO)
    );
    assert!(!shown.contains("hush"), "{shown}");
}

#[test]
fn a_damaged_or_foreign_file_is_an_error_that_a_new_login_fixes() {
    let (_dir, state, logins) = folder();
    let other = LoginTarget {
        server: "sentry".to_owned(),
        ..target()
    };
    logins.write_grant(&other, &grant("other")).unwrap();
    let foreign = fs::read(grant_file(&state)).unwrap();
    logins.remove_grant(&other).unwrap();
    logins.write_grant(&target(), &grant("one")).unwrap();
    let path = grant_file(&state);
    let whole = fs::read(&path).unwrap();
    let half = whole[..whole.len() / 2].to_vec();
    for damaged in [
        half,
        Vec::new(),
        vec![0xff; 40],
        vec![b'A'; 70_000],
        foreign,
    ] {
        fs::write(&path, &damaged).unwrap();
        let error = logins.read_grant(&target()).unwrap_err();
        assert!(matches!(error, FolderError::Damaged { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("`moongate login linear`"), "{text}");
        assert!(text.contains(&path.display().to_string()), "{text}");
        assert!(logins.grant_version(&target()).unwrap().is_some());
        logins.write_grant(&target(), &grant("two")).unwrap();
        assert_eq!(logins.read_grant(&target()).unwrap(), Some(grant("two")));
    }
}

#[test]
fn oversized_tokens_are_refused_and_the_old_grant_stays() {
    let (_dir, _state, logins) = folder();
    logins.write_grant(&target(), &grant("one")).unwrap();
    let long = grant(&"x".repeat(60_000));
    let refused = logins.write_grant(&target(), &long).unwrap_err();
    assert!(matches!(refused, FolderError::TooLarge { .. }), "{refused}");
    assert_eq!(logins.read_grant(&target()).unwrap(), Some(grant("one")));
}

#[test]
fn logins_without_their_secret_are_an_error_and_get_no_new_one() {
    let (_dir, state, logins) = folder();
    logins.write_grant(&target(), &grant("one")).unwrap();
    let secret = state.join("secret");
    let kept = fs::read(&secret).unwrap();
    fs::remove_file(&secret).unwrap();
    let errors = [
        LoginFolder::open(&state).unwrap_err(),
        logins.read_grant(&target()).unwrap_err(),
        logins.write_grant(&target(), &grant("two")).unwrap_err(),
    ];
    for error in errors {
        assert!(
            matches!(error, FolderError::Secret(SecretError::Missing { .. })),
            "{error}"
        );
    }
    assert!(!secret.exists());
    fs::write(&secret, kept).unwrap();
    moongate_platform::private_file::make_private(&secret).unwrap();
    assert_eq!(logins.read_grant(&target()).unwrap(), Some(grant("one")));
}

#[test]
fn a_folder_that_was_emptied_gets_a_new_secret_in_a_running_process() {
    let (_dir, state, logins) = folder();
    logins.write_grant(&target(), &grant("one")).unwrap();
    fs::remove_dir_all(&state).unwrap();
    let other = LoginFolder::open(&state).unwrap();
    other.write_grant(&target(), &grant("two")).unwrap();
    assert_eq!(logins.read_grant(&target()).unwrap(), Some(grant("two")));
}

#[test]
fn a_waiting_login_is_taken_once() {
    let (_dir, state, logins) = folder();
    let waiting = pending("state", MINUTE);
    logins.put_pending(&waiting).unwrap();
    assert_eq!(logins.take_pending("another").unwrap(), None);
    assert!(logins.is_pending("state") && !logins.is_pending("another"));
    let barrier = Barrier::new(8);
    let taken: Vec<PendingLogin> = std::thread::scope(|scope| {
        let take = || {
            let own = LoginFolder::open(&state).unwrap();
            barrier.wait();
            own.take_pending("state").unwrap()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(take)).collect();
        threads
            .into_iter()
            .filter_map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(taken, [waiting]);
    assert_eq!(logins.take_pending("state").unwrap(), None);
    assert!(!logins.is_pending("state"));
}

#[test]
fn a_login_that_waited_ten_minutes_is_gone() {
    let (_dir, state, logins) = folder();
    for (age, is_good) in [
        (MINUTE * 9, true),
        (MINUTE * 11, false),
        (-MINUTE * 11, false),
    ] {
        logins.put_pending(&pending("state", age)).unwrap();
        let taken = logins.take_pending("state").unwrap();
        assert_eq!(taken.is_some(), is_good, "{age:?}");
    }
    logins.put_pending(&pending("old", MINUTE * 11)).unwrap();
    logins.put_pending(&pending("new", MINUTE)).unwrap();
    assert_eq!(files_of(&state, "pending").len(), 1, "the old one is gone");
}

#[test]
fn the_oldest_waiting_login_makes_room_for_the_101st() {
    let (_dir, state, logins) = folder();
    for number in 0..100 {
        let age = if number == 40 { MINUTE * 5 } else { MINUTE };
        let state = format!("state-{number}");
        logins.put_pending(&pending(&state, age)).unwrap();
    }
    assert_eq!(files_of(&state, "pending").len(), 100);
    logins.put_pending(&pending("state-100", MINUTE)).unwrap();
    assert_eq!(files_of(&state, "pending").len(), 100);
    assert_eq!(logins.take_pending("state-40").unwrap(), None);
    for state in ["state-0", "state-99", "state-100"] {
        assert!(logins.take_pending(state).unwrap().is_some(), "{state}");
    }
}

#[test]
fn a_damaged_waiting_login_is_an_error_once_and_takes_no_room() {
    let (_dir, state, logins) = folder();
    logins.put_pending(&pending("a", MINUTE)).unwrap();
    let path = files_of(&state, "pending").remove(0);
    fs::write(&path, "garbage").unwrap();
    let error = logins.take_pending("a").unwrap_err();
    assert!(
        matches!(error, FolderError::DamagedPending { .. }),
        "{error}"
    );
    assert_eq!(logins.take_pending("a").unwrap(), None);
    logins.put_pending(&pending("a", MINUTE)).unwrap();
    fs::write(&path, "garbage").unwrap();
    logins.put_pending(&pending("b", MINUTE)).unwrap();
    assert_eq!(files_of(&state, "pending").len(), 1);
}

#[test]
fn waiting_logins_of_a_lost_secret_do_not_block_a_new_login() {
    let (_dir, state, logins) = folder();
    logins.put_pending(&pending("a", MINUTE)).unwrap();
    fs::remove_file(state.join("secret")).unwrap();
    LoginFolder::open(&state).unwrap();
    logins.put_pending(&pending("b", MINUTE)).unwrap();
    assert!(logins.take_pending("b").unwrap().is_some());
    assert_eq!(logins.take_pending("a").unwrap(), None);
}

#[test]
fn one_process_refreshes_a_login_at_a_time() {
    let (_dir, state, logins) = folder();
    let first = logins.lock_refresh(&target()).unwrap();
    let other_server = LoginTarget {
        server: "sentry".to_owned(),
        ..target()
    };
    drop(logins.lock_refresh(&other_server).unwrap());
    // The holder of the lock writes, and others read.
    logins.write_grant(&target(), &grant("one")).unwrap();
    let is_renewed = AtomicBool::new(false);
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            let own = LoginFolder::open(&state).unwrap();
            barrier.wait();
            let _lock = own.lock_refresh(&target()).unwrap();
            assert!(is_renewed.load(Ordering::SeqCst));
            own.read_grant(&target()).unwrap()
        });
        barrier.wait();
        logins.write_grant(&target(), &grant("two")).unwrap();
        is_renewed.store(true, Ordering::SeqCst);
        drop(first);
        assert_eq!(second.join().unwrap(), Some(grant("two")));
    });
}

#[test]
fn a_killed_process_leaves_its_grant_and_no_lock() {
    // Only another process can be killed, so this test runs itself again with this variable.
    if let Some(state) = std::env::var_os("MOONGATE_OAUTH_STATE") {
        let logins = LoginFolder::open(Path::new(&state)).unwrap();
        let _refresh = logins.lock_refresh(&target()).unwrap();
        logins.write_grant(&target(), &grant("one")).unwrap();
        let _folder = logins.files.lock().unwrap();
        std::process::abort();
    }
    let (_dir, state, logins) = folder();
    let test = "login_folder::tests::a_killed_process_leaves_its_grant_and_no_lock";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env("MOONGATE_OAUTH_STATE", &state)
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert_eq!(logins.read_grant(&target()).unwrap(), Some(grant("one")));
    let _refresh = logins.lock_refresh(&target()).unwrap();
    logins.write_grant(&target(), &grant("two")).unwrap();
}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn folders_and_files_are_closed_to_others() {
        let (_dir, state, logins) = folder();
        logins.write_grant(&target(), &grant("one")).unwrap();
        logins.put_pending(&pending("a", MINUTE)).unwrap();
        drop(logins.lock_refresh(&target()).unwrap());
        let folder = state.join("logins");
        assert_eq!(mode_of(&state), 0o700);
        assert_eq!(mode_of(&folder), 0o700);
        assert_eq!(mode_of(&state.join("secret")), 0o600);
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode_of(&path), 0o600, "{path:?}");
        }
    }

    #[test]
    fn a_secret_that_others_may_read_stops_the_start() {
        let (_dir, state, logins) = folder();
        logins.write_grant(&target(), &grant("one")).unwrap();
        set_mode(&state.join("secret"), 0o644);
        for error in [
            LoginFolder::open(&state).unwrap_err(),
            logins.read_grant(&target()).unwrap_err(),
        ] {
            assert!(
                matches!(error, FolderError::Secret(SecretError::OpenToOthers { .. })),
                "{error}"
            );
        }
    }

    #[test]
    fn a_folder_that_others_may_write_is_refused() {
        let (_dir, state, logins) = folder();
        fs::create_dir(&state).unwrap();
        fs::create_dir(state.join("logins")).unwrap();
        set_mode(&state.join("logins"), 0o777);
        let error = logins.write_grant(&target(), &grant("one")).unwrap_err();
        assert!(error.to_string().contains("state_dir"), "{error}");
        assert!(files_of(&state, "grant").is_empty());
    }
}
