//! Access of each principal.
//!
//! Owns the table of endpoints and tools that a principal may use. Does not know credentials (`auth`). Invariant: a
//! principal without an entry may use nothing, except the anonymous one of an empty table.

use std::collections::HashSet;

use aws_lc_rs::hmac;

use crate::policy::GlobList;
use moongate_model::Principal;

/// Access of one principal.
#[derive(Clone, Debug)]
pub struct PrincipalAccess {
    /// Name of its key, for reports.
    pub name: String,
    /// Endpoints of views and servers that it may use. `None`: every endpoint. The endpoint over everything unites
    /// them.
    pub endpoints: Option<HashSet<String>>,
    /// Tools that it may see and call, by the name on the endpoint over everything.
    pub tools: GlobList,
    /// Secret that marks handles as the principal's own.
    pub secret: PrincipalSecret,
}

/// Secret of one principal. Stays the same for as long as its credentials do.
#[derive(Clone)]
pub struct PrincipalSecret([u8; 32]);

impl PrincipalSecret {
    /// Wraps 256 secret bits.
    pub fn new(bits: [u8; 32]) -> Self {
        PrincipalSecret(bits)
    }

    /// Returns 128 bits that only a holder of the secret can make from these texts.
    pub fn mark(&self, texts: &[&str]) -> [u8; 16] {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.0));
        for text in texts {
            // Lengths keep apart texts that would read the same in a row.
            context.update(&(text.len() as u64).to_be_bytes());
            context.update(text.as_bytes());
        }
        let mut mark = [0; 16];
        // 128 bits are enough for a mark.
        mark.copy_from_slice(&context.sign().as_ref()[..16]);
        mark
    }
}

impl std::fmt::Debug for PrincipalSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Entries of all principals, sorted by id.
#[derive(Clone, Debug, Default)]
pub struct AccessTable(Vec<(u32, PrincipalAccess)>);

/// Principal id of every caller where no credentials are asked for.
pub const ANONYMOUS: u32 = Principal::ANONYMOUS;

impl AccessTable {
    /// Creates a table from entries and the principals' ids.
    pub fn new(mut rows: Vec<(u32, PrincipalAccess)>) -> Self {
        rows.sort_unstable_by_key(|(id, _)| *id);
        AccessTable(rows)
    }

    /// Returns true if the principal is admitted at all.
    pub fn contains(&self, principal: u32) -> bool {
        !matches!(self.row(principal), AccessEntry::Nothing)
    }

    /// Returns true if there are no entries, so that any caller may do anything.
    pub fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns each key's name with its globs over tools.
    pub fn tool_globs(&self) -> impl Iterator<Item = (&str, &GlobList)> {
        self.0.iter().map(|(_, access)| (access.name.as_str(), &access.tools))
    }

    /// Returns the number of principals that there can be.
    pub fn principal_count(&self) -> usize {
        self.0.len().max(1)
    }

    /// Returns the principals that may use only some endpoints, with the names of those.
    pub fn restricted(&self) -> impl Iterator<Item = (u32, &HashSet<String>)> {
        self.0.iter().filter_map(|(id, access)| Some((*id, access.endpoints.as_ref()?)))
    }

    /// Returns the only endpoints that the principal may use, beside their union. `None`: no such limit.
    pub fn allowed_endpoints(&self, principal: u32) -> Option<&HashSet<String>> {
        match self.row(principal) {
            AccessEntry::Some(access) => access.endpoints.as_ref(),
            AccessEntry::Everything | AccessEntry::Nothing => None,
        }
    }

    /// Returns true if the principal may use an endpoint. The empty name is the endpoint over everything.
    pub fn allows_endpoint(&self, principal: &Principal, name: &str) -> bool {
        match self.row(principal.id) {
            AccessEntry::Everything => true,
            AccessEntry::Nothing => false,
            AccessEntry::Some(access) => {
                // The endpoint over everything is open to each key: it unites the endpoints that the key may use.
                name.is_empty() || access.endpoints.as_ref().is_none_or(|names| names.contains(name))
            }
        }
    }

    /// Returns true if the principal may see and call a tool.
    pub fn allows_tool(&self, principal: &Principal, exposed: &str) -> bool {
        match self.row(principal.id) {
            AccessEntry::Everything => true,
            AccessEntry::Nothing => false,
            AccessEntry::Some(access) => access.tools.matches(exposed),
        }
    }

    /// Returns the principal's secret. `None` where any caller may do anything, since callers cannot be told apart.
    pub fn secret(&self, principal: &Principal) -> Option<&PrincipalSecret> {
        match self.row(principal.id) {
            AccessEntry::Some(access) => Some(&access.secret),
            AccessEntry::Everything | AccessEntry::Nothing => None,
        }
    }

    fn row(&self, principal: u32) -> AccessEntry<'_> {
        // Fails closed: once there are keys, an anonymous caller has no entry.
        if principal == ANONYMOUS && self.is_open() {
            return AccessEntry::Everything;
        }
        let at = self.0.binary_search_by_key(&principal, |(id, _)| *id);
        at.map_or(AccessEntry::Nothing, |at| AccessEntry::Some(&self.0[at].1))
    }
}

enum AccessEntry<'a> {
    Everything,
    Nothing,
    Some(&'a PrincipalAccess),
}
