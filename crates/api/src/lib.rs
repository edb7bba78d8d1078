//! Objects of the admin API, as Rust types. Owns their JSON fields. Does not make them (mostly
//! `moongate_admin`) or show them.
//!
//! Invariant: each object is declared once, and that type is used to write, read, compare and draw
//! it.

mod action_report;
mod api_error;
mod call_row;
mod client_list;
mod config_change;
mod config_view;
mod endpoint_cost;
mod feed_event;
mod finding_list;
mod key_list;
mod person_list;
mod popular_list;
mod server_entry;
mod server_items;
mod server_login;
mod server_preview;
mod server_status;
mod session_row;
mod sign_in;
mod tool_explanation;
mod tool_search;
mod tried_call;

pub use action_report::{ActionReport, HealthMessage, RefreshReport, RestartReport};
pub use api_error::{ApiError, CurrentFile, EditRefusal, UnreadableText};
pub use call_row::{CallError, CallList, CallRow, ClientName};
pub use client_list::{
    ClientList, ClientPresence, ClientRow, ConnectMethod, ConnectStep, ConnectSteps, StepKind,
};
pub use config_change::{
    ChangeOutcome, ChangeReport, ConfigDifference, ConfigProblemRow, NO_PREFIX, PlanReport,
    ReloadReport, ServerPatch, ToolAccessChange, ToolSwitches, UndoRequest,
};
pub use config_view::{ConfigFile, ConfigState, ConfigView, LastReload, PastEditRow};
pub use endpoint_cost::{DiscoveryMode, EndpointCost, ServerCost, ToolCost};
pub use feed_event::{CallFlood, FeedSnapshot, RemovedServer, SessionsEvent};
pub use finding_list::{Finding, FindingList, FindingSeverity};
pub use key_list::{
    ClientKey, KeyListName, KeyLists, KeyPlace, KeyRemovalReport, NewKey, NewKeyReport, OperatorKey,
};
pub use person_list::{PeopleList, PersonItem, RevokeReport, SeveralPeople};
pub use popular_list::{ListedPopular, PopularArgumentRow, PopularKeyRow, PopularList, PopularRow};
pub use server_entry::{EffectiveSettings, ShownEntry, ShownValue};
pub use server_items::{
    FoundTools, ItemRule, ItemState, RuleList, ServerItem, ServerItems, ServerTools, ToolHints,
};
pub use server_login::{LoginPhase, LoginRequest, LoginStart, LoginView, LogoutReport};
pub use server_preview::{
    FoundSecret, FoundServer, FoundState, LackingSetting, NewServers, PreviewRequest, ProbeFault,
    ProbedInfo, ProblemConcern, ServerPreview, ServerProbe, ServerSource, TextProblem,
};
pub use server_status::{
    CallCounts, EntrySource, GatewayStatus, LastError, PendingReplacement, ServerCondition,
    ServerCounters, ServerFindings, ServerIdentity, ServerStatus, ServerVersion, SharedConnection,
    StatusHint, ToolOwner,
};
pub use session_row::{SessionList, SessionRow, StatelessClient};
pub use sign_in::{SignInRequest, SignInTicket, SignOutReport, SignedInOperator};
pub use tool_explanation::{ExplainedRule, PlacedRule, ToolExplanation};
pub use tool_search::{SearchHit, ToolSearch};
pub use tried_call::{TryDone, TryNotice, TryQuestion, TryReply, TryRequest, TryStarted};
