//! Authorization server of a client that gets tokens for itself.
//!
//! Owns what such a client must know of it. Does not find it (`discovery.rs`) or send requests
//! (`token_endpoint.rs`). Invariant: no browser goes there, so neither PKCE nor an authorization
//! endpoint is needed.

use url::Url;

/// Authorization server of a client that gets tokens for itself: its metadata, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenServer {
    /// Endpoint that gives tokens.
    pub(crate) token_endpoint: Url,
    /// Ways in which clients may authenticate there. Empty: not listed.
    pub(crate) auth_methods: Vec<String>,
    /// Algorithms that clients may sign with. Empty: not listed.
    pub(crate) signing_algorithms: Vec<String>,
}

/// Facts that such a client needs, found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundTokenServer {
    /// Authorization server.
    pub(crate) server: TokenServer,
    /// Resource that requests name, as it was published. `None`: the config leaves it out.
    pub(crate) resource: Option<String>,
    /// Scopes in the metadata of the resource.
    pub(crate) scopes_supported: Option<Vec<String>>,
}
