//! State that outlives the process: rows of bytes in a few tables.
//!
//! Owns the queue of changes, the task that writes them, and the handling of failed writes. Does
//! not know what a row says. Invariant: nobody waits for a write who did not ask to. A failing disk
//! costs only the rows that it was to keep.

mod embedded;
mod session_count;
mod writer;

use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;

use moongate_telemetry::Metrics;

/// Maximum bytes of queued changes. Changes beyond it are dropped.
const QUEUED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum number of callers that wait for a write.
const WAITING_MAX: usize = 1024;
/// Longest wait for a write.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);
/// Cost of a change in addition to its bytes.
const CHANGE_COST: usize = 128;

/// Declares the tables, each with the name that it has on disk.
macro_rules! declare_tables {
    ($($(#[$doc:meta])+ $table:ident = $name:literal,)+) => {
        /// Table of rows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum StoreTable {
            $($(#[$doc])+ $table,)+
        }

        impl StoreTable {
            /// List of every table.
            pub const ALL: [StoreTable; [$($name),+].len()] = [$(StoreTable::$table),+];

            /// Returns the name on disk.
            pub(super) fn name(self) -> &'static str {
                match self {
                    $(StoreTable::$table => $name,)+
                }
            }
        }
    };
}

declare_tables! {
    /// Keys that the gateway made for itself.
    Secrets = "secrets",
    /// Lists of servers, by server name.
    Catalog = "catalog",
    /// Sessions of clients, by a digest of their ids.
    Sessions = "sessions",
    /// Sessions at servers that belong to one client's session. Their key is the client session's
    /// digest and the server's name.
    UpstreamSessions = "leases",
    /// Servers that were slow at their last start, by name.
    SlowStarts = "slow_starts",
    /// Logins of people at this gateway, sealed, by their ids.
    Logins = "logins",
    /// People who are logged in, sealed, by their marks.
    People = "people",
    /// Key of client ids and pinned names of people's logins, sealed.
    BrokerKeys = "broker_keys",
}

/// Settings of the store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreSettings {
    /// File of the store. `None`: nothing outlives the process.
    pub file: Option<PathBuf>,
    /// True if the gateway must not run without the store.
    pub required: bool,
    /// True if the file is missing only because it has no directory.
    pub has_no_directory: bool,
    /// True if the file is lost with the process, because nobody will find it again.
    pub is_temporary: bool,
}

/// Rows by key.
pub type StoredRows = Vec<(Bytes, Bytes)>;
/// Change of one row: its table and key, and the new value. `None` removes the row.
pub type RowChange = ((StoreTable, Bytes), Option<Bytes>);

/// State left by a previous process.
#[derive(Debug, Default)]
pub struct StoredState {
    /// Number of this process, larger than those of all earlier ones.
    pub run: u64,
    rows: [StoredRows; StoreTable::ALL.len()],
}

impl StoredState {
    /// Creates a state with the rows of one table, for tests.
    #[cfg(test)]
    pub(crate) fn of(run: u64, table: StoreTable, rows: StoredRows) -> Self {
        let mut contents = StoredState {
            run,
            ..StoredState::default()
        };
        contents.rows[table as usize] = rows;
        contents
    }

    /// Takes out the rows of a table.
    pub fn take(&mut self, table: StoreTable) -> StoredRows {
        std::mem::take(&mut self.rows[table as usize])
    }
}

/// Failure of the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Locked by another process.
    #[error("another process uses it")]
    Locked,
    /// Corrupt contents.
    #[error("{0}")]
    Corrupt(String),
    /// Refused by the operating system.
    #[error("{0}")]
    Unusable(String),
}

impl StoreError {
    fn unusable(why: &str) -> Self {
        StoreError::Unusable(why.to_owned())
    }
}

/// Backend that holds rows. Its methods may block.
pub trait StoreBackend: Send + 'static {
    /// Reads all rows.
    fn load(&mut self) -> Result<StoredState, StoreError>;

    /// Applies changes, all or none of them. After a failure the backend is not used again.
    fn write(&mut self, changes: &[RowChange]) -> Result<(), StoreError>;
}

/// Phase of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePhase {
    /// Being opened.
    Opening,
    /// Locked by another process. The store opens once that process releases the file.
    Locked,
    /// Open. Its contents can be taken.
    Open,
    /// Disabled, with the cause unless this is intended.
    Disabled(Option<String>),
    /// Closed.
    Closed,
}

/// Handle to the store.
#[derive(Clone)]
pub struct StateStore(Arc<StoreInner>);

struct StoreInner {
    /// True while changes are accepted.
    is_persistent: AtomicBool,
    queued: Mutex<QueuedChanges>,
    added: Notify,
    /// Told when somebody waits for a write.
    awaited: Notify,
    phase: watch::Sender<StorePhase>,
    contents: Mutex<Option<StoredState>>,
    closing: CancellationToken,
    metrics: Arc<Metrics>,
}

/// Changes that are not written yet. A later change to a row replaces the earlier one.
#[derive(Default)]
struct QueuedChanges {
    changes: HashMap<(StoreTable, Bytes), Option<Bytes>>,
    bytes: usize,
    /// Callers that wait until these changes are written.
    waiting: Vec<oneshot::Sender<Result<(), StoreError>>>,
}

impl QueuedChanges {
    /// Queues a change. Returns false if the queue is full.
    fn add(&mut self, (key, value): RowChange) -> bool {
        let cost = cost(&key, value.as_ref());
        let before = self
            .changes
            .get(&key)
            .map_or(0, |value| self::cost(&key, value.as_ref()));
        // A change that replaces a queued one costs only the difference.
        if self.bytes - before + cost > QUEUED_BYTES_MAX {
            return false;
        }
        self.bytes = self.bytes - before + cost;
        self.changes.insert(key, value);
        true
    }
}

fn cost(key: &(StoreTable, Bytes), value: Option<&Bytes>) -> usize {
    CHANGE_COST + key.1.len() + value.map_or(0, Bytes::len)
}

impl StateStore {
    /// Creates a store that keeps nothing beyond the process.
    pub fn memory() -> Self {
        StateStore::new(Arc::new(Metrics::new()), StorePhase::Disabled(None))
    }

    /// Starts the task that opens the store and writes its changes.
    pub fn open(settings: StoreSettings, metrics: Arc<Metrics>) -> Self {
        let Some(file) = settings.file else {
            let why = "neither gateway.state_dir nor the environment names a directory for it";
            return StateStore::new(
                metrics,
                StorePhase::Disabled(settings.has_no_directory.then(|| why.to_owned())),
            );
        };
        let store = StateStore::new(metrics, StorePhase::Opening);
        // A temporary file has no reader after this process.
        let temporary_file = settings.is_temporary.then(|| file.clone());
        tokio::spawn(writer::run(store.0.clone(), temporary_file, move || {
            let opened = embedded::EmbeddedStore::open(&file)?;
            Ok(Box::new(opened) as Box<dyn StoreBackend>)
        }));
        store
    }

    fn new(metrics: Arc<Metrics>, phase: StorePhase) -> Self {
        StateStore(Arc::new(StoreInner {
            is_persistent: AtomicBool::new(!matches!(phase, StorePhase::Disabled(_))),
            queued: Mutex::default(),
            added: Notify::new(),
            awaited: Notify::new(),
            phase: watch::Sender::new(phase),
            contents: Mutex::default(),
            closing: CancellationToken::new(),
            metrics,
        }))
    }

    /// Returns true if rows are persisted, so that making one is worth it.
    pub fn is_persistent(&self) -> bool {
        self.0.is_persistent.load(Ordering::Relaxed)
    }

    /// Queues a write of a row.
    pub fn put(&self, table: StoreTable, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.change(((table, key.into()), Some(value.into())));
    }

    /// Queues the removal of a row.
    pub fn remove(&self, table: StoreTable, key: impl Into<Bytes>) {
        self.change(((table, key.into()), None));
    }

    /// Writes a row, and returns once it is on disk. After a failure the row stays queued, as any
    /// other.
    pub async fn put_synced(
        &self,
        table: StoreTable,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
    ) -> Result<(), StoreError> {
        self.change_synced(((table, key.into()), Some(value.into())))
            .await
    }

    /// Removes a row, and returns once that is on disk.
    pub async fn remove_synced(
        &self,
        table: StoreTable,
        key: impl Into<Bytes>,
    ) -> Result<(), StoreError> {
        self.change_synced(((table, key.into()), None)).await
    }

    async fn change_synced(&self, change: RowChange) -> Result<(), StoreError> {
        if !self.is_persistent() {
            return Err(StoreError::unusable("nothing outlives the process"));
        }
        let (sender, written) = oneshot::channel();
        {
            let mut queued = self.0.queued.lock();
            if queued.waiting.len() >= WAITING_MAX || !queued.add(change) {
                self.0.metrics.store.dropped.inc();
                return Err(StoreError::unusable("too many changes wait"));
            }
            queued.waiting.push(sender);
            self.0.count(&queued);
        }
        self.0.added.notify_one();
        self.0.awaited.notify_one();
        match tokio::time::timeout(SYNC_TIMEOUT, written).await {
            Ok(Ok(written)) => written,
            Ok(Err(_)) => Err(StoreError::unusable("it is closed")),
            Err(_) => Err(StoreError::unusable("it takes too long")),
        }
    }

    fn change(&self, change: RowChange) {
        if !self.is_persistent() {
            return;
        }
        let mut queued = self.0.queued.lock();
        if !queued.add(change) {
            self.0.metrics.store.dropped.inc();
        }
        self.0.count(&queued);
        drop(queued);
        self.0.added.notify_one();
    }

    /// Subscribes to the phase of the store.
    pub fn phase(&self) -> watch::Receiver<StorePhase> {
        self.0.phase.subscribe()
    }

    /// Takes the state of the previous process. Returns it once, as soon as the store is open.
    pub fn take_contents(&self) -> Option<StoredState> {
        self.0.contents.lock().take()
    }

    /// Writes the queued changes and releases the file, so that another process can open it. Later
    /// changes are dropped.
    pub async fn close(&self) {
        self.0.closing.cancel();
        let mut phase = self.0.phase.subscribe();
        let closed =
            phase.wait_for(|phase| matches!(phase, StorePhase::Closed | StorePhase::Disabled(_)));
        // A disk that hangs must not keep the process from ending.
        if tokio::time::timeout(writer::CLOSE_TIMEOUT, closed)
            .await
            .is_err()
        {
            tracing::warn!(
                "state not written in full within {:?}",
                writer::CLOSE_TIMEOUT
            );
        }
    }
}

impl StoreInner {
    fn count(&self, queued: &QueuedChanges) {
        self.metrics
            .store
            .waiting
            .set(i64::try_from(queued.changes.len()).unwrap_or(i64::MAX));
    }

    /// Waits for more changes to write together, unless somebody waits for them.
    async fn batch(&self, delay: Duration) {
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = self.awaited.notified() => {}
            () = self.closing.cancelled() => {}
        }
    }

    /// Stops persistence and drops the queued changes.
    fn give_up(&self, phase: StorePhase) {
        self.is_persistent.store(false, Ordering::Relaxed);
        let mut queued = self.queued.lock();
        // Nobody will write the queue any more.
        *queued = QueuedChanges::default();
        self.count(&queued);
        drop(queued);
        self.metrics.store.open.set(0);
        self.phase.send_replace(phase);
    }
}

/// Returns the seconds since 1970. State that outlives the process cannot be timed by the process's
/// own clock.
pub fn unix_now() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
