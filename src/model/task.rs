//! Tasks: calls whose end is fetched later, under a name that the server gave.
//!
//! What a revision calls the members and how it hands out the end is not here.

use crate::json::{Object, Raw, Text};
use crate::model::Question;

/// The state of a task.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its name: the server's own behind the gateway, a handle in front of it.
    pub id: Text,
    /// How far it is.
    pub status: TaskStatus,
    /// Milliseconds from its creation for which it is kept; JSON `null`: for ever.
    pub ttl: Option<Raw>,
    /// Milliseconds that a client should let pass between two looks at it.
    pub poll: Option<Raw>,
    /// The other members, as the server spelled them: a message for people, when it was made and last changed.
    pub rest: Object,
    /// What it waits for, by keys that are unique in its life. Only where the whole state was asked for.
    pub questions: Vec<(Text, Question)>,
    /// What it came to: the result, or the error. Only where the whole state was asked for.
    pub end: Option<Result<Raw, Raw>>,
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
pub enum TaskWish {
    /// It must be answered with its end.
    #[default]
    Never,
    /// The server decides.
    May,
    /// It must become one, with these wishes for its life.
    Must(Object),
}

/// What is done with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskMethod {
    /// Look at it.
    State,
    /// Answer what it asks.
    Answer,
    /// Ask for its end before its time.
    Cancel,
    /// Wait for what it comes to, answering meanwhile what it asks.
    End,
    /// List all.
    List,
}

/// What a server can do with tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct TaskFeatures {
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
    pub fn is_over(self) -> bool {
        !matches!(self, TaskStatus::Working | TaskStatus::InputRequired)
    }
}

impl TaskMethod {
    /// Every one of them.
    pub const ALL: [TaskMethod; 5] =
        [TaskMethod::State, TaskMethod::Answer, TaskMethod::Cancel, TaskMethod::End, TaskMethod::List];

    /// The method's name.
    pub fn name(self) -> &'static str {
        match self {
            TaskMethod::State => "tasks/get",
            TaskMethod::Answer => "tasks/update",
            TaskMethod::Cancel => "tasks/cancel",
            TaskMethod::End => "tasks/result",
            TaskMethod::List => "tasks/list",
        }
    }
}

impl Task {
    /// How long to wait before the next look: what the server asks for, within what is bearable for both sides.
    pub fn pause(&self) -> std::time::Duration {
        const USUAL: f64 = 1_000.0;
        let asked = self.poll.as_ref().and_then(|raw| raw.read::<f64>().ok()).filter(|ms| ms.is_finite());
        std::time::Duration::from_millis(asked.unwrap_or(USUAL).clamp(50.0, 60_000.0) as u64)
    }
}
