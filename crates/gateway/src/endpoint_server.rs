//! Endpoint as an MCP server: what it is, and the first step of each request.
//!
//! Owns its description. Does not resolve or start calls. Invariant: every kind of item is offered, since servers may
//! come later.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};

use crate::call_watch::UnsentCall;
use crate::endpoint::Endpoint;
use crate::endpoint_scope::EndpointScope;
use crate::expose;
use crate::server_entry::ServerEntry;
use crate::subscription::ClientSubscription;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{
    Call, Caller, Error, Exchange, McpMethod, Notification, NotificationStream, Server, ServerCapabilities,
    ServerDescription, SubscriptionFilter, TaskMethod, TaskMode,
};

/// Maximum length of instructions. Clients cut at about this.
const INSTRUCTIONS_MAX: usize = 2048;

/// Returns the server's name for models, with the title that the config gives it.
fn display_title(server: &ServerEntry) -> String {
    let name = &server.settings.name;
    match &server.settings.title {
        Some(title) if title != name => format!("{name} ({title})"),
        _ => name.clone(),
    }
}

impl Server for Endpoint {
    fn describe(&self, _: &Caller) -> ServerDescription {
        let servers = || self.generation.servers.iter().filter(|u| self.includes(&u.settings.name));
        let descriptions: Vec<ServerDescription> = servers().filter_map(|upstream| upstream.description()).collect();
        // Clients read the capabilities once, and servers may come later: every kind is offered.
        let features = ServerCapabilities {
            tools: true,
            tools_changes: true,
            prompts: true,
            prompts_changes: true,
            resources: true,
            resources_changes: true,
            subscribe: true,
            subscribe_untried: false,
            completions: true,
            logging: true,
            tasks: self.task_features(),
            extensions: expose::merge_extensions(
                descriptions.iter().map(|description| &description.features.extensions),
            ),
            experimental: expose::merge_extensions(
                descriptions.iter().map(|description| &description.features.experimental),
            ),
        };
        let text = |upstream: &ServerEntry| {
            upstream
                .settings
                .description
                .clone()
                .or_else(|| upstream.description().and_then(|description| description.instructions))
        };
        let instructions = match &self.scope {
            EndpointScope::Server(only) => expose::paragraphs(text(only), self.absence()),
            _ => expose::instructions(servers().map(|u| (display_title(u), text(u))), INSTRUCTIONS_MAX),
        };
        // Clients show a single server under the title and icon of its config.
        let info = match &self.scope {
            EndpointScope::Server(only) => {
                moongate_protocol::gateway_info_with(only.settings.title.as_deref(), only.settings.icon.as_deref())
            }
            _ => moongate_protocol::gateway_info(),
        };
        ServerDescription { info, instructions, features }
    }

    fn call(&self, caller: &Arc<Caller>, mut call: Call) -> Exchange {
        if let McpMethod::List(kind) = call.method {
            let listed = self.list_items(caller, kind, &call.params, call.task_mode != TaskMode::Never);
            return self.answer_locally(caller, UnsentCall::from_call(&call), listed);
        }
        if call.method == McpMethod::Task(TaskMethod::List) {
            let unsent = UnsentCall::from_call(&call);
            let listed = self.list_tasks(caller, call);
            return listed.unwrap_or_else(|error| self.answer_locally(caller, unsent, Err(error)));
        }
        match self.route(caller, &mut call) {
            Ok(routed) => self.start(caller, routed, call),
            Err(error) => self.call_unlisted(caller, call, error),
        }
    }

    fn subscribe(&self, caller: &Arc<Caller>, filter: SubscriptionFilter) -> NotificationStream {
        // Events are subscribed to before resources, so nothing is missed in between. A change of the rules is not
        // missed either: it is in the current generation, or comes as an event.
        let receiver = self.gateway.context().events.subscribe_events();
        let Some(endpoint) = self.gateway.endpoint(&self.name, &caller.principal) else {
            return NotificationStream::closed();
        };
        let (subscription, mut acknowledged) =
            ClientSubscription::new(endpoint.clone_endpoint(), caller, filter.clone(), receiver);
        let stream = stream::unfold(subscription, |mut subscription| async move {
            subscription.next().await.map(|notification| (notification, subscription))
        });
        if filter.tasks.is_empty() {
            return NotificationStream { acknowledged, stream: stream.boxed(), established: None };
        }
        let (tasks, watches) = self.watch_tasks(caller, &filter.tasks);
        acknowledged.tasks = tasks;
        // The end of all tasks must not end the stream.
        let watched = stream::select_all(watches.into_iter().map(Box::pin)).chain(stream::pending());
        let merged = stream::select(stream.map(Some).chain(stream::once(std::future::ready(None))), watched.map(Some));
        let merged = merged.take_while(|next| std::future::ready(next.is_some())).filter_map(std::future::ready);
        NotificationStream { acknowledged, stream: merged.boxed(), established: None }
    }

    fn try_subscriptions(
        &self,
        caller: &Arc<Caller>,
        uris: &[ByteString],
    ) -> Option<BoxFuture<'static, Result<(), Error>>> {
        self.start_trials(caller, uris)
    }

    fn notify(&self, caller: &Arc<Caller>, notification: Notification) {
        for upstream in self.generation.servers.iter().filter(|u| self.includes(&u.settings.name)) {
            upstream.notify(caller, notification.clone());
        }
    }
}
