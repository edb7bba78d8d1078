//! Tree of byte ranges.
//!
//! Owns the range of each value of a text. Does not hold the values. Invariant: a child lies within
//! its parent.

use std::ops::Range;

use crate::plan::NodeStep;

/// Value in the text.
#[derive(Clone, Debug)]
pub(crate) struct SpanNode {
    /// Range from the first to the last byte of the value.
    pub(crate) range: Range<usize>,
    pub(crate) shape: NodeShape,
}

/// Kind of a value, with its members.
#[derive(Clone, Debug)]
pub(crate) enum NodeShape {
    /// Text, number, boolean or null.
    Scalar,
    /// Alias of YAML, whose value is elsewhere.
    Alias,
    /// List or table between brackets.
    Flow(NodeMembers),
    /// List or table of YAML by indentation.
    Block(NodeMembers),
}

/// Members of a container.
#[derive(Clone, Debug)]
pub(crate) enum NodeMembers {
    List(Vec<SpanNode>),
    Table(Vec<SpanEntry>),
}

/// Entry of a table.
#[derive(Clone, Debug)]
pub(crate) struct SpanEntry {
    pub(crate) name: String,
    pub(crate) key: Range<usize>,
    pub(crate) value: SpanNode,
}

impl SpanEntry {
    /// Returns the range from the key to the end of the value.
    pub(crate) fn range(&self) -> Range<usize> {
        self.key.start..self.value.range.end
    }
}

impl NodeMembers {
    /// Returns the ranges of all members.
    pub(crate) fn ranges(&self) -> Vec<Range<usize>> {
        match self {
            NodeMembers::List(items) => items.iter().map(|item| item.range.clone()).collect(),
            NodeMembers::Table(entries) => entries.iter().map(SpanEntry::range).collect(),
        }
    }

    /// Finds the number of the member that a step leads to.
    pub(crate) fn position(&self, step: &NodeStep) -> Option<usize> {
        match (self, step) {
            (NodeMembers::List(items), NodeStep::Index(index)) => {
                (*index < items.len()).then_some(*index)
            }
            (NodeMembers::Table(entries), NodeStep::Key(key)) => {
                entries.iter().position(|entry| entry.name == *key)
            }
            _ => None,
        }
    }

    /// Returns the values of all members.
    pub(crate) fn values(&self) -> Vec<&SpanNode> {
        match self {
            NodeMembers::List(items) => items.iter().collect(),
            NodeMembers::Table(entries) => entries.iter().map(|entry| &entry.value).collect(),
        }
    }
}

impl SpanNode {
    pub(crate) fn members(&self) -> Option<&NodeMembers> {
        match &self.shape {
            NodeShape::Flow(members) | NodeShape::Block(members) => Some(members),
            NodeShape::Scalar | NodeShape::Alias => None,
        }
    }

    /// Finds the node at a path. `None` also if an alias is on the way.
    pub(crate) fn find(&self, at: &[NodeStep]) -> Option<&SpanNode> {
        at.iter().try_fold(self, |node, step| {
            let members = node.members()?;
            members.values().get(members.position(step)?).copied()
        })
    }

    /// Visits the node and all below it.
    pub(crate) fn visit<'a>(&'a self, see: &mut impl FnMut(&'a SpanNode)) {
        see(self);
        for value in self.members().map(NodeMembers::values).unwrap_or_default() {
            value.visit(see);
        }
    }
}
