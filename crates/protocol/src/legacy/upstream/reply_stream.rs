//! Messages that come back for the request of one call.
//!
//! Owns the request while it is being sent, and the stream after that. Does not know what a message
//! means. Invariant: the generation is that of the session in which the request was sent.

use futures_util::StreamExt;
use futures_util::future::BoxFuture;

use moongate_jsonrpc::message::{RpcMessage, RpcNotification};
use moongate_model::Error;
use moongate_transport::{LinkError, MessageStream};

/// Result of sending, and the generation of the session it was sent in.
pub(crate) type SendResult = (Result<MessageStream, Error>, u64);

/// Next item for a call.
pub(crate) enum IncomingItem {
    NotSent(Error),
    Message(Result<RpcMessage, LinkError>),
    /// Cancellation of an input request that this call received.
    Withdrawn(RpcNotification),
    End,
    TimedOut,
}

/// Reply to one request.
#[derive(Default)]
pub(crate) struct ReplyStream {
    /// Request being sent, if messages may arrive on another stream before its response starts.
    sending: Option<BoxFuture<'static, SendResult>>,
    messages: Option<MessageStream>,
    sent_generation: u64,
}

impl ReplyStream {
    /// Sends the request while messages are awaited.
    pub(crate) fn send_meanwhile(
        &mut self,
        sending: impl Future<Output = SendResult> + Send + 'static,
    ) {
        self.sending = Some(Box::pin(sending));
    }

    /// Starts the reply to a request that was sent.
    pub(crate) fn begin(&mut self, (messages, generation): SendResult) -> Result<(), Error> {
        (self.messages, self.sent_generation, self.sending) = (Some(messages?), generation, None);
        Ok(())
    }

    /// Waits for the next item. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> IncomingItem {
        loop {
            match (&mut self.messages, &mut self.sending) {
                (Some(messages), _) => {
                    return messages
                        .next()
                        .await
                        .map_or(IncomingItem::End, IncomingItem::Message);
                }
                (None, Some(sending)) => {
                    let sent = sending.await;
                    if let Err(error) = self.begin(sent) {
                        return IncomingItem::NotSent(error);
                    }
                }
                (None, None) => return IncomingItem::End,
            }
        }
    }

    /// Returns the generation of the session in which the request was sent.
    pub(crate) fn sent_generation(&self) -> u64 {
        self.sent_generation
    }
}
