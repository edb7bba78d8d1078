//! Who asks, and for what.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::json::{Object, Raw, Text};
use crate::model::{Error, TaskMethod, TaskWish};

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
    pub const ANYBODY: u32 = u32::MAX - 1;
}

/// A principal with the capabilities of one request (or of the session that it came on).
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who.
    pub principal: Arc<Principal>,
    /// The client's session, if its revision has such a thing; tells two clients of one principal apart.
    pub session: Option<Text>,
    /// What the client declared, as it spelled it: an object.
    pub capabilities: Raw,
    /// The same, for our own decisions.
    pub can: Can,
    /// The client's name and version, as it spelled them.
    pub info: Option<Raw>,
    /// Which log messages it wants.
    pub log: LogWish,
    /// The client's revision; a label for telemetry, opaque everywhere but in `revision`.
    pub revision: &'static str,
    /// Values of the request headers that some server's config asks to be forwarded; lower-case names.
    pub headers: Vec<(Text, Text)>,
    /// Cancelled when the client's session ends; whatever is kept for this caller alone goes with it.
    pub ended: CancellationToken,
}

/// What a client can be asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Can {
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
pub enum AskKind {
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
pub enum LogWish {
    /// It did not say, and its revision leaves it to the server.
    #[default]
    ServerDecides,
    /// None.
    Nothing,
    /// This level and above.
    AtLeast(Level),
}

/// Severity of a log message (RFC 5424, as MCP uses it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Level {
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
pub enum Kind {
    Tools,
    Resources,
    Templates,
    Prompts,
}

/// What is asked for. What a revision has for itself (ping, levels, subscriptions) is not here: a ping is answered
/// where it arrives, a level is a [`LogWish`], a subscription is a [`Filter`](crate::model::Filter).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Method {
    List(Kind),
    CallTool,
    ReadResource,
    GetPrompt,
    Complete,
    Task(TaskMethod),
    /// A method that no revision we know defines.
    Other(Text),
}

/// What a front cannot check before the name is resolved: given the tool's definition (if any) and the call's
/// arguments, says whether the rest of the request agrees with them.
pub type Check = Box<dyn FnOnce(&Object, Option<&Raw>) -> Result<(), Error> + Send>;

/// What a client brings back when it was asked for something, to a server that kept nothing.
#[derive(Clone, Debug, Default)]
pub struct Resume {
    /// The answers, by the server's keys: an object, as the client spelled it.
    pub answers: Option<Raw>,
    /// What the server handed out.
    pub state: Option<Raw>,
    /// Which server that was, as far as it is known: nobody else may see it.
    pub server: Option<Text>,
}

/// One request, free of its spelling.
pub struct Call {
    /// What for.
    pub method: Method,
    /// The params without `_meta`; values untouched.
    pub params: Object,
    /// `_meta` without what the revision reserves for itself.
    pub meta: Object,
    /// Whether the client wants progress notifications.
    pub progress: bool,
    /// What must hold between the request and the definition of the item it names.
    pub check: Option<Check>,
    /// What the client was asked for in an earlier round.
    pub resume: Option<Box<Resume>>,
    /// The definition of the item, set where the name was resolved: backs may mirror arguments as it says.
    pub definition: Option<Arc<Object>>,
    /// Whether it may become a task. On a list: whether the list should say what may.
    pub task: TaskWish,
    /// Of a task: whether its whole state is wanted, with what it asks and what it came to.
    pub whole: bool,
    /// When the request arrived.
    pub received: Instant,
}

impl Call {
    /// A call without `_meta`, progress or checks.
    pub fn new(method: Method, params: Object) -> Self {
        Call {
            method,
            params,
            meta: Object::new(),
            progress: false,
            check: None,
            resume: None,
            definition: None,
            task: TaskWish::Never,
            whole: false,
            received: Instant::now(),
        }
    }

    /// The same call once more; `None` where it cannot be made twice, because it goes on from an earlier round, or may
    /// become a task.
    pub fn again(&self) -> Option<Call> {
        if self.resume.is_some() || self.check.is_some() || self.task != TaskWish::Never {
            return None;
        }
        Some(Call {
            method: self.method.clone(),
            params: self.params.clone(),
            meta: self.meta.clone(),
            progress: self.progress,
            check: None,
            resume: None,
            definition: self.definition.clone(),
            task: TaskWish::Never,
            whole: self.whole,
            received: self.received,
        })
    }

    /// A call about a task.
    pub fn of_task(method: TaskMethod, id: &str) -> Self {
        Call::new(Method::Task(method), Object::new().with("taskId", crate::json::Raw::string(id)))
    }

    /// How the call is named in messages for people: the tool, prompt, URI or task if it has one.
    pub fn target(&self) -> Option<Text> {
        match self.method {
            Method::CallTool | Method::GetPrompt => self.params.text("name"),
            Method::ReadResource => self.params.text("uri"),
            Method::Task(_) => self.params.text("taskId"),
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

impl Method {
    /// Reads a method's name.
    pub fn from_name(name: &str) -> Self {
        match name {
            "tools/list" => Method::List(Kind::Tools),
            "resources/list" => Method::List(Kind::Resources),
            "resources/templates/list" => Method::List(Kind::Templates),
            "prompts/list" => Method::List(Kind::Prompts),
            "tools/call" => Method::CallTool,
            "resources/read" => Method::ReadResource,
            "prompts/get" => Method::GetPrompt,
            "completion/complete" => Method::Complete,
            other => match TaskMethod::ALL.into_iter().find(|task| task.name() == other) {
                Some(task) => Method::Task(task),
                None => Method::Other(Text::from(other)),
            },
        }
    }

    /// The method's name.
    pub fn name(&self) -> &str {
        match self {
            Method::List(kind) => kind.list_method(),
            Method::CallTool => "tools/call",
            Method::ReadResource => "resources/read",
            Method::GetPrompt => "prompts/get",
            Method::Complete => "completion/complete",
            Method::Task(task) => task.name(),
            Method::Other(name) => name,
        }
    }

    /// The method's name if it is one of the protocol's, for labels of bounded number.
    pub fn label(&self) -> &str {
        match self {
            Method::Other(_) => "_OTHER",
            known => known.name(),
        }
    }
}

impl Kind {
    /// Every kind, in a fixed order.
    pub const ALL: [Kind; 4] = [Kind::Tools, Kind::Resources, Kind::Templates, Kind::Prompts];

    /// The method that lists this kind.
    pub fn list_method(self) -> &'static str {
        match self {
            Kind::Tools => "tools/list",
            Kind::Resources => "resources/list",
            Kind::Templates => "resources/templates/list",
            Kind::Prompts => "prompts/list",
        }
    }

    /// The member of a list result that holds the items.
    pub fn member(self) -> &'static str {
        match self {
            Kind::Tools => "tools",
            Kind::Resources => "resources",
            Kind::Templates => "resourceTemplates",
            Kind::Prompts => "prompts",
        }
    }

    /// The member of an item that names it.
    pub fn item_key(self) -> &'static str {
        match self {
            Kind::Tools | Kind::Prompts => "name",
            Kind::Resources => "uri",
            Kind::Templates => "uriTemplate",
        }
    }
}

impl Level {
    const NAMES: [(&'static str, Level); 8] = [
        ("debug", Level::Debug),
        ("info", Level::Info),
        ("notice", Level::Notice),
        ("warning", Level::Warning),
        ("error", Level::Error),
        ("critical", Level::Critical),
        ("alert", Level::Alert),
        ("emergency", Level::Emergency),
    ];

    /// Reads a level's name.
    pub fn from_name(name: &str) -> Option<Self> {
        Level::NAMES.iter().find(|(n, _)| *n == name).map(|(_, level)| *level)
    }

    /// The level's name.
    pub fn name(self) -> &'static str {
        Level::NAMES[self as usize].0
    }
}

impl LogWish {
    /// The level that stands for everything a server would send to a client that set none.
    ///
    /// "If no logging/setLevel request has been sent from the client, the server MAY decide which messages to send
    /// automatically" (2025-11-25/schema.json, LoggingMessageNotification). Servers on the official TypeScript and
    /// Python SDKs decide for all of them.
    pub const BY_DEFAULT: Level = Level::Debug;

    /// Whether a message of `level` should reach the client. A level that we cannot read counts as the highest.
    pub fn wants(self, level: Option<Level>) -> bool {
        match self {
            LogWish::ServerDecides => true,
            LogWish::Nothing => false,
            LogWish::AtLeast(least) => level.is_none_or(|level| level >= least),
        }
    }
}

impl Can {
    /// Whether the client declared that it can answer `kind`.
    pub fn answer(self, kind: AskKind) -> bool {
        match kind {
            AskKind::ElicitForm => self.elicit_form,
            AskKind::ElicitUrl => self.elicit_url,
            AskKind::Sample => self.sample,
            AskKind::SampleWithTools => self.sample_with_tools,
            AskKind::Roots => self.roots,
            AskKind::Other => false,
        }
    }
}

impl AskKind {
    /// Reads a request that a server makes.
    pub fn of(method: &str, params: &Object) -> Self {
        match method {
            "elicitation/create" => match params.text("mode").as_deref() {
                Some("url") => AskKind::ElicitUrl,
                _ => AskKind::ElicitForm,
            },
            // 2025-11-25/client/sampling.mdx, Capabilities: "Servers MUST NOT send tool-enabled sampling requests to
            // Clients that have not declared support for tool use".
            "sampling/createMessage" if ["tools", "toolChoice"].iter().any(|key| params.get(key).is_some()) => {
                AskKind::SampleWithTools
            }
            "sampling/createMessage" => AskKind::Sample,
            "roots/list" => AskKind::Roots,
            _ => AskKind::Other,
        }
    }

    /// The capability that a client must have declared, as messages for people name it.
    pub fn capability(self) -> &'static str {
        match self {
            AskKind::ElicitForm => "elicitation",
            AskKind::ElicitUrl => "elicitation.url",
            AskKind::Sample => "sampling",
            AskKind::SampleWithTools => "sampling.tools",
            AskKind::Roots => "roots",
            AskKind::Other => "an unknown capability",
        }
    }
}
