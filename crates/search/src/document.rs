//! Documents: a server and its tools, as the caller hands them to the index.
//!
//! Owns the borrowed texts of one build. Does not cut them: `segment.rs` has the bounds. Invariant:
//! the index keeps names and words, and no text.

/// Texts of a server that count for each of its tools.
#[derive(Clone, Copy, Default)]
pub struct ServerDocument<'a> {
    /// Name in the config, and key of the server in the index.
    pub name: &'a str,
    /// Title for people, or nothing.
    pub title: &'a str,
    /// Description or instructions, or nothing.
    pub description: &'a str,
}

/// Texts of one tool.
#[derive(Clone)]
pub struct ToolDocument<'a, Id> {
    /// Key that hits and filters carry.
    pub id: Id,
    /// Name that clients see.
    pub exposed_name: &'a str,
    /// Name at its server.
    pub own_name: &'a str,
    /// Title and description, or nothing.
    pub description: &'a str,
    /// Arguments with their descriptions.
    pub arguments: &'a [ArgumentText],
}

/// Name and description of one argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArgumentText {
    /// Name in the schema.
    pub name: String,
    /// Description in the schema, or nothing.
    pub description: String,
}
