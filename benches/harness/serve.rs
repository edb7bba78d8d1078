//! What the servers of the benchmark share: listening, announcing the address, and ending with the
//! parent.

use anyhow::Result;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use moongate_platform::signals::TerminationSignals;
use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Connections at once.
const CONNECTIONS: usize = 1024;

/// Serves HTTP/1.1 on a loopback port until the parent closes our standard input or sends SIGTERM.
pub(crate) async fn serve<S, B>(port: u16, service: S) -> Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    eprintln!("listening on http://{}/mcp", listener.local_addr()?);
    tokio::select! {
        ended = accept(&listener, service) => ended,
        ended = parent_gone() => ended,
    }
}

async fn accept<S, B>(listener: &TcpListener, service: S) -> Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await?;
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = service.clone();
        tokio::spawn(async move {
            // A connection that ends badly shows up in the load generator, which checks every
            // answer.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
            drop(slot);
        });
    }
}

async fn parent_gone() -> Result<()> {
    let mut signals = TerminationSignals::listen()?;
    let mut input = tokio::io::stdin();
    let mut byte = [0; 1];
    tokio::select! {
        () = signals.recv() => Ok(()),
        _ = input.read(&mut byte) => Ok(()),
    }
}

/// A body of one piece: sent with its length, or as a stream whose length is not known beforehand.
pub(crate) struct SinglePiece {
    data: Option<Bytes>,
    sized: bool,
}

impl SinglePiece {
    pub(crate) fn sized(data: Bytes) -> Self {
        Self {
            data: Some(data),
            sized: true,
        }
    }

    pub(crate) fn streamed(data: Bytes) -> Self {
        Self {
            data: Some(data),
            sized: false,
        }
    }

    pub(crate) fn empty() -> Self {
        Self {
            data: None,
            sized: true,
        }
    }
}

impl Body for SinglePiece {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.data.take().map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.sized
    }

    fn size_hint(&self) -> SizeHint {
        match &self.data {
            Some(data) if self.sized => SizeHint::with_exact(data.len() as u64),
            None if self.sized => SizeHint::with_exact(0),
            _ => SizeHint::default(),
        }
    }
}
