//! Methods of a legacy client that change its session: log level, subscriptions, notifications.
//!
//! Owns what they do. Does not encode their results (`session_request.rs`). Invariant: they reach
//! no server by name.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::dialect::DownstreamState;
use crate::legacy::downstream::resource_updates;
use crate::legacy::downstream::transient_session::require_session;
use crate::notifications::NOTIFICATION_BYTES_MAX;
use moongate_jsonrpc::json::{ByteString, JsonObject};
use moongate_jsonrpc::message::{RequestId, RpcNotification};
use moongate_model::{
    Error, LogFilter, LogLevel, McpErrorKind, McpServer, Notification, SubscriptionFilter,
    extends_protocol,
};
use moongate_session::{Session, SubscribeOutcome};
use moongate_telemetry::DroppedItem;

/// Sets the session's log level (`logging/setLevel`).
pub(crate) fn set_level(session: &Session, params: &JsonObject) -> Result<JsonObject, Error> {
    require_session(session)?;
    let level = params
        .get_string("level")
        .and_then(|name| LogLevel::from_name(&name));
    let level = level.ok_or_else(|| {
        Error::new(
            McpErrorKind::InvalidParams,
            "Invalid params: level must be one of debug, info, notice, warning, error, critical, \
             alert, emergency",
        )
    })?;
    session.set_log_filter(LogFilter::AtLeast(level));
    Ok(JsonObject::new())
}

/// Subscription of a session, on its way.
pub(crate) type Subscribing = BoxFuture<'static, Result<JsonObject, Error>>;

/// Subscribes the session to a resource (`resources/subscribe`), and waits for the server's answer.
/// Updates go to the session's stream.
pub(crate) fn subscribe(
    session: &Arc<Session>,
    endpoint: &Arc<dyn McpServer>,
    params: &JsonObject,
) -> Result<Subscribing, Error> {
    require_session(session)?;
    let uri = params
        .get_string("uri")
        .ok_or_else(|| Error::without_text(params, "uri"))?;
    let session = session.clone();
    let endpoint = endpoint.clone();
    // A server that may not support subscriptions is tried first.
    let trial = endpoint.try_subscriptions(
        &session.identity.shared_caller(),
        std::slice::from_ref(&uri),
    );
    if let Some(trial) = trial {
        return Ok(Box::pin(async move {
            trial.await?;
            begin_subscription(&session, &endpoint, &uri)?;
            Ok(JsonObject::new())
        }));
    }
    let (is_new, ended) = begin_subscription(&session, &endpoint, &uri)?;
    let confirmed = endpoint.confirm_subscription(&session.identity.shared_caller(), &uri);
    Ok(Box::pin(async move {
        let end = match confirmed {
            // A client that unsubscribed waits for nothing more, and the server may not be asked at
            // all.
            Some(confirmed) => ended.run_until_cancelled(confirmed).await.unwrap_or(Ok(())),
            None => Ok(()),
        };
        // What the server refused is subscribed nowhere.
        if end.is_err() && is_new {
            session.unsubscribe(&uri);
        }
        end.map(|()| JsonObject::new())
    }))
}

/// Starts a subscription. Returns true if it is new to the session, and the token of its end.
fn begin_subscription(
    session: &Arc<Session>,
    endpoint: &Arc<dyn McpServer>,
    uri: &ByteString,
) -> Result<(bool, CancellationToken), Error> {
    let caller = session.identity.shared_caller();
    let notifications = endpoint.subscribe(
        &caller,
        SubscriptionFilter {
            uris: vec![uri.clone()],
            ..SubscriptionFilter::default()
        },
    );
    if let Some(setting) = notifications.acknowledged.exceeded_limit {
        let message = format!("The server has too many subscriptions ({setting}); end some first");
        return Err(Error::new(McpErrorKind::Overloaded, message));
    }
    if let Some(name) = notifications.acknowledged.unoffered {
        // A method that the server does not have: 2025-11-25/server/resources.mdx, Capabilities,
        // makes it optional.
        let message = format!("Server \"{name}\" does not support resource subscriptions");
        return Err(Error::new(McpErrorKind::UnknownMethod, message));
    }
    if !notifications.acknowledged.uris.contains(uri) {
        return Err(Error::new(
            McpErrorKind::UnknownResource,
            format!("Resource not found: {uri}"),
        ));
    }
    // A copy: the URI is a span of the request, whose buffer must not live as long as the
    // subscription.
    let uri = ByteString::from(uri.as_str());
    match session.subscribe(&uri) {
        SubscribeOutcome::New(subscription) => {
            let ended = subscription.ended.clone();
            tokio::spawn(resource_updates::forward_subscription(
                uri,
                notifications,
                Arc::downgrade(session),
                subscription,
            ));
            Ok((true, ended))
        }
        // The URI may belong to another server by now, or to none.
        SubscribeOutcome::Already(subscription) => {
            subscription.renew(notifications);
            Ok((false, subscription.ended))
        }
        SubscribeOutcome::TooMany => {
            let message =
                "The session has too many subscriptions (limits.subscriptions); end some first";
            Err(Error::new(McpErrorKind::Overloaded, message))
        }
    }
}

/// Ends a subscription (`resources/unsubscribe`).
pub(crate) fn unsubscribe(session: &Session, params: &JsonObject) -> Result<JsonObject, Error> {
    require_session(session)?;
    let uri = params
        .get_string("uri")
        .ok_or_else(|| Error::without_text(params, "uri"))?;
    // No error for an unknown subscription: the client has what it asked for.
    session.unsubscribe(&uri);
    Ok(JsonObject::new())
}

/// Handles a notification from the client.
pub(crate) fn on_notification(
    session: &Arc<Session>,
    endpoint: &Arc<dyn McpServer>,
    notification: &RpcNotification,
    state: &DownstreamState,
) {
    // Without a session there is no call that it could be about, and no server that waits for it.
    if session.identity.is_transient() {
        return;
    }
    match &*notification.method {
        "notifications/cancelled" => {
            let id = notification
                .params
                .get("requestId")
                .and_then(|raw| RequestId::from_raw(raw.clone()));
            // An unknown id is not a mistake: the call may just have ended.
            // 2025-11-25/basic/utilities/cancellation.mdx: "Both parties MUST handle these race
            // conditions gracefully".
            let reason = notification.params.get("reason");
            if id.is_some_and(|id| session.calls.cancel(&id, reason)) {
                state.metrics.calls.cancelled.inc();
            }
        }
        "notifications/roots/list_changed" => {
            // To every server of the endpoint, since any of them may have asked for the roots.
            endpoint.notify(
                &session.identity.shared_caller(),
                Notification::RootsChanged,
            )
        }
        _ if notification.params.size_hint() > NOTIFICATION_BYTES_MAX => {
            state
                .metrics
                .calls
                .dropped
                .inc(DroppedItem::LargeNotification);
        }
        "notifications/progress" => {
            let token = notification.params.get("progressToken");
            let params = notification.params.clone();
            // Progress may cross the response on its way, so a late one is ignored.
            let _ =
                token.is_some_and(|token| session.client_requests.report_progress(token, params));
        }
        other if extends_protocol(other) => {
            let passed =
                Notification::Extension(notification.method.clone(), notification.params.clone());
            endpoint.notify(&session.identity.shared_caller(), passed);
        }
        // `initialized` changes nothing here, and all others are a server's.
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::{FutureExt, StreamExt, future, stream};

    use super::*;
    use moongate_jsonrpc::json::RawJson;
    use moongate_model::{Call, Caller, Exchange, NotificationStream, ServerDescription};
    use moongate_session::{ReplaySettings, SessionSettings, Sessions};
    use moongate_telemetry::Metrics;

    /// Server that takes each subscription and never confirms one.
    struct MuteServer;

    impl McpServer for MuteServer {
        fn describe(&self, _: &Caller) -> ServerDescription {
            unreachable!()
        }

        fn call(&self, _: &Arc<Caller>, _: Call) -> Exchange {
            unreachable!()
        }

        fn subscribe(&self, _: &Arc<Caller>, filter: SubscriptionFilter) -> NotificationStream {
            NotificationStream {
                acknowledged: filter,
                stream: stream::pending().boxed(),
                established: None,
            }
        }

        fn confirm_subscription(
            &self,
            _: &Arc<Caller>,
            _: &ByteString,
        ) -> Option<BoxFuture<'static, Result<(), Error>>> {
            Some(future::pending().boxed())
        }

        fn notify(&self, _: &Arc<Caller>, _: Notification) {}
    }

    fn session() -> Arc<Session> {
        let replay = ReplaySettings {
            bytes: 1000,
            total: 1000,
            events: 10,
            time: Duration::from_secs(60),
        };
        let settings = SessionSettings {
            max: 1,
            idle: Duration::from_secs(60),
            replay,
            outbox: 10_000,
            outbox_total: 100_000,
            subscriptions: 10,
        };
        let caller = Caller::without_capabilities(moongate_testing::principal(1));
        Sessions::new(settings, Arc::new(Metrics::new()))
            .open(caller, ByteString::literal(""), None)
            .unwrap()
    }

    #[tokio::test]
    async fn a_subscription_that_is_ended_meanwhile_is_answered() {
        let session = session();
        let endpoint = Arc::new(MuteServer) as Arc<dyn McpServer>;
        let params = JsonObject::new().with("uri", RawJson::string("a://1"));
        let mut first = subscribe(&session, &endpoint, &params).unwrap();
        let mut second = subscribe(&session, &endpoint, &params).unwrap();
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        unsubscribe(&session, &params).unwrap();
        let mut again = subscribe(&session, &endpoint, &params).unwrap();
        assert!(first.now_or_never().unwrap().is_ok() && second.now_or_never().unwrap().is_ok());
        assert!(
            (&mut again).now_or_never().is_none(),
            "another subscription"
        );
        assert_eq!(session.subscriptions.uris(), [ByteString::literal("a://1")]);
    }
}
