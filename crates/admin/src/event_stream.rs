//! Event stream of the admin listener: `GET /api/v1/events`.
//!
//! Owns the bytes of a stream, and when it ends. Does not find changes (`change_poller.rs`).
//! Invariant: a stream ends when the gateway drains, when the admin keys change, or when its
//! browser session ends, so it never outlives its permission.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body as AxumBody, Bytes};
use axum::response::Response;
use futures_util::stream::{self, Stream};
use http::{HeaderValue, StatusCode, header};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::admin_state::AdminState;
use crate::change_poller::{snapshot_event, watch};
use crate::event_feed::{AdminEvent, FeedWatcher};
use crate::key_check::AccessGrant;
use crate::operator_check::Viewer;
use moongate_listener::json_response;
use moongate_telemetry::CountGuard;

/// Silence after which a comment is sent, so that proxies and browsers keep the stream.
const COMMENT_INTERVAL: Duration = Duration::from_secs(15);
/// Interval of the check whether the permission still holds.
const PERMISSION_INTERVAL: Duration = Duration::from_millis(500);

/// Handles `GET /api/v1/events`.
pub(super) async fn events(
    Viewer(admin): Viewer,
    Extension(grant): Extension<AccessGrant>,
) -> Response {
    let Some(watcher) = watch(&admin) else {
        let message =
            "Too many event streams are open (admin.streams); close a page or raise the limit";
        return json_response(StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", message);
    };
    let mut response = Response::new(AxumBody::from_stream(event_stream(admin, grant, watcher)));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    response
}

/// State of one event stream.
struct OpenStream {
    admin: Arc<AdminState>,
    grant: AccessGrant,
    watcher: FeedWatcher,
    access: Arc<moongate_access::auth::AdminAccess>,
    next_id: u64,
    last_sent: Instant,
    _count: CountGuard,
}

fn event_stream(
    admin: Arc<AdminState>,
    grant: AccessGrant,
    watcher: FeedWatcher,
) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> {
    let count = CountGuard::new(&admin.metrics.clients.admin_streams);
    let access = admin.access.load_full();
    let stream = OpenStream {
        admin,
        grant,
        watcher,
        access,
        next_id: 1,
        last_sent: Instant::now(),
        _count: count,
    };
    stream::unfold(stream, |mut stream| async {
        let bytes = stream.next_bytes().await?;
        stream.last_sent = Instant::now();
        Some((Ok(bytes), stream))
    })
}

impl OpenStream {
    /// Waits for the next bytes. Returns `None` at the end.
    async fn next_bytes(&mut self) -> Option<Bytes> {
        if self.next_id == 1 {
            return Some(self.encode(&snapshot_event(&self.admin)));
        }
        let draining = self.admin.draining.clone();
        loop {
            let next = tokio::select! {
                // `biased`: a drain ends the stream even while events are queued.
                biased;
                () = draining.cancelled() => return None,
                next = tokio::time::timeout(PERMISSION_INTERVAL,
                    self.watcher.events.recv()) => next,
            };
            // A reload replaces the keys as a whole. The client connects again, with the key that
            // it has now.
            if !Arc::ptr_eq(&self.access, &self.admin.access.load())
                || !self.grant.is_open(&self.admin)
            {
                return None;
            }
            let event = match next {
                Ok(Ok(event)) => event.upgrade(),
                Ok(Err(RecvError::Lagged(_))) => None,
                Ok(Err(RecvError::Closed)) => return None,
                Err(_) if self.last_sent.elapsed() >= COMMENT_INTERVAL => {
                    return Some(Bytes::from_static(b": \n\n"));
                }
                Err(_) => continue,
            };
            return Some(match event {
                Some(event) => self.encode(&event),
                // The watcher fell behind: it gets all again, and nothing from before that.
                None => {
                    self.watcher.events = self.watcher.events.resubscribe();
                    self.encode(&snapshot_event(&self.admin))
                }
            });
        }
    }

    fn encode(&mut self, event: &AdminEvent) -> Bytes {
        let id = self.next_id;
        self.next_id += 1;
        // JSON has no line breaks outside of strings here, and escapes those inside.
        format!("id: {id}\nevent: {}\ndata: {}\n\n", event.kind, event.data).into()
    }
}
