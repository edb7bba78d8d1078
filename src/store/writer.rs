//! The task that opens the store and writes to it, in batches, off the runtime's threads.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::store::{QueuedChanges, RowChange, StoreBackend, StoreError, StoreInner, StorePhase};

/// Changes that come within this time are written together.
const BATCH_DELAY: Duration = Duration::from_millis(100);
/// How often it is looked whether another process has let go of the file.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long that is waited for: as long as an operator may take to stop the process that was replaced.
const LOCK_TIMEOUT: Duration = Duration::from_secs(120);
/// Pauses after failures: the first, and the longest.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// How often a failure is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Longest time for the last write.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

type OpenResult = Result<Box<dyn StoreBackend>, StoreError>;

/// Runs until the store is closed, or cannot be used from the start. `goes`: the file that is removed then.
pub(super) async fn run(
    inner: Arc<StoreInner>,
    goes: Option<PathBuf>,
    open: impl Fn() -> OpenResult + Send + Sync + 'static,
) {
    let open = Arc::new(open);
    let mut backend = match open_first(&inner, &open).await {
        Ok(backend) => Some(backend),
        Err(phase) => return inner.give_up(phase),
    };
    let (mut pause, mut logged) = (RETRY_BACKOFF.0, None::<Instant>);
    loop {
        tokio::select! {
            () = inner.added.notified() => {}
            () = inner.closing.cancelled() => {}
        }
        let closing = inner.closing.clone();
        let _ = closing.run_until_cancelled(sleep(BATCH_DELAY)).await;
        // Asked before the changes are taken: what comes in between is of the next batch.
        let last = closing.is_cancelled();
        let changes = std::mem::take(&mut *inner.lock());
        let written = write(backend.take(), &open, changes).await;
        match written {
            Ok(opened) => {
                (backend, pause) = (Some(opened), RETRY_BACKOFF.0);
                inner.count(&inner.lock());
            }
            Err((trouble, changes)) => {
                inner.metrics.store_errors.inc();
                if logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
                    logged = Some(Instant::now());
                    tracing::warn!("the state cannot be written, and is kept in memory until it can: {trouble}");
                }
                requeue(&inner, changes);
                inner.added.notify_one();
                let _ = closing.run_until_cancelled(sleep(pause)).await;
                pause = (pause * 2).min(RETRY_BACKOFF.1);
            }
        }
        if last {
            // The file is free before anybody hears that it is.
            let end = move || {
                drop(backend);
                goes.and_then(|file| std::fs::remove_file(file).ok())
            };
            let _ = tokio::task::spawn_blocking(end).await;
            return inner.give_up(StorePhase::Closed);
        }
    }
}

/// Opens it for the first time, waiting for another process to let go of it.
async fn open_first(
    inner: &StoreInner,
    open: &Arc<impl Fn() -> OpenResult + Send + Sync + 'static>,
) -> Result<Box<dyn StoreBackend>, StorePhase> {
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        let open = open.clone();
        let opened = tokio::task::spawn_blocking(move || {
            let mut backend = open()?;
            let contents = backend.load()?;
            Ok::<_, StoreError>((backend, contents))
        });
        let trouble = match opened.await {
            Ok(Ok((backend, contents))) => {
                *inner.contents.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(contents);
                inner.metrics.store_open.set(1);
                inner.phase.send_replace(StorePhase::Open);
                return Ok(backend);
            }
            Ok(Err(trouble)) => trouble,
            Err(_) => StoreError::Unusable("the library that reads it failed".to_owned()),
        };
        if trouble != StoreError::Locked {
            return Err(StorePhase::Disabled(Some(trouble.to_string())));
        }
        if Instant::now() >= until {
            return Err(StorePhase::Disabled(Some(format!("{trouble}, and still does after {LOCK_TIMEOUT:?}"))));
        }
        inner.phase.send_if_modified(|phase| std::mem::replace(phase, StorePhase::Locked) != StorePhase::Locked);
        if inner.closing.clone().run_until_cancelled(sleep(LOCK_POLL_INTERVAL)).await.is_none() {
            return Err(StorePhase::Closed);
        }
    }
}

/// Writes changes; a backend that failed before is opened anew. Gives the changes back where it fails.
async fn write(
    backend: Option<Box<dyn StoreBackend>>,
    open: &Arc<impl Fn() -> OpenResult + Send + Sync + 'static>,
    changes: QueuedChanges,
) -> Result<Box<dyn StoreBackend>, (StoreError, Vec<RowChange>)> {
    let open = open.clone();
    let changes: Vec<RowChange> = changes.changes.into_iter().collect();
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
    let failed = |_| Err(StoreError::Unusable("the library that writes it failed".to_owned()));
    writing.await.unwrap_or_else(failed).map_err(|trouble| (trouble, kept))
}

/// Puts back what could not be written, except what was changed since.
fn requeue(inner: &StoreInner, changes: Vec<RowChange>) {
    let mut waiting = inner.lock();
    for change in changes {
        if !waiting.changes.contains_key(&change.0) && !waiting.add(change) {
            inner.metrics.store_dropped.inc();
        }
    }
    inner.count(&waiting);
}
