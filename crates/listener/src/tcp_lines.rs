//! TCP clients that write a message a line. Owns the first line of a connection, which decides
//! whether to serve it.
//!
//! Does not read the messages after it (`stdio.rs`). Invariant: nothing runs on a connection whose
//! first line isn't a JSON-RPC message.
//!
//! A web page can send a POST with any body to any port of the machine that its browser runs on,
//! without permission. The request line comes before that body. The page cannot make it a message,
//! so it ends the connection.

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;

use crate::address::PeerAddress;
use crate::answer_holders::AnswerHolders;
use crate::connection_limit::ConnectionSlot;
use crate::listener::ListenSettings;
use crate::listener_state::SharedListenerState;
use crate::serve_request::memory_holder;
use crate::write_timeout::WriteTimeout;
use moongate_jsonrpc::message::RpcPayload;
use moongate_telemetry::Limit;

/// Settings of all connections of a listener.
pub(super) struct LineListener {
    pub(super) state: SharedListenerState,
    pub(super) settings: ListenSettings,
    /// Time that calls may take when the gateway stops.
    pub(super) drain: Duration,
}

impl LineListener {
    /// Serves one connection until it ends.
    pub(super) async fn serve_connection(&self, stream: TcpStream, slot: Arc<ConnectionSlot>) {
        let listener_state = self.state.load_full();
        // A message has no field for a key: where keys are needed, no line client can show one.
        let Ok(pipe) = listener_state.open_stdio("", &HeaderMap::new(), self.drain) else {
            tracing::debug!(
                "connection closed: keys are required, but a message has no place for one"
            );
            return;
        };
        let limits = &listener_state.limits;
        let peer = stream
            .peer_addr()
            .ok()
            .map(|address| PeerAddress(address.ip().to_canonical()));
        let (mut reader, writer) = stream.into_split();
        let draining = listener_state.downstream.draining.clone();
        let first = tokio::select! {
            first = tokio::time::timeout(self.settings.read_timeout,
                first_line(&mut reader, limits.body, limits.batch)) => first,
            // Nothing runs here yet, so a stop need not wait for the first line.
            () = draining.cancelled() => return,
        };
        let refused = &listener_state.downstream.metrics.calls.refused;
        let read = match first {
            Ok(Some(read)) => read,
            Ok(None) => {
                refused.inc(Limit::FirstLine);
                tracing::debug!("connection closed: its first line is not a JSON-RPC message");
                return;
            }
            Err(_) => return refused.inc(Limit::ReadTimeout),
        };
        // Open connections count as in use, like a stream: the client's sessions are bound to them.
        let usage = slot.begin();
        usage.admit();
        let detector = listener_state.stall_detector.clone();
        // Answers of several servers share the connection, so that only its client is known.
        slot.answer.set(AnswerHolders {
            client: Some(memory_holder(&pipe.principal, peer)),
            server: None,
        });
        let stalls = (detector.writes(), slot.answer.clone());
        let writer = WriteTimeout::new(writer, self.settings.write_timeout, stalls, move || {
            detector.record_dropped()
        });
        let pipe = pipe.for_network_client(self.state.clone(), self.settings.read_timeout, peer);
        // The connection may last for days, and would keep the state from before a reload.
        drop(listener_state);
        pipe.serve(Cursor::new(read).chain(reader), writer).await;
    }
}

/// Reads until there is a whole line. Returns all that was read, or `None` if that line isn't
/// a message.
async fn first_line(
    reader: &mut (impl AsyncRead + Unpin),
    longest: usize,
    batch: usize,
) -> Option<Bytes> {
    let mut read = BytesMut::with_capacity(1024);
    loop {
        let size = reader.read_buf(&mut read).await.ok()?;
        // Checked before the line is whole: a client of another protocol may wait for an answer.
        if !matches!(read.first(), Some(b'{' | b'[')) || read.len() > longest {
            return None;
        }
        let end = memchr::memchr(b'\n', &read);
        if end.is_none() && size > 0 {
            continue;
        }
        let read = read.freeze();
        let line = read.slice(..end.unwrap_or(read.len()));
        return is_message(&line, batch).then_some(read);
    }
}

fn is_message(line: &Bytes, batch: usize) -> bool {
    match RpcPayload::parse_from_client(&line.slice_ref(line.trim_ascii()), batch) {
        Ok(RpcPayload::One(_)) => true,
        // One broken item is enough to refuse: a real client has none in its first line.
        Ok(RpcPayload::Batch(items)) => items.iter().all(Result::is_ok),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(text: &str) -> Option<String> {
        let read = first_line(&mut text.as_bytes(), 1000, 10).await?;
        Some(String::from_utf8(read.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn the_first_line_is_a_message_or_there_is_none() {
        const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        for good in [
            PING.to_owned(),
            format!("{PING}\n{PING}\n"),
            format!("{PING}\r\n"),
            format!("[{PING},{PING}]\n"),
        ] {
            assert_eq!(read(&good).await, Some(good));
        }
        let page = format!(
            "POST / HTTP/1.1\r\nhost: 127.0.0.1:9100\r\ncontent-length: 41\r\n\r\n{PING}\n"
        );
        let long = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{}\"}}\n",
            "x".repeat(1000)
        );
        for bad in [
            page.as_str(),
            &long,
            "",
            "\n",
            &format!("\n{PING}\n"),
            &format!(" {PING}\n"),
            &format!("\u{feff}{PING}\n"),
            "{}\n",
            "{\"a\":1}\n",
            "[]\n",
            &format!("[{PING},1]\n"),
            "{\"jsonrpc\":\"2.0\"",
            "{bad\n",
            "\u{16}\u{3}\u{1}\n",
            "GET / HTTP/1.1\r\n",
        ] {
            assert_eq!(read(bad).await, None, "{bad:?}");
        }
    }

    #[tokio::test]
    async fn bytes_that_cannot_become_a_message_are_refused_at_once() {
        let (mut client, mut ours) = tokio::io::duplex(64);
        tokio::io::AsyncWriteExt::write_all(&mut client, b"P")
            .await
            .unwrap();
        assert_eq!(first_line(&mut ours, 1000, 10).await, None);
    }
}
