//! A response that is still coming: its events, one by one.

use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;

use super::within;

/// An event stream. Dropping it closes the connection.
pub(crate) struct Stream {
    body: Incoming,
    read: String,
}

impl Stream {
    /// Reads a response as events.
    pub(crate) fn new(response: Response<Incoming>) -> Self {
        let kind = response.headers()["content-type"].to_str().unwrap();
        assert!(kind.starts_with("text/event-stream"), "{kind}");
        Stream { body: response.into_body(), read: String::new() }
    }

    /// The next event or comment, as it was written; nothing at the end.
    pub(crate) async fn next(&mut self) -> Option<String> {
        loop {
            if let Some((event, rest)) = self.read.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.read = rest;
                return Some(event);
            }
            let frame = within("an event", self.body.frame()).await?.ok()?;
            if let Some(data) = frame.data_ref() {
                self.read.push_str(std::str::from_utf8(data).unwrap());
            }
        }
    }

    /// The next message; comments are passed over.
    pub(crate) async fn message(&mut self) -> Option<Value> {
        loop {
            let event = self.next().await?;
            if let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")).filter(|d| !d.is_empty()) {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }

    /// The next message with this method; others are passed over.
    pub(crate) async fn notification(&mut self, method: &str) -> Value {
        loop {
            let message = self.message().await.unwrap_or_else(|| panic!("the stream ended without {method}"));
            if message["method"] == method {
                return message;
            }
        }
    }
}
