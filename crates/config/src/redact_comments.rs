//! Secrets of entries that are commented out.
//!
//! Owns the search for entries in comments. Does not judge values (`redact`). Invariant: a text
//! that isn't an entry has no secret here.

use std::collections::BTreeSet;
use std::ops::Range;

use super::collector::ProblemCollector;
use super::parse;
use super::redact::secret_ranges_of;
use super::source::FileFormat;

/// Finds the comments of a text.
pub(super) fn comments_of(format: FileFormat, text: &str) -> Vec<Range<usize>> {
    moongate_edit::comments(format.of_edits(), text).unwrap_or_default()
}

/// Finds the ranges of secrets in comments.
pub(super) fn commented_secrets(
    format: FileFormat,
    text: &str,
    comments: &[Range<usize>],
) -> Vec<Range<usize>> {
    let mut secrets = Vec::new();
    for block in commented_blocks(text, comments) {
        let own = uncommented(text, &block, comments);
        for part in possible_entries(&own) {
            let start = block.start + part.start;
            let text = own[part].to_owned();
            let entries = parse::parse(format, &text, 0, &mut ProblemCollector::default());
            let found = secret_ranges_of(&entries, &text);
            secrets.extend(
                found
                    .into_iter()
                    .map(|range| start + range.start..start + range.end),
            );
        }
    }
    // A line is an entry by itself, and one of its run, so each range is there once.
    secrets.sort_by_key(|secret: &Range<usize>| (secret.start, std::cmp::Reverse(secret.end)));
    let mut end = 0;
    secrets.retain(|secret| {
        let is_new = secret.start >= end;
        end = end.max(secret.end);
        is_new
    });
    secrets
}

/// Finds runs of lines that are comments, each from the start of its first line.
fn commented_blocks(text: &str, comments: &[Range<usize>]) -> impl Iterator<Item = Range<usize>> {
    let mut blocks: Vec<Range<usize>> = Vec::new();
    let mut done = 0;
    for comment in comments {
        // Only back to the comment before: a line may have thousands, and those behind the first
        // start no line.
        let newline = text[done..comment.start]
            .rfind('\n')
            .map(|newline| done + newline + 1);
        let is_first = done == 0;
        done = comment.end;
        let Some(start) = newline.or(is_first.then_some(0)) else {
            continue;
        };
        match blocks.last_mut() {
            _ if !text[start..comment.start].trim().is_empty() => {}
            Some(block) if text[block.end..start].trim_matches('\r') == "\n" => {
                block.end = comment.end
            }
            _ => blocks.push(start..comment.end),
        }
    }
    blocks.into_iter()
}

/// Finds the parts of a text that may be entries: each line, and each run of lines without prose.
fn possible_entries(text: &str) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut run = 0..0;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let own = at..at + line.len();
        at = own.end;
        if line.contains([':', '=', '[']) {
            run.end = own.end;
            parts.push(own);
        } else {
            parts.push(std::mem::replace(&mut run, own.end..own.end));
        }
    }
    parts.push(run);
    parts
}

/// Returns a run of comments as the entries that it may be. Each character keeps its position.
fn uncommented(text: &str, block: &Range<usize>, comments: &[Range<usize>]) -> String {
    let first = comments.partition_point(|comment| comment.start < block.start);
    let marks = comments[first..]
        .iter()
        .map(|comment| comment.start)
        .take_while(|start| *start < block.end);
    let marks: BTreeSet<usize> = marks.collect();
    let chars = text[block.clone()].char_indices();
    chars
        .map(|(at, c)| match marks.contains(&(block.start + at)) {
            true => ' ',
            false => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_many_comments_is_read_once() {
        // Blanks times comments are a hundred billion here.
        let blanks = " ".repeat(400_000);
        let comments = "/**/".repeat(300_000);
        let text = format!(
            "{{}}\n// {{\"token\": \"x\"}}\n{blanks}/* \"token\": \"y\" */{comments}\n  \
             // \"token\": \"z\"\n"
        );
        let comments = comments_of(FileFormat::Json, &text);
        let blocks: Vec<Range<usize>> = commented_blocks(&text, &comments).collect();
        assert_eq!(comments.len(), 300_003);
        assert_eq!(blocks.len(), 2);
        assert_eq!(&text[blocks[1].clone()], "  // \"token\": \"z\"");
    }
}
