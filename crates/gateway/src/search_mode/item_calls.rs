//! Calls of items through meta-tools: like any other call, with an answer that helps a model.
//!
//! Owns the call behind a meta-tool, and what is added to its end. Does not route it. Invariant:
//! arguments and results keep their bytes, apart from a text that is appended to a refusal.

use std::sync::Arc;

use futures_util::StreamExt;

use crate::endpoint::Endpoint;
use crate::search_mode::item_summary::is_read_only;
use crate::search_mode::item_texts::ItemId;
use crate::search_mode::named_items::arguments_text;
use crate::search_mode::text_result::{append_text, content_result, error_result, text_block};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{
    Call, Caller, DeferredCheck, Error, Exchange, ExchangeEvent, ItemKind, McpErrorKind, McpMethod,
    Outcome, TaskMode,
};

/// Item that a call names.
pub(super) struct NamedItem {
    pub(super) kind: ItemKind,
    pub(super) key: ByteString,
    /// Arguments, as the model sent them.
    pub(super) arguments: Option<RawJson>,
    /// True if the item must say that it only reads.
    pub(super) read_only: bool,
}

impl NamedItem {
    fn id(&self) -> ItemId {
        (self.kind, self.key.clone())
    }
}

impl Endpoint {
    /// Starts the call of an item, in place of the call of a meta-tool.
    pub(super) fn call_named_item(
        &self,
        caller: &Arc<Caller>,
        mut call: Call,
        item: NamedItem,
    ) -> Exchange {
        let (method, member) = match item.kind {
            ItemKind::Tools => (McpMethod::CallTool, "name"),
            ItemKind::Prompts => (McpMethod::GetPrompt, "name"),
            ItemKind::Resources | ItemKind::Templates => (McpMethod::ReadResource, "uri"),
        };
        call.method = method;
        // Built from scratch, since these were the members of the meta-tool's call.
        call.params = JsonObject::new().with(member, RawJson::string(&item.key));
        if let Some(arguments) = &item.arguments {
            call.params
                .set(ByteString::literal("arguments"), arguments.clone());
        }
        // The client offered a task for a tool call. A read or a prompt, which this becomes, has
        // none.
        if item.kind != ItemKind::Tools {
            call.task_mode = TaskMode::Never;
        }
        if item.read_only {
            // Checked with the route's definition. A look at the catalogue here could see an older
            // one.
            call.deferred_check = Some(read_only_check(item.key.clone()));
        }
        // The path of direct calls, so that search mode cannot loosen a rule.
        let exchange = self.call_item(caller, call);
        let server = exchange.server().cloned();
        let guide = Arc::new(CallGuide {
            endpoint: self.clone_endpoint(),
            caller: caller.clone(),
            item,
        });
        let completed = exchange.then(move |event| {
            let guide = guide.clone();
            async move { guide.complete(event).await }
        });
        Exchange::new(completed).run_by(server)
    }
}

fn read_only_check(name: ByteString) -> DeferredCheck {
    Box::new(move |definition, _| {
        if is_read_only(definition) {
            return Ok(());
        }
        let message = format!("{name} does not say that it only reads: call it with call_tool");
        Err(Error::new(McpErrorKind::InvalidParams, message))
    })
}

/// Translation of a call's end for a model.
struct CallGuide {
    endpoint: Endpoint,
    caller: Arc<Caller>,
    item: NamedItem,
}

impl CallGuide {
    async fn complete(self: Arc<Self>, event: ExchangeEvent) -> ExchangeEvent {
        match event {
            ExchangeEvent::Done(end) => ExchangeEvent::Done(self.complete_end(end).await),
            other => other,
        }
    }

    async fn complete_end(self: Arc<Self>, end: Result<Outcome, Error>) -> Result<Outcome, Error> {
        match end {
            Err(error)
                if matches!(
                    error.kind,
                    McpErrorKind::UnknownName | McpErrorKind::UnknownResource
                ) =>
            {
                let guide = self.clone();
                // The comparison of names walks the catalogue, and would hold up other calls here.
                self.endpoint
                    .in_background(move |endpoint| error_result(&guide.unknown(endpoint)))
                    .await
            }
            // A result, since the model must choose `call_tool` instead. A protocol error may never
            // reach it.
            Err(error) if self.item.read_only && error.kind == McpErrorKind::InvalidParams => {
                Ok(error_result(&error.message))
            }
            end if moongate_protocol::refuses_arguments(&end) || self.is_refused_read(&end) => {
                let guide = self.clone();
                let hint = self
                    .endpoint
                    .in_background(move |endpoint| guide.hint(endpoint))
                    .await?;
                self.as_tool_end(self.with_hint(end, hint))
            }
            end => self.as_tool_end(end),
        }
    }

    fn unknown(&self, endpoint: &Endpoint) -> String {
        endpoint.unknown_text(&self.caller.principal, &self.item.id())
    }

    fn is_refused_read(&self, end: &Result<Outcome, Error>) -> bool {
        self.item.kind == ItemKind::Resources && end.as_ref().is_err_and(is_server_error)
    }

    /// Returns what helps after a server's refusal.
    fn hint(&self, endpoint: &Endpoint) -> Option<String> {
        let id = self.item.id();
        match (id.0, endpoint.item_signature(&self.caller, &id)) {
            // The one server with resources is asked for those in no list, too. So its refusal may
            // mean a wrong URI.
            (ItemKind::Resources, None) => Some(endpoint.finding_text(&self.caller.principal, &id)),
            (ItemKind::Resources, Some(_)) => None,
            (_, signature) => signature.map(|signature| arguments_text(&id.1, &signature)),
        }
    }

    /// Adds the signature to the server's refusal.
    fn with_hint(
        &self,
        end: Result<Outcome, Error>,
        hint: Option<String>,
    ) -> Result<Outcome, Error> {
        let Some(hint) = hint else { return end };
        match end {
            Ok(mut outcome) => {
                append_text(&mut outcome.result, &hint);
                Ok(outcome)
            }
            Err(error) => Err(error.with_hint(&hint)),
        }
    }

    /// Turns the end of a read or a prompt into the end of a tool's call.
    fn as_tool_end(&self, end: Result<Outcome, Error>) -> Result<Outcome, Error> {
        match end {
            // A result, since the model called a tool, and a protocol error may never reach it.
            Err(error) if self.item.kind != ItemKind::Tools && is_server_error(&error) => {
                Ok(error_result(&error.message))
            }
            end => end.map(|outcome| self.as_tool_result(outcome)),
        }
    }

    /// Turns the result of a resource or prompt into the result of a tool.
    fn as_tool_result(&self, outcome: Outcome) -> Outcome {
        match self.item.kind {
            ItemKind::Tools => outcome,
            ItemKind::Resources | ItemKind::Templates => {
                content_result(&resource_blocks(&outcome.result))
            }
            ItemKind::Prompts => content_result(&prompt_blocks(&outcome.result)),
        }
    }
}

/// Returns true for a server's own error, apart from one that the client's program answers.
fn is_server_error(error: &Error) -> bool {
    matches!(error.kind, McpErrorKind::ServerError(_))
        && !moongate_protocol::demands_elicitations(error)
}

/// Embeds the contents of a resource as they are.
fn resource_blocks(result: &JsonObject) -> Vec<RawJson> {
    let contents = result
        .get("contents")
        .and_then(RawJson::as_array)
        .unwrap_or_default();
    contents
        .into_iter()
        .map(|content| {
            JsonObject::new()
                .with("type", RawJson::literal("\"resource\""))
                .with("resource", content)
                .to_raw()
        })
        .collect()
}

/// Returns the content of a prompt's messages. Several messages each get a line with their role.
fn prompt_blocks(result: &JsonObject) -> Vec<RawJson> {
    let messages = result
        .get("messages")
        .and_then(RawJson::as_array)
        .unwrap_or_default();
    let mut blocks = Vec::new();
    for message in messages.iter().filter_map(RawJson::as_object) {
        // A result of a tool has no roles. Without these lines several speakers would look like
        // one.
        if let Some(role) = message.get_string("role").filter(|_| messages.len() > 1) {
            blocks.push(text_block(&format!("{role}:")));
        }
        let content = message.get("content");
        // A message has one block. An array is spread, since an array within the content would be
        // invalid.
        blocks.extend(
            content
                .into_iter()
                .flat_map(|content| content.as_array().unwrap_or(vec![content.clone()])),
        );
    }
    blocks
}
