//! Calls and their callers.
//!
//! Owns the neutral form of a request and of the client behind it. Does not know how revisions
//! encode them. Invariant: params and capabilities keep the bytes of their sender.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{CancelReason, ClientChannel, Error, InputKind, Principal, TaskMethod, TaskMode};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

/// Principal with the capabilities of one request, or of the session that it came on.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Identity of the client.
    pub principal: Arc<Principal>,
    /// Client session, if the revision has sessions. Distinguishes two clients of one principal.
    pub session: Option<ByteString>,
    /// Declared capabilities as the client sent them: an object.
    pub declared_capabilities: RawJson,
    /// Parsed capabilities, for the gateway's own decisions.
    pub capabilities: ClientCapabilities,
    /// Name and version of the client, as it sent them.
    pub client_info: Option<RawJson>,
    /// Filter of the log messages that the client wants.
    pub log_filter: LogFilter,
    /// Revision of the client: a label for telemetry, opaque outside of `protocol`.
    pub revision: &'static str,
    /// Request headers that the configuration of a server forwards; names in lower case.
    pub forwarded_headers: Vec<(ByteString, ByteString)>,
    /// Cancelled when the client's session ends. State of this caller alone is released then.
    pub ended: CancellationToken,
    /// Way to the client outside of its calls, if its session has one.
    pub channel: Option<ClientChannel>,
}

impl Caller {
    /// Creates a caller that declares no capabilities, outside of any session.
    pub fn without_capabilities(principal: Arc<Principal>) -> Self {
        Caller {
            principal,
            session: None,
            declared_capabilities: RawJson::literal("{}"),
            capabilities: ClientCapabilities::default(),
            client_info: None,
            log_filter: LogFilter::Nothing,
            revision: "",
            forwarded_headers: Vec::new(),
            ended: CancellationToken::new(),
            channel: None,
        }
    }
}

/// Input requests that a client supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCapabilities {
    /// Sampling.
    pub sample: bool,
    /// Sampling with tools that the model may call.
    pub sample_with_tools: bool,
    /// Elicitation by a form.
    pub elicit_form: bool,
    /// Elicitation by a URL.
    pub elicit_url: bool,
    /// Roots.
    pub roots: bool,
}

impl ClientCapabilities {
    /// Capabilities of a person at a terminal or a browser: both kinds of elicitation. Without a
    /// model and folders, there is no sampling and there are no roots.
    pub const ELICITATION: ClientCapabilities = ClientCapabilities {
        sample: false,
        sample_with_tools: false,
        elicit_form: true,
        elicit_url: true,
        roots: false,
    };
    /// Declaration of these capabilities.
    pub const DECLARED_ELICITATION: RawJson =
        RawJson::literal(r#"{"elicitation":{"form":{},"url":{}}}"#);
}

/// Filter of the log messages that a client gets with its results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFilter {
    /// The client did not say, and its revision leaves the choice to the server.
    #[default]
    ServerDecides,
    /// No messages.
    Nothing,
    /// Messages of this level and above.
    AtLeast(LogLevel),
}

/// Severity of a log message (RFC 5424, as MCP uses it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

/// Kind of the items in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum ItemKind {
    Tools,
    Resources,
    Templates,
    Prompts,
}

/// Method of a call. Methods of single revisions are not here: pings are answered where they
/// arrive, levels become a [`LogFilter`], and subscriptions a
/// [`SubscriptionFilter`](crate::SubscriptionFilter).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum McpMethod {
    List(ItemKind),
    CallTool,
    ReadResource,
    GetPrompt,
    Complete,
    Task(TaskMethod),
    /// Method that no known revision defines.
    Other(ByteString),
}

/// Check that must wait until the name of the item is resolved. Gets the definition of the tool and
/// the arguments of the call, and compares them with the rest of the request.
pub type DeferredCheck = Box<dyn FnOnce(&JsonObject, Option<&RawJson>) -> Result<(), Error> + Send>;

/// Continuation of a call after input requests, for a server that kept no state.
#[derive(Clone, Debug, Default)]
pub struct Continuation {
    /// Input responses by the server's keys: an object, as the client sent it.
    pub input_responses: Option<RawJson>,
    /// State that the server handed out.
    pub request_state: Option<RawJson>,
    /// Server of the earlier round, if known. No other server may see the state.
    pub server: Option<ByteString>,
}

/// Request in neutral form.
pub struct Call {
    /// Requested method.
    pub method: McpMethod,
    /// Params without `_meta`; values unchanged.
    pub params: JsonObject,
    /// Members of `_meta` that the revision does not reserve.
    pub meta: JsonObject,
    /// True if the client wants progress notifications.
    pub progress: bool,
    /// Check of the request against the definition of its item.
    pub deferred_check: Option<DeferredCheck>,
    /// Responses to the input requests of an earlier round.
    pub continuation: Option<Box<Continuation>>,
    /// Definition of the item, set once the name is resolved. Some revisions copy arguments into
    /// headers as it says.
    pub definition: Option<Arc<JsonObject>>,
    /// Permission to become a task. On a list call: whether the list states which tools may.
    pub task_mode: TaskMode,
    /// True if the full state of a task is needed, with its input requests and its outcome.
    pub detailed: bool,
    /// True if the client may use the server's extensions, in both directions.
    pub extensions: bool,
    /// Reason of the client's cancellation. `None`: the client has no way to give one.
    pub cancel_reason: Option<CancelReason>,
    /// Time at which the request arrived.
    pub received: Instant,
}

impl Call {
    /// Creates a call without `_meta`, progress or checks.
    pub fn new(method: McpMethod, params: JsonObject) -> Self {
        Call {
            method,
            params,
            meta: JsonObject::new(),
            progress: false,
            deferred_check: None,
            continuation: None,
            definition: None,
            task_mode: TaskMode::Never,
            detailed: false,
            extensions: false,
            cancel_reason: None,
            received: Instant::now(),
        }
    }

    /// Clones the call for a retry. `None` if it must run only once: it continues an earlier round,
    /// or may become a task.
    pub fn clone_for_retry(&self) -> Option<Call> {
        // State that was handed out once must be returned once, and a task must not be started
        // twice.
        if self.continuation.is_some()
            || self.deferred_check.is_some()
            || self.task_mode != TaskMode::Never
        {
            return None;
        }
        Some(Call {
            method: self.method.clone(),
            params: self.params.clone(),
            meta: self.meta.clone(),
            // The retry reports progress under the same token.
            progress: self.progress,
            deferred_check: None,
            continuation: None,
            definition: self.definition.clone(),
            task_mode: TaskMode::Never,
            detailed: self.detailed,
            extensions: self.extensions,
            cancel_reason: self.cancel_reason.clone(),
            // The deadline of the first attempt applies to the retry as well.
            received: self.received,
        })
    }

    /// Creates a call of a tool. `arguments` are an object.
    pub fn for_tool(name: &str, arguments: RawJson) -> Self {
        let params = JsonObject::new()
            .with("name", RawJson::string(name))
            .with("arguments", arguments);
        Call::new(McpMethod::CallTool, params)
    }

    /// Creates a call for a prompt. `arguments` are an object.
    pub fn for_prompt(name: &str, arguments: Option<RawJson>) -> Self {
        let params = JsonObject::new().with("name", RawJson::string(name));
        let params = match arguments {
            Some(arguments) => params.with("arguments", arguments),
            None => params,
        };
        Call::new(McpMethod::GetPrompt, params)
    }

    /// Creates a call that reads a resource.
    pub fn for_resource(uri: &str) -> Self {
        let params = JsonObject::new().with("uri", RawJson::string(uri));
        Call::new(McpMethod::ReadResource, params)
    }

    /// Creates a call about a task.
    pub fn for_task(method: TaskMethod, id: &str) -> Self {
        Call::new(
            McpMethod::Task(method),
            JsonObject::new().with("taskId", RawJson::string(id)),
        )
    }

    /// Returns the name of the call for people: its tool, prompt, URI or task, if any.
    pub fn target(&self) -> Option<ByteString> {
        match self.method {
            McpMethod::CallTool | McpMethod::GetPrompt => self.params.get_string("name"),
            McpMethod::ReadResource => self.params.get_string("uri"),
            McpMethod::Task(_) => self.params.get_string("taskId"),
            _ => None,
        }
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without params and `_meta`: they may hold secrets, and this text ends up in logs.
        f.debug_struct("Call")
            .field("method", &self.method)
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}

// === impl McpMethod ===

impl McpMethod {
    /// Parses a method name.
    pub fn from_name(name: &str) -> Self {
        match name {
            "tools/list" => McpMethod::List(ItemKind::Tools),
            "resources/list" => McpMethod::List(ItemKind::Resources),
            "resources/templates/list" => McpMethod::List(ItemKind::Templates),
            "prompts/list" => McpMethod::List(ItemKind::Prompts),
            "tools/call" => McpMethod::CallTool,
            "resources/read" => McpMethod::ReadResource,
            "prompts/get" => McpMethod::GetPrompt,
            "completion/complete" => McpMethod::Complete,
            // Rare methods come last, so that common ones need no search.
            other => match TaskMethod::ALL
                .into_iter()
                .find(|task| task.name() == other)
            {
                Some(task) => McpMethod::Task(task),
                None => McpMethod::Other(ByteString::from(other)),
            },
        }
    }

    /// Returns the method name.
    pub fn name(&self) -> &str {
        match self {
            McpMethod::List(kind) => kind.list_method(),
            McpMethod::CallTool => "tools/call",
            McpMethod::ReadResource => "resources/read",
            McpMethod::GetPrompt => "prompts/get",
            McpMethod::Complete => "completion/complete",
            McpMethod::Task(task) => task.name(),
            McpMethod::Other(name) => name,
        }
    }

    /// Returns the method name if the protocol defines it. Keeps the number of metric labels
    /// bounded.
    pub fn label(&self) -> &str {
        match self {
            McpMethod::Other(_) => "_OTHER",
            // Names that clients invent must not become labels: each would be its own time series.
            known => known.name(),
        }
    }
}

impl ItemKind {
    /// Kinds in a fixed order.
    pub const ALL: [ItemKind; 4] = [
        ItemKind::Tools,
        ItemKind::Resources,
        ItemKind::Templates,
        ItemKind::Prompts,
    ];

    /// Returns the method that lists this kind.
    pub fn list_method(self) -> &'static str {
        match self {
            ItemKind::Tools => "tools/list",
            ItemKind::Resources => "resources/list",
            ItemKind::Templates => "resources/templates/list",
            ItemKind::Prompts => "prompts/list",
        }
    }

    /// Returns the member of a list result that holds the items.
    pub fn member(self) -> &'static str {
        match self {
            ItemKind::Tools => "tools",
            ItemKind::Resources => "resources",
            ItemKind::Templates => "resourceTemplates",
            ItemKind::Prompts => "prompts",
        }
    }

    /// Returns the name of an item, or its URI, as its server wrote it.
    pub fn key_of(self, item: &JsonObject) -> Option<ByteString> {
        item.get_string(self.item_key())
    }

    /// Returns the member of an item that names it.
    pub fn item_key(self) -> &'static str {
        match self {
            ItemKind::Tools | ItemKind::Prompts => "name",
            ItemKind::Resources => "uri",
            ItemKind::Templates => "uriTemplate",
        }
    }
}

impl LogLevel {
    const NAMES: [(&'static str, LogLevel); 8] = [
        ("debug", LogLevel::Debug),
        ("info", LogLevel::Info),
        ("notice", LogLevel::Notice),
        ("warning", LogLevel::Warning),
        ("error", LogLevel::Error),
        ("critical", LogLevel::Critical),
        ("alert", LogLevel::Alert),
        ("emergency", LogLevel::Emergency),
    ];

    /// Parses a level name.
    pub fn from_name(name: &str) -> Option<Self> {
        LogLevel::NAMES
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, level)| *level)
    }

    /// Returns the level name.
    pub fn name(self) -> &'static str {
        // The variants are numbered in the order of the table.
        LogLevel::NAMES[self as usize].0
    }
}

impl LogFilter {
    /// Level at which servers send the same messages as to a client that set none.
    ///
    /// "If no logging/setLevel request has been sent from the client, the server MAY decide which
    /// messages to send automatically" (2025-11-25/schema.json, LoggingMessageNotification).
    /// Servers on the official TypeScript and Python SDKs decide for all of them.
    pub const BY_DEFAULT: LogLevel = LogLevel::Debug;

    /// True if a message of `level` should reach the client. An unreadable level counts as the
    /// highest.
    pub fn allows(self, level: Option<LogLevel>) -> bool {
        match self {
            // The server chose to send the message, so it passes.
            LogFilter::ServerDecides => true,
            LogFilter::Nothing => false,
            // An unreadable level may be an important one, so the message passes.
            LogFilter::AtLeast(least) => level.is_none_or(|level| level >= least),
        }
    }
}

impl ClientCapabilities {
    /// True if the client declared support for `kind`.
    pub fn supports(self, kind: InputKind) -> bool {
        match kind {
            InputKind::ElicitForm => self.elicit_form,
            InputKind::ElicitUrl => self.elicit_url,
            InputKind::Sample => self.sample,
            InputKind::SampleWithTools => self.sample_with_tools,
            InputKind::Roots => self.roots,
            // Nothing is declared for each of them. The endpoint decides who may use an extension.
            InputKind::Extension => true,
            InputKind::Other => false,
        }
    }
}
