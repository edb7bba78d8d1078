//! Tests of the store: what survives a restart, and what a failing disk costs.

use std::path::Path;

use super::*;

/// Backend that fails as often as the test asks.
struct Flaky {
    failures: Arc<Mutex<u32>>,
    rows: Arc<Mutex<Vec<RowChange>>>,
}

impl StoreBackend for Flaky {
    fn load(&mut self) -> Result<StoredState, StoreError> {
        Ok(StoredState::default())
    }

    fn write(&mut self, changes: &[RowChange]) -> Result<(), StoreError> {
        let mut failures = self.failures.lock();
        if *failures > 0 {
            *failures -= 1;
            return Err(StoreError::Unusable("no space left on device".to_owned()));
        }
        self.rows.lock().extend_from_slice(changes);
        Ok(())
    }
}

async fn until(mut done: impl FnMut() -> bool) {
    tokio::time::timeout(Duration::from_secs(20), async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("it takes too long");
}

#[tokio::test]
async fn a_full_disk_costs_only_time() {
    let metrics = Arc::new(Metrics::new());
    let store = StateStore::new(metrics.clone(), StorePhase::Opening);
    let failures = Arc::new(Mutex::new(2));
    let rows = Arc::new(Mutex::new(Vec::new()));
    tokio::spawn(writer::run(store.0.clone(), None, {
        let failures = failures.clone();
        let rows = rows.clone();
        move || {
            Ok(Box::new(Flaky {
                failures: failures.clone(),
                rows: rows.clone(),
            }) as Box<dyn StoreBackend>)
        }
    }));
    store.put(StoreTable::Sessions, "a", "1");
    until(|| metrics.store.errors.get() == 1).await;
    store.put(StoreTable::Sessions, "a", "2");
    store.put(StoreTable::Sessions, "b", "3");
    until(|| rows.lock().len() == 2).await;
    let mut rows: Vec<_> = rows
        .lock()
        .iter()
        .map(|((_, key), value)| (key.clone(), value.clone()))
        .collect();
    rows.sort();
    let expected =
        [("a", "2"), ("b", "3")].map(|(key, value)| (Bytes::from(key), Some(Bytes::from(value))));
    assert_eq!(rows, expected, "the last word on each row, once");
    assert_eq!(metrics.store.errors.get(), 2);
    assert_eq!(metrics.store.waiting.get(), 0);
    store.close().await;
    store.put(StoreTable::Sessions, "c", "4");
    assert_eq!(
        metrics.store.waiting.get(),
        0,
        "nothing is kept after the end"
    );
}

#[tokio::test]
async fn a_synced_row_is_on_disk_when_it_is_said_to_be() {
    let store = StateStore::new(Arc::new(Metrics::new()), StorePhase::Opening);
    let failures = Arc::new(Mutex::new(1));
    let rows = Arc::new(Mutex::new(Vec::new()));
    tokio::spawn(writer::run(store.0.clone(), None, {
        let failures = failures.clone();
        let rows = rows.clone();
        move || {
            Ok(Box::new(Flaky {
                failures: failures.clone(),
                rows: rows.clone(),
            }) as Box<dyn StoreBackend>)
        }
    }));
    let failed = store.put_synced(StoreTable::Secrets, "a", "1").await;
    assert_eq!(
        failed,
        Err(StoreError::Unusable("no space left on device".to_owned()))
    );
    // The next one does not wait for the pause after the failure, and takes the first along.
    assert_eq!(
        store.put_synced(StoreTable::Secrets, "b", "2").await,
        Ok(())
    );
    assert_eq!(rows.lock().len(), 2);
    assert_eq!(store.remove_synced(StoreTable::Secrets, "a").await, Ok(()));
    assert_eq!(rows.lock()[2], ((StoreTable::Secrets, "a".into()), None));
    store.close().await;
    assert!(
        store
            .put_synced(StoreTable::Secrets, "c", "3")
            .await
            .is_err()
    );
    assert!(
        StateStore::memory()
            .put_synced(StoreTable::Secrets, "c", "3")
            .await
            .is_err()
    );
}

fn open_store(file: &Path) -> StateStore {
    let settings = StoreSettings {
        file: Some(file.to_owned()),
        ..StoreSettings::default()
    };
    StateStore::open(settings, Arc::new(Metrics::new()))
}

#[tokio::test]
async fn a_synced_row_outlives_a_process_that_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.redb");
    let store = open_store(&file);
    store
        .put_synced(StoreTable::Secrets, "a", "1")
        .await
        .unwrap();
    // What is on disk now, without an orderly end.
    let copy = dir.path().join("copy.redb");
    std::fs::copy(&file, &copy).unwrap();
    let next = open_store(&copy);
    next.phase()
        .wait_for(|phase| *phase == StorePhase::Open)
        .await
        .unwrap();
    let mut contents = next.take_contents().unwrap();
    assert_eq!(
        contents.take(StoreTable::Secrets),
        vec![("a".into(), "1".into())]
    );
    next.close().await;
    store.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_open_keeps_no_caller_and_few_wait() {
    let store = StateStore::new(Arc::new(Metrics::new()), StorePhase::Opening);
    let waiting = (0..=WAITING_MAX).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            store
                .put_synced(StoreTable::Secrets, n.to_string(), "1")
                .await
        })
    });
    let waiting: Vec<_> = waiting.collect();
    let mut results = Vec::new();
    for waiting in waiting {
        results.push(waiting.await.unwrap().unwrap_err().to_string());
    }
    assert_eq!(
        results
            .iter()
            .filter(|why| *why == "it takes too long")
            .count(),
        WAITING_MAX
    );
    assert_eq!(
        results
            .iter()
            .filter(|why| *why == "too many changes wait")
            .count(),
        1
    );
}

#[tokio::test]
async fn queued_writes_to_the_store_are_bounded() {
    let store = StateStore::new(Arc::new(Metrics::new()), StorePhase::Opening);
    let large = Bytes::from(vec![0; QUEUED_BYTES_MAX / 2]);
    store.put(StoreTable::Catalog, "a", large.clone());
    store.put(StoreTable::Catalog, "b", large.clone());
    assert_eq!(store.0.metrics.store.dropped.get(), 1);
    store.put(StoreTable::Catalog, "a", large);
    assert_eq!(
        store.0.metrics.store.dropped.get(),
        1,
        "it takes the place of the other"
    );
    assert_eq!(store.0.metrics.store.waiting.get(), 1);
}

#[tokio::test]
async fn one_process_has_it_at_a_time_and_the_next_one_gets_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state/state.redb");
    let first = open_store(&file);
    first
        .phase()
        .wait_for(|phase| *phase == StorePhase::Open)
        .await
        .unwrap();
    let run = first.take_contents().unwrap().run;
    let second = open_store(&file);
    second
        .phase()
        .wait_for(|phase| *phase == StorePhase::Locked)
        .await
        .unwrap();
    first.put(StoreTable::Sessions, "a", "1");
    second.put(StoreTable::Sessions, "b", "2");
    first.close().await;
    second
        .phase()
        .wait_for(|phase| *phase == StorePhase::Open)
        .await
        .unwrap();
    let mut contents = second.take_contents().unwrap();
    assert!(contents.run > run);
    assert_eq!(
        contents.take(StoreTable::Sessions),
        vec![("a".into(), "1".into())]
    );
    second.close().await;
    let third = open_store(&file);
    third
        .phase()
        .wait_for(|phase| *phase == StorePhase::Open)
        .await
        .unwrap();
    assert_eq!(
        third
            .take_contents()
            .unwrap()
            .take(StoreTable::Sessions)
            .len(),
        2
    );
    third.close().await;
}

#[tokio::test]
async fn a_file_that_nobody_finds_again_goes_with_the_process() {
    let dir = tempfile::tempdir().unwrap();
    for fleeting in [true, false] {
        let file = dir.path().join("state-0.redb");
        let settings = StoreSettings {
            file: Some(file.clone()),
            is_temporary: fleeting,
            ..StoreSettings::default()
        };
        let store = StateStore::open(settings, Arc::new(Metrics::new()));
        store
            .phase()
            .wait_for(|phase| *phase == StorePhase::Open)
            .await
            .unwrap();
        assert!(file.exists());
        store.close().await;
        assert_eq!(file.exists(), !fleeting);
    }
}

#[tokio::test]
async fn a_corrupt_store_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.redb");
    std::fs::write(
        &file,
        "this is no database, but longer than a page's head".repeat(100),
    )
    .unwrap();
    let store = StateStore::open(
        StoreSettings {
            file: Some(file.clone()),
            ..StoreSettings::default()
        },
        Arc::new(Metrics::new()),
    );
    store
        .phase()
        .wait_for(|phase| *phase == StorePhase::Open)
        .await
        .unwrap();
    assert!(dir.path().join("state.redb.broken").exists());
    store.put(StoreTable::Secrets, "a", "1");
    store.close().await;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(
            std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
}

#[tokio::test]
async fn a_place_that_cannot_be_used_is_said() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let file = Some(dir.path().join("file/state.redb"));
    let store = StateStore::open(
        StoreSettings {
            file,
            ..StoreSettings::default()
        },
        Arc::new(Metrics::new()),
    );
    let mut phase = store.phase();
    let absent = phase
        .wait_for(|phase| matches!(phase, StorePhase::Disabled(Some(_))))
        .await
        .unwrap()
        .clone();
    assert!(format!("{absent:?}").contains("file"), "{absent:?}");
    assert!(!store.is_persistent());
    store.close().await;
}
