//! Endpoint as an MCP server: what it is, and the first step of each request.
//!
//! Owns its description. Does not resolve or start calls. Invariant: every kind of item is offered,
//! since servers may come later.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};

use crate::call_watch::LocalCall;
use crate::endpoint::Endpoint;
use crate::endpoint_scope::EndpointScope;
use crate::expose;
use crate::running_server::RunningServer;
use crate::search_mode::search_instructions;
use crate::subscription::ClientSubscription;
use crate::templates::LookupBudget;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{
    Call, Caller, Error, Exchange, ExtensionCheck, McpMethod, McpServer, Notification,
    NotificationStream, ServerCapabilities, ServerDescription, SubscriptionFilter, TaskMethod,
    TaskMode,
};

/// Maximum length of instructions. Clients cut at about this.
const INSTRUCTIONS_MAX: usize = 2048;

impl McpServer for Endpoint {
    fn describe(&self, caller: &Caller) -> ServerDescription {
        let snapshot = self.generation.snapshot.load();
        // Servers of which the caller may use nothing must not be named here either.
        let servers: Vec<&Arc<RunningServer>> = self
            .visible_servers(&caller.principal, &snapshot)
            .into_iter()
            .map(|visible| visible.server)
            .collect();
        let descriptions: Vec<ServerDescription> = servers
            .iter()
            .filter_map(|server| server.description())
            .collect();
        // Clients read the capabilities once, and servers may come later: every kind is offered.
        let capabilities = ServerCapabilities {
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
            tasks: self.task_capabilities(),
            extensions: self.merge_announcements(&caller.principal, &descriptions, |server| {
                &server.capabilities.extensions
            }),
            experimental: self.merge_announcements(&caller.principal, &descriptions, |server| {
                &server.capabilities.experimental
            }),
        };
        let instructions = match &self.scope {
            EndpointScope::Server(_) if servers.is_empty() => None,
            EndpointScope::Server(only) => {
                expose::join_paragraphs(only.description_or_instructions(), self.absence())
            }
            _ if self.search_rules().is_some() => Some(search_instructions(&servers)),
            _ => expose::instructions(
                servers
                    .iter()
                    .map(|u| (u.display_title(), u.description_or_instructions())),
                INSTRUCTIONS_MAX,
            ),
        };
        // Clients show a single server under the title and icon of its config.
        let info = match &self.scope {
            EndpointScope::Server(only) if !servers.is_empty() => {
                moongate_protocol::gateway_info_with(
                    only.settings.presentation.title.as_deref(),
                    only.settings.presentation.icon.as_deref(),
                )
            }
            _ => moongate_protocol::gateway_info(),
        };
        ServerDescription {
            info,
            instructions,
            capabilities,
            notes: Vec::new(),
        }
    }

    fn call(&self, caller: &Arc<Caller>, call: Call) -> Exchange {
        if let McpMethod::List(kind) = call.method {
            let listed = self.list_items(
                caller,
                kind,
                &call.params,
                call.task_mode != TaskMode::Never,
            );
            return self.answer_locally(caller, LocalCall::from_call(&call), listed);
        }
        if call.method == McpMethod::Task(TaskMethod::List) {
            let local_call = LocalCall::from_call(&call);
            let listed = self.list_tasks(caller, call);
            return listed
                .unwrap_or_else(|error| self.answer_locally(caller, local_call, Err(error)));
        }
        match self.search_rules() {
            Some(rules) if call.method == McpMethod::CallTool => {
                self.call_in_search_mode(rules, caller, call)
            }
            _ => self.call_item(caller, call),
        }
    }

    fn subscribe(&self, caller: &Arc<Caller>, filter: SubscriptionFilter) -> NotificationStream {
        // Events are subscribed to before resources, so nothing is missed in between. A change of
        // the rules is not missed either: it is in the current generation, or comes as an event.
        let receiver = self.gateway.context().events.subscribe_events();
        let Some(endpoint) = self.gateway.endpoint(&self.name, &caller.principal) else {
            return NotificationStream::closed();
        };
        let (subscription, mut acknowledged) =
            ClientSubscription::new(endpoint.clone_endpoint(), caller, filter.clone(), receiver);
        let stream = stream::unfold(subscription, |mut subscription| async move {
            subscription
                .next()
                .await
                .map(|notification| (notification, subscription))
        });
        if filter.tasks.is_empty() {
            return NotificationStream {
                acknowledged,
                stream: stream.boxed(),
                established: None,
            };
        }
        let (tasks, watches) = self.watch_tasks(caller, &filter.tasks);
        acknowledged.tasks = tasks;
        // The end of all tasks must not end the stream.
        let watched =
            stream::select_all(watches.into_iter().map(Box::pin)).chain(stream::pending());
        let merged = stream::select(
            stream
                .map(Some)
                .chain(stream::once(std::future::ready(None))),
            watched.map(Some),
        );
        let merged = merged
            .take_while(|next| std::future::ready(next.is_some()))
            .filter_map(std::future::ready);
        NotificationStream {
            acknowledged,
            stream: merged.boxed(),
            established: None,
        }
    }

    fn try_subscriptions(
        &self,
        caller: &Arc<Caller>,
        uris: &[ByteString],
    ) -> Option<BoxFuture<'static, Result<(), Error>>> {
        self.start_trials(caller, uris)
    }

    fn confirm_subscription(
        &self,
        caller: &Arc<Caller>,
        uri: &ByteString,
    ) -> Option<BoxFuture<'static, Result<(), Error>>> {
        let snapshot = self.generation.snapshot.load();
        let budget = LookupBudget::new();
        let is_listed = self
            .resolve_known_uri(&snapshot, caller, uri, &budget)
            .is_some();
        let (server, local) = self.resolve_uri(&snapshot, caller, uri, &budget).ok()?;
        if !server.is_connected() {
            return None;
        }
        let caller = caller.clone();
        let is_sole = self.is_of_one_server();
        Some(Box::pin(async move {
            let answer = server.confirm_subscription(&caller, &local).await;
            // Another server may list the resource later, and the subscription then moves there.
            if is_listed || is_sole { answer } else { Ok(()) }
        }))
    }

    fn extension_check(&self, caller: &Caller) -> ExtensionCheck {
        // Looked up each time: a reload makes another endpoint of this name.
        let gateway = Arc::downgrade(&self.gateway);
        let name = self.name.clone();
        let principal = caller.principal.clone();
        Box::new(move || {
            let endpoint = gateway
                .upgrade()
                .and_then(|gateway| gateway.endpoint(&name, &principal));
            endpoint.is_some_and(|endpoint| endpoint.permits_extensions(&principal))
        })
    }

    fn notify(&self, caller: &Arc<Caller>, notification: Notification) {
        if let Notification::Extension(..) = notification {
            return self.notify_extension(caller, notification);
        }
        for upstream in self.servers() {
            upstream.notify(caller, notification.clone());
        }
    }
}
