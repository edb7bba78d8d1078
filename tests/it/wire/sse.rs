//! HTTP+SSE as a client of 2024-11-05 uses it: everything comes on one stream, and is told apart here.

use std::sync::{Arc, Mutex};

use http::{HeaderMap, HeaderValue};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Message, Stream};

/// Messages that one call may have waiting.
const WAITING: usize = 1024;

/// An open stream, and where messages go.
pub(crate) struct Sse {
    pub(crate) to: String,
    table: Arc<Mutex<SseCallTable>>,
    reading: JoinHandle<()>,
}

#[derive(Default)]
struct SseCallTable {
    calls: Vec<SseCall>,
    own: Option<mpsc::Sender<Message>>,
}

struct SseCall {
    /// The id, as it was written.
    id: String,
    token: Value,
    messages: mpsc::Sender<Message>,
}

impl Drop for Sse {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Sse {
    /// Reads the endpoint from the answer to a GET on `url`.
    pub(crate) async fn begin(url: &str, mut stream: Stream) -> Self {
        assert!(stream.status == 200 && stream.is_events(), "no event stream: {} {:?}", stream.status, stream.headers);
        let endpoint = stream.endpoint().await;
        let (origin, _) = url.split_at(url.find("/sse").expect("the path of HTTP+SSE"));
        let table = Arc::new(Mutex::new(SseCallTable::default()));
        let reading = tokio::spawn(read(stream, table.clone()));
        Sse { to: format!("{origin}{endpoint}"), table, reading }
    }

    /// What will be said about a request; give it back if it is not taken.
    pub(crate) fn expect(&self, body: &str, id: &str) -> Stream {
        let request: Value = serde_json::from_str(body).unwrap_or_default();
        let (messages, receiver) = mpsc::channel(WAITING);
        let token = request["params"]["_meta"]["progressToken"].clone();
        self.table.lock().unwrap().calls.push(SseCall { id: id.to_owned(), token, messages });
        said(receiver)
    }

    /// Nothing more is to come for a request: it was cancelled, or refused.
    pub(crate) fn forget(&self, id: &str) {
        self.table.lock().unwrap().calls.retain(|call| call.id != id);
    }

    /// What is said outside of calls, from now on.
    pub(crate) fn listen(&self) -> Stream {
        let (own, receiver) = mpsc::channel(WAITING);
        self.table.lock().unwrap().own = Some(own);
        said(receiver)
    }

    /// Ends the stream, and with it the session.
    pub(crate) fn close(&self) {
        self.reading.abort();
        *self.table.lock().unwrap() = SseCallTable::default();
    }
}

fn said(messages: mpsc::Receiver<Message>) -> Stream {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("text/event-stream"));
    Stream::of_messages(headers, messages)
}

async fn read(mut stream: Stream, table: Arc<Mutex<SseCallTable>>) {
    while let Some(message) = stream.next().await {
        let mut table = table.lock().unwrap();
        let calls = &mut table.calls;
        let at = match message.method() {
            "" => calls.iter().position(|call| message.member("id").as_deref() == Some(&call.id)),
            "notifications/progress" => {
                calls.iter().position(|call| call.token == message.value["params"]["progressToken"])
            }
            "notifications/message" => calls.len().checked_sub(1),
            _ if message.value.get("id").is_some() => calls.len().checked_sub(1),
            _ => None,
        };
        let to = match at {
            Some(at) if message.method().is_empty() => Some(calls.remove(at).messages),
            Some(at) => Some(calls[at].messages.clone()),
            None => table.own.clone(),
        };
        // Whoever no longer listens misses it.
        let _ = to.map(|to| to.try_send(message));
    }
    *table.lock().unwrap() = SseCallTable::default();
}
