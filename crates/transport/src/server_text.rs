//! Text of a server's message, from its bytes to the message or batch in it.
//!
//! Owns the replacement of bytes that are not UTF-8, and its memory. Does not decide whose message
//! it is. Invariant: a replaced text has its bytes reserved before it is made, and is no longer
//! than a message may be.

use bytes::Bytes;
use moongate_jsonrpc::message::{MalformedMessage, RpcPayload, ServerPayload, mended_length};
use moongate_telemetry::MemoryShare;

use crate::{BATCH_MAX, LinkError};

/// Mark that some programs write before UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Limits of a server's messages.
#[derive(Clone)]
pub(super) struct MessageLimits {
    /// Limit of one message, in bytes.
    pub(super) max_message: usize,
    /// Share of the gateway's memory that messages take.
    pub(super) memory: MemoryShare,
}

/// Message or batch, with the text that it was read from.
pub(super) struct ReadPayload {
    pub(super) payload: RpcPayload,
    pub(super) text: Bytes,
    /// True if bytes that are not UTF-8 became U+FFFD.
    pub(super) is_mended: bool,
}

/// Reason why a text could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnreadText {
    /// Text that is not a message.
    #[error("{0}")]
    Malformed(#[from] MalformedMessage),
    /// Message that found no room.
    #[error("{0}")]
    NoRoom(LinkError),
}

impl MessageLimits {
    /// Reads a text whose memory is reserved.
    pub(super) fn read(&self, text: &Bytes) -> Result<ReadPayload, UnreadText> {
        let unmarked;
        let text = match text.starts_with(BYTE_ORDER_MARK) {
            true => {
                unmarked = without_byte_order_mark(text);
                &unmarked
            }
            false => text,
        };
        let malformed = match ServerPayload::parse(text, BATCH_MAX) {
            Ok(ServerPayload(payload)) => {
                return Ok(ReadPayload {
                    payload,
                    text: text.clone(),
                    is_mended: false,
                });
            }
            Err(malformed) => malformed,
        };
        let Some(length) = mended_length(text) else {
            return Err(malformed.into());
        };
        if length > self.max_message {
            return Err(UnreadText::NoRoom(LinkError::TooLarge {
                limit: self.max_message,
            }));
        }
        let mut reservation = self.memory.begin();
        reservation
            .cover(length)
            .map_err(|exhausted| UnreadText::NoRoom(exhausted.into()))?;
        let mended = reservation.attach(Bytes::from(String::from_utf8_lossy(text).into_owned()));
        let ServerPayload(payload) =
            ServerPayload::parse(&mended, BATCH_MAX).map_err(|_| malformed)?;
        Ok(ReadPayload {
            payload,
            text: mended,
            is_mended: true,
        })
    }
}

/// Returns a text without the byte order mark that it may start with.
///
/// RFC 8259, Character Encoding: parsers "MAY ignore the presence of a byte order mark rather than
/// treating it as an error".
pub(super) fn without_byte_order_mark(text: &Bytes) -> Bytes {
    text.strip_prefix(BYTE_ORDER_MARK)
        .map_or_else(|| text.clone(), |rest| text.slice_ref(rest))
}

impl UnreadText {
    /// Returns the failure of the call that the text means to answer.
    pub(super) fn into_link_error(self) -> LinkError {
        match self {
            UnreadText::Malformed(wrong) => LinkError::Protocol(format!("the answer is {wrong}")),
            UnreadText::NoRoom(error) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_telemetry::{MemoryBudget, MemoryHolder, MemoryLimit, MemoryWatch, Metrics};

    fn answer(filler: usize) -> Bytes {
        let text = [
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"a\":\"\xff",
            &*vec![b'x'; filler],
            b"\"}}",
        ]
        .concat();
        Bytes::from(text)
    }

    #[test]
    fn a_byte_order_mark_is_not_read() {
        let metrics = Metrics::new();
        let budget = MemoryBudget::new(
            &MemoryWatch::new(MemoryLimit::Bytes(1 << 40), &metrics),
            &metrics,
        );
        let limits = MessageLimits {
            max_message: 100_000,
            memory: budget.share(MemoryHolder::Local),
        };
        for text in [
            &b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}"[..],
            b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"a\":\"\xff\"}}",
        ] {
            let read = limits.read(&Bytes::from_static(text)).unwrap();
            assert!(read.text.starts_with(b"{"), "{:?}", read.text);
        }
    }

    #[test]
    fn a_mended_text_is_reserved_and_bounded() {
        let metrics = Metrics::new();
        let budget = MemoryBudget::new(
            &MemoryWatch::new(MemoryLimit::Bytes(1 << 40), &metrics),
            &metrics,
        );
        let limits = MessageLimits {
            max_message: 100_000,
            memory: budget.share(MemoryHolder::Local),
        };
        let read = limits.read(&answer(50_000)).unwrap();
        assert!(read.is_mended);
        assert_eq!(budget.used(), read.text.len());
        drop(read);
        assert_eq!(budget.used(), 0);
        let over = Bytes::from([&answer(0)[..], &[b'\xff'; 40_000]].concat());
        assert!(matches!(
            limits.read(&over),
            Err(UnreadText::NoRoom(LinkError::TooLarge { .. }))
        ));
    }
}
