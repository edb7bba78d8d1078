//! Writes of sealed rows.
//!
//! Owns when a write is queued, and how its end is awaited. Does not know what a row says.
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

/// Write that is queued.
#[must_use]
pub(crate) enum StartedWrite {
    /// Ended already.
    Done(Result<(), StoreFault>),
    /// Waits for the disk.
    Waiting(BoxFuture<'static, Result<(), StoreError>>),
}

impl StartedWrite {
    /// Queues the write of a future by its first poll.
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

// The store itself logs what is wrong with the disk, once a minute.
fn explain(written: Result<(), StoreError>) -> Result<(), StoreFault> {
    written.map_err(|_| StoreFault::Unwritable)
}

impl RowWrites {
    /// Creates the writer, which writes nothing yet.
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

    /// Queues the write of a row that nobody waits for.
    pub(crate) fn put(&self, table: StoreTable, key: &[u8], row: &impl Serialize) {
        if self.is_durable() && self.store.is_persistent() {
            let value = self.codec.encode(table, key, row);
            self.store.put(table, Bytes::copy_from_slice(key), value);
        }
    }

    /// Queues the removal of a row that nobody waits for.
    pub(crate) fn remove(&self, table: StoreTable, key: &[u8]) {
        if self.is_durable() {
            self.store.remove(table, Bytes::copy_from_slice(key));
        }
    }

    /// Opens the rows of the previous process, and seals those of earlier secrets again. Removes
    /// those that no secret opens, and adds their number to `lost`.
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
