//! Start of a permitted call, and the way back of its events.
//!
//! Owns the translation of results: URIs, tasks and the server's name. Does not route
//! (`resolve_call.rs`). Invariant: every call is permitted and can be revoked, and every call of a
//! client is measured.
//!
//! The streams of a call are nested: `CancellableCall` wraps `MeteredCall`, which wraps
//! `UpstreamCall`. That boxes `ActiveCall`, which holds the exchange of `LegacyCall` or
//! `ModernCall`. No streams are `CallRoute` (a target), `CorrelationEntry` (an entry for
//! correlation on a pipe) and `SessionCallGuard` (the guard of a legacy session).

use std::sync::Arc;

use crate::call_route::CallRoute;
use crate::call_watch::{CallWatch, LocalCall, MeteredCall};
use crate::endpoint::Endpoint;
use crate::extensions;
use crate::output_fit::OutputFit;
use crate::permitted::Permitted;
use crate::rewrite_links;
use crate::templates::LookupBudget;
use moongate_model::{
    Call, Caller, Error, Exchange, ExchangeEvent, InputRequired, McpMethod, Outcome, Retryable,
    TaskMode,
};
use moongate_upstream::UpstreamCall;

/// Starts a permitted call at its server. `tests/tidy.rs` checks that nothing else in the gateway
/// reaches a server.
pub(super) fn begin_permitted(
    route: &Permitted<CallRoute>,
    caller: &Arc<Caller>,
    call: Call,
) -> UpstreamCall {
    route.server.upstream.begin_call(caller, call)
}

impl Endpoint {
    /// Starts a call of an item, if it exists and the caller may use it.
    pub(super) fn call_item(&self, caller: &Arc<Caller>, mut call: Call) -> Exchange {
        match self.route(caller, &mut call) {
            Ok(route) => self.start(caller, route, call),
            Err(error) => self.call_unlisted(caller, call, error),
        }
    }

    /// Starts a permitted call, and translates what comes back for its client.
    pub(super) fn start(
        &self,
        caller: &Arc<Caller>,
        route: Permitted<CallRoute>,
        mut call: Call,
    ) -> Exchange {
        let method = call.method.clone();
        let extensions = self.permits_extensions(&caller.principal);
        call.extensions = extensions;
        // A single server's endpoint keeps that server's URIs, so its links need no rewriting.
        let links = (!self.keeps_local_names()).then(|| self.gateway.clone());
        let about_task = call.task_mode != TaskMode::Never || matches!(method, McpMethod::Task(_));
        let naming = about_task.then(|| self.task_naming(caller, &route.server));
        let server = route.server.clone();
        let output = OutputFit::of(self.gateway.context(), &route, caller, &method);
        self.start_metered(caller, route, call, move |event, answered| match event {
            ExchangeEvent::Done(mut end) => {
                if let (Ok(outcome), Some(output)) = (&mut end, &output) {
                    output.fit(outcome, &server, answered);
                }
                if let (Ok(outcome), Some(gateway)) = (&mut end, &links) {
                    let budget = LookupBudget::new();
                    rewrite_links::rewrite(&method, &mut outcome.result, &|uri| {
                        gateway.exposed_uri(&server.name, uri, &budget)
                    });
                }
                if let (
                    Ok(Outcome {
                        task: Some(task), ..
                    }),
                    Some(naming),
                ) = (&mut end, &naming)
                {
                    naming.expose_task(task);
                }
                ExchangeEvent::Done(end)
            }
            ExchangeEvent::InputRequired(request) => {
                if let Some(error) = extensions::extension_error(&request).filter(|_| !extensions) {
                    return ExchangeEvent::Done(Err(error));
                }
                ExchangeEvent::InputRequired(InputRequired {
                    server: Some(server.name.clone()),
                    ..request
                })
            }
            other => other,
        })
    }

    /// Starts a permitted call and watches it. `map_event` changes its events on their way to the
    /// client. It also gets the revision of the call's connection.
    pub(super) fn start_metered(
        &self,
        caller: &Arc<Caller>,
        route: Permitted<CallRoute>,
        call: Call,
        map_event: impl FnMut(ExchangeEvent, &'static str) -> ExchangeEvent + Send + Unpin + 'static,
    ) -> Exchange {
        let watch = CallWatch::new(self, caller, &call, route);
        let server = watch.route().server.name.clone();
        let events = MeteredCall::new(
            begin_permitted(watch.route(), caller, call),
            watch,
            map_event,
        );
        let context = self.gateway.context();
        context
            .in_flight
            .track(&caller.principal, &context.metrics, events)
            .run_by(Some(server))
    }

    /// Ends a call that never left the gateway.
    pub(super) fn answer_locally(
        &self,
        caller: &Caller,
        local_call: LocalCall,
        end: Result<Outcome, Error>,
    ) -> Exchange {
        local_call.record(self, caller, &end);
        // A client may use the state of such a call again.
        Exchange::ready(end.map_err(|error| error.with_retryable(Retryable::NotSent)))
    }
}
