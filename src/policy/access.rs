//! What each principal may see and call.

use std::collections::HashSet;

use crate::model::Principal;
use crate::policy::Globs;

/// One principal's row.
#[derive(Clone, Debug)]
pub struct Access {
    /// The endpoints of views and servers that it may use; `None`: every endpoint.
    pub endpoints: Option<HashSet<String>>,
    /// The tools that it may see and call, by the name on the endpoint over everything.
    pub tools: Globs,
}

/// All rows; a principal's id is its row.
#[derive(Clone, Debug, Default)]
pub struct AccessTable(Vec<Access>);

/// The id of whoever calls where no credentials are asked for.
pub const ANYBODY: u32 = u32::MAX - 1;

impl AccessTable {
    /// A table; the rows' places are the principals' ids.
    pub fn new(rows: Vec<Access>) -> Self {
        AccessTable(rows)
    }

    /// Whether there are rows at all: without, anybody may do anything.
    pub fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// How many principals there can be.
    pub fn principals(&self) -> usize {
        self.0.len().max(1)
    }

    /// Whether the principal may use an endpoint; the empty name is the one over everything.
    pub fn endpoint(&self, principal: &Principal, name: &str) -> bool {
        match self.row(principal) {
            Row::Everything => true,
            Row::Nothing => false,
            Row::Some(access) => access.endpoints.as_ref().is_none_or(|names| names.contains(name)),
        }
    }

    /// Whether the principal may see and call a tool.
    pub fn tool(&self, principal: &Principal, exposed: &str) -> bool {
        match self.row(principal) {
            Row::Everything => true,
            Row::Nothing => false,
            Row::Some(access) => access.tools.matches(exposed),
        }
    }

    fn row(&self, principal: &Principal) -> Row<'_> {
        if principal.id == ANYBODY && self.is_open() {
            return Row::Everything;
        }
        usize::try_from(principal.id).ok().and_then(|id| self.0.get(id)).map_or(Row::Nothing, Row::Some)
    }
}

enum Row<'a> {
    Everything,
    Nothing,
    Some(&'a Access),
}
