//! Who asks, and for what.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::json::{ByteString, JsonObject, RawJson};
use crate::model::{Error, TaskMethod, TaskMode};

/// Whom the credentials say is calling.
#[derive(Debug, PartialEq, Eq)]
pub struct Principal {
    /// The name from the config; for logs, never for decisions.
    pub name: String,
    /// Which row of the policy applies; equal ids are the same principal.
    pub id: u32,
}

impl Principal {
    /// The id of the gateway itself, where it asks a server on its own account.
    pub const GATEWAY: u32 = u32::MAX;
    /// The id of everybody, where there are no keys to tell them apart.
    pub const ANONYMOUS: u32 = u32::MAX - 1;
}

/// A principal with the capabilities of one request (or of the session that it came on).
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who.
    pub principal: Arc<Principal>,
    /// The client's session, if its revision has such a thing; tells two clients of one principal apart.
    pub session: Option<ByteString>,
    /// What the client declared, as it spelled it: an object.
    pub declared_capabilities: RawJson,
    /// The same, for our own decisions.
    pub capabilities: ClientCapabilities,
    /// The client's name and version, as it spelled them.
    pub client_info: Option<RawJson>,
    /// Which log messages it wants.
    pub log_filter: LogFilter,
    /// The client's revision; a label for telemetry, opaque everywhere but in `revision`.
    pub revision: &'static str,
    /// Values of the request headers that some server's config asks to be forwarded; lower-case names.
    pub forwarded_headers: Vec<(ByteString, ByteString)>,
    /// Cancelled when the client's session ends; whatever is kept for this caller alone goes with it.
    pub ended: CancellationToken,
}

/// What a client can be asked for.
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

/// What a server may ask of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// A form for the user.
    ElicitForm,
    /// A page for the user.
    ElicitUrl,
    /// A completion by the client's model.
    Sample,
    /// The same, with tools that the model may call.
    SampleWithTools,
    /// The client's directories.
    Roots,
    /// Something that we do not know.
    Other,
}

/// Which log messages a client wants with its answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFilter {
    /// It did not say, and its revision leaves it to the server.
    #[default]
    ServerDecides,
    /// None.
    Nothing,
    /// This level and above.
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

/// What a list holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum ItemKind {
    Tools,
    Resources,
    Templates,
    Prompts,
}

/// What is asked for. What a revision has for itself (ping, levels, subscriptions) is not here: a ping is answered
/// where it arrives, a level is a [`LogWish`], a subscription is a [`Filter`](crate::model::Filter).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum McpMethod {
    List(ItemKind),
    CallTool,
    ReadResource,
    GetPrompt,
    Complete,
    Task(TaskMethod),
    /// A method that no revision we know defines.
    Other(ByteString),
}

/// What a front cannot check before the name is resolved: given the tool's definition (if any) and the call's
/// arguments, says whether the rest of the request agrees with them.
pub type DeferredCheck = Box<dyn FnOnce(&JsonObject, Option<&RawJson>) -> Result<(), Error> + Send>;

/// What a client brings back when it was asked for something, to a server that kept nothing.
#[derive(Clone, Debug, Default)]
pub struct Continuation {
    /// The answers, by the server's keys: an object, as the client spelled it.
    pub input_responses: Option<RawJson>,
    /// What the server handed out.
    pub request_state: Option<RawJson>,
    /// Which server that was, as far as it is known: nobody else may see it.
    pub server: Option<ByteString>,
}

/// One request, free of its spelling.
pub struct Call {
    /// What for.
    pub method: McpMethod,
    /// The params without `_meta`; values untouched.
    pub params: JsonObject,
    /// `_meta` without what the revision reserves for itself.
    pub meta: JsonObject,
    /// Whether the client wants progress notifications.
    pub progress: bool,
    /// What must hold between the request and the definition of the item it names.
    pub deferred_check: Option<DeferredCheck>,
    /// What the client was asked for in an earlier round.
    pub continuation: Option<Box<Continuation>>,
    /// The definition of the item, set where the name was resolved: backs may mirror arguments as it says.
    pub definition: Option<Arc<JsonObject>>,
    /// Whether it may become a task. On a list: whether the list should say what may.
    pub task_mode: TaskMode,
    /// Of a task: whether its whole state is wanted, with what it asks and what it came to.
    pub detailed: bool,
    /// When the request arrived.
    pub received: Instant,
}

impl Call {
    /// A call without `_meta`, progress or checks.
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
            received: Instant::now(),
        }
    }

    /// The same call once more; `None` where it cannot be made twice, because it goes on from an earlier round, or may
    /// become a task.
    pub fn clone_for_retry(&self) -> Option<Call> {
        if self.continuation.is_some() || self.deferred_check.is_some() || self.task_mode != TaskMode::Never {
            return None;
        }
        Some(Call {
            method: self.method.clone(),
            params: self.params.clone(),
            meta: self.meta.clone(),
            progress: self.progress,
            deferred_check: None,
            continuation: None,
            definition: self.definition.clone(),
            task_mode: TaskMode::Never,
            detailed: self.detailed,
            received: self.received,
        })
    }

    /// A call about a task.
    pub fn for_task(method: TaskMethod, id: &str) -> Self {
        Call::new(McpMethod::Task(method), JsonObject::new().with("taskId", crate::json::RawJson::string(id)))
    }

    /// How the call is named in messages for people: the tool, prompt, URI or task if it has one.
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
        f.debug_struct("Call").field("method", &self.method).field("progress", &self.progress).finish_non_exhaustive()
    }
}

// === impl Method ===

impl McpMethod {
    /// Reads a method's name.
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
            other => match TaskMethod::ALL.into_iter().find(|task| task.name() == other) {
                Some(task) => McpMethod::Task(task),
                None => McpMethod::Other(ByteString::from(other)),
            },
        }
    }

    /// The method's name.
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

    /// The method's name if it is one of the protocol's, for labels of bounded number.
    pub fn label(&self) -> &str {
        match self {
            McpMethod::Other(_) => "_OTHER",
            known => known.name(),
        }
    }
}

impl ItemKind {
    /// Every kind, in a fixed order.
    pub const ALL: [ItemKind; 4] = [ItemKind::Tools, ItemKind::Resources, ItemKind::Templates, ItemKind::Prompts];

    /// The method that lists this kind.
    pub fn list_method(self) -> &'static str {
        match self {
            ItemKind::Tools => "tools/list",
            ItemKind::Resources => "resources/list",
            ItemKind::Templates => "resources/templates/list",
            ItemKind::Prompts => "prompts/list",
        }
    }

    /// The member of a list result that holds the items.
    pub fn member(self) -> &'static str {
        match self {
            ItemKind::Tools => "tools",
            ItemKind::Resources => "resources",
            ItemKind::Templates => "resourceTemplates",
            ItemKind::Prompts => "prompts",
        }
    }

    /// The member of an item that names it.
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

    /// Reads a level's name.
    pub fn from_name(name: &str) -> Option<Self> {
        LogLevel::NAMES.iter().find(|(n, _)| *n == name).map(|(_, level)| *level)
    }

    /// The level's name.
    pub fn name(self) -> &'static str {
        LogLevel::NAMES[self as usize].0
    }
}

impl LogFilter {
    /// The level that stands for everything a server would send to a client that set none.
    ///
    /// "If no logging/setLevel request has been sent from the client, the server MAY decide which messages to send
    /// automatically" (2025-11-25/schema.json, LoggingMessageNotification). Servers on the official TypeScript and
    /// Python SDKs decide for all of them.
    pub const BY_DEFAULT: LogLevel = LogLevel::Debug;

    /// Whether a message of `level` should reach the client. A level that we cannot read counts as the highest.
    pub fn allows(self, level: Option<LogLevel>) -> bool {
        match self {
            LogFilter::ServerDecides => true,
            LogFilter::Nothing => false,
            LogFilter::AtLeast(least) => level.is_none_or(|level| level >= least),
        }
    }
}

impl ClientCapabilities {
    /// Whether the client declared that it can answer `kind`.
    pub fn supports(self, kind: InputKind) -> bool {
        match kind {
            InputKind::ElicitForm => self.elicit_form,
            InputKind::ElicitUrl => self.elicit_url,
            InputKind::Sample => self.sample,
            InputKind::SampleWithTools => self.sample_with_tools,
            InputKind::Roots => self.roots,
            InputKind::Other => false,
        }
    }
}

impl InputKind {
    /// Reads a request that a server makes.
    pub fn classify(method: &str, params: &JsonObject) -> Self {
        match method {
            "elicitation/create" => match params.get_string("mode").as_deref() {
                Some("url") => InputKind::ElicitUrl,
                _ => InputKind::ElicitForm,
            },
            // 2025-11-25/client/sampling.mdx, Capabilities: "Servers MUST NOT send tool-enabled sampling requests to
            // Clients that have not declared support for tool use".
            "sampling/createMessage" if ["tools", "toolChoice"].iter().any(|key| params.get(key).is_some()) => {
                InputKind::SampleWithTools
            }
            "sampling/createMessage" => InputKind::Sample,
            "roots/list" => InputKind::Roots,
            _ => InputKind::Other,
        }
    }

    /// The capability that a client must have declared, as messages for people name it.
    pub fn capability(self) -> &'static str {
        match self {
            InputKind::ElicitForm => "elicitation",
            InputKind::ElicitUrl => "elicitation.url",
            InputKind::Sample => "sampling",
            InputKind::SampleWithTools => "sampling.tools",
            InputKind::Roots => "roots",
            InputKind::Other => "an unknown capability",
        }
    }
}
