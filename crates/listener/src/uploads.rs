//! Bodies of requests that arrive. Owns their buffers, and the order in which they started.
//!
//! Does not read bodies (`collect_body.rs`). Invariant: a body that is ended has given its bytes
//! back at once, and one that started a moment ago is never chosen.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::stalled_writes::STALL_GRACE;
use moongate_telemetry::{
    MemoryExhausted, MemoryHolder, MemoryRelief, MemoryReservation, SMALL_MESSAGE,
};

/// Smallest step in which a buffer grows, in bytes.
const GROWTH_MIN: usize = 16 * 1024;

/// Large bodies that arrive, the oldest first.
#[derive(Default)]
pub(super) struct UploadTable {
    arriving: Mutex<BTreeMap<u64, ListedUpload>>,
    next: AtomicU64,
}

struct ListedUpload {
    holder: MemoryHolder,
    since: Instant,
    state: Arc<UploadState>,
}

struct UploadState {
    buffer: Mutex<UploadBuffer>,
    task: AtomicWaker,
}

struct UploadBuffer {
    bytes: Vec<u8>,
    reservation: MemoryReservation,
    /// Error of an upload that was ended for the sake of others.
    ended: Option<MemoryExhausted>,
}

/// Body that arrives, until it is whole.
pub(super) struct ArrivingBody {
    state: Arc<UploadState>,
    /// List that it enters once it is large, and its holder.
    list: Option<(Arc<UploadTable>, MemoryHolder)>,
    /// Place in the list.
    id: Option<u64>,
}

impl UploadTable {
    /// Begins an upload of a holder.
    pub(super) fn begin(
        self: &Arc<Self>,
        holder: MemoryHolder,
        reservation: MemoryReservation,
    ) -> ArrivingBody {
        let mut upload = ArrivingBody::unlisted(reservation);
        upload.list = Some((self.clone(), holder));
        upload
    }

    fn add(&self, holder: MemoryHolder, state: Arc<UploadState>) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.arriving.lock().insert(
            id,
            ListedUpload {
                holder,
                since: Instant::now(),
                state,
            },
        );
        id
    }
}

impl MemoryRelief for UploadTable {
    /// Ends the oldest upload of a holder. The gateway has started nothing for it yet.
    fn end_oldest(&self, holder: &MemoryHolder) -> bool {
        let mut arriving = self.arriving.lock();
        let mut old = arriving
            .iter()
            .take_while(|(_, upload)| upload.since.elapsed() >= STALL_GRACE);
        let ended = old
            .find(|(_, upload)| upload.holder == *holder && upload.state.end())
            .map(|(id, _)| *id);
        ended.and_then(|id| arriving.remove(&id)).is_some()
    }
}

impl UploadState {
    /// Ends the upload and gives its bytes back. Returns false if it is storing some at the moment.
    fn end(&self) -> bool {
        // `try_lock`: an upload that stores bytes may be the one that memory is needed for.
        let Some(mut buffer) = self.buffer.try_lock() else {
            return false;
        };
        buffer.bytes = Vec::new();
        buffer.ended = Some(buffer.reservation.revoke());
        drop(buffer);
        self.task.wake();
        true
    }
}

impl UploadBuffer {
    fn cover(&mut self, bytes: usize) -> Result<(), MemoryExhausted> {
        self.ended.map_or(Ok(()), Err)?;
        self.reservation.cover(bytes)
    }
}

impl ArrivingBody {
    /// Begins an upload that is never ended for the sake of others.
    pub(super) fn unlisted(reservation: MemoryReservation) -> Self {
        let buffer = Mutex::new(UploadBuffer {
            bytes: Vec::new(),
            reservation,
            ended: None,
        });
        let state = Arc::new(UploadState {
            buffer,
            task: AtomicWaker::new(),
        });
        ArrivingBody {
            state,
            list: None,
            id: None,
        }
    }

    /// Makes sure that so many bytes are reserved.
    pub(super) fn cover(&mut self, bytes: usize) -> Result<(), MemoryExhausted> {
        self.state.buffer.lock().cover(bytes)?;
        self.list_if_large(bytes);
        Ok(())
    }

    /// Waits for more of the body, unless the upload is ended first.
    pub(super) async fn wait_for<T>(
        &self,
        more: impl Future<Output = T>,
    ) -> Result<T, MemoryExhausted> {
        let mut more = pin!(more);
        poll_fn(|cx| {
            // Registered before the end is looked for: an end after that wakes the task.
            self.state.task.register(cx.waker());
            match self.state.buffer.lock().ended {
                Some(exhausted) => Poll::Ready(Err(exhausted)),
                None => more.as_mut().poll(cx).map(Ok),
            }
        })
        .await
    }

    /// Adds a part of the body, whose whole length may be announced.
    pub(super) fn append(
        &mut self,
        part: &[u8],
        announced: Option<usize>,
    ) -> Result<(), MemoryExhausted> {
        let mut buffer = self.state.buffer.lock();
        let capacity = next_capacity(&buffer.bytes, part.len(), announced);
        buffer.cover(capacity)?;
        let more = capacity - buffer.bytes.len();
        buffer.bytes.reserve_exact(more);
        buffer.bytes.extend_from_slice(part);
        drop(buffer);
        self.list_if_large(capacity);
        Ok(())
    }

    /// Returns the number of bytes that have arrived.
    pub(super) fn len(&self) -> usize {
        self.state.buffer.lock().bytes.len()
    }

    /// Returns the whole body with its reservation.
    pub(super) fn finish(self) -> Result<Bytes, MemoryExhausted> {
        let mut buffer = self.state.buffer.lock();
        buffer.cover(0)?;
        let mut whole = std::mem::take(&mut buffer.bytes);
        whole.shrink_to_fit();
        Ok(buffer.reservation.take().attach(whole.into()))
    }

    fn list_if_large(&mut self, bytes: usize) {
        // Small bodies have nothing reserved that an end could give back.
        if let (Some((list, holder)), None) = (&self.list, self.id)
            && bytes > SMALL_MESSAGE
        {
            self.id = Some(list.add(holder.clone(), self.state.clone()));
        }
    }
}

impl Drop for ArrivingBody {
    fn drop(&mut self) {
        if let (Some((list, _)), Some(id)) = (&self.list, self.id) {
            list.arriving.lock().remove(&id);
        }
    }
}

/// Returns the capacity with room for more bytes. The buffer doubles, but not beyond the announced
/// length.
fn next_capacity(whole: &Vec<u8>, more: usize, announced: Option<usize>) -> usize {
    if whole.capacity() - whole.len() >= more {
        return whole.capacity();
    }
    let doubled = whole.len().max(GROWTH_MIN);
    let left = announced.map_or(doubled, |announced| {
        announced.saturating_sub(whole.len()).min(doubled)
    });
    whole.len() + left.max(more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_telemetry::{MemoryBudget, MemoryLimit, MemoryWatch, Metrics};

    const MIB: usize = 1 << 20;

    #[test]
    fn the_buffer_doubles_up_to_the_announced_length() {
        assert_eq!(next_capacity(&Vec::new(), 1, Some(100)), 100);
        let mut whole = vec![0; 60_000];
        whole.shrink_to_fit();
        assert_eq!(next_capacity(&whole, 1, Some(70_000)), 70_000);
        assert_eq!(
            next_capacity(&whole, 20_000, Some(70_000)),
            80_000,
            "an announced length may be wrong"
        );
        assert_eq!(next_capacity(&whole, 1, None), 120_000);
    }

    fn begin_covered(
        uploads: &Arc<UploadTable>,
        budget: &Arc<MemoryBudget>,
        holder: MemoryHolder,
        bytes: usize,
    ) -> Result<ArrivingBody, MemoryExhausted> {
        let mut upload = uploads.begin(holder.clone(), budget.share(holder).begin());
        upload.cover(bytes).map(|()| upload)
    }

    #[tokio::test(start_paused = true)]
    async fn slow_uploads_of_the_largest_holder_make_room_for_another() {
        let metrics = Metrics::new();
        let budget = MemoryBudget::new(
            &MemoryWatch::new(MemoryLimit::Bytes(1 << 40), &metrics),
            &metrics,
        );
        let uploads = Arc::new(UploadTable::default());
        budget.relieved_by(uploads.clone());
        let busy = MemoryHolder::Principal(1);
        let quiet = MemoryHolder::Principal(2);
        // Tebibytes are only counted here, so that what the test's own process uses changes
        // nothing.
        let part = 64 * 1024 * MIB;
        let held: Vec<ArrivingBody> =
            std::iter::from_fn(|| begin_covered(&uploads, &budget, busy.clone(), part).ok())
                .collect();
        let small = begin_covered(&uploads, &budget, quiet.clone(), part).unwrap();
        // More than half of what is left, until two parts end.
        let large = 4 * part;
        assert!(
            begin_covered(&uploads, &budget, quiet.clone(), large).is_err(),
            "all of them began a moment ago"
        );
        tokio::time::advance(STALL_GRACE).await;
        begin_covered(&uploads, &budget, quiet, large).unwrap();
        assert!(
            held[0]
                .wait_for(std::future::pending::<()>())
                .await
                .is_err()
        );
        assert!(
            held.last().unwrap().state.buffer.lock().ended.is_none(),
            "no more than needed"
        );
        assert!(
            small.state.buffer.lock().ended.is_none(),
            "another's upload goes on"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_leaves_the_list_at_its_end() {
        let metrics = Metrics::new();
        let uploads = Arc::new(UploadTable::default());
        let reservation = MemoryBudget::unlimited(&metrics)
            .share(MemoryHolder::Local)
            .begin();
        let mut upload = uploads.begin(MemoryHolder::Local, reservation);
        upload.append(&[b'x'; 100], None).unwrap();
        assert!(uploads.arriving.lock().is_empty(), "it is small");
        upload.append(&[b'x'; SMALL_MESSAGE], None).unwrap();
        tokio::time::advance(STALL_GRACE).await;
        assert!(!uploads.end_oldest(&MemoryHolder::Principal(1)));
        assert_eq!(uploads.arriving.lock().len(), 1);
        assert_eq!(upload.finish().unwrap().len(), 100 + SMALL_MESSAGE);
        assert!(!uploads.end_oldest(&MemoryHolder::Local));
    }
}
