//! HTTP+SSE as a client of 2024-11-05 uses it.
//!
//! Distributes the messages of one stream: to the calls that they belong to, and to the listener.
//! Posts nothing. Invariant: a message that nobody reads is dropped.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::{EventStream, RpcMessage};

/// Messages that one call may have waiting.
const MAX_WAITING: usize = 1024;

/// An open stream and its readers.
pub struct HttpSseStream {
    /// Where requests go.
    pub(crate) post_url: String,
    readers: Arc<Mutex<StreamReaders>>,
    reading: JoinHandle<()>,
}

#[derive(Default)]
struct StreamReaders {
    calls: Vec<CallReader>,
    listener: Option<mpsc::Sender<Bytes>>,
}

struct CallReader {
    /// Id of the request, as it was written.
    id: String,
    progress_token: Value,
    messages: mpsc::Sender<Bytes>,
}

impl Drop for HttpSseStream {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl HttpSseStream {
    /// Reads the endpoint from the response to a GET on `url`.
    pub(crate) async fn open(url: &str, mut stream: EventStream) -> Self {
        assert!(
            stream.status == 200 && stream.is_events(),
            "no event stream: {} {:?}",
            stream.status,
            stream.headers
        );
        let event = stream.next().await.expect("the stream ended at once");
        let endpoint = event
            .strip_prefix("event: endpoint\ndata: ")
            .unwrap_or_else(|| panic!("{event}"));
        let (origin, _) = url.split_at(url.find("/sse").expect("the path of HTTP+SSE"));
        let post_url = format!("{origin}{}", endpoint.trim_end());
        let readers = Arc::new(Mutex::new(StreamReaders::default()));
        let reading = tokio::spawn(distribute(stream, readers.clone()));
        HttpSseStream {
            post_url,
            readers,
            reading,
        }
    }

    /// Returns the stream of what will belong to a request. A request that is refused must be
    /// forgotten.
    pub(crate) fn expect(&self, body: &str, id: &str) -> EventStream {
        let request: Value = serde_json::from_str(body).unwrap_or_default();
        let (messages, receiver) = mpsc::channel(MAX_WAITING);
        let progress_token = request["params"]["_meta"]["progressToken"].clone();
        self.readers.lock().calls.push(CallReader {
            id: id.to_owned(),
            progress_token,
            messages,
        });
        EventStream::relayed(receiver)
    }

    /// Ends the stream of a request that was cancelled or refused.
    pub(crate) fn forget(&self, id: &str) {
        self.readers.lock().calls.retain(|call| call.id != id);
    }

    /// Returns the stream of messages that belong to no call, from now on.
    pub(crate) fn listen(&self) -> EventStream {
        let (listener, receiver) = mpsc::channel(MAX_WAITING);
        self.readers.lock().listener = Some(listener);
        EventStream::relayed(receiver)
    }

    /// Ends the stream, and with it the session.
    pub(crate) fn close(&self) {
        self.reading.abort();
        *self.readers.lock() = StreamReaders::default();
    }
}

async fn distribute(mut stream: EventStream, readers: Arc<Mutex<StreamReaders>>) {
    while let Some(message) = stream.next_message().await {
        let reader = readers.lock().reader_of(&message);
        // A reader that has left misses it.
        let _ = reader.map(|reader| {
            reader.try_send(format!("data: {}\n\n", message.raw.replace('\n', "\ndata: ")).into())
        });
    }
    *readers.lock() = StreamReaders::default();
}

impl StreamReaders {
    fn reader_of(&mut self, message: &RpcMessage) -> Option<mpsc::Sender<Bytes>> {
        let calls = &mut self.calls;
        let at = match message.method() {
            "" => calls
                .iter()
                .position(|call| message.member("id").as_deref() == Some(&call.id)),
            "notifications/progress" => calls
                .iter()
                .position(|call| call.progress_token == message.value["params"]["progressToken"]),
            "notifications/message" => calls.len().checked_sub(1),
            _ if message.value.get("id").is_some() => calls.len().checked_sub(1),
            _ => None,
        };
        match at {
            Some(at) if message.method().is_empty() => Some(calls.remove(at).messages),
            Some(at) => Some(calls[at].messages.clone()),
            None => self.listener.clone(),
        }
    }
}
