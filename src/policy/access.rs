//! What each principal may see and call.

use std::collections::HashSet;

use aws_lc_rs::hmac;

use crate::model::Principal;
use crate::policy::Globs;

/// One principal's row.
#[derive(Clone, Debug)]
pub struct Access {
    /// The name of its key, for reports.
    pub name: String,
    /// The endpoints of views and servers that it may use; `None`: every endpoint. The one over everything is over those.
    pub endpoints: Option<HashSet<String>>,
    /// The tools that it may see and call, by the name on the endpoint over everything.
    pub tools: Globs,
    /// What marks as its own what it is handed.
    pub secret: Secret,
}

/// A secret of one principal, the same for as long as its credentials are.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Wraps 256 secret bits.
    pub fn new(bits: [u8; 32]) -> Self {
        Secret(bits)
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

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// All rows, sorted by the ids of their principals.
#[derive(Clone, Debug, Default)]
pub struct AccessTable(Vec<(u32, Access)>);

/// The id of whoever calls where no credentials are asked for.
pub const ANYBODY: u32 = Principal::ANYBODY;

impl AccessTable {
    /// A table of rows by the principals' ids.
    pub fn new(mut rows: Vec<(u32, Access)>) -> Self {
        rows.sort_unstable_by_key(|(id, _)| *id);
        AccessTable(rows)
    }

    /// Whether the principal may come in at all.
    pub fn knows(&self, principal: u32) -> bool {
        !matches!(self.row(principal), Row::Nothing)
    }

    /// Whether there are rows at all: without, anybody may do anything.
    pub fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Each key by name, and its patterns over tools.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &Globs)> {
        self.0.iter().map(|(_, access)| (access.name.as_str(), &access.tools))
    }

    /// How many principals there can be.
    pub fn principals(&self) -> usize {
        self.0.len().max(1)
    }

    /// The principals that may use only some endpoints, and the names of those.
    pub fn restricted(&self) -> impl Iterator<Item = (u32, &HashSet<String>)> {
        self.0.iter().filter_map(|(id, access)| Some((*id, access.endpoints.as_ref()?)))
    }

    /// The only endpoints that the principal may use, beside the one over them all; `None`: no such limit.
    pub fn only(&self, principal: u32) -> Option<&HashSet<String>> {
        match self.row(principal) {
            Row::Some(access) => access.endpoints.as_ref(),
            Row::Everything | Row::Nothing => None,
        }
    }

    /// Whether the principal may use an endpoint; the empty name is the one over everything.
    pub fn endpoint(&self, principal: &Principal, name: &str) -> bool {
        match self.row(principal.id) {
            Row::Everything => true,
            Row::Nothing => false,
            Row::Some(access) => name.is_empty() || access.endpoints.as_ref().is_none_or(|names| names.contains(name)),
        }
    }

    /// Whether the principal may see and call a tool.
    pub fn tool(&self, principal: &Principal, exposed: &str) -> bool {
        match self.row(principal.id) {
            Row::Everything => true,
            Row::Nothing => false,
            Row::Some(access) => access.tools.matches(exposed),
        }
    }

    /// The principal's secret; `None` where anybody may do anything, and nobody can be told apart.
    pub fn secret(&self, principal: &Principal) -> Option<&Secret> {
        match self.row(principal.id) {
            Row::Some(access) => Some(&access.secret),
            Row::Everything | Row::Nothing => None,
        }
    }

    fn row(&self, principal: u32) -> Row<'_> {
        if principal == ANYBODY && self.is_open() {
            return Row::Everything;
        }
        let at = self.0.binary_search_by_key(&principal, |(id, _)| *id);
        at.map_or(Row::Nothing, |at| Row::Some(&self.0[at].1))
    }
}

enum Row<'a> {
    Everything,
    Nothing,
    Some(&'a Access),
}
