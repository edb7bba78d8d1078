//! Streamable HTTP: the listener, and the checks before a message is read.
//!
//! Owns connections and the three HTTP methods. Does not own JSON-RPC. Invariant: a request whose
//! body arrives is recorded before it is checked.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{Duration, sleep},
};

use super::{
    answer::{self, HttpReply},
    fault::FaultAction,
    http_sse,
    http_sse_sessions::{OPEN, SEND},
    listeners::ListenTarget,
    post,
    received_request::ReceivedRequest,
    record::RecordedRequest,
    revision::Revision,
    server::MockServer,
    stream,
    wire::RpcFailure,
};

/// Limit of a body in bytes.
const BODY_MAX: usize = 64 << 20;
/// Path of the endpoint.
pub(super) const PATH: &str = "/mcp";

/// Accepts connections until the server stops.
pub(super) async fn serve(server: Arc<MockServer>, listener: TcpListener) {
    let slots = Arc::new(Semaphore::new(server.script.http.connections));
    let mut stop = server.stop.subscribe();
    loop {
        // The permit comes before the accept, so connections above the limit wait in the kernel's
        // queue.
        let Ok(permit) = slots.clone().acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let Ok((stream, _)) = accepted else {
            // The cause is most likely a lack of descriptors. Only waiting helps.
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        server.record.count(|c| c.connections += 1);
        let server = server.clone();
        tokio::spawn(async move {
            connection(server, stream).await;
            drop(permit);
        });
    }
}

async fn connection(server: Arc<MockServer>, stream: TcpStream) {
    // Most frames are small. Nagle's delay would be measured as the gateway's.
    let _ = stream.set_nodelay(true);
    let loopback = stream
        .local_addr()
        .is_ok_and(|address| address.ip().is_loopback());
    let reset = Arc::new(AtomicBool::new(false));
    let mut stop = server.stop.subscribe();
    let io = TokioIo::new(ResettableSocket {
        inner: stream,
        reset: reset.clone(),
    });
    let service = service_fn(move |request| {
        let server = server.clone();
        let reset = reset.clone();
        async move { answer(&server, &reset, loopback, request).await }
    });
    let serving = http1::Builder::new().serve_connection(io, service);
    tokio::pin!(serving);
    tokio::select! {
        // A connection ends when its client wants, or by a fault of the script.
        _ = serving.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => {}
    }
    // Streams end by themselves when the server stops. Idle connections are closed.
    serving.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(Duration::from_millis(200), serving).await;
}

async fn answer(
    server: &Arc<MockServer>,
    reset: &Arc<AtomicBool>,
    loopback: bool,
    request: Request<Incoming>,
) -> io::Result<Response<answer::HttpBody>> {
    let (parts, body) = request.into_parts();
    let headers: Vec<_> = parts
        .headers
        .iter()
        .map(|(n, v)| {
            (
                n.as_str().to_owned(),
                String::from_utf8_lossy(v.as_bytes()).into_owned(),
            )
        })
        .collect();
    // The whole body is read before any check, so that a refusal does not reset a client that still
    // writes.
    let Ok(body) = Limited::new(body, BODY_MAX).collect().await else {
        return Ok(answer::status(413));
    };
    let received = ReceivedRequest {
        headers,
        body: body.to_bytes(),
    };
    server.record.add_request(RecordedRequest {
        http_method: parts.method.to_string(),
        path: parts
            .uri
            .path_and_query()
            .map(ToString::to_string)
            .unwrap_or_default(),
        headers: received.headers.clone(),
        body: String::from_utf8_lossy(&received.body).into_owned(),
    });
    let path = parts.uri.path();
    let reply = match refuse_by_head(server, &parts.method, path, &received, loopback) {
        Some(response) => HttpReply::Response(response),
        None if path == OPEN => HttpReply::Response(http_sse::open(server)),
        None if path == SEND => {
            HttpReply::Response(http_sse::send(server, parts.uri.query(), &received.body).await)
        }
        None => match parts.method {
            Method::POST => post::answer(server, received).await,
            Method::GET => get(server, &received).await,
            _ => delete(server, &received).await,
        },
    };
    match reply {
        HttpReply::Response(response) => Ok(response),
        // Hyper has no way to end a connection without a response, so an error of the service does
        // it.
        HttpReply::Broken { reset: hard } => {
            reset.store(hard, Ordering::Relaxed);
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
}

/// Refuses a request by its path, method and headers alone.
fn refuse_by_head(
    server: &MockServer,
    method: &Method,
    path: &str,
    received: &ReceivedRequest,
    loopback: bool,
) -> Option<Response<answer::HttpBody>> {
    let http = &server.script.http;
    let has_http_sse = http.pair && server.speaks(Revision::V2024_11_05);
    match path {
        PATH if http.streamable => {}
        OPEN if has_http_sse && *method != Method::GET => return Some(answer::status(405)),
        SEND if has_http_sse && *method != Method::POST => return Some(answer::status(405)),
        OPEN | SEND if has_http_sse => {}
        _ => return Some(answer::status(404)),
    }
    if let Some(challenge) = server.bearers.refuse(received.header("authorization")) {
        return Some(answer::with_headers(
            401,
            [("www-authenticate".to_owned(), challenge)],
            String::new(),
        ));
    }
    if !matches!(*method, Method::POST | Method::GET | Method::DELETE) {
        return Some(answer::status(405));
    }
    if !http.strict {
        return None;
    }
    let foreign = received
        .header("origin")
        .is_some_and(|origin| !is_local_host(origin.split("://").nth(1).unwrap_or_default()));
    // Protection against DNS rebinding: a page whose name was pointed at this machine still sends
    // its own name. Streamable HTTP: "Servers MUST validate the `Origin` header" (2025-11-25,
    // basic/transports).
    if foreign
        || loopback
            && received
                .header("host")
                .is_some_and(|host| !is_local_host(host))
    {
        return Some(answer::status(403));
    }
    let json = received
        .header("content-type")
        .is_some_and(|t| t.split(';').next() == Some("application/json"));
    if *method == Method::POST && !json {
        return Some(answer::status(415));
    }
    if path != PATH {
        return None;
    }
    // DELETE has no body in its response, so it need not accept anything.
    let events = *method != Method::DELETE && !received.accepts("text/event-stream");
    if events || (*method == Method::POST && !received.accepts("application/json")) {
        let fail = RpcFailure::new(
            -32000,
            "Not Acceptable: the client must accept what this method answers with",
        );
        return Some(answer::json(406, fail.response(None), None));
    }
    None
}

fn is_local_host(host: &str) -> bool {
    let host = host
        .rsplit_once(':')
        .map_or(host, |(h, port)| if port.ends_with(']') { host } else { h });
    ["localhost", "127.0.0.1", "[::1]"].contains(&host)
}

/// Applies faults to `GET` and `DELETE`, which are not JSON-RPC methods.
async fn strike_request(server: &MockServer, method: &str) -> Option<HttpReply> {
    for act in server.strike(method, None) {
        match act {
            FaultAction::Delay { ms } => sleep(Duration::from_millis(ms)).await,
            FaultAction::Hang => std::future::pending().await,
            FaultAction::DropSessions => {
                server.drop_sessions(None);
            }
            FaultAction::Close => return Some(HttpReply::Broken { reset: false }),
            FaultAction::Reset | FaultAction::Exit { .. } => {
                return Some(HttpReply::Broken { reset: true });
            }
            FaultAction::Status {
                status,
                headers,
                body,
                content_type,
            } => {
                let headers = headers
                    .into_iter()
                    .chain(content_type.map(|v| ("content-type".to_owned(), v)));
                return Some(HttpReply::Response(answer::with_headers(
                    status, headers, body,
                )));
            }
            _ => {}
        }
    }
    None
}

async fn get(server: &Arc<MockServer>, received: &ReceivedRequest) -> HttpReply {
    server.record.method("GET");
    if let Some(reply) = strike_request(server, "GET").await {
        return reply;
    }
    let http = &server.script.http;
    // "or else return HTTP 405 Method Not Allowed" without a stream to offer (2025-11-25,
    // basic/transports).
    let refused = http
        .get
        .or((server.legacy().is_none() || !http.session).then_some(405));
    if let Some(status) = refused {
        return HttpReply::Response(answer::status(status));
    }
    let session = match post::session(server, received) {
        Ok(session) => session,
        Err(fail) => {
            return HttpReply::Response(answer::json(fail.status, fail.response(None), None));
        }
    };
    // Only a POST's stream resumes. A GET stream starts again, since its messages were sent
    // already.
    if let Some(last) = received
        .header("last-event-id")
        .and_then(stream::EventPosition::parse)
        .filter(|_| http.sse.ids)
        && last.post
    {
        return HttpReply::Response(stream::replay(server, &session, last));
    }
    let (out, frames) = tokio::sync::mpsc::channel(256);
    let Some(listening) = server.listen(ListenTarget::Session(session.clone()), out, None) else {
        return HttpReply::Response(answer::status(503));
    };
    for method in &http.early {
        let id = format!("\"early-{}\"", server.next_number());
        server.listeners.send_to_session(
            &session.id,
            super::wire::request(&id, method, &serde_json::json!({})),
        );
    }
    HttpReply::Response(stream::listening(server, session, frames, listening))
}

async fn delete(server: &Arc<MockServer>, received: &ReceivedRequest) -> HttpReply {
    server.record.method("DELETE");
    if let Some(reply) = strike_request(server, "DELETE").await {
        return reply;
    }
    let http = &server.script.http;
    if let Some(status) = http
        .delete
        .or((server.legacy().is_none() || !http.session).then_some(405))
    {
        return HttpReply::Response(answer::status(status));
    }
    HttpReply::Response(match post::session(server, received) {
        Ok(session) => {
            server.drop_sessions(Some(&session.id));
            server.record.count(|c| c.deleted += 1);
            answer::status(200)
        }
        Err(fail) => answer::json(fail.status, fail.response(None), None),
    })
}

/// TCP connection that can end with a reset.
struct ResettableSocket {
    inner: TcpStream,
    reset: Arc<AtomicBool>,
}

impl Drop for ResettableSocket {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Relaxed) {
            // Without it the end is an orderly one. The fault is weaker then, not wrong.
            let _ = self.inner.set_zero_linger();
        }
    }
}

impl AsyncRead for ResettableSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for ResettableSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A FIN before the reset would look like an orderly end.
        if self.reset.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
