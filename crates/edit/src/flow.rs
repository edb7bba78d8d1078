//! Members between brackets, with commas: lists and tables of JSON, inline ones of TOML, flow ones
//! of YAML.
//!
//! Owns where a member goes in and what goes out with it. Does not render values. Invariant: a
//! removal is the inverse of the insertion at the end.

use std::ops::Range;

use crate::source::{Patch, SourceText};

/// Container between brackets.
pub(crate) struct FlowContainer<'a> {
    source: &'a SourceText,
    /// Range between the brackets.
    inner: Range<usize>,
    members: Vec<Range<usize>>,
}

/// Style of a container that is still empty.
pub(crate) struct EmptyStyle {
    /// Each member gets its own line.
    pub(crate) multiline: bool,
    /// Blanks are inside the brackets.
    pub(crate) padded: bool,
    /// Commas may follow the last member.
    pub(crate) trailing_comma: bool,
    /// Indentation of one level.
    pub(crate) unit: String,
}

impl<'a> FlowContainer<'a> {
    /// Creates the view of a container from its range with brackets and the ranges of its members.
    pub(crate) fn new(
        source: &'a SourceText,
        range: &Range<usize>,
        members: Vec<Range<usize>>,
    ) -> Self {
        FlowContainer {
            source,
            inner: range.start + 1..range.end - 1,
            members,
        }
    }

    fn text(&self) -> &'a str {
        self.source.text()
    }

    fn gap(&self, range: Range<usize>) -> &'a str {
        &self.text()[range]
    }

    /// Returns the position of the comma behind a member.
    fn comma_after(&self, member: &Range<usize>) -> Option<usize> {
        let at = self.source.skip_trivia(member.end);
        self.text()[at..self.inner.end]
            .starts_with(',')
            .then_some(at)
    }

    /// True if each member has its own line.
    pub(crate) fn is_multiline(&self) -> bool {
        self.members
            .last()
            .is_some_and(|last| self.source.opens_line(last.start))
    }

    /// Returns the indentation that a new member gets.
    pub(crate) fn member_indent(&self, empty: &EmptyStyle) -> String {
        match self.members.last() {
            Some(last) if self.is_multiline() => self.source.indent(last.start).to_owned(),
            Some(_) => self.source.indent(self.inner.start).to_owned(),
            None => format!("{}{}", self.source.indent(self.inner.start), empty.unit),
        }
    }

    /// Inserts a member behind the last one. `rendered` has the indentation of `member_indent`.
    pub(crate) fn push(&self, patch: &mut Patch, rendered: &str, empty: &EmptyStyle) {
        let rendered = rendered.replace('\n', self.source.newline());
        let Some(last) = self.members.last() else {
            return self.push_first(patch, &rendered, empty);
        };
        // A trailing comma of the old last member is kept as the file's style: the new member gets
        // one, too.
        let comma = self.comma_after(last);
        let mut end = comma.map_or(last.end, |comma| comma + 1);
        if !self.is_multiline() {
            let blank = if self.is_dense() { "" } else { " " };
            let text = if comma.is_some() {
                format!("{blank}{rendered},")
            } else {
                format!(",{blank}{rendered}")
            };
            return patch.insert(end, text);
        }
        // Behind the comment on that line, unless the bracket is there.
        if self.source.ends_line(end) {
            end = self.source.skip_on_line(end);
            end = self.text()[..end]
                .trim_end_matches([' ', '\t'])
                .len()
                .max(comma.map_or(last.end, |comma| comma + 1));
        }
        let start = format!("{}{}", self.source.newline(), self.member_indent(empty));
        match comma {
            Some(_) => patch.insert(end, format!("{start}{rendered},")),
            None if end == last.end => patch.insert(end, format!(",{start}{rendered}")),
            // The comment behind the last member stays on its line. The comma therefore goes before
            // it, the member behind it.
            None => {
                patch.insert(last.end, ",");
                patch.insert(end, format!("{start}{rendered}"));
            }
        }
    }

    /// True if no blanks are around the members' commas.
    fn is_dense(&self) -> bool {
        match &self.members[..] {
            [.., first, second] => self.gap(first.end..second.start) == ",",
            // A single member shows no comma. Its own colon shows if the file is written without
            // blanks.
            [only] => {
                self.gap(only.clone()).contains("\":") && !self.gap(only.clone()).contains("\": ")
            }
            [] => false,
        }
    }

    fn push_first(&self, patch: &mut Patch, rendered: &str, empty: &EmptyStyle) {
        let newline = self.source.newline();
        let close = self.inner.end;
        let indent = self.member_indent(empty);
        if self.inner.is_empty() {
            let outer = self.source.indent(self.inner.start);
            let blank = if empty.padded { " " } else { "" };
            let text = match empty.multiline {
                true => format!("{newline}{indent}{rendered}{newline}{outer}"),
                false => format!("{blank}{rendered}{blank}"),
            };
            patch.insert(close, text);
        } else if !self.source.has_comment(self.inner.clone()) {
            // Blanks alone: they stay behind the member, so that its removal gives them back.
            patch.insert(self.inner.start, rendered);
        } else if self.source.opens_line(close) && self.gap(self.inner.clone()).contains('\n') {
            let comma = if empty.trailing_comma { "," } else { "" };
            let above = self
                .source
                .previous_line(self.source.line_start(close))
                .unwrap_or_default();
            let above = if above > self.inner.start {
                self.source.indent(above).to_owned()
            } else {
                indent
            };
            patch.insert(
                self.source.line_start(close),
                format!("{above}{rendered}{comma}{newline}"),
            );
        } else {
            patch.insert(close, rendered);
        }
    }

    /// Removes a member.
    pub(crate) fn remove(&self, patch: &mut Patch, index: usize) {
        let member = self.members[index].clone();
        let comma = self.comma_after(&member);
        let is_last = index + 1 == self.members.len();
        let end = comma.map_or(member.end, |comma| comma + 1);
        let same_line = !self.gap(member.end..end).contains('\n');
        if same_line && self.source.opens_line(member.start) && self.source.ends_line(end) {
            let start = self.source.line_start(member.start);
            let rest = self.source.next_line(end);
            let is_only = self.members.len() == 1
                && start > self.inner.start
                && rest <= self.inner.end
                && format!(
                    "{}{}",
                    self.gap(self.inner.start..start),
                    self.gap(rest..self.inner.end)
                )
                .trim()
                .is_empty();
            // The only member takes the line ends around it. An empty container is then `{}` on one
            // line again.
            match is_only {
                true => patch.delete_with_comments(self.inner.clone()),
                false => patch.delete_with_comments(start..rest),
            }
            self.remove_comma_before(patch, index, comma);
        } else if self.members.len() == 1 {
            self.remove_only(patch, &member, end);
        } else if is_last {
            let before = self.members[index - 1].end;
            let before = if comma.is_some() {
                self.comma_after(&self.members[index - 1]).unwrap_or(before) + 1
            } else {
                before
            };
            // A comment between two members belongs to the list. Only the member and its comma may
            // go.
            if self.source.has_comment(before..member.start) {
                self.remove_comma_before(patch, index, comma);
                patch.delete_with_comments(member.start..end);
            } else {
                patch.delete_with_comments(before..end);
            }
        } else {
            let next = self.members[index + 1].start;
            match self.source.has_comment(member.end..next) {
                true => {
                    patch.delete_with_comments(member.clone());
                    comma
                        .into_iter()
                        .for_each(|comma| patch.delete(comma..comma + 1));
                }
                false => patch.delete_with_comments(member.start..next),
            }
        }
    }

    /// Removes the comma that separated a last member from the one before.
    fn remove_comma_before(&self, patch: &mut Patch, index: usize, comma: Option<usize>) {
        let is_last = index + 1 == self.members.len();
        if let (true, None, Some(before)) = (is_last, comma, index.checked_sub(1)) {
            self.comma_after(&self.members[before])
                .into_iter()
                .for_each(|comma| patch.delete(comma..comma + 1));
        }
    }

    fn remove_only(&self, patch: &mut Patch, member: &Range<usize>, end: usize) {
        let before = self.gap(self.inner.start..member.start);
        let after = self.gap(end..self.inner.end);
        let is_padded = !before.is_empty() && before.trim().is_empty() && after.trim().is_empty();
        match is_padded {
            true => patch.delete_with_comments(self.inner.clone()),
            false => patch.delete_with_comments(member.start..end),
        }
    }
}
