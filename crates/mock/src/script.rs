//! The script: everything a mock server is told before it starts.
//!
//! Owns the file format (TOML or JSON, the same keys) and its defaults. Does not own what the words do: that is the
//! engine's and the transports'. Invariant: `Script::default()` is a well-behaved server with nothing to offer.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{fault::FaultRule, revision::Revision, scenario::ScriptedFlow};

/// What a mock server offers and how it behaves.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MockScript {
    /// The name it gives itself.
    pub name: String,
    /// The version it gives itself.
    pub version: String,
    /// Instructions for the model, sent by `initialize` and `server/discover`.
    pub instructions: Option<String>,
    /// The revisions it speaks; all of them when the file says nothing.
    pub revisions: Vec<Revision>,
    /// The contents it starts from.
    pub preset: ContentPreset,
    /// Capabilities to announce, verbatim, instead of those of the contents.
    pub capabilities: Option<Value>,
    /// Extensions to announce beside those of the contents: their settings by identifier.
    pub extensions: BTreeMap<String, Value>,
    /// The same, of what is not standard.
    pub experimental: BTreeMap<String, Value>,
    /// More tools: objects, or strings of JSON that are sent exactly as written, valid or not.
    pub tools: Vec<Value>,
    /// Tools made by number.
    pub generate: Vec<GeneratedTools>,
    /// Which built-in tool answers for a tool of another name. A listed tool without behaviour echoes.
    pub behave: BTreeMap<String, String>,
    /// Fixed results by tool name: objects, or strings of JSON that are sent exactly as written.
    pub answers: BTreeMap<String, Value>,
    /// More resources, as tools are given.
    pub resources: Vec<Value>,
    /// More resource templates, as tools are given.
    pub templates: Vec<Value>,
    /// More prompts, as tools are given.
    pub prompts: Vec<Value>,
    /// What tools and prompts do, by name, step by step.
    pub flows: BTreeMap<String, ScriptedFlow>,
    /// Contents by resource URI, for the resources above: a text, or an object with `text` or `blob` and `mimeType`.
    /// Under the URI of a template, its `{variables}` are filled.
    pub contents: BTreeMap<String, Value>,
    /// Which tools run as tasks, by name, and how.
    pub tasks: BTreeMap<String, TaskRule>,
    /// How lists are cut into pages.
    pub list: ListRules,
    /// What only HTTP can do.
    pub http: HttpRules,
    /// What only a process can do.
    pub stdio: StdioRules,
    /// What goes wrong, and when.
    pub faults: Vec<FaultRule>,
    /// The secret that seals `requestState`; made up at start when absent, so that a restart forgets.
    pub state_key: Option<String>,
}

impl Default for MockScript {
    fn default() -> Self {
        Self {
            name: "mock".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            instructions: None,
            revisions: Revision::ALL.to_vec(),
            preset: ContentPreset::Empty,
            capabilities: None,
            extensions: BTreeMap::new(),
            experimental: BTreeMap::new(),
            tools: Vec::new(),
            generate: Vec::new(),
            behave: BTreeMap::new(),
            answers: BTreeMap::new(),
            resources: Vec::new(),
            templates: Vec::new(),
            prompts: Vec::new(),
            flows: BTreeMap::new(),
            contents: BTreeMap::new(),
            tasks: BTreeMap::new(),
            list: ListRules::default(),
            http: HttpRules::default(),
            stdio: StdioRules::default(),
            faults: Vec::new(),
            state_key: None,
        }
    }
}

/// Contents that need no writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentPreset {
    /// Nothing but what the script adds.
    #[default]
    Empty,
    /// Every feature of the protocol, each behind a tool, a resource or a prompt.
    Standard,
    /// A few friendly things, for a first look.
    Demo,
}

/// A family of tools that differ in their number only.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GeneratedTools {
    /// How many.
    pub count: u32,
    /// The name, in which `{n}` is the number, from 0.
    #[serde(default = "GeneratedTools::pattern")]
    pub name: String,
    /// How many levels its input schema is deep.
    #[serde(default)]
    pub depth: u32,
    /// How many bytes its description is long, at least.
    #[serde(default)]
    pub describe: u32,
}

impl GeneratedTools {
    fn pattern() -> String {
        "tool_{n}".into()
    }
}

/// How a tool runs as a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskRule {
    /// Whether it runs in no other way. (What the tool's definition says of it is the definition's business.)
    pub required: bool,
    /// How often clients should look at it, in milliseconds.
    pub poll_ms: u64,
    /// For how long it is kept, in milliseconds; for ever when absent. A client's wish comes first.
    pub ttl_ms: Option<u64>,
    /// Asks the user for a name before the task is made, under this key.
    pub ask_first: Option<String>,
    /// Tells its session of each change of its status (2025-11-25).
    pub tell: bool,
    /// Asks its session at once (2025-11-25), instead of waiting for `tasks/result`.
    pub eager: bool,
}

impl Default for TaskRule {
    fn default() -> Self {
        Self { required: false, poll_ms: 50, ttl_ms: Some(600_000), ask_first: None, tell: false, eager: false }
    }
}

/// How lists are cut into pages.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListRules {
    /// Items a page; 0 for a single page.
    pub page_size: usize,
    /// Where the cursors lead.
    pub cursor: CursorMode,
    /// Freshness announced to modern clients, in milliseconds.
    pub ttl_ms: u64,
    /// `public` or `private`, announced to modern clients.
    pub cache_scope: String,
}

impl Default for ListRules {
    fn default() -> Self {
        Self { page_size: 0, cursor: CursorMode::Honest, ttl_ms: 60_000, cache_scope: "public".into() }
    }
}

/// Where the cursors of lists lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CursorMode {
    /// To the end.
    Honest,
    /// From the last page back to the first.
    Loop,
    /// From the last page to itself, under ever new names.
    Endless,
}

/// What only HTTP can do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpRules {
    /// How a request is answered.
    pub answer: AnswerMode,
    /// Whether legacy clients are given a session.
    pub session: bool,
    /// What a request of an unknown session meets: 404, 400, or 200 for a JSON-RPC error over HTTP 200.
    pub lost_session: u16,
    /// The status that refuses GET, instead of a stream.
    pub get: Option<u16>,
    /// The status that refuses DELETE, instead of ending the session.
    pub delete: Option<u16>,
    /// Serves Streamable HTTP, at `/mcp`.
    pub streamable: bool,
    /// Serves HTTP+SSE too, at `/sse`, if it speaks 2024-11-05.
    pub pair: bool,
    /// What it says over HTTP+SSE of where messages go, in front of `?sessionId=...`, instead of its own path.
    pub endpoint: Option<String>,
    /// Requests sent to the client as soon as it opens its GET stream, by method.
    pub early: Vec<String>,
    /// How server-sent events are spelled.
    pub sse: SseRules,
    /// The bearer token without which everything is a 401.
    pub bearer: Option<String>,
    /// The `WWW-Authenticate` header of that 401.
    pub challenge: Option<String>,
    /// Refuses what the specification says a client must not send (Accept, Content-Type, Origin).
    pub strict: bool,
    /// Connections at once; more wait.
    pub connections: usize,
}

impl Default for HttpRules {
    fn default() -> Self {
        Self {
            answer: AnswerMode::Auto,
            session: true,
            lost_session: 404,
            get: None,
            delete: None,
            streamable: true,
            pair: true,
            endpoint: None,
            early: Vec::new(),
            sse: SseRules::default(),
            bearer: None,
            challenge: None,
            strict: true,
            connections: 4096,
        }
    }
}

/// How a request is answered over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnswerMode {
    /// One JSON object, unless something has to be said before the answer.
    Auto,
    /// Always one JSON object; whatever comes before the answer is lost.
    Json,
    /// Always a stream of events.
    Sse,
}

/// How server-sent events are spelled: every spelling here is allowed by the standard.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SseRules {
    /// How lines end.
    pub newline: NewlineStyle,
    /// Bytes a chunk; 0 for one chunk an event.
    pub chunk: usize,
    /// Spreads each message over several `data` lines.
    pub split: bool,
    /// Gives legacy events ids, and answers `Last-Event-ID`.
    pub ids: bool,
    /// Opens each stream with a comment and an event without data.
    pub prime: bool,
    /// Cuts a legacy stream of a POST after so many events; what follows waits for `Last-Event-ID`. 0 for never.
    pub cut_after: usize,
    /// Cuts each legacy stream of a POST that way after its first event, the one without data (needs `ids` and `prime`).
    pub poll: bool,
    /// How long clients shall wait before they come back, in milliseconds, said with the event without data. 0: not said.
    pub retry_ms: u64,
}

impl Default for SseRules {
    fn default() -> Self {
        Self {
            newline: NewlineStyle::Lf,
            chunk: 0,
            split: false,
            ids: false,
            prime: false,
            cut_after: 0,
            poll: false,
            retry_ms: 0,
        }
    }
}

/// How the lines of an event end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NewlineStyle {
    /// `\n`
    Lf,
    /// `\r`
    Cr,
    /// `\r\n`
    Crlf,
}

/// What only a process can do.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StdioRules {
    /// Waits so long before it reads anything, in milliseconds.
    pub start_ms: u64,
    /// Exits with this code before it reads anything.
    pub exit_at_start: Option<i32>,
    /// Exits with code 4 once so many requests were answered; 0 for never.
    pub exit_after: u64,
    /// Written to stdout before anything else.
    pub banner: Option<String>,
    /// Bytes written to stderr at start.
    pub stderr_flood: usize,
    /// Starts a process of its own at start, which ignores SIGTERM.
    pub grandchild: bool,
    /// Ignores SIGTERM.
    pub ignore_sigterm: bool,
    /// Stays when its input ends.
    pub ignore_eof: bool,
    /// Answers what was cancelled all the same.
    pub ignore_cancelled: bool,
}

impl MockScript {
    /// Every feature of the protocol: what tests start from.
    #[must_use]
    pub fn standard() -> Self {
        Self { preset: ContentPreset::Standard, ..Self::default() }
    }

    /// A small friendly server.
    #[must_use]
    pub fn demo() -> Self {
        Self {
            name: "moongate-demo".into(),
            instructions: Some("A demonstration server: say hello with `echo`, add numbers, ask for the time.".into()),
            preset: ContentPreset::Demo,
            ..Self::default()
        }
    }

    /// The same script, speaking these revisions only.
    #[must_use]
    pub fn speaking(mut self, revisions: &[Revision]) -> Self {
        self.revisions = revisions.to_vec();
        self
    }

    /// The same script with one more fault.
    #[must_use]
    pub fn with_fault(mut self, fault: FaultRule) -> Self {
        self.faults.push(fault);
        self
    }

    /// Reads a script from TOML text, or from JSON text when it opens with a brace.
    ///
    /// # Errors
    /// When the text is neither, or has a key that is not known.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let script: Self = match text.trim_start().starts_with('{') {
            true => serde_json::from_str(text)?,
            false => toml::from_str(text)?,
        };
        anyhow::ensure!(!script.revisions.is_empty(), "`revisions` must name at least one revision");
        Ok(script)
    }

    /// Reads a script from a file.
    ///
    /// # Errors
    /// When the file cannot be read, or is not a script.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?;
        Self::parse(&text).map_err(|e| anyhow::anyhow!("{}: {e:#}", path.display()))
    }
}
