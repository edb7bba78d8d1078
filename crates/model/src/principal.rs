//! Principals: the identities that credentials prove.
//!
//! Owns what names a principal, in one process and across processes. Does not check credentials (`access`). Invariant:
//! whatever is stored or leaves the process is bound to a mark, never to an id.

/// Identity that the credentials prove.
#[derive(Debug)]
pub struct Principal {
    /// Name from the configuration; for logs, never for decisions.
    pub name: String,
    /// Number in this process, given only once. Equal ids are the same principal.
    pub id: u32,
    /// Identity in every process.
    pub mark: PrincipalMark,
}

/// Identity of a principal in every process. Made from its credentials, not from its place in the config.
pub type PrincipalMark = [u8; 16];

impl Principal {
    /// Id of the gateway itself, for its own requests to servers.
    pub const GATEWAY: u32 = u32::MAX;
    /// Id of every client if no keys are configured.
    pub const ANONYMOUS: u32 = u32::MAX - 1;

    /// Creates a principal.
    pub fn new(name: &str, id: u32, mark: PrincipalMark) -> Self {
        Principal { name: name.to_owned(), id, mark }
    }

    /// Creates the principal of every client if no keys are configured. All processes know it by the same mark.
    pub fn anonymous() -> Self {
        Principal::new("anybody", Principal::ANONYMOUS, [0; 16])
    }
}

impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Principal {}
