//! Trial subscription at a server that denies having any.
//!
//! Owns the one request that shows whether such a server serves them. Does not keep the result
//! (`subscription_support.rs`) or subscriptions (`resource_subscriptions.rs`). Invariant: a
//! connection has one trial at a time, shared by all callers, and none once the result is known.
//!
//! The Python SDK 1.x announces `"subscribe": false` whatever handlers a server has, so that
//! `false` says nothing. A server that leaves the member out is not tried:
//! 2025-11-25/server/resources.mdx, Capabilities, has the member for servers that support
//! subscriptions.

use parking_lot::Mutex;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::call_error;
use crate::connect_error::ConnectError;
use crate::legacy::profile::RESOURCE_NOT_FOUND;
use crate::legacy::upstream::connection::LegacyConnection;
use crate::legacy::upstream::resource_subscriptions::uri_params;
use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::message::code;
use moongate_model::{Error, McpErrorKind};
use moongate_transport::LinkError;

/// Code of the Python SDK 1.x for an exception in a handler. It proves that there is a handler.
const HANDLER_FAILED: i64 = 0;

/// Trial of one connection.
#[derive(Default)]
pub(crate) struct SubscriptionTrial {
    open: Mutex<Option<watch::Receiver<Option<TrialEnd>>>>,
}

/// End of a trial, for all its waiters.
#[derive(Clone)]
struct TrialEnd {
    uri: ByteString,
    outcome: Outcome,
}

#[derive(Clone)]
enum Outcome {
    /// The server serves subscriptions, or does not; its support is recorded.
    Known,
    /// The server serves subscriptions, but not for this resource.
    NotThis(Error),
    /// The request failed without a result.
    Failed(Error),
}

impl SubscriptionTrial {
    /// Tries a subscription if the server denies having any and was not tried yet. Joins a trial in
    /// progress.
    pub(crate) fn try_subscription(
        self: &Arc<Self>,
        server: &Arc<LegacyConnection>,
        uri: &ByteString,
    ) -> Option<BoxFuture<'static, Result<(), Error>>> {
        // Copied, since the URI is a slice of the client's request and the trial may outlive it.
        let requested_uri = ByteString::from(uri.as_str());
        let mut open = self.open.lock();
        // Checked under the lock, so that no second trial follows one that ends meanwhile.
        if !server.description().capabilities.subscribe_untried {
            return None;
        }
        let mut end = open
            .get_or_insert_with(|| self.begin(server, requested_uri.clone()))
            .clone();
        drop(open);
        Some(Box::pin(async move {
            let Ok(end) = end.wait_for(Option::is_some).await.map(|end| end.clone()) else {
                return Ok(());
            };
            match end {
                Some(TrialEnd {
                    outcome: Outcome::Failed(error),
                    ..
                }) => Err(error),
                // The error of another resource says nothing about this one.
                Some(TrialEnd {
                    uri,
                    outcome: Outcome::NotThis(error),
                }) if uri == requested_uri => Err(error),
                _ => Ok(()),
            }
        }))
    }

    /// Runs the trial in its own task, since its first caller may leave.
    fn begin(
        self: &Arc<Self>,
        server: &Arc<LegacyConnection>,
        uri: ByteString,
    ) -> watch::Receiver<Option<TrialEnd>> {
        let (sender, end) = watch::channel(None);
        let trial = self.clone();
        let connection = server.clone();
        let run = async move {
            let outcome = run_trial(&connection, &uri).await;
            // Cleared before the waiters wake, so that no caller joins a finished trial.
            *trial.open.lock() = None;
            sender.send_replace(Some(TrialEnd { uri, outcome }));
        };
        tokio::spawn(server.closing.clone().run_until_cancelled_owned(run));
        end
    }
}

async fn run_trial(server: &LegacyConnection, uri: &ByteString) -> Outcome {
    let session = server.session.generation();
    match server
        .send_own_request("resources/subscribe", &uri_params(uri))
        .await
    {
        Ok(_) => {
            // A new session meanwhile does not have this subscription.
            if server.session.generation() == session {
                server.subscriptions.note_granted(uri);
            }
            server.subscription_support.mark_served();
            Outcome::Known
        }
        Err(ConnectError::Answered(error)) if is_about_resource(error.code) => {
            server.subscription_support.mark_served();
            Outcome::NotThis(Error::from_server(error))
        }
        // A server without a handler returns an error, or nothing at all.
        Err(ConnectError::Answered(_) | ConnectError::Link(LinkError::Timeout(_))) => {
            server.subscription_support.mark_refused();
            Outcome::Known
        }
        Err(ConnectError::Link(failed)) => link_outcome(server, &failed),
        Err(ConnectError::NoCommonRevision(_)) => Outcome::Known,
    }
}

/// Reads a failure of the link, because some servers send their error with a 4xx status.
///
/// A 4xx for a lost session says nothing about subscriptions.
fn link_outcome(server: &LegacyConnection, failed: &LinkError) -> Outcome {
    let error = call_error::from_connection(&server.options, failed);
    match &error.kind {
        McpErrorKind::ServerError(answered) if answered.code == code::METHOD_NOT_FOUND => {
            server.subscription_support.mark_refused();
            Outcome::Known
        }
        _ => Outcome::Failed(error),
    }
}

/// True if an error is about the resource, so that the server has subscriptions.
fn is_about_resource(code: i64) -> bool {
    matches!(
        code,
        RESOURCE_NOT_FOUND | code::INVALID_PARAMS | HANDLER_FAILED
    )
}
