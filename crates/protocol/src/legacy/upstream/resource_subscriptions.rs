//! Resource subscriptions of one legacy server.
//!
//! Owns the task that aligns the server with the desired subscriptions. Does not decide what to
//! send (`subscription_diff.rs`) and does not know the subscribers. Invariant: a connection has one
//! such task at a time.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;

use crate::connect_error::ConnectError;
use crate::legacy::profile::RESOURCE_NOT_FOUND;
use crate::legacy::upstream::connection::{LegacyConnection, WeakConnection};
use crate::legacy::upstream::subscription_diff::{
    ChangeOutcome, SubscriptionChange, SubscriptionProgress, SyncStep,
};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::code;
use moongate_model::Error;

/// Limit of requests in flight.
const CONCURRENCY_MAX: usize = 8;

impl LegacyConnection {
    /// Sets the desired subscriptions.
    pub(crate) fn sync_subscriptions(self: &Arc<Self>, wanted: &[ByteString]) {
        self.subscriptions.lock().set_desired(wanted);
        self.subscriptions.report_progress();
        self.spawn_sync();
    }

    /// Subscribes again in a new session, which has no subscriptions.
    pub(crate) fn resync_subscriptions(self: &Arc<Self>) {
        self.subscriptions.lock().reset_remote();
        self.spawn_sync();
    }

    /// Waits for the server's answer to the subscription of a resource, or until nobody needs it
    /// any more.
    pub(crate) async fn confirm_subscription(
        self: Arc<Self>,
        uri: ByteString,
    ) -> Result<(), Error> {
        let mut progress = self.subscriptions.watch_progress();
        let server = Arc::downgrade(&self);
        let closing = self.closing.clone();
        // Not held while it waits, so that the connection can end.
        drop(self);
        let answer = async {
            let mut was_wanted = false;
            loop {
                let Some(server) = server.upgrade() else {
                    return Ok(());
                };
                match server.subscriptions.progress_of(&uri) {
                    SubscriptionProgress::Answered(answer) => return answer,
                    // Before the wish arrives here, the end of an earlier one may still be on its
                    // way.
                    SubscriptionProgress::Unwanted if was_wanted => return Ok(()),
                    SubscriptionProgress::Unwanted => {}
                    SubscriptionProgress::Pending => was_wanted = true,
                }
                drop(server);
                if progress.changed().await.is_err() {
                    return Ok(());
                }
            }
        };
        closing.run_until_cancelled(answer).await.unwrap_or(Ok(()))
    }

    fn spawn_sync(self: &Arc<Self>) {
        let mut state = self.subscriptions.lock();
        if state.queue.is_empty() {
            return;
        }
        // One sync task for each connection: a running one is woken instead.
        if std::mem::replace(&mut state.running, true) {
            self.subscriptions.changed.notify_one();
            return;
        }
        let work = run_sync(Arc::downgrade(self), self.subscriptions.changed.clone());
        tokio::spawn(self.closing.clone().run_until_cancelled_owned(work));
    }

    async fn send_change(self: Arc<Self>, change: SubscriptionChange) {
        // Read before sending: a renewal meanwhile makes the outcome worthless.
        let session = self.session.generation();
        let method = if change.subscribe {
            "resources/subscribe"
        } else {
            "resources/unsubscribe"
        };
        let answer = self
            .send_own_request(method, &uri_params(&change.uri))
            .await;
        match &answer {
            // The outcome of a real subscription is worth as much as a trial.
            Ok(_) if change.subscribe => self.subscription_support.mark_served(),
            Err(ConnectError::Answered(error))
                if change.subscribe && error.code == code::METHOD_NOT_FOUND =>
            {
                self.subscription_support.mark_refused();
            }
            _ => {}
        }
        let outcome = match &answer {
            _ if self.session.generation() != session => ChangeOutcome::StaleSession,
            Ok(_) => ChangeOutcome::Granted,
            Err(ConnectError::Answered(error)) if is_final(error.code) => ChangeOutcome::Refused,
            Err(_) => ChangeOutcome::Failed,
        };
        let refusal = match answer {
            Err(ConnectError::Answered(error)) => Some(Error::from_server(error)),
            _ => None,
        };
        self.subscriptions
            .lock()
            .complete(&change, outcome, refusal);
        self.subscriptions.report_progress();
    }
}

/// Aligns the server with the desired subscriptions.
async fn run_sync(server: WeakConnection, changed: Arc<Notify>) {
    let mut in_flight = FuturesUnordered::new();
    loop {
        let until = loop {
            let Some(server) = server.upgrade() else {
                return;
            };
            // At the limit, only a finished request makes room, so no timer is needed.
            if in_flight.len() >= CONCURRENCY_MAX {
                break None;
            }
            let next = server.subscriptions.lock().next_due(in_flight.is_empty());
            match next {
                SyncStep::Send(change) => in_flight.push(server.send_change(change)),
                SyncStep::Wait(until) => break until,
                SyncStep::Finished => return,
            }
        };
        let retry_time = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(()) = in_flight.next(), if !in_flight.is_empty() => {}
            () = retry_time => {}
            () = changed.notified() => {}
        }
    }
}

/// True if a retry would get the same error.
fn is_final(code: i64) -> bool {
    matches!(
        code,
        code::METHOD_NOT_FOUND | code::INVALID_PARAMS | RESOURCE_NOT_FOUND
    )
}

pub(crate) fn uri_params(uri: &ByteString) -> JsonObject {
    JsonObject::new().with("uri", RawJson::string(uri))
}
