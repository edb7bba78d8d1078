//! Links on a pipe that all calls share: a child, a socket, a WebSocket, HTTP+SSE.
//!
//! Owns the one implementation of [`Link`] for them. Does not open or read pipes (`rpc_pipe.rs`).
//! Invariant: links of this kind differ only in how they send, close and start.

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::rpc_pipe::RpcPipe;
use crate::{HeaderList, Link, LinkError, LinkReply, MessageStream, OutgoingMessage, ProbeState};

/// Link on a pipe: the part that differs.
pub trait PipeLink: Send + Sync {
    /// Returns the pipe.
    fn pipe(&self) -> &RpcPipe;

    /// Closes the pipe. Never fails; takes a few seconds at most.
    fn close_pipe(&self) -> BoxFuture<'_, ()>;

    /// Sends a message.
    fn send_message(
        &self,
        outgoing: OutgoingMessage,
    ) -> BoxFuture<'_, Result<LinkReply, LinkError>> {
        self.pipe().send(outgoing)
    }

    /// Returns the id of the process, if the link has one.
    fn process_id(&self) -> Option<u32> {
        None
    }

    /// Records the state of a probe.
    fn on_probe_state(&self, probe: ProbeState) {
        let _ = probe;
    }
}

impl PipeLink for RpcPipe {
    fn pipe(&self) -> &RpcPipe {
        self
    }

    fn close_pipe(&self) -> BoxFuture<'_, ()> {
        self.close_writer();
        std::future::ready(()).boxed()
    }
}

impl<P: PipeLink> Link for P {
    fn send(&self, outgoing: OutgoingMessage) -> BoxFuture<'_, Result<LinkReply, LinkError>> {
        self.send_message(outgoing)
    }

    fn reply(&self, body: Bytes) -> BoxFuture<'_, ()> {
        self.pipe().reply(body)
    }

    fn open_server_stream(&self, _: HeaderList) -> BoxFuture<'_, Result<MessageStream, LinkError>> {
        self.pipe().open_server_stream()
    }

    fn close(&self, _: HeaderList) -> BoxFuture<'_, ()> {
        self.close_pipe()
    }

    fn closed(&self) -> BoxFuture<'_, LinkError> {
        self.pipe().closed()
    }

    fn take_activity(&self) -> bool {
        self.pipe().take_activity()
    }

    fn received_count(&self) -> u64 {
        self.pipe().received_count()
    }

    fn is_multiplexed(&self) -> bool {
        true
    }

    fn output_mistake(&self) -> Option<&'static str> {
        self.pipe().output_mistake()
    }

    fn pid(&self) -> Option<u32> {
        self.process_id()
    }

    fn set_probe_state(&self, probe: ProbeState) {
        self.on_probe_state(probe);
    }
}
