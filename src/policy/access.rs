//! What each principal may see and call.

use std::collections::HashSet;

use aws_lc_rs::hmac;

use crate::model::Principal;
use crate::policy::GlobList;

/// One principal's row.
#[derive(Clone, Debug)]
pub struct PrincipalAccess {
    /// The name of its key, for reports.
    pub name: String,
    /// The endpoints of views and servers that it may use; `None`: every endpoint. The one over everything is over those.
    pub endpoints: Option<HashSet<String>>,
    /// The tools that it may see and call, by the name on the endpoint over everything.
    pub tools: GlobList,
    /// What marks as its own what it is handed.
    pub secret: PrincipalSecret,
}

/// A secret of one principal, the same for as long as its credentials are.
#[derive(Clone)]
pub struct PrincipalSecret([u8; 32]);

impl PrincipalSecret {
    /// Wraps 256 secret bits.
    pub fn new(bits: [u8; 32]) -> Self {
        PrincipalSecret(bits)
    }

    /// 128 bits that only who knows the secret can make of these texts.
    pub fn mark(&self, texts: &[&str]) -> [u8; 16] {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.0));
        for text in texts {
            // The lengths keep apart what would read the same in a row.
            context.update(&(text.len() as u64).to_be_bytes());
            context.update(text.as_bytes());
        }
        let mut mark = [0; 16];
        mark.copy_from_slice(&context.sign().as_ref()[..16]);
        mark
    }
}

impl std::fmt::Debug for PrincipalSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// All rows, sorted by the ids of their principals.
#[derive(Clone, Debug, Default)]
pub struct AccessTable(Vec<(u32, PrincipalAccess)>);

/// The id of whoever calls where no credentials are asked for.
pub const ANONYMOUS: u32 = Principal::ANONYMOUS;

impl AccessTable {
    /// A table of rows by the principals' ids.
    pub fn new(mut rows: Vec<(u32, PrincipalAccess)>) -> Self {
        rows.sort_unstable_by_key(|(id, _)| *id);
        AccessTable(rows)
    }

    /// Whether the principal may come in at all.
    pub fn contains(&self, principal: u32) -> bool {
        !matches!(self.row(principal), AccessEntry::Nothing)
    }

    /// Whether there are rows at all: without, anybody may do anything.
    pub fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Each key by name, and its patterns over tools.
    pub fn tool_globs(&self) -> impl Iterator<Item = (&str, &GlobList)> {
        self.0.iter().map(|(_, access)| (access.name.as_str(), &access.tools))
    }

    /// How many principals there can be.
    pub fn principal_count(&self) -> usize {
        self.0.len().max(1)
    }

    /// The principals that may use only some endpoints, and the names of those.
    pub fn restricted(&self) -> impl Iterator<Item = (u32, &HashSet<String>)> {
        self.0.iter().filter_map(|(id, access)| Some((*id, access.endpoints.as_ref()?)))
    }

    /// The only endpoints that the principal may use, beside the one over them all; `None`: no such limit.
    pub fn allowed_endpoints(&self, principal: u32) -> Option<&HashSet<String>> {
        match self.row(principal) {
            AccessEntry::Some(access) => access.endpoints.as_ref(),
            AccessEntry::Everything | AccessEntry::Nothing => None,
        }
    }

    /// Whether the principal may use an endpoint; the empty name is the one over everything.
    pub fn allows_endpoint(&self, principal: &Principal, name: &str) -> bool {
        match self.row(principal.id) {
            AccessEntry::Everything => true,
            AccessEntry::Nothing => false,
            AccessEntry::Some(access) => {
                name.is_empty() || access.endpoints.as_ref().is_none_or(|names| names.contains(name))
            }
        }
    }

    /// Whether the principal may see and call a tool.
    pub fn allows_tool(&self, principal: &Principal, exposed: &str) -> bool {
        match self.row(principal.id) {
            AccessEntry::Everything => true,
            AccessEntry::Nothing => false,
            AccessEntry::Some(access) => access.tools.matches(exposed),
        }
    }

    /// The principal's secret; `None` where anybody may do anything, and nobody can be told apart.
    pub fn secret(&self, principal: &Principal) -> Option<&PrincipalSecret> {
        match self.row(principal.id) {
            AccessEntry::Some(access) => Some(&access.secret),
            AccessEntry::Everything | AccessEntry::Nothing => None,
        }
    }

    fn row(&self, principal: u32) -> AccessEntry<'_> {
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
