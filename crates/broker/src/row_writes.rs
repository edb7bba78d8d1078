//! Writes of sealed rows.
//!
//! Owns when a write is queued, and how it is awaited. Does not know what a row contains.
//! Invariant: a write is queued before the function that starts it returns, so the order in which
//! callers hold a lock is the order on disk.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use moongate_oauth::RootSecrets;
use moongate_session::store::{StateStore, StoreError, StoreTable, StoredRows};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::row_codec::RowCodec;
use crate::store_fault::StoreFault;

/// Writer of sealed rows.
pub(crate) struct RowWrites {
    store: StateStore,
    codec: RowCodec,
    /// False while nothing outlives the process.
    is_durable: AtomicBool,
}

/// Queued write.
#[must_use]
pub(crate) enum StartedWrite {
    /// Already finished.
    Done(Result<(), StoreFault>),
    /// Waits for the disk.
    Waiting(BoxFuture<'static, Result<(), StoreError>>),
}

impl StartedWrite {
    /// Queues a future's write by polling it once.
    fn start(mut writing: BoxFuture<'static, Result<(), StoreError>>) -> Self {
        let early = (&mut writing).now_or_never();
        match early {
            Some(written) => StartedWrite::Done(explain(written)),
            None => StartedWrite::Waiting(writing),
        }
    }

    /// Waits until the row is on disk. After a failure it stays queued.
    pub(crate) async fn finish(self) -> Result<(), StoreFault> {
        match self {
            StartedWrite::Done(written) => written,
            StartedWrite::Waiting(writing) => explain(writing.await),
        }
    }
}

// The store itself logs disk problems, once a minute.
fn explain(written: Result<(), StoreError>) -> Result<(), StoreFault> {
    written.map_err(|_| StoreFault::Unwritable)
}

impl RowWrites {
    /// Creates a writer that does not write yet.
    pub(crate) fn new(store: StateStore, secrets: &RootSecrets) -> Self {
        RowWrites {
            store,
            codec: RowCodec::new(secrets),
            is_durable: AtomicBool::new(false),
        }
    }

    /// Starts to write rows, because there is a file for them.
    pub(crate) fn enable(&self) {
        self.is_durable.store(true, Ordering::Relaxed);
    }

    fn is_durable(&self) -> bool {
        self.is_durable.load(Ordering::Relaxed)
    }

    /// Starts the write of a row. Needs a runtime.
    pub(crate) fn start_put(
        &self,
        table: StoreTable,
        key: &[u8],
        row: &impl Serialize,
    ) -> StartedWrite {
        if !self.is_durable() {
            return StartedWrite::Done(Ok(()));
        }
        let key = Bytes::copy_from_slice(key);
        let value = self.codec.encode(table, &key, row);
        let store = self.store.clone();
        let writing = async move { store.put_synced(table, key, value).await };
        StartedWrite::start(writing.boxed())
    }

    /// Starts the removal of a row. Needs a runtime.
    pub(crate) fn start_remove(&self, table: StoreTable, key: &[u8]) -> StartedWrite {
        if !self.is_durable() {
            return StartedWrite::Done(Ok(()));
        }
        let key = Bytes::copy_from_slice(key);
        let store = self.store.clone();
        let writing = async move { store.remove_synced(table, key).await };
        StartedWrite::start(writing.boxed())
    }

    /// Queues the write of a row without waiting for it.
    pub(crate) fn put(&self, table: StoreTable, key: &[u8], row: &impl Serialize) {
        if self.is_durable() && self.store.is_persistent() {
            let value = self.codec.encode(table, key, row);
            self.store.put(table, Bytes::copy_from_slice(key), value);
        }
    }

    /// Queues the removal of a row without waiting for it.
    pub(crate) fn remove(&self, table: StoreTable, key: &[u8]) {
        if self.is_durable() {
            self.store.remove(table, Bytes::copy_from_slice(key));
        }
    }

    /// Opens the rows of the previous process, and reseals those of earlier secrets. Removes those
    /// that no secret opens, and adds their number to `lost`.
    pub(crate) fn open_rows<T: Serialize + DeserializeOwned>(
        &self,
        table: StoreTable,
        rows: StoredRows,
        lost: &mut usize,
    ) -> Vec<(Bytes, T)> {
        let mut opened = Vec::with_capacity(rows.len());
        for (key, sealed) in rows {
            let Some(row) = self.codec.decode::<T>(table, &key, &sealed) else {
                *lost += 1;
                self.remove(table, &key);
                continue;
            };
            if !self.codec.is_current(&sealed) {
                self.put(table, &key, &row);
            }
            opened.push((key, row));
        }
        opened
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use moongate_session::store::{StorePhase, StoreSettings, StoredState};
    use moongate_telemetry::Metrics;

    use super::*;

    const LOGINS: StoreTable = StoreTable::Logins;

    async fn open(file: &Path) -> (StateStore, StoredState) {
        let settings = StoreSettings {
            file: Some(file.to_owned()),
            ..StoreSettings::default()
        };
        let store = StateStore::open(settings, Arc::new(Metrics::new()));
        let mut phase = store.phase();
        phase
            .wait_for(|phase| *phase == StorePhase::Open)
            .await
            .unwrap();
        let contents = store.take_contents().unwrap();
        (store, contents)
    }

    fn writes(store: &StateStore, secret: u8) -> RowWrites {
        let writes = RowWrites::new(store.clone(), &RootSecrets::of_bytes(&[secret; 32]));
        writes.enable();
        writes
    }

    #[tokio::test]
    async fn a_closed_store_fails_and_without_a_file_there_is_nothing_to_wait_for() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = open(&dir.path().join("state.redb")).await;
        let writes = writes(&store, 7);
        store.close().await;
        let put = writes.start_put(LOGINS, b"a", &"row").finish().await;
        assert_eq!(put, Err(StoreFault::Unwritable));
        let removed = writes.start_remove(LOGINS, b"a").finish().await;
        assert_eq!(removed, Err(StoreFault::Unwritable));
        let memory = RowWrites::new(StateStore::memory(), &RootSecrets::of_bytes(&[7; 32]));
        let put = memory.start_put(LOGINS, b"a", &"row").finish().await;
        assert_eq!(put, Ok(()));
    }

    #[tokio::test]
    async fn the_write_that_was_started_last_is_the_one_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state.redb");
        let (store, _) = open(&file).await;
        let first_run = writes(&store, 7);
        let started = ["first", "second"].map(|row| first_run.start_put(LOGINS, b"a", &row));
        // The order of the waiters does not matter.
        for write in started.into_iter().rev() {
            assert_eq!(write.finish().await, Ok(()));
        }
        store.close().await;
        let (store, mut contents) = open(&file).await;
        let mut lost = 0;
        let rows = contents.take(LOGINS);
        let opened = writes(&store, 7).open_rows::<String>(LOGINS, rows.clone(), &mut lost);
        assert_eq!(opened, [(Bytes::from("a"), "second".to_owned())]);
        let opened = writes(&store, 8).open_rows::<String>(LOGINS, rows, &mut lost);
        assert!(opened.is_empty() && lost == 1);
        store.close().await;
        // The row that no secret opens is gone.
        let (store, mut contents) = open(&file).await;
        assert!(contents.take(LOGINS).is_empty());
        store.close().await;
    }
}
