//! Response bodies with the connections that they arrive on.
//!
//! Owns the connection below a response until the response is read. Does not know messages.
//! Invariant: a connection returns to its pool as soon as the response was read to the end, and at
//! no other time.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};

use crate::client::connection::ClientConnection;
use crate::client::decode_body::BodyDecoder;
use crate::client::pool::ClientPool;
use crate::error::ConnectionError;

/// Body of a response over a pooled connection.
pub struct PooledBody {
    decoder: BodyDecoder,
    /// Connection and the pool that it returns to. `None` once the body is read.
    connection: Option<(Box<ClientConnection>, Arc<ClientPool>)>,
}

impl PooledBody {
    /// Creates a body that arrives on this connection.
    pub(super) fn new(
        decoder: BodyDecoder,
        connection: Box<ClientConnection>,
        pool: Arc<ClientPool>,
    ) -> Self {
        // A short body arrives with its head, and the connection is free already.
        let mut body = PooledBody {
            decoder,
            connection: Some((connection, pool)),
        };
        body.release();
        body
    }

    /// True if no bytes are left to take.
    pub fn is_finished(&self) -> bool {
        self.decoder.is_finished()
    }

    /// Returns the number of bytes left to take, if the head states it.
    pub fn length(&self) -> Option<u64> {
        self.decoder.length()
    }

    /// Takes the rest of the body, if it was read already.
    pub fn take_buffered(&mut self) -> Option<Bytes> {
        self.decoder.is_read().then(|| self.decoder.take_buffered())
    }

    /// Appends the next bytes to `out`. False at the end of the body.
    pub async fn fill(&mut self, out: &mut BytesMut) -> Result<bool, ConnectionError> {
        std::future::poll_fn(|cx| self.poll_fill(cx, out)).await
    }

    /// Returns the next bytes. `None` at the end of the body.
    pub fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, ConnectionError>> {
        let ahead = self.decoder.take_buffered();
        if !ahead.is_empty() {
            return Poll::Ready(Ok(Some(ahead)));
        }
        let mut data = BytesMut::new();
        let more = ready!(self.poll_fill(cx, &mut data))?;
        Poll::Ready(Ok(more.then(|| data.freeze())))
    }

    /// Appends the next bytes to `out`. False at the end of the body.
    pub fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut BytesMut,
    ) -> Poll<Result<bool, ConnectionError>> {
        let polled = match &mut self.connection {
            Some((connection, _)) => ready!(self.decoder.poll_fill(connection, cx, out)),
            None => {
                let ahead = self.decoder.take_buffered();
                out.extend_from_slice(&ahead);
                Ok(!ahead.is_empty())
            }
        };
        match &polled {
            Ok(_) => self.release(),
            // A broken connection must not return to the pool.
            Err(_) => self.connection = None,
        }
        Poll::Ready(polled)
    }

    /// Returns the connection to the pool once the body is read. A body dropped earlier closes it,
    /// which shows the server.
    fn release(&mut self) {
        if self.decoder.is_read()
            && let Some((connection, pool)) = self.connection.take()
        {
            pool.checkin(connection);
        }
    }
}
