//! Tasks: calls whose outcome is fetched later, by an id from the server.
//!
//! Owns the neutral state of a task. Does not know the member names of revisions or how they
//! deliver the outcome. Invariant: a terminal status never changes.

use crate::InputRequest;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

/// State of a task.
#[derive(Clone, Debug)]
pub struct TaskState {
    /// Task id: the server's own upstream, a handle downstream.
    pub id: ByteString,
    /// Progress of the task.
    pub status: TaskStatus,
    /// Lifetime in milliseconds from creation; JSON `null` is unlimited.
    pub ttl: Option<RawJson>,
    /// Recommended time between two polls, in milliseconds.
    pub poll_interval: Option<RawJson>,
    /// Other members as the server sent them, such as the status message and the timestamps.
    pub other_members: JsonObject,
    /// Pending input requests, by keys that are unique within the task. Present only in a full
    /// state.
    pub input_requests: Vec<(ByteString, InputRequest)>,
    /// Result or error of the task. Present only in a full state.
    pub outcome: Option<Result<RawJson, RawJson>>,
}

/// Status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TaskStatus {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

/// Permission of a call to become a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum TaskMode {
    /// The call must be answered with its result.
    #[default]
    Never,
    /// The server decides.
    Allowed,
    /// The call must become a task, with these parameters.
    Required(JsonObject),
}

/// Operation on a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskMethod {
    /// Returns the state.
    Get,
    /// Delivers input responses.
    Update,
    /// Cancels the task.
    Cancel,
    /// Waits for the outcome, and delivers input meanwhile.
    Result,
    /// Lists all tasks.
    List,
}

/// Task capabilities of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct TaskCapabilities {
    /// True if tasks can be listed.
    pub list: bool,
    /// True if tasks can be cancelled.
    pub cancel: bool,
    /// True if the server alone decides which tool calls become tasks. Otherwise the tool
    /// definitions do.
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

    /// Parses a status name.
    pub fn from_name(name: &str) -> Option<Self> {
        TaskStatus::NAMES
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, status)| *status)
    }

    /// Returns the status name.
    pub fn name(self) -> &'static str {
        TaskStatus::NAMES[self as usize].0
    }

    /// True if the status cannot change any more.
    pub fn is_terminal(self) -> bool {
        !matches!(self, TaskStatus::Working | TaskStatus::InputRequired)
    }
}

impl TaskMethod {
    /// Operations in a fixed order.
    pub const ALL: [TaskMethod; 5] = [
        TaskMethod::Get,
        TaskMethod::Update,
        TaskMethod::Cancel,
        TaskMethod::Result,
        TaskMethod::List,
    ];

    /// Returns the method name.
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
    /// Returns the delay before the next poll: the server's interval, limited to what is bearable
    /// for both sides.
    pub fn poll_delay(&self) -> std::time::Duration {
        // One second if the server names no interval.
        const USUAL: f64 = 1_000.0;
        // Servers send fractions as well as whole numbers.
        let asked = self
            .poll_interval
            .as_ref()
            .and_then(|raw| raw.parse_as::<f64>().ok())
            .filter(|ms| ms.is_finite());
        std::time::Duration::from_millis(asked.unwrap_or(USUAL).clamp(50.0, 60_000.0) as u64)
    }
}
