//! WebSocket: one message in each text frame, joined to a pipe of lines.
//!
//! Owns the handshake and the frames. Does not read the messages. Invariant: a fault ends the
//! connection without a close frame, and a stop of the server sends one.

use std::sync::Arc;

use futures_util::{SinkExt as _, StreamExt as _};
use http::{HeaderValue, Request, Response};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};
use tokio_tungstenite::{
    accept_hdr_async_with_config,
    tungstenite::{
        Message,
        protocol::{CloseFrame, WebSocketConfig, frame::coding::CloseCode},
    },
};

use super::{
    http::PATH,
    pipe::{self, PipeEnd},
    record::RecordedRequest,
    server::MockServer,
};

/// Limit of a message in bytes.
const MESSAGE_MAX: usize = 64 << 20;
/// Bytes between the two ends that nobody has read.
const BUFFER: usize = 1 << 16;
/// Subprotocol that both sides have to name.
const SUBPROTOCOL: &str = "mcp";

/// Serves one connection until it ends.
pub(super) async fn connection(server: Arc<MockServer>, stream: TcpStream) {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_MAX))
        .max_frame_size(Some(MESSAGE_MAX));
    #[allow(clippy::result_large_err, reason = "the library's signature")]
    let check =
        |request: &Request<()>, answer: Response<()>| check_upgrade(&server, request, answer);
    // A refused client has its response already.
    let Ok(socket) = accept_hdr_async_with_config(stream, check, Some(config)).await else {
        return;
    };
    let (mut sink, mut frames) = socket.split();
    let (mut input, reader) = tokio::io::duplex(BUFFER);
    let (writer, output) = tokio::io::duplex(BUFFER);
    let serving = tokio::spawn(pipe::serve(server.clone(), BufReader::new(reader), writer));
    let incoming = async {
        while let Some(Ok(frame)) = frames.next().await {
            let Message::Text(text) = frame else { continue };
            // Line breaks in JSON are only between tokens, where a space means the same.
            let line = text.replace(['\n', '\r'], " ") + "\n";
            if input.write_all(line.as_bytes()).await.is_err() {
                return;
            }
        }
    };
    let outgoing = async {
        let mut lines = BufReader::new(output).split(b'\n');
        while let Ok(Some(line)) = lines.next_segment().await {
            let text = String::from_utf8_lossy(&line).into_owned();
            if sink.send(Message::text(text)).await.is_err() {
                return;
            }
        }
    };
    let client_left = tokio::select! {
        () = incoming => true,
        () = outgoing => false,
    };
    // The end of its input ends the pipe, so `serving` below returns.
    drop(input);
    if client_left || matches!(serving.await, Ok(Ok(PipeEnd::Broken(_)))) {
        return;
    }
    let goodbye = CloseFrame {
        code: CloseCode::Away,
        reason: "the mock stops".into(),
    };
    let _ = sink.send(Message::Close(Some(goodbye))).await;
}

/// Accepts or refuses a handshake.
#[allow(clippy::result_large_err, reason = "the library's signature")]
fn check_upgrade(
    server: &MockServer,
    request: &Request<()>,
    mut answer: Response<()>,
) -> Result<Response<()>, Response<Option<String>>> {
    let headers: Vec<_> = request
        .headers()
        .iter()
        .map(|(name, value)| {
            (
                name.as_str().to_owned(),
                String::from_utf8_lossy(value.as_bytes()).into_owned(),
            )
        })
        .collect();
    let path = request
        .uri()
        .path_and_query()
        .map(ToString::to_string)
        .unwrap_or_default();
    let seen = RecordedRequest {
        http_method: "GET".into(),
        path,
        headers,
        body: String::new(),
    };
    let refused = server.bearers.refuse(seen.header("authorization"));
    let offered = seen
        .header("sec-websocket-protocol")
        .unwrap_or_default()
        .to_owned();
    server.record.add_request(seen);
    if request.uri().path() != PATH {
        return Err(refusal(404, "there is nothing here"));
    }
    if refused.is_some() {
        return Err(refusal(401, "the bearer token is missing or wrong"));
    }
    // The specification has no WebSocket transport. SDKs agree on the subprotocol `mcp`.
    if !offered.split(',').any(|one| one.trim() == SUBPROTOCOL) {
        return Err(refusal(
            400,
            "the client does not offer the subprotocol `mcp`",
        ));
    }
    answer.headers_mut().insert(
        "sec-websocket-protocol",
        HeaderValue::from_static(SUBPROTOCOL),
    );
    Ok(answer)
}

fn refusal(status: u16, why: &str) -> Response<Option<String>> {
    let mut refusal = Response::new(Some(why.to_owned()));
    *refusal.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    refusal
}
