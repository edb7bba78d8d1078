//! Row that most rows of the table start from.
//!
//! Owns the forms of entries that several clients share. Does not know any client. Invariant: a row
//! states only what differs from the usual one.

use crate::profile::{
    ClientLimits, ClientProfile, ConnectMethod, OffSwitch, ServerWrapper, UserFiles, VariableForm,
};

/// Day on which most rows were checked.
const CHECKED: &str = "2026-11-22";

/// Entry of clients that recognise HTTP by the `url`.
const HTTP_BY_URL: &str = r#"{"url":"{url}","headers":{"Authorization":"{bearer}"}}"#;
/// Entry of clients that need a type next to the URL.
pub(super) const HTTP_BY_TYPE: &str =
    r#"{"type":"http","url":"{url}","headers":{"Authorization":"{bearer}"}}"#;
/// Entry of clients that call the URL of a server `serverUrl`.
pub(super) const HTTP_BY_SERVER_URL: &str =
    r#"{"serverUrl":"{url}","headers":{"Authorization":"{bearer}"}}"#;
/// Entry that starts our bridge.
const BRIDGE: &str =
    r#"{"command":"{program}","args":["stdio","--url","{url}"],"env":{"MOONGATE_KEY":"{key}"}}"#;
/// Entry that starts our bridge, for clients that need a type.
pub(super) const BRIDGE_BY_TYPE: &str = r#"{"type":"stdio","command":"{program}","args":["stdio","--url","{url}"],"env":{"MOONGATE_KEY":"{key}"}}"#;

/// Row of a client that has what most clients have.
pub(super) const USUAL: ClientProfile = ClientProfile {
    id: "",
    title: "",
    method: ConnectMethod::File,
    user_files: UserFiles::Same(&[]),
    project_file: None,
    folder: None,
    file_head: "",
    wrapper: ServerWrapper::Map("mcpServers"),
    http: Some(HTTP_BY_URL),
    stdio: BRIDGE,
    variable: VariableForm::None,
    off_switch: OffSwitch::None,
    command: None,
    link: None,
    limits: ClientLimits {
        name_length: None,
        tools: None,
    },
    next_step: "Restart the client.",
    note: "",
    checked: CHECKED,
};

/// Limits with these numbers.
pub(super) const fn limits(name_length: Option<usize>, tools: Option<usize>) -> ClientLimits {
    ClientLimits { name_length, tools }
}
