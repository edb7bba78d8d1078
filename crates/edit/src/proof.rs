//! Proof of a change.
//!
//! Owns the comparison of the old text with the new one. Does not trust what the formats' editors
//! did. Invariant: a new text has the intended tree and every comment that the change did not
//! remove.

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::Value;

use crate::edit_action::Edit;
use crate::error::EditError;
use crate::format::Format;
use crate::node::SpanNode;
use crate::plan::{self, Change, path_text};
use crate::source::{Patch, ReadText, SourceText};
use crate::text_bounds::{DEPTH_MAX, exceeded_bound};
use crate::toml::TomlLayout;
use crate::{json, toml, yaml};

/// Ranges of the values in a text.
enum TextLayout {
    Toml(TomlLayout),
    /// `None` if the text holds no value.
    Json(Option<SpanNode>),
    Yaml(Option<SpanNode>),
}

/// Text with its tree.
pub(crate) struct ParsedText {
    source: SourceText,
    tree: Value,
    layout: TextLayout,
}

impl ParsedText {
    /// Reads a text.
    pub(crate) fn parse(format: Format, text: String) -> Result<ParsedText, EditError> {
        if let Some((at, bound)) = exceeded_bound(format, &text, DEPTH_MAX) {
            return Err(EditError::unreadable(&text, at, bound.message()));
        }
        let read = match format {
            Format::Toml => toml::parse(&text)?.map_layout(TextLayout::Toml),
            Format::Json => json::parse(&text)?.map_layout(TextLayout::Json),
            Format::Yaml => yaml::parse(&text)?.map_layout(TextLayout::Yaml),
        };
        let ReadText {
            tree,
            layout,
            comments,
        } = read;
        // A file without a value is an empty table.
        let tree = if tree.is_null() {
            Value::Object(serde_json::Map::new())
        } else {
            tree
        };
        Ok(ParsedText {
            source: SourceText::new(text, comments),
            tree,
            layout,
        })
    }

    pub(crate) fn tree(&self) -> &Value {
        &self.tree
    }

    pub(crate) fn text(&self) -> &str {
        self.source.text()
    }

    pub(crate) fn comments(&self) -> &[Range<usize>] {
        self.source.comments()
    }

    fn format(&self) -> Format {
        match self.layout {
            TextLayout::Toml(_) => Format::Toml,
            TextLayout::Json(_) => Format::Json,
            TextLayout::Yaml(_) => Format::Yaml,
        }
    }

    /// Makes a change and proves it.
    pub(crate) fn apply(&self, change: &Change) -> Result<ParsedText, EditError> {
        let mut patch = Patch::default();
        self.patch(change, &mut patch)?;
        self.prove(patch, &self.wanted_trees(change), change)
    }

    /// Makes edits of one list in one step. `None` if the text does not allow that.
    pub(crate) fn apply_at_once(&self, edits: &[Edit]) -> Option<ParsedText> {
        let mut patch = Patch::default();
        let mut tree = self.tree.clone();
        let mut changes = Vec::new();
        let mut seen = BTreeSet::new();
        for edit in edits {
            // In this text, so that the positions in the patch are not those of a later one.
            let Some(change) = plan::next_change(edit, &self.tree).ok()? else {
                continue;
            };
            let is_twice = !seen.insert(edit.action().item());
            if is_twice || matches!(change, Change::Insert { .. } | Change::Replace { .. }) {
                return None;
            }
            self.patch(&change, &mut patch).ok()?;
            changes.push(change);
        }
        // From the end of the list: the positions of earlier items stay as they are.
        changes.sort_by_key(|change: &Change| std::cmp::Reverse(change.index()));
        changes
            .iter()
            .try_for_each(|change| change.apply_to(&mut tree))?;
        match changes.first() {
            Some(first) => self.prove(patch, &[tree], first).ok(),
            None => ParsedText::parse(self.format(), self.text().to_owned()).ok(),
        }
    }

    fn patch(&self, change: &Change, patch: &mut Patch) -> Result<(), EditError> {
        match &self.layout {
            TextLayout::Toml(layout) => toml::patch(&self.source, layout, change, patch),
            TextLayout::Json(root) => json::patch(&self.source, root.as_ref(), change, patch),
            TextLayout::Yaml(root) => yaml::patch(&self.source, root.as_ref(), change, patch),
        }
    }

    /// Applies a patch, and compares the result with the trees that are right.
    fn prove(
        &self,
        patch: Patch,
        wanted: &[Value],
        change: &Change,
    ) -> Result<ParsedText, EditError> {
        // Texts are compared, not positions: all ranges behind the splice have moved.
        let kept = comments_outside(&self.source, &patch.removed);
        let text = patch
            .apply(self.text())
            .ok_or_else(|| EditError::refuse("the change overlaps itself"))?;
        // The result is parsed from scratch. An error of a splice can therefore cost the edit, but
        // never the file.
        let new = ParsedText::parse(self.format(), text).map_err(|error| {
            EditError::refuse(format!("the changed text would not parse ({error})"))
        })?;
        if !wanted.contains(&new.tree) {
            let at = match change {
                Change::Insert { at, .. } | Change::Append { at, .. } => at,
                Change::Replace { at, .. } | Change::Remove { at } => at,
            };
            return Err(EditError::refuse(format!(
                "more than {} would change",
                path_text(at)
            )));
        }
        if kept != comments_outside(&new.source, &[]) {
            return Err(EditError::refuse("a comment would be lost"));
        }
        Ok(new)
    }

    /// Lists the trees that are right after a change.
    fn wanted_trees(&self, change: &Change) -> Vec<Value> {
        let mut tree = self.tree.clone();
        if change.apply_to(&mut tree).is_none() {
            return Vec::new();
        }
        let mut trees = vec![tree];
        if let (Format::Toml, Change::Remove { at }) = (self.format(), change) {
            // A table that only its members spell ends with the last of them, and so may the tables
            // above it.
            for depth in (1..at.len()).rev() {
                let mut tree = trees[trees.len() - 1].clone();
                let is_empty = plan::node(&tree, &at[..depth]).is_some_and(|node| match node {
                    Value::Object(table) => table.is_empty(),
                    Value::Array(list) => list.is_empty(),
                    _ => false,
                });
                if !is_empty || plan::remove_node(&mut tree, &at[..depth]).is_none() {
                    break;
                }
                trees.push(tree);
            }
        }
        trees
    }
}

/// Lists the comments that do not lie in the ranges, in the order of the text.
fn comments_outside<'a>(source: &'a SourceText, ranges: &[Range<usize>]) -> Vec<&'a str> {
    source
        .comments()
        .iter()
        .filter(|comment| !is_in_a_range(comment, ranges))
        .map(|comment| source.text()[comment.clone()].trim_end())
        .collect()
}

fn is_in_a_range(comment: &Range<usize>, ranges: &[Range<usize>]) -> bool {
    ranges
        .iter()
        .any(|range| range.start <= comment.start && comment.end <= range.end)
}
