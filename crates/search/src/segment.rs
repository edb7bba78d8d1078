//! Segments: the words of one server, with the tools that have them.
//!
//! Owns the postings and their bounds. Does not rank. Invariant: a tool costs at most `MAX_TOOL_BYTES` beside its names,
//! whatever its texts are, and what is kept of it depends on no other tool.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::document::{ServerDocument, ToolDocument};
use crate::nearest::{Spelling, spelling_shape};
use crate::stem::stem;
use crate::tokens::for_each_word;
use crate::weights::{SERVER_FIELDS, TOOL_FIELDS, TextField};

/// Memory for the words of one tool.
const MAX_TOOL_BYTES: usize = 5_500;
/// Memory of one word beside its letters: an entry, a shape, a posting.
const WORD_OVERHEAD: usize = size_of::<WordEntry>() + size_of::<u64>() + size_of::<Posting>();
/// Read from a description, or from all descriptions of arguments together.
const MAX_TEXT: usize = 4096;
/// Read from a name and from a title.
const MAX_NAME: usize = 256;
/// Arguments of one tool that are read.
const MAX_ARGUMENTS: usize = 100;

/// Words and tools of one server.
pub(crate) struct Segment<Id> {
    pub(crate) server: Box<str>,
    pub(crate) tools: Vec<ToolEntry<Id>>,
    /// Words of the server's own fields.
    pub(crate) server_lengths: [u16; SERVER_FIELDS],
    /// All words, one after the other, in order.
    text: String,
    entries: Vec<WordEntry>,
    shapes: Vec<u64>,
    postings: Vec<Posting>,
}

/// Tool as hits show it.
pub(crate) struct ToolEntry<Id> {
    pub(crate) id: Id,
    pub(crate) exposed_name: Box<str>,
    pub(crate) own_name: Box<str>,
    /// Words of each field.
    pub(crate) lengths: [u16; TOOL_FIELDS],
}

/// Occurrences of a word in one tool.
#[derive(Clone, Copy)]
pub(crate) struct Posting {
    pub(crate) tool: u32,
    pub(crate) counts: [u8; TOOL_FIELDS],
}

struct WordEntry {
    text_end: u32,
    postings_end: u32,
    server_counts: [u8; SERVER_FIELDS],
}

/// Occurrences of a word in one segment.
#[derive(Clone, Copy)]
pub(crate) struct SegmentWord<'a> {
    pub(crate) text: &'a str,
    pub(crate) postings: &'a [Posting],
    pub(crate) server_counts: [u8; SERVER_FIELDS],
}

impl<Id> Segment<Id> {
    /// Reads the texts of a server and its tools.
    pub(crate) fn build<'a>(server: ServerDocument, tools: impl IntoIterator<Item = ToolDocument<'a, Id>>) -> Self {
        let mut words = SegmentBuilder::default();
        let mut server_lengths = [0; SERVER_FIELDS];
        server_lengths[0] = words.add_server_text(0, server.name, MAX_NAME);
        server_lengths[0] += words.add_server_text(0, server.title, MAX_NAME);
        server_lengths[1] = words.add_server_text(1, server.description, MAX_TEXT);
        let mut entries = Vec::new();
        for tool in tools {
            let lengths = words.add_tool(entries.len() as u32, &tool);
            let (exposed_name, own_name) = (tool.exposed_name.into(), tool.own_name.into());
            entries.push(ToolEntry { id: tool.id, exposed_name, own_name, lengths });
        }
        words.finish(server.name.into(), entries, server_lengths)
    }

    /// Finds a word.
    pub(crate) fn find(&self, stem: &str) -> Option<SegmentWord<'_>> {
        let at = self.partition(stem);
        let word = (at < self.entries.len()).then(|| self.word(at))?;
        (word.text == stem).then_some(word)
    }

    /// Position of the first word that is not before this one.
    fn partition(&self, stem: &str) -> usize {
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.word(middle).text < stem { low = middle + 1 } else { high = middle }
        }
        low
    }

    fn word(&self, at: usize) -> SegmentWord<'_> {
        let (text_start, postings_start) = match at.checked_sub(1).map(|before| &self.entries[before]) {
            Some(before) => (before.text_end as usize, before.postings_end as usize),
            None => (0, 0),
        };
        let WordEntry { text_end, postings_end, server_counts } = self.entries[at];
        SegmentWord {
            text: &self.text[text_start..text_end as usize],
            postings: &self.postings[postings_start..postings_end as usize],
            server_counts,
        }
    }

    /// Words whose spelling may be near to this one.
    pub(crate) fn similar_words(&self, spelling: &Spelling) -> impl Iterator<Item = SegmentWord<'_>> {
        let near = self.shapes.iter().enumerate().filter(|(_, shape)| spelling.may_be_near(**shape));
        near.map(|(at, _)| self.word(at))
    }
}

#[derive(Default)]
struct WordOccurrences {
    postings: Vec<Posting>,
    server_counts: [u8; SERVER_FIELDS],
}

#[derive(Default)]
struct SegmentBuilder {
    words: HashMap<String, WordOccurrences>,
}

impl SegmentBuilder {
    /// Adds a text of the server, and returns its length in words.
    fn add_server_text(&mut self, field: usize, text: &str, limit: usize) -> u16 {
        let mut length = 0;
        for_each_word(cut(text, limit), |word| {
            length += u16::from(!word.joined);
            let count = &mut self.words.entry(stem(word.text)).or_default().server_counts[field];
            *count = count.saturating_add(1);
            true
        });
        length
    }

    /// Adds a tool, and returns the lengths of its fields in words.
    fn add_tool<Id>(&mut self, tool: u32, document: &ToolDocument<Id>) -> [u16; TOOL_FIELDS] {
        let mut text = ToolText { words: &mut self.words, tool, room: MAX_TOOL_BYTES, lengths: [0; TOOL_FIELDS] };
        text.add(TextField::OwnName, cut(document.own_name, MAX_NAME));
        text.add(TextField::Description, cut(document.description, MAX_TEXT));
        let arguments = || document.arguments.iter().take(MAX_ARGUMENTS);
        for argument in arguments() {
            text.add(TextField::ArgumentNames, cut(&argument.name, MAX_NAME));
        }
        let mut room = MAX_TEXT;
        for argument in arguments() {
            let part = cut(&argument.description, room);
            text.add(TextField::ArgumentTexts, part);
            room -= part.len();
        }
        text.lengths
    }

    fn finish<Id>(
        self,
        server: Box<str>,
        tools: Vec<ToolEntry<Id>>,
        server_lengths: [u16; SERVER_FIELDS],
    ) -> Segment<Id> {
        let mut words: Vec<(String, WordOccurrences)> = self.words.into_iter().collect();
        words.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let mut text = String::with_capacity(words.iter().map(|(word, _)| word.len()).sum());
        let mut postings = Vec::with_capacity(words.iter().map(|(_, found)| found.postings.len()).sum());
        let mut entries = Vec::with_capacity(words.len());
        let mut shapes = Vec::with_capacity(words.len());
        for (word, found) in words {
            text.push_str(&word);
            postings.extend(found.postings);
            shapes.push(spelling_shape(&word));
            let (text_end, postings_end) = (text.len() as u32, postings.len() as u32);
            entries.push(WordEntry { text_end, postings_end, server_counts: found.server_counts });
        }
        Segment { server, tools, server_lengths, text, entries, shapes, postings }
    }
}

/// Words of one tool on their way into a segment.
struct ToolText<'a> {
    words: &'a mut HashMap<String, WordOccurrences>,
    tool: u32,
    /// Bytes that its words may still take.
    room: usize,
    lengths: [u16; TOOL_FIELDS],
}

impl ToolText<'_> {
    fn add(&mut self, field: TextField, text: &str) {
        for_each_word(text, |word| {
            let stem = stem(word.text);
            let cost = stem.len() + WORD_OVERHEAD;
            let entry = self.words.entry(stem);
            let known = matches!(&entry, Entry::Occupied(entry) if is_of(entry.get(), self.tool));
            if !known {
                if cost > self.room {
                    return false;
                }
                self.room -= cost;
            }
            let postings = &mut entry.or_default().postings;
            if !known {
                postings.push(Posting { tool: self.tool, counts: [0; TOOL_FIELDS] });
            }
            if let Some(posting) = postings.last_mut() {
                let count = &mut posting.counts[field as usize];
                *count = count.saturating_add(1);
            }
            self.lengths[field as usize] += u16::from(!word.joined);
            true
        });
    }
}

fn is_of(word: &WordOccurrences, tool: u32) -> bool {
    word.postings.last().is_some_and(|posting| posting.tool == tool)
}

/// Beginning of a text, in whole characters.
fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::ArgumentText;

    /// Memory of a server with one tool, beside names.
    fn bytes_of(description: &str, arguments: &[ArgumentText]) -> usize {
        let tool = ToolDocument { id: 0, exposed_name: "a__tool", own_name: "tool", description, arguments };
        let segment = Segment::build(ServerDocument { name: "a", ..ServerDocument::default() }, [tool]);
        let entries = segment.entries.len() * (size_of::<WordEntry>() + size_of::<u64>());
        segment.text.len() + entries + segment.postings.len() * size_of::<Posting>()
    }

    #[test]
    fn hostile_texts_cost_no_more_than_their_cap() {
        let distinct = |n: usize| (0..n).map(|n| format!("w{n:x}ord{n:x}tail")).collect::<Vec<_>>().join(" ");
        assert!(bytes_of(&"word ".repeat(200_000), &[]) < 200);
        assert!(bytes_of(&"w".repeat(1_000_000), &[]) < 200);
        assert!(bytes_of(&distinct(10_000), &[]) <= MAX_TOOL_BYTES + 200);
        let argument = |n: usize| ArgumentText { name: format!("argument{n}"), description: distinct(100) };
        let arguments: Vec<ArgumentText> = (0..500).map(argument).collect();
        assert!(bytes_of(&distinct(10_000), &arguments) <= MAX_TOOL_BYTES + 200);
    }
}
