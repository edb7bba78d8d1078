//! Trial subscription at a server that denies having any.
//!
//! Owns the knowledge if such a server serves subscriptions, and the one request that finds out. Does not keep
//! subscriptions (`resource_subscriptions.rs`). Invariant: a connection has one trial at a time, shared by all callers,
//! and none once the result is known.
//!
//! The Python SDK 1.x announces `"subscribe": false` whatever handlers a server has, so that `false` says nothing. A
//! server that leaves the member out is not tried: 2025-11-25/server/resources.mdx, Capabilities, has it for those that
//! support subscriptions.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::json::ByteString;
use crate::jsonrpc::code;
use crate::link::LinkError;
use crate::model::{Error, McpErrorKind, ServerDescription};
use crate::revision::legacy::RESOURCE_NOT_FOUND;
use crate::revision::legacy::resource_subscriptions::uri_params;
use crate::revision::legacy::upstream::LegacyConnection;
use crate::revision::link_error;
use crate::revision::negotiate::ConnectError;

/// Code of the Python SDK 1.x for an exception in a handler. It proves that there is a handler.
const HANDLER_FAILED: i64 = 0;

const UNKNOWN: u8 = 0;
const SERVES: u8 = 1;
const REFUSES: u8 = 2;

/// Trial of one connection.
#[derive(Default)]
pub(super) struct Trial {
    known: AtomicU8,
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
    /// The server serves subscriptions, or does not; [`Trial`] records which.
    Known,
    /// The server serves subscriptions, but not for this resource.
    NotThis(Error),
    /// The request failed without a result.
    Failed(Error),
}

impl Trial {
    pub(super) fn serves(&self) {
        self.known.store(SERVES, Ordering::Relaxed);
    }

    pub(super) fn refuses(&self) {
        self.known.store(REFUSES, Ordering::Relaxed);
    }

    /// Corrects a server's description by the trial's result.
    pub(super) fn correct(&self, face: &mut ServerDescription) {
        // A server that declares subscriptions, or leaves them out, is taken at its word.
        if !face.features.subscribe_untried {
            return;
        }
        let known = self.known.load(Ordering::Relaxed);
        face.features.subscribe = known == SERVES;
        face.features.subscribe_untried = known == UNKNOWN;
    }
}

impl LegacyConnection {
    /// Tries a subscription if the server denies having any and was not tried yet. Joins a trial in progress.
    pub(super) fn try_subscription(
        self: &Arc<Self>,
        uri: &ByteString,
    ) -> Option<BoxFuture<'static, Result<(), Error>>> {
        let own = ByteString::from(uri.as_str());
        let mut open = self.trial.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Checked under the lock, so that no second trial follows one that ends meanwhile.
        if !self.face().features.subscribe_untried {
            return None;
        }
        let mut end = open.get_or_insert_with(|| self.begin_trial(own.clone())).clone();
        drop(open);
        Some(Box::pin(async move {
            let Ok(end) = end.wait_for(Option::is_some).await.map(|end| end.clone()) else { return Ok(()) };
            match end {
                Some(TrialEnd { outcome: Outcome::Failed(error), .. }) => Err(error),
                Some(TrialEnd { uri, outcome: Outcome::NotThis(error) }) if uri == own => Err(error),
                _ => Ok(()),
            }
        }))
    }

    /// Runs the trial in a task of its own, since its first caller may leave.
    fn begin_trial(self: &Arc<Self>, uri: ByteString) -> watch::Receiver<Option<TrialEnd>> {
        let (told, end) = watch::channel(None);
        let server = self.clone();
        let asking = async move {
            let outcome = server.trial_outcome(&uri).await;
            // Cleared before the waiters wake, so that no caller joins a finished trial.
            *server.trial.open.lock().unwrap_or_else(PoisonError::into_inner) = None;
            told.send_replace(Some(TrialEnd { uri, outcome }));
        };
        tokio::spawn(self.closing.clone().run_until_cancelled_owned(asking));
        end
    }

    async fn trial_outcome(&self, uri: &ByteString) -> Outcome {
        let session = self.session_generation();
        match self.gateway_request("resources/subscribe", &uri_params(uri)).await {
            Ok(_) => {
                // A new session meanwhile does not have this subscription.
                if self.session_generation() == session {
                    self.subscriptions.note_granted(uri);
                }
                self.trial.serves();
                Outcome::Known
            }
            Err(ConnectError::Answered(error)) if is_about_resource(error.code) => {
                self.trial.serves();
                Outcome::NotThis(Error::from_server(error))
            }
            // A server without a handler returns an error, or nothing at all.
            Err(ConnectError::Answered(_) | ConnectError::Link(LinkError::Timeout(_))) => {
                self.trial.refuses();
                Outcome::Known
            }
            Err(ConnectError::Link(failed)) => self.link_outcome(&failed),
            Err(ConnectError::NoCommonRevision(_)) => Outcome::Known,
        }
    }

    /// Reads a failure of the link, because some servers send their error with a 4xx status.
    ///
    /// A 4xx for a lost session says nothing about subscriptions.
    fn link_outcome(&self, failed: &LinkError) -> Outcome {
        let error = link_error::from_link(&self.options.server, failed);
        match &error.kind {
            McpErrorKind::ServerError(answered) if answered.code == code::METHOD_NOT_FOUND => {
                self.trial.refuses();
                Outcome::Known
            }
            _ => Outcome::Failed(error),
        }
    }
}

/// True if an error is about the resource, so that the server has subscriptions.
fn is_about_resource(code: i64) -> bool {
    matches!(code, RESOURCE_NOT_FOUND | code::INVALID_PARAMS | HANDLER_FAILED)
}
