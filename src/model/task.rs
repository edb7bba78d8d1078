//! Tasks: calls whose end is fetched later, under a name that the server gave.
//!
//! What a revision calls the members and how it hands out the end is not here.

use crate::json::{ByteString, JsonObject, RawJson};
use crate::model::InputRequest;

/// The state of a task.
#[derive(Clone, Debug)]
pub struct TaskState {
    /// Its name: the server's own behind the gateway, a handle in front of it.
    pub id: ByteString,
    /// How far it is.
    pub status: TaskStatus,
    /// Milliseconds from its creation for which it is kept; JSON `null`: for ever.
    pub ttl: Option<RawJson>,
    /// Milliseconds that a client should let pass between two looks at it.
    pub poll_interval: Option<RawJson>,
    /// The other members, as the server spelled them: a message for people, when it was made and last changed.
    pub other_members: JsonObject,
    /// What it waits for, by keys that are unique in its life. Only where the whole state was asked for.
    pub input_requests: Vec<(ByteString, InputRequest)>,
    /// What it came to: the result, or the error. Only where the whole state was asked for.
    pub outcome: Option<Result<RawJson, RawJson>>,
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TaskStatus {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

/// Whether a call may become a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum TaskMode {
    /// It must be answered with its end.
    #[default]
    Never,
    /// The server decides.
    Allowed,
    /// It must become one, with these wishes for its life.
    Required(JsonObject),
}

/// What is done with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskMethod {
    /// Look at it.
    Get,
    /// Answer what it asks.
    Update,
    /// Ask for its end before its time.
    Cancel,
    /// Wait for what it comes to, answering meanwhile what it asks.
    Result,
    /// List all.
    List,
}

/// What a server can do with tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct TaskCapabilities {
    /// Whether it lists them.
    pub list: bool,
    /// Whether they can be cancelled.
    pub cancel: bool,
    /// Whether any tool may become one, by the server's choice alone; otherwise the tools' definitions say which.
    pub any_tool: bool,
}

impl TaskStatus {
    const NAMES: [(&'static str, TaskStatus); 5] = [
        ("working", TaskStatus::Working),
        ("input_required", TaskStatus::InputRequired),
        ("completed", TaskStatus::Completed),
        ("failed", TaskStatus::Failed),
        ("cancelled", TaskStatus::Cancelled),
    ];

    /// Reads a status.
    pub fn from_name(name: &str) -> Option<Self> {
        TaskStatus::NAMES.iter().find(|(n, _)| *n == name).map(|(_, status)| *status)
    }

    /// The status' name.
    pub fn name(self) -> &'static str {
        TaskStatus::NAMES[self as usize].0
    }

    /// Whether nothing can change any more.
    pub fn is_terminal(self) -> bool {
        !matches!(self, TaskStatus::Working | TaskStatus::InputRequired)
    }
}

impl TaskMethod {
    /// Every one of them.
    pub const ALL: [TaskMethod; 5] =
        [TaskMethod::Get, TaskMethod::Update, TaskMethod::Cancel, TaskMethod::Result, TaskMethod::List];

    /// The method's name.
    pub fn name(self) -> &'static str {
        match self {
            TaskMethod::Get => "tasks/get",
            TaskMethod::Update => "tasks/update",
            TaskMethod::Cancel => "tasks/cancel",
            TaskMethod::Result => "tasks/result",
            TaskMethod::List => "tasks/list",
        }
    }
}

impl TaskState {
    /// How long to wait before the next look: what the server asks for, within what is bearable for both sides.
    pub fn poll_delay(&self) -> std::time::Duration {
        const USUAL: f64 = 1_000.0;
        let asked = self.poll_interval.as_ref().and_then(|raw| raw.parse_as::<f64>().ok()).filter(|ms| ms.is_finite());
        std::time::Duration::from_millis(asked.unwrap_or(USUAL).clamp(50.0, 60_000.0) as u64)
    }
}
