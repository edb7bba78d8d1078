//! Start of a routed call, and the way back of its events.
//!
//! Owns the translation of results: URIs, tasks and the server's name. Does not route (`resolve_call.rs`). Invariant:
//! every call is measured and can be revoked.

use std::sync::Arc;

use crate::call_watch::{CallWatch, UnsentCall, WatchedCall};
use crate::endpoint::Endpoint;
use crate::rewrite_links;
use crate::routed_call::RoutedCall;
use crate::templates::LookupBudget;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Call, Caller, Error, Exchange, ExchangeEvent, InputRequired, McpMethod, Outcome, TaskMode};

impl Endpoint {
    /// Starts a routed call and watches it: its time, its links.
    pub(super) fn start(&self, caller: &Arc<Caller>, routed: RoutedCall, call: Call) -> Exchange {
        let RoutedCall { upstream, meter, tool } = routed;
        let method = call.method.clone();
        // A single server's endpoint keeps that server's URIs, so its links need no rewriting.
        let links = (!self.keeps_local_names()).then(|| self.gateway.clone());
        let about_task = call.task_mode != TaskMode::Never || matches!(method, McpMethod::Task(_));
        let naming = about_task.then(|| self.task_naming(caller, &upstream));
        let watch = CallWatch::new(self, caller, &call, (meter, upstream.clone(), tool));
        let server = upstream.clone();
        let change = move |event| match event {
            ExchangeEvent::Done(mut end) => {
                if let (Ok(outcome), Some(gateway)) = (&mut end, &links) {
                    let budget = LookupBudget::new();
                    let exposed = |uri: &ByteString| gateway.exposed_uri(&server.name, uri, &budget);
                    rewrite_links::rewrite(&method, &mut outcome.result, &exposed);
                }
                if let (Ok(Outcome { task: Some(task), .. }), Some(naming)) = (&mut end, &naming) {
                    naming.expose_task(task);
                }
                ExchangeEvent::Done(end)
            }
            ExchangeEvent::InputRequired(ask) => {
                ExchangeEvent::InputRequired(InputRequired { server: Some(server.name.clone()), ..ask })
            }
            other => other,
        };
        let events = WatchedCall::new(upstream.begin_call(caller, call), watch, change);
        self.gateway.context().in_flight.track(caller.principal.id, &self.gateway.context().metrics, events)
    }

    /// Ends a call that never left the gateway.
    pub(super) fn answer_locally(&self, caller: &Caller, asked: UnsentCall, end: Result<Outcome, Error>) -> Exchange {
        asked.record(self, caller, &end);
        Exchange::ready(end)
    }
}
