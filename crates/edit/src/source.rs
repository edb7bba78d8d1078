//! Text of a file, by lines and comments, and splices of it.
//!
//! Owns positions in the text. Does not know any format. Invariant: offsets are bytes, at
//! boundaries of characters.

use std::ops::Range;

use serde_json::Value;

/// Replacement of a range of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Splice {
    pub(crate) range: Range<usize>,
    pub(crate) text: String,
}

/// Splices that make one change.
#[derive(Debug, Default)]
pub(crate) struct Patch {
    splices: Vec<Splice>,
    /// Ranges whose comments go with what the change removes.
    pub(crate) removed: Vec<Range<usize>>,
}

impl Patch {
    pub(crate) fn insert(&mut self, at: usize, text: impl Into<String>) {
        self.replace(at..at, text);
    }

    pub(crate) fn delete(&mut self, range: Range<usize>) {
        self.replace(range, "");
    }

    pub(crate) fn replace(&mut self, range: Range<usize>, text: impl Into<String>) {
        self.splices.push(Splice {
            range,
            text: text.into(),
        });
    }

    /// Deletes a range together with its comments.
    pub(crate) fn delete_with_comments(&mut self, range: Range<usize>) {
        self.removed.push(range.clone());
        self.delete(range);
    }

    /// Applies all splices. `None` if two of them overlap.
    pub(crate) fn apply(mut self, text: &str) -> Option<String> {
        // A stable sort: two insertions at one position keep the order in which they were asked
        // for.
        self.splices
            .sort_by_key(|splice| (splice.range.start, splice.range.end));
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        for splice in self.splices {
            // An overlap makes this range run backwards, and `get` returns nothing for it.
            out.push_str(text.get(at..splice.range.start)?);
            out.push_str(&splice.text);
            at = splice.range.end;
        }
        out.push_str(text.get(at..)?);
        Some(out)
    }
}

/// Text with the ranges of its comments.
#[derive(Debug)]
pub(crate) struct SourceText {
    text: String,
    /// Sorted, and without overlaps.
    comments: Vec<Range<usize>>,
}

impl SourceText {
    pub(crate) fn new(text: String, comments: Vec<Range<usize>>) -> Self {
        SourceText { text, comments }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn comments(&self) -> &[Range<usize>] {
        &self.comments
    }

    /// Returns the line end of the file: that of its first line.
    pub(crate) fn newline(&self) -> &'static str {
        match self.text.find('\n') {
            Some(at) if self.text[..at].ends_with('\r') => "\r\n",
            _ => "\n",
        }
    }

    pub(crate) fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |newline| newline + 1)
    }

    /// Returns the end of the line, before its line end.
    pub(crate) fn line_end(&self, at: usize) -> usize {
        let end = self.text[at..]
            .find('\n')
            .map_or(self.text.len(), |newline| at + newline);
        if self.text[at..end].ends_with('\r') {
            end - 1
        } else {
            end
        }
    }

    /// Returns the start of the next line, or the end of the text.
    pub(crate) fn next_line(&self, at: usize) -> usize {
        self.text[at..]
            .find('\n')
            .map_or(self.text.len(), |newline| at + newline + 1)
    }

    /// Returns the white space at the start of a position's line.
    pub(crate) fn indent(&self, at: usize) -> &str {
        let line = &self.text[self.line_start(at)..self.line_end(at)];
        &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
    }

    /// Returns the number of characters before a position on its line.
    pub(crate) fn column(&self, at: usize) -> usize {
        self.text[self.line_start(at)..at].chars().count()
    }

    /// True if only white space comes before a position on its line.
    pub(crate) fn opens_line(&self, at: usize) -> bool {
        self.text[self.line_start(at)..at].trim().is_empty()
    }

    pub(crate) fn comment_at(&self, at: usize) -> Option<&Range<usize>> {
        self.comments
            .binary_search_by_key(&at, |comment| comment.start)
            .ok()
            .map(|found| &self.comments[found])
    }

    pub(crate) fn has_comment(&self, range: Range<usize>) -> bool {
        let from = self
            .comments
            .partition_point(|comment| comment.start < range.start);
        self.comments
            .get(from)
            .is_some_and(|comment| comment.start < range.end)
    }

    /// Skips blanks and comments on this line. The result is where something else starts, or the
    /// line's end.
    pub(crate) fn skip_on_line(&self, mut at: usize) -> usize {
        loop {
            at += self.text[at..].len() - self.text[at..].trim_start_matches([' ', '\t']).len();
            match self.comment_at(at) {
                // A block comment over several lines ends on another line. What follows it is not
                // on this one.
                Some(comment) if !self.text[comment.clone()].contains('\n') => at = comment.end,
                _ => return at,
            }
        }
    }

    /// Skips white space and comments, over lines.
    pub(crate) fn skip_trivia(&self, mut at: usize) -> usize {
        loop {
            at += self.text[at..].len() - self.text[at..].trim_start().len();
            match self.comment_at(at) {
                Some(comment) => at = comment.end,
                None => return at,
            }
        }
    }

    /// True if only blanks and comments are between a position and the end of its line.
    pub(crate) fn ends_line(&self, at: usize) -> bool {
        let at = self.skip_on_line(at);
        at == self.text.len() || self.text[at..].starts_with(['\n', '\r'])
    }

    pub(crate) fn is_blank_line(&self, line_start: usize) -> bool {
        self.text[line_start..self.line_end(line_start)]
            .trim()
            .is_empty()
    }

    /// True if the line has a comment and nothing else.
    pub(crate) fn is_comment_line(&self, line_start: usize) -> bool {
        !self.is_blank_line(line_start) && self.ends_line(line_start)
    }

    /// Returns the start of the line before, if there is one.
    pub(crate) fn previous_line(&self, line_start: usize) -> Option<usize> {
        line_start
            .checked_sub(1)
            .map(|newline| self.line_start(newline))
    }

    /// Returns the start of the comment lines directly above a line.
    pub(crate) fn comments_above(&self, line_start: usize) -> usize {
        let mut at = line_start;
        while let Some(previous) = self
            .previous_line(at)
            .filter(|previous| self.is_comment_line(*previous))
        {
            at = previous;
        }
        at
    }

    /// Returns the end of the comment lines directly beneath, which start at `line_start` and pass
    /// the test.
    pub(crate) fn comments_beneath(
        &self,
        line_start: usize,
        is_owned: impl Fn(usize) -> bool,
    ) -> usize {
        let mut at = line_start;
        while at < self.text.len() && self.is_comment_line(at) && is_owned(at) {
            at = self.next_line(at);
        }
        at
    }

    /// Inserts whole lines, each with its line end, at the start of a line or at the end of the
    /// text.
    pub(crate) fn insert_lines(&self, patch: &mut Patch, at: usize, lines: &str) {
        let lines = lines.replace('\n', self.newline());
        // A file whose last line has no end keeps that.
        if at == self.text.len() && !self.text.is_empty() && !self.text.ends_with('\n') {
            // The line end moves from behind the new lines to before them.
            let body = lines.strip_suffix(self.newline()).unwrap_or(&lines);
            patch.insert(at, format!("{}{body}", self.newline()));
        } else {
            patch.insert(at, lines);
        }
    }

    /// Deletes whole lines with their comments: the inverse of `insert_lines`.
    pub(crate) fn delete_lines(&self, patch: &mut Patch, lines: Range<usize>) {
        let mut range = lines;
        if range.end == self.text.len() && !self.text.ends_with('\n') && range.start > 0 {
            // The last line has no end, so the end of the one before it goes. Otherwise an empty
            // line would stay.
            range.start = self.line_end(self.line_start(range.start - 1));
        }
        patch.delete_with_comments(range);
    }
}

/// Tree, layout and comments of a text, as its parser found them.
pub(crate) struct ReadText<L> {
    pub(crate) tree: Value,
    pub(crate) layout: L,
    pub(crate) comments: Vec<Range<usize>>,
}

impl<L> ReadText<L> {
    pub(crate) fn map_layout<M>(self, wrap: impl FnOnce(L) -> M) -> ReadText<M> {
        ReadText {
            tree: self.tree,
            layout: wrap(self.layout),
            comments: self.comments,
        }
    }
}
