//! Search mode: an endpoint lists a few tools that find and call all others.
//!
//! Owns the step from the name of a meta-tool to its answer. Does not decide who may use an item
//! (`permitted.rs`). Invariant: an endpoint in full mode runs nothing of this folder.

mod find_items;
mod item_calls;
pub(super) mod item_index;
mod item_summary;
mod item_texts;
mod meta_arguments;
mod meta_tools;
mod named_items;
mod nearest_names;
pub(super) mod operator_search;
mod ranked_items;
mod server_overview;
mod text_result;

use std::sync::Arc;

use crate::call_watch::LocalCall;
use crate::catalog::Snapshot;
use crate::endpoint::Endpoint;
use crate::settings::SearchRules;
use find_items::ItemQuery;
use item_calls::NamedItem;
use item_index::{ItemGroup, ItemIndexes};
use meta_arguments::{ArgumentProblem, MetaArguments};
use meta_tools::MetaTool;
use moongate_jsonrpc::json::RawJson;
use moongate_model::{Call, Caller, Error, Exchange, ItemKind, McpErrorKind, Outcome, TaskMode};
use text_result::error_result;

pub(crate) use server_overview::search_instructions;

/// Answer that a meta-tool takes from the catalogue.
type LocalAnswer = Box<dyn FnOnce(&Endpoint, &Caller) -> Outcome + Send>;

impl Endpoint {
    /// Starts the call of a tool where the lists have meta-tools. Other names are tools of servers.
    pub(super) fn call_in_search_mode(
        &self,
        rules: &SearchRules,
        caller: &Arc<Caller>,
        mut call: Call,
    ) -> Exchange {
        let name = call.params.get_string("name");
        // A meta-tool that is switched off must not catch a call of a server's tool with its name.
        let tool = name
            .and_then(|name| MetaTool::from_name(&name))
            .filter(|tool| tool.is_enabled(rules));
        let Some(tool) = tool else {
            return self.call_item(caller, call);
        };
        let local_call = LocalCall::from_call(&call);
        let raw = call.params.get("arguments").cloned();
        // The request's headers are compared with the tool that the request names, which is not the
        // one that runs.
        let checked = call
            .deferred_check
            .take()
            .map_or(Ok(()), |check| check(&tool.members(), raw.as_ref()));
        if let Err(error) = checked.and_then(|()| check_task_mode(tool, &call)) {
            return self.answer_locally(caller, local_call, Err(error));
        }
        let arguments = MetaArguments::read(tool, raw.as_ref());
        match arguments.and_then(|arguments| self.start_meta_tool(tool, &arguments, caller, call)) {
            Ok(exchange) => exchange,
            // A result: the model reads it and corrects the call. A protocol error may stop at the
            // client.
            Err(problem) => self.answer_locally(caller, local_call, Ok(error_result(&problem.0))),
        }
    }

    fn start_meta_tool(
        &self,
        tool: MetaTool,
        arguments: &MetaArguments,
        caller: &Arc<Caller>,
        call: Call,
    ) -> Result<Exchange, ArgumentProblem> {
        if let Some(stray) = arguments.stray_members() {
            let answer = refuse_stray_members(tool, arguments, stray)?;
            return Ok(self.answer_from_catalog(caller, LocalCall::from_call(&call), answer));
        }
        let client = caller.revision;
        let answer: LocalAnswer = match tool {
            MetaTool::CallTool | MetaTool::CallReadonlyTool => {
                let key = arguments.text("name")?;
                let values = arguments.object("arguments")?;
                let read_only = tool == MetaTool::CallReadonlyTool;
                let item = NamedItem {
                    kind: ItemKind::Tools,
                    key,
                    arguments: values,
                    read_only,
                };
                return Ok(self.call_named_item(caller, call, item));
            }
            MetaTool::ReadResource => {
                let key = arguments.text("uri")?;
                let item = NamedItem {
                    kind: ItemKind::Resources,
                    key,
                    arguments: None,
                    read_only: false,
                };
                return Ok(self.call_named_item(caller, call, item));
            }
            MetaTool::GetPrompt => {
                let key = arguments.text("name")?;
                let values = arguments.object("arguments")?;
                let item = NamedItem {
                    kind: ItemKind::Prompts,
                    key,
                    arguments: values,
                    read_only: false,
                };
                return Ok(self.call_named_item(caller, call, item));
            }
            MetaTool::SearchTools => answer_query(ItemQuery {
                full: arguments.wants_full()?,
                ..read_query(arguments, ItemGroup::Tools, client)?
            }),
            MetaTool::SearchResources => {
                answer_query(read_query(arguments, ItemGroup::Resources, client)?)
            }
            MetaTool::SearchPrompts => {
                answer_query(read_query(arguments, ItemGroup::Prompts, client)?)
            }
            MetaTool::DescribeTool => {
                let names = arguments.names()?;
                Box::new(move |endpoint, caller| endpoint.describe_tools(caller, &names))
            }
            MetaTool::ListServers => {
                Box::new(|endpoint, caller| endpoint.list_servers(&caller.principal))
            }
        };
        Ok(self.answer_from_catalog(caller, LocalCall::from_call(&call), answer))
    }

    fn answer_from_catalog(
        &self,
        caller: &Arc<Caller>,
        local_call: LocalCall,
        answer: LocalAnswer,
    ) -> Exchange {
        let endpoint = self.clone_endpoint();
        let caller = caller.clone();
        Exchange::start_with(async move {
            let asking = caller.clone();
            let end = endpoint
                .in_background(move |endpoint| answer(endpoint, &asking))
                .await;
            endpoint.answer_locally(&caller, local_call, end)
        })
    }

    fn indexes(&self) -> &ItemIndexes {
        &self.gateway.context().item_indexes
    }

    /// Runs work that takes long on a thread where no call waits for it.
    async fn in_background<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Endpoint) -> T + Send + 'static,
    ) -> Result<T, Error> {
        // Searches queue here. On blocking threads, waiting ones could use up the whole pool.
        let permit = self.indexes().searches.clone().acquire_owned().await;
        let endpoint = self.clone_endpoint();
        let task = tokio::task::spawn_blocking(move || {
            // Held by the work, which continues even if nobody waits for it any more.
            let _permit = permit;
            work(&endpoint)
        });
        task.await.map_err(|_| Error::internal("the search failed"))
    }

    /// Renders the meta-tools that this endpoint lists.
    pub(super) fn list_meta_tools(
        &self,
        rules: &SearchRules,
        snapshot: &Snapshot,
        with_tasks: bool,
    ) -> Vec<RawJson> {
        let may_be_task = with_tasks && self.task_capabilities().is_some();
        self.listed_meta_tools(rules, snapshot)
            .map(|tool| match may_be_task && tool.calls_tools() {
                true => moongate_protocol::offer_as_task(&tool.definition())
                    .unwrap_or_else(|| tool.definition()),
                false => tool.definition(),
            })
            .collect()
    }

    fn listed_meta_tools(
        &self,
        rules: &SearchRules,
        snapshot: &Snapshot,
    ) -> impl Iterator<Item = MetaTool> {
        MetaTool::ALL
            .into_iter()
            .filter(|tool| tool.is_enabled(rules))
            .filter(|tool| match tool {
                // The principal does not count here: a search for denied items finds nothing
                // anyway.
                MetaTool::SearchResources | MetaTool::ReadResource => {
                    self.has_items(ItemGroup::Resources, snapshot)
                }
                MetaTool::SearchPrompts | MetaTool::GetPrompt => {
                    self.has_items(ItemGroup::Prompts, snapshot)
                }
                _ => true,
            })
    }

    /// Returns true if any server of this endpoint lists items of a group.
    fn has_items(&self, group: ItemGroup, snapshot: &Snapshot) -> bool {
        let mut routes = group.kinds().iter().flat_map(|kind| snapshot.iter(*kind));
        routes.any(|route| !route.hidden && self.includes(&route.upstream.settings.name))
    }
}

/// Refuses members that a meta-tool does not have. Those that a tool was meant to get must not
/// vanish: it would run without them.
fn refuse_stray_members(
    tool: MetaTool,
    arguments: &MetaArguments,
    stray: String,
) -> Result<LocalAnswer, ArgumentProblem> {
    let kind = if tool == MetaTool::GetPrompt {
        ItemKind::Prompts
    } else {
        ItemKind::Tools
    };
    let key = arguments
        .text("name")
        .ok()
        .filter(|_| tool.has_argument("arguments"));
    // Without a name there is nothing else to show than the meta-tool itself.
    let id = (
        kind,
        key.ok_or_else(|| arguments.problem(&format!("{stray}.")))?,
    );
    Ok(Box::new(move |endpoint, caller| {
        endpoint.refuse_misplaced(caller, &id, &stray)
    }))
}

/// Reads the arguments of a search for signatures.
fn read_query(
    arguments: &MetaArguments,
    group: ItemGroup,
    client: &'static str,
) -> Result<ItemQuery, ArgumentProblem> {
    Ok(ItemQuery {
        group,
        text: arguments.text("query")?,
        server: arguments.optional_text("server")?,
        limit: arguments.limit()?,
        full: false,
        client,
    })
}

fn answer_query(query: ItemQuery) -> LocalAnswer {
    Box::new(move |endpoint, caller| endpoint.find_items(caller, &query))
}

/// Refuses a call that must become a task, if its meta-tool is none that can.
fn check_task_mode(tool: MetaTool, call: &Call) -> Result<(), Error> {
    match call.task_mode {
        TaskMode::Required(_) if !tool.calls_tools() => {
            let message = format!("{} cannot run as a task: call it without one", tool.name());
            Err(Error::new(McpErrorKind::UnknownMethod, message))
        }
        _ => Ok(()),
    }
}

/// Returns true if search mode has a tool of this name, which then hides a server's.
pub(super) fn is_meta_name(name: &str) -> bool {
    MetaTool::from_name(name).is_some()
}
