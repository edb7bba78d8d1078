//! Script: everything a mock server knows before it starts.
//!
//! Owns the file format (TOML or JSON, with the same keys) and its defaults. Does not act on them:
//! the engine and the transports do. Invariant: `MockScript::default()` is a well-behaved server
//! with no contents.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{fault::FaultRule, revision::Revision, scripted_flow::ScriptedFlow};

/// Script of a mock server: its contents and its behaviour.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MockScript {
    /// Name in `serverInfo`.
    pub name: String,
    /// Version in `serverInfo`.
    pub version: String,
    /// Instructions for the model, sent by `initialize` and `server/discover`.
    pub instructions: Option<String>,
    /// Revisions that the server speaks. Default: all of them.
    pub revisions: Vec<Revision>,
    /// Contents to start from.
    pub preset: ContentPreset,
    /// Capabilities to announce verbatim, instead of those that follow from the contents.
    pub capabilities: Option<Value>,
    /// Extensions to announce besides, as settings by identifier.
    pub extensions: BTreeMap<String, Value>,
    /// Experimental capabilities to announce besides, by name.
    pub experimental: BTreeMap<String, Value>,
    /// More tools: objects, or strings of JSON sent exactly as written, valid or not.
    pub tools: Vec<Value>,
    /// Tools as 2026-07-28 lists them, each in place of the one of its name above.
    pub modern_tools: Vec<Value>,
    /// Families of generated tools.
    pub generate: Vec<GeneratedTools>,
    /// Built-in tool that answers, by the name of a listed tool. A listed tool without behaviour
    /// echoes.
    pub behave: BTreeMap<String, String>,
    /// Fixed results by tool name: objects, or strings of JSON sent exactly as written.
    pub answers: BTreeMap<String, Value>,
    /// Fixed results at 2026-07-28 alone, before those above, as of a server whose eras differ.
    pub modern_answers: BTreeMap<String, Value>,
    /// More resources, written like tools.
    pub resources: Vec<Value>,
    /// More resource templates, written like tools.
    pub templates: Vec<Value>,
    /// More prompts, written like tools.
    pub prompts: Vec<Value>,
    /// Steps of tools and prompts, by name.
    pub flows: BTreeMap<String, ScriptedFlow>,
    /// Contents by URI for the resources above: a text, or an object with `text` or `blob` and
    /// `mimeType`. Under the URI of a template, its `{variables}` are filled.
    pub contents: BTreeMap<String, Value>,
    /// Tools that differ between the eras, by name.
    pub eras: BTreeMap<String, EraRule>,
    /// Tools that run as tasks, by name, with their rules.
    pub tasks: BTreeMap<String, TaskRule>,
    /// Asks for the client's roots when it is ready, and again when they change. The tool
    /// `directories` tells them.
    pub follow_roots: bool,
    /// Pages of lists.
    pub list: ListRules,
    /// Behaviour over HTTP.
    pub http: HttpRules,
    /// Behaviour as a process on stdio.
    pub stdio: StdioRules,
    /// Faults, in the order in which they strike.
    pub faults: Vec<FaultRule>,
    /// Secret that seals `requestState`. Without it each start makes a new one, so a restart
    /// forgets the old state.
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
            modern_tools: Vec::new(),
            generate: Vec::new(),
            behave: BTreeMap::new(),
            answers: BTreeMap::new(),
            modern_answers: BTreeMap::new(),
            resources: Vec::new(),
            templates: Vec::new(),
            prompts: Vec::new(),
            flows: BTreeMap::new(),
            contents: BTreeMap::new(),
            eras: BTreeMap::new(),
            tasks: BTreeMap::new(),
            follow_roots: false,
            list: ListRules::default(),
            http: HttpRules::default(),
            stdio: StdioRules::default(),
            faults: Vec::new(),
            state_key: None,
        }
    }
}

/// Contents that need no script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentPreset {
    /// Only what the script adds.
    #[default]
    Empty,
    /// Every feature of the protocol, each behind a tool, a resource or a prompt.
    Standard,
    /// Few friendly items for a first look.
    Demo,
}

/// Difference of a tool between the eras.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EraRule {
    /// Listed for legacy clients only.
    Legacy,
    /// Listed for modern clients only.
    Modern,
    /// Its `outputSchema` and structured content are wrapped for legacy clients, as the TypeScript
    /// SDK 2 does.
    Wrapped,
}

/// Family of tools that differ only in their number.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GeneratedTools {
    /// Number of tools.
    pub count: u32,
    /// Name, in which `{n}` is the number from 0.
    #[serde(default = "GeneratedTools::pattern")]
    pub name: String,
    /// Depth of the input schema, in levels.
    #[serde(default)]
    pub depth: u32,
    /// Least length of the description, in bytes.
    #[serde(default)]
    pub describe: u32,
}

impl GeneratedTools {
    fn pattern() -> String {
        "tool_{n}".into()
    }
}

/// Rules for a tool that runs as a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskRule {
    /// True if the tool runs only as a task. The tool's own definition says this to clients
    /// separately.
    pub required: bool,
    /// Interval between polls that clients are told, in milliseconds.
    pub poll_ms: u64,
    /// Lifetime in milliseconds, endless if absent. A `ttl` from the client wins.
    pub ttl_ms: Option<u64>,
    /// Asks the user for a name before the task is made, under this key.
    pub ask_first: Option<String>,
    /// Notifies its session of each change of status (2025-11-25).
    pub tell: bool,
    /// Notifies its session of the first status before the call is answered (2025-11-25).
    pub tell_first: bool,
    /// Sends input requests to its session at once (2025-11-25), instead of waiting for
    /// `tasks/result`.
    pub eager: bool,
}

impl Default for TaskRule {
    fn default() -> Self {
        Self {
            required: false,
            poll_ms: 50,
            ttl_ms: Some(600_000),
            ask_first: None,
            tell: false,
            tell_first: false,
            eager: false,
        }
    }
}

/// Pages of lists, and their freshness.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListRules {
    /// Items in a page. 0 means one page.
    pub page_size: usize,
    /// Target of the cursors.
    pub cursor: CursorMode,
    /// `ttlMs` announced to modern clients, in milliseconds.
    pub ttl_ms: u64,
    /// `cacheScope` announced to modern clients: `public` or `private`.
    pub cache_scope: String,
}

impl Default for ListRules {
    fn default() -> Self {
        Self {
            page_size: 0,
            cursor: CursorMode::Honest,
            ttl_ms: 60_000,
            cache_scope: "public".into(),
        }
    }
}

/// Target of the cursors of lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CursorMode {
    /// Cursors lead to the end.
    Honest,
    /// Cursor of the last page leads back to the first.
    Loop,
    /// Cursor of the last page leads to that page again, under ever new names.
    Endless,
}

/// Behaviour over HTTP.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpRules {
    /// Form of responses.
    pub answer: AnswerMode,
    /// True if legacy clients get a session.
    pub session: bool,
    /// HTTP status for a request of an unknown session: 404, 400, or 200 with a JSON-RPC error.
    pub lost_session: u16,
    /// HTTP status that refuses GET, instead of a stream.
    pub get: Option<u16>,
    /// HTTP status that refuses DELETE, instead of the end of the session.
    pub delete: Option<u16>,
    /// Serves Streamable HTTP at `/mcp`.
    pub streamable: bool,
    /// Serves HTTP+SSE as well, at `/sse`, if it speaks 2024-11-05.
    pub pair: bool,
    /// URI of the `endpoint` event over HTTP+SSE, in front of `?sessionId=...`. Default: its own
    /// path.
    pub endpoint: Option<String>,
    /// Methods of requests that the client gets as soon as it opens its GET stream.
    pub early: Vec<String>,
    /// Sends the input requests of calls on the GET stream, where nothing names their call.
    pub ask_on_get: bool,
    /// Form of server-sent events.
    pub sse: SseRules,
    /// Bearer token. Requests without it get a 401.
    pub bearer: Option<String>,
    /// `WWW-Authenticate` header of that 401.
    pub challenge: Option<String>,
    /// Refuses what clients must not send by the specification (Accept, Content-Type, Origin).
    pub strict: bool,
    /// Limit of connections. More of them wait.
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
            ask_on_get: false,
            sse: SseRules::default(),
            bearer: None,
            challenge: None,
            strict: true,
            connections: 4096,
        }
    }
}

/// Form of responses over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnswerMode {
    /// JSON object, or a stream if a message comes before the response.
    Auto,
    /// JSON object in any case. Messages before the response are lost.
    Json,
    /// Event stream in any case.
    Sse,
}

/// Form of server-sent events. The standard allows every form here.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SseRules {
    /// Line ends.
    pub newline: NewlineStyle,
    /// Bytes in a chunk. 0 means one chunk for each event.
    pub chunk: usize,
    /// Spreads each message over several `data` lines.
    pub split: bool,
    /// Gives legacy events ids, and serves `Last-Event-ID`.
    pub ids: bool,
    /// Opens each stream with a comment and an event without data.
    pub prime: bool,
    /// Cuts a legacy POST stream after this many events. The rest waits for `Last-Event-ID`. 0
    /// means never.
    pub cut_after: usize,
    /// Cuts each legacy POST stream after its first event, the one without data (needs `ids` and
    /// `prime`).
    pub poll: bool,
    /// Reconnection delay in milliseconds, sent as `retry` with the event without data. 0 sends
    /// none.
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

/// End of the lines of an event.
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

/// Behaviour as a process on stdio.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StdioRules {
    /// Delay in milliseconds before it reads anything.
    pub start_ms: u64,
    /// Exit code at once, before it reads anything.
    pub exit_at_start: Option<i32>,
    /// Limit of responses, after which it exits with code 4. 0 means none.
    pub exit_after: u64,
    /// Line for stdout before anything else.
    pub banner: Option<String>,
    /// Bytes for stderr at start.
    pub stderr_flood: usize,
    /// Starts a process at start, which ignores SIGTERM.
    pub grandchild: bool,
    /// Ignores SIGTERM.
    pub ignore_sigterm: bool,
    /// Keeps running when its input ends.
    pub ignore_eof: bool,
    /// Answers cancelled requests anyway.
    pub ignore_cancelled: bool,
}

impl MockScript {
    /// Script with every feature of the protocol. Most tests start from it.
    #[must_use]
    pub fn standard() -> Self {
        Self {
            preset: ContentPreset::Standard,
            ..Self::default()
        }
    }

    /// Script of a small, friendly server.
    #[must_use]
    pub fn demo() -> Self {
        Self {
            name: "moongate-demo".into(),
            instructions: Some(
                "A demonstration server: say hello with `echo`, add numbers, ask for the time."
                    .into(),
            ),
            preset: ContentPreset::Demo,
            ..Self::default()
        }
    }

    /// Limits the script to these revisions.
    #[must_use]
    pub fn speaking(mut self, revisions: &[Revision]) -> Self {
        self.revisions = revisions.to_vec();
        self
    }

    /// Adds a fault to the script.
    #[must_use]
    pub fn with_fault(mut self, fault: FaultRule) -> Self {
        self.faults.push(fault);
        self
    }

    /// Reads a script from TOML text, or from JSON text if it opens with a brace.
    ///
    /// # Errors
    /// Fails when the text is neither, or has an unknown key.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let script: Self = match text.trim_start().starts_with('{') {
            true => serde_json::from_str(text)?,
            false => toml::from_str(text)?,
        };
        anyhow::ensure!(
            !script.revisions.is_empty(),
            "`revisions` must name at least one revision"
        );
        Ok(script)
    }

    /// Reads a script from a file.
    ///
    /// # Errors
    /// Fails when the file cannot be read, or is not a script.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?;
        Self::parse(&text).map_err(|e| anyhow::anyhow!("{}: {e:#}", path.display()))
    }
}
