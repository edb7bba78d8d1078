//! Reading of whole response bodies.
//!
//! Owns the limits of size and time. Does not parse. Invariant: no body is stored past its limit.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use moongate_telemetry::{MemoryExhausted, MemoryReservation, MemoryShare};

use crate::LinkError;
use crate::http_error::connection_error;
use crate::response_body::ResponseBody;

/// Longest time that a finished event stream is drained, so that its connection can be reused.
const DRAIN_TIME: Duration = Duration::from_millis(500);
/// Limit of the bytes that are read without a meaning. A new connection costs less than more of
/// them.
const DRAIN_BYTES: usize = 256 * 1024;

/// Body that is read to its end without a meaning, so that its connection can be reused.
pub(super) struct DrainedBody {
    /// Body with its coding: a few bytes may decode to gigabytes.
    body: ResponseBody,
    left: usize,
}

impl DrainedBody {
    pub(super) fn new(body: ResponseBody) -> Self {
        DrainedBody {
            body: body.into_coded(),
            left: DRAIN_BYTES,
        }
    }

    /// Reads what is there. Ready at the end of the body, or when more is to come than is worth
    /// reading.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.body.poll_data(cx) {
                Poll::Ready(Ok(Some(data))) if data.len() < self.left => self.left -= data.len(),
                Poll::Pending if !self.body.is_finished() => return Poll::Pending,
                _ => return Poll::Ready(()),
            }
        }
    }

    /// Reads for a limited time.
    pub(super) async fn drain(mut self) {
        let _ = tokio::time::timeout(DRAIN_TIME, poll_fn(|cx| self.poll_end(cx))).await;
    }
}

/// Reads a body without a meaning, so that its connection can be reused.
pub(super) async fn drain_body(body: ResponseBody) {
    DrainedBody::new(body).drain().await;
}

/// Reads a whole body, into one buffer if its length is known. Its bytes are reserved in a server's
/// share; without one the limit must be small.
pub(super) async fn collect_body(
    mut body: ResponseBody,
    limit: usize,
    memory: Option<&MemoryShare>,
) -> Result<Bytes, LinkError> {
    let length = body
        .length()
        .map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    if length.is_some_and(|length| length > limit) {
        // Refused by the announced length, before any byte of the body is stored.
        return Err(LinkError::TooLarge { limit });
    }
    if let Some(whole) = body.take_buffered() {
        return Ok(whole);
    }
    let mut reservation = memory.map(MemoryShare::begin);
    cover(reservation.as_mut(), length.unwrap_or(0))?;
    // The announced length was compared with the limit, so a false one reserves no more than that.
    let mut all = BytesMut::with_capacity(length.unwrap_or(0));
    while body
        .fill(&mut all)
        .await
        .map_err(|broken| connection_error(&broken, "the answer broke off"))?
    {
        if all.len() > limit {
            return Err(LinkError::TooLarge { limit });
        }
        cover(reservation.as_mut(), all.capacity())?;
    }
    let whole = all.freeze();
    Ok(match reservation {
        Some(reservation) => reservation.attach(whole),
        None => whole,
    })
}

fn cover(reservation: Option<&mut MemoryReservation>, size: usize) -> Result<(), MemoryExhausted> {
    reservation.map_or(Ok(()), |reservation| reservation.cover(size))
}
