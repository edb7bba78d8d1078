//! Collection of a request's body in one buffer.
//!
//! Owns the limits of its size and of what the connection reads for it. Does not count time.
//! Invariant: a body holds at most twice its own size, however it is cut into chunks.

use std::sync::Arc;

use axum::body::Body as AxumBody;
use bytes::Bytes;
use http::Version;
use http_body::Body as _;
use http_body_util::BodyExt;

use crate::SlotRequest;
use crate::uploads::ArrivingBody;
use moongate_telemetry::{MemoryExhausted, MemoryReservation};

/// Factor of the largest body that a connection may read for one body.
// Chunks of one byte cost six bytes each. No client sends most of a large body like that.
const WIRE_FACTOR: u64 = 4;
/// Bytes that a connection may read for a body beyond that.
const WIRE_SLACK: u64 = 64 * 1024;
/// Bytes of the head of a frame of HTTP/2 (RFC 9113, section 4.1).
const H2_FRAME_HEAD: u64 = 9;

/// Bytes that were read for one body, with all that frames it.
pub enum WireBytes {
    /// Bytes of the connection since the head of the request. Its requests come one after another.
    Connection(Arc<SlotRequest>),
    /// Frames of HTTP/2, or of a body that came over no connection. Requests share a connection
    /// there.
    Frames(u64),
}

/// Error of a body that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// Body is too large.
    TooLarge,
    /// Other messages leave no memory for it, or took what it had.
    MemoryExhausted(MemoryExhausted),
    /// Connection has read too much for this body.
    TooManyChunks,
    /// Client disconnected, or broke the rules of HTTP.
    Broken,
}

impl From<MemoryExhausted> for BodyError {
    fn from(exhausted: MemoryExhausted) -> Self {
        BodyError::MemoryExhausted(exhausted)
    }
}

impl WireBytes {
    /// Counts from now on, for a request of this version.
    pub fn of(version: Version, slot: Option<Arc<SlotRequest>>) -> Self {
        match slot {
            Some(slot) if version <= Version::HTTP_11 => WireBytes::Connection(slot),
            _ => WireBytes::Frames(0),
        }
    }

    /// Adds a frame with so many bytes, and returns the sum.
    fn add_frame(&mut self, length: usize) -> u64 {
        match self {
            WireBytes::Connection(slot) => slot.received(),
            WireBytes::Frames(sum) => {
                *sum += u64::try_from(length)
                    .unwrap_or(u64::MAX)
                    .saturating_add(H2_FRAME_HEAD);
                *sum
            }
        }
    }
}

/// Reads a whole body of at most `limit` bytes, each of them reserved before it is stored.
pub async fn collect_body(
    body: AxumBody,
    limit: usize,
    wire: WireBytes,
    reservation: MemoryReservation,
) -> Result<Bytes, BodyError> {
    collect_upload(body, limit, wire, ArrivingBody::unlisted(reservation)).await
}

/// Does the same for an upload, which may be ended before it is whole.
pub(super) async fn collect_upload(
    mut body: AxumBody,
    limit: usize,
    mut wire: WireBytes,
    mut upload: ArrivingBody,
) -> Result<Bytes, BodyError> {
    let wire_max = u64::try_from(limit)
        .unwrap_or(u64::MAX)
        .saturating_mul(WIRE_FACTOR)
        .saturating_add(WIRE_SLACK);
    let announced = body
        .size_hint()
        .exact()
        .and_then(|length| usize::try_from(length).ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(BodyError::TooLarge);
    }
    upload.cover(announced.unwrap_or_default())?;
    while let Some(frame) = upload.wait_for(body.frame()).await? {
        let frame = frame.map_err(|_| BodyError::Broken)?;
        // Trailers carry no meaning for MCP.
        let data = frame.into_data().unwrap_or_default();
        let received = wire.add_frame(data.len());
        if data.len() > limit.saturating_sub(upload.len()) {
            return Err(BodyError::TooLarge);
        }
        if received > wire_max {
            return Err(BodyError::TooManyChunks);
        }
        // Copied: a frame would keep the buffer that it was read into, of which it may be one byte.
        upload.append(&data, announced)?;
    }
    Ok(upload.finish()?)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;

    use moongate_telemetry::{MemoryBudget, MemoryHolder, Metrics};

    use super::*;

    fn chunks(number: usize, size: usize) -> AxumBody {
        AxumBody::from_stream(stream::iter(
            (0..number).map(move |_| Ok::<_, Infallible>(Bytes::from(vec![b'x'; size]))),
        ))
    }

    fn reservation() -> MemoryReservation {
        MemoryBudget::unlimited(&Metrics::new())
            .share(MemoryHolder::Local)
            .begin()
    }

    async fn collected(body: AxumBody, limit: usize) -> Result<usize, BodyError> {
        collect_body(body, limit, WireBytes::Frames(0), reservation())
            .await
            .map(|bytes| bytes.len())
    }

    #[tokio::test]
    async fn a_body_is_one_buffer_of_its_own_size() {
        for (number, size) in [(0, 1), (1, 1), (3, 7), (5, 20_000), (100, 1000)] {
            assert_eq!(
                collected(chunks(number, size), 200_000).await,
                Ok(number * size),
                "{number} times {size}"
            );
        }
        assert_eq!(collected(AxumBody::from("whole"), 5).await, Ok(5));
        assert_eq!(
            collected(AxumBody::from("whole"), 4).await,
            Err(BodyError::TooLarge)
        );
        assert_eq!(collected(chunks(3, 7), 20).await, Err(BodyError::TooLarge));
        let broken = AxumBody::from_stream(stream::iter([
            Ok(Bytes::from_static(b"x")),
            Err(std::io::Error::other("gone")),
        ]));
        assert_eq!(collected(broken, 100).await, Err(BodyError::Broken));
    }

    #[tokio::test]
    async fn frames_count_with_their_heads() {
        // Ten bytes each: 400 KiB and 64 KiB are enough for 47,513 of them.
        assert_eq!(collected(chunks(47_513, 1), 100 * 1024).await, Ok(47_513));
        assert_eq!(
            collected(chunks(47_514, 1), 100 * 1024).await,
            Err(BodyError::TooManyChunks)
        );
        assert_eq!(
            collected(chunks(100_000, 0), 100 * 1024).await,
            Err(BodyError::TooManyChunks)
        );
    }
}
