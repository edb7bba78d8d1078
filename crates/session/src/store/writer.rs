//! Writer task of the store.
//!
//! Owns opening, retries and writes in batches, off the runtime's threads. Does not know the file's
//! format (`embedded.rs`). Invariant: a failed write loses no change, unless the queue is full.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::store::session_count::SessionCount;
use crate::store::{QueuedChanges, RowChange, StoreBackend, StoreError, StoreInner, StorePhase};

/// Time within which changes are written together.
const BATCH_DELAY: Duration = Duration::from_millis(100);
/// Interval between two attempts to lock the file.
// A lock does not report that it is free, so it has to be tried.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Longest wait for the lock: the time that an operator may take to stop the replaced process.
const LOCK_TIMEOUT: Duration = Duration::from_secs(120);
/// Delays after failures: the first, and the longest.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// Minimum interval between two log lines about failures.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Longest time for the last write.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

type OpenResult = Result<Box<dyn StoreBackend>, StoreError>;

/// Runs until the store is closed, or cannot be used from the start. Removes the file `goes` when
/// the store closes.
pub(super) async fn run(
    inner: Arc<StoreInner>,
    temporary_file: Option<PathBuf>,
    open: impl Fn() -> OpenResult + Send + Sync + 'static,
) {
    let open = Arc::new(open);
    let mut backend = match open_first(&inner, &open).await {
        Ok(backend) => Some(backend),
        Err(phase) => return inner.give_up(phase),
    };
    let mut delay = RETRY_BACKOFF.0;
    let mut logged = None::<Instant>;
    loop {
        tokio::select! {
            () = inner.added.notified() => {}
            () = inner.closing.cancelled() => {}
        }
        // Each write costs a sync of the disk, so a short wait collects more changes.
        inner.batch(BATCH_DELAY).await;
        // Read before the changes are taken: a change that comes in between belongs to the next
        // batch.
        let last = inner.closing.is_cancelled();
        let QueuedChanges {
            changes, waiting, ..
        } = std::mem::take(&mut *inner.queued.lock());
        let written = write(backend.take(), &open, changes.into_iter().collect()).await;
        let result = written
            .as_ref()
            .map(drop)
            .map_err(|(error, _)| error.clone());
        for waiting in waiting {
            // Fails for a caller that has gone, which needs no answer.
            let _ = waiting.send(result.clone());
        }
        match written {
            Ok(opened) => {
                (backend, delay) = (Some(opened), RETRY_BACKOFF.0);
                inner.count(&inner.queued.lock());
            }
            Err((error, changes)) => {
                inner.metrics.store.errors.inc();
                if logged.is_none_or(|logged_at| logged_at.elapsed() >= LOG_INTERVAL) {
                    logged = Some(Instant::now());
                    tracing::warn!("state could not be written; kept in memory for now: {error}");
                }
                requeue(&inner, changes);
                // Wakes this loop again, since no other change may come.
                inner.added.notify_one();
                // A close ends the delay: the last batch is tried again. So does a caller that
                // waits.
                inner.batch(delay).await;
                delay = (delay * 2).min(RETRY_BACKOFF.1);
            }
        }
        if last {
            // The file is released before anyone learns of it.
            let released = tokio::task::spawn_blocking(move || {
                drop(backend);
                if let Some(file) = temporary_file {
                    let _ = std::fs::remove_file(&file);
                    SessionCount::for_store(&file).remove();
                }
            });
            // A panic of the library at this point loses nothing: the batch is written.
            let _ = released.await;
            return inner.give_up(StorePhase::Closed);
        }
    }
}

/// Opens the store for the first time, and waits for another process to release the file.
async fn open_first(
    inner: &StoreInner,
    open: &Arc<impl Fn() -> OpenResult + Send + Sync + 'static>,
) -> Result<Box<dyn StoreBackend>, StorePhase> {
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        let open = open.clone();
        // Opening blocks, so it runs on a blocking thread.
        let opened = tokio::task::spawn_blocking(move || {
            let mut backend = open()?;
            let contents = backend.load()?;
            Ok::<_, StoreError>((backend, contents))
        });
        let error = match opened.await {
            Ok(Ok((backend, contents))) => {
                // Before the phase, whose watchers read the contents as soon as it changes.
                *inner.contents.lock() = Some(contents);
                inner.metrics.store.open.set(1);
                inner.phase.send_replace(StorePhase::Open);
                return Ok(backend);
            }
            Ok(Err(error)) => error,
            Err(_) => StoreError::Unusable("the library that reads it failed".to_owned()),
        };
        // Only a lock goes away on its own.
        if error != StoreError::Locked {
            return Err(StorePhase::Disabled(Some(error.to_string())));
        }
        if Instant::now() >= until {
            return Err(StorePhase::Disabled(Some(format!(
                "{error}, and still does after {LOCK_TIMEOUT:?}"
            ))));
        }
        // Once only: each further attempt would wake all watchers for nothing.
        inner.phase.send_if_modified(|phase| {
            std::mem::replace(phase, StorePhase::Locked) != StorePhase::Locked
        });
        if inner
            .closing
            .clone()
            .run_until_cancelled(sleep(LOCK_POLL_INTERVAL))
            .await
            .is_none()
        {
            return Err(StorePhase::Closed);
        }
    }
}

/// Writes changes. Reopens a failed backend. Returns the changes if that fails.
async fn write(
    backend: Option<Box<dyn StoreBackend>>,
    open: &Arc<impl Fn() -> OpenResult + Send + Sync + 'static>,
    changes: Vec<RowChange>,
) -> Result<Box<dyn StoreBackend>, (StoreError, Vec<RowChange>)> {
    let open = open.clone();
    // A copy of the handles for `requeue`, should the write fail.
    let kept = changes.clone();
    let writing = tokio::task::spawn_blocking(move || {
        let mut backend = match backend {
            Some(backend) => backend,
            None => open()?,
        };
        if !changes.is_empty() {
            backend.write(&changes)?;
        }
        Ok::<_, StoreError>(backend)
    });
    writing
        .await
        .unwrap_or_else(|_| Err(StoreError::unusable("the library that writes it failed")))
        .map_err(|error| (error, kept))
}

/// Requeues the changes that could not be written, except rows that changed since.
fn requeue(inner: &StoreInner, changes: Vec<RowChange>) {
    let mut queued = inner.queued.lock();
    for change in changes {
        // A newer change of the same row is already queued, and wins.
        if !queued.changes.contains_key(&change.0) && !queued.add(change) {
            inner.metrics.store.dropped.inc();
        }
    }
    inner.count(&queued);
}
