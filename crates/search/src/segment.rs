//! Segments: the words of one server, with the tools that have them.
//!
//! Owns the postings and their bounds. Does not rank. Invariant: a tool costs at most
//! `MAX_TOOL_BYTES` besides its names, whatever its texts are, and what is kept of it depends on no
//! other tool.

use std::collections::HashMap;

use crate::document::{ServerDocument, ToolDocument};
use crate::nearest::{Spelling, spelling_shape};
use crate::stem::cut_to_stem;
use crate::tokens::for_each_word;
use crate::weights::{SERVER_FIELDS, TOOL_FIELDS, TextField};

/// Memory for the words of one tool.
const MAX_TOOL_BYTES: usize = 5_500;
/// Memory of one word besides its letters: an entry, a prefix, a shape, a posting.
const WORD_OVERHEAD: usize = size_of::<WordEntry>() + 2 * size_of::<u64>() + size_of::<Posting>();
/// Read from a description, or from all descriptions of arguments together.
const MAX_TEXT: usize = 4096;
/// Read from a name and from a title.
// 2025-11-25/server/tools.mdx, Tool Names: "Tool names SHOULD be between 1 and 128 characters in
// length (inclusive)."
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
    /// First letters of each word, which decide nearly all comparisons of a search.
    prefixes: Vec<u64>,
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
    pub(crate) fn build<'a>(
        server: ServerDocument,
        tools: impl IntoIterator<Item = ToolDocument<'a, Id>>,
    ) -> Self {
        let mut words = SegmentBuilder::default();
        let mut server_lengths = [0; SERVER_FIELDS];
        server_lengths[0] = words.add_server_text(0, server.name, MAX_NAME);
        server_lengths[0] += words.add_server_text(0, server.title, MAX_NAME);
        server_lengths[1] = words.add_server_text(1, server.description, MAX_TEXT);
        let mut entries = Vec::new();
        for tool in tools {
            let lengths = words.add_tool(entries.len() as u32, &tool);
            let exposed_name = tool.exposed_name.into();
            let own_name = tool.own_name.into();
            entries.push(ToolEntry {
                id: tool.id,
                exposed_name,
                own_name,
                lengths,
            });
        }
        words.finish(server.name.into(), entries, server_lengths)
    }

    /// Finds a word, whose prefix the caller computes once for all segments.
    pub(crate) fn find(&self, stem: &str, prefix: u64) -> Option<SegmentWord<'_>> {
        // Numbers next to each other in memory, so this touches few cache lines and no text.
        let first = self.prefixes.partition_point(|other| *other < prefix);
        let same = self.prefixes[first..]
            .iter()
            .take_while(|other| **other == prefix)
            .count();
        (first..first + same)
            .map(|at| self.word(at))
            .find(|word| word.text == stem)
    }

    fn word(&self, at: usize) -> SegmentWord<'_> {
        let (text_start, postings_start) =
            match at.checked_sub(1).map(|before| &self.entries[before]) {
                Some(before) => (before.text_end as usize, before.postings_end as usize),
                None => (0, 0),
            };
        let WordEntry {
            text_end,
            postings_end,
            server_counts,
        } = self.entries[at];
        SegmentWord {
            text: &self.text[text_start..text_end as usize],
            postings: &self.postings[postings_start..postings_end as usize],
            server_counts,
        }
    }

    /// Words whose spelling may be near to this one.
    pub(crate) fn similar_words(
        &self,
        spelling: &Spelling,
    ) -> impl Iterator<Item = SegmentWord<'_>> {
        let near = self
            .shapes
            .iter()
            .enumerate()
            .filter(|(_, shape)| spelling.may_be_near(**shape));
        near.map(|(at, _)| self.word(at))
    }
}

/// Word while its segment is built.
#[derive(Clone, Copy, Default)]
struct WordBuilder {
    /// Its last posting, and the number of its postings.
    last: usize,
    postings: u32,
    server_counts: [u8; SERVER_FIELDS],
}

#[derive(Default)]
struct SegmentBuilder {
    numbers: HashMap<String, u32>,
    words: Vec<WordBuilder>,
    /// Postings of all words, in the order of tools.
    postings: Vec<(u32, Posting)>,
    /// Stem at hand: most are known, and need no copy.
    stem: String,
}

impl SegmentBuilder {
    /// Makes `stem` the stem of this word, and returns its number if it is known.
    fn number_of(&mut self, word: &str) -> Option<u32> {
        self.stem.clear();
        self.stem.push_str(word);
        cut_to_stem(&mut self.stem);
        self.numbers.get(&self.stem).copied()
    }

    fn insert_stem(&mut self) -> u32 {
        let number = self.words.len() as u32;
        self.numbers.insert(self.stem.clone(), number);
        self.words.push(WordBuilder::default());
        number
    }

    /// Adds a text of the server, and returns its length in words.
    fn add_server_text(&mut self, field: usize, text: &str, limit: usize) -> u16 {
        let mut length = 0;
        for_each_word(cut(text, limit), |word| {
            length += u16::from(!word.joined);
            let number = self
                .number_of(word.text)
                .unwrap_or_else(|| self.insert_stem());
            let count = &mut self.words[number as usize].server_counts[field];
            *count = count.saturating_add(1);
            true
        });
        length
    }

    /// Adds a tool, and returns the lengths of its fields in words.
    fn add_tool<Id>(&mut self, tool: u32, document: &ToolDocument<Id>) -> [u16; TOOL_FIELDS] {
        let mut text = ToolText {
            words: self,
            tool,
            room: MAX_TOOL_BYTES,
            lengths: [0; TOOL_FIELDS],
        };
        // The order is that of their weight: a tool that exceeds its memory loses the least
        // important words.
        text.add(TextField::OwnName, cut(document.own_name, MAX_NAME));
        text.add(TextField::Description, cut(document.description, MAX_TEXT));
        let arguments = &document.arguments[..document.arguments.len().min(MAX_ARGUMENTS)];
        for argument in arguments {
            text.add(TextField::ArgumentNames, cut(&argument.name, MAX_NAME));
        }
        let mut room = MAX_TEXT;
        for argument in arguments {
            let part = cut(&argument.description, room);
            text.add(TextField::ArgumentTexts, part);
            // One limit for all arguments together: a hundred long descriptions cost no more than
            // one.
            room -= part.len();
        }
        text.lengths
    }

    fn finish<Id>(
        mut self,
        server: Box<str>,
        tools: Vec<ToolEntry<Id>>,
        server_lengths: [u16; SERVER_FIELDS],
    ) -> Segment<Id> {
        let mut stems: Vec<(String, u32)> = self.numbers.into_iter().collect();
        // The order lets a search find a word by bisection.
        stems.sort_unstable();
        let mut text = String::with_capacity(stems.iter().map(|(stem, _)| stem.len()).sum());
        let mut entries = Vec::with_capacity(stems.len());
        let mut next = 0;
        for (stem, number) in &stems {
            text.push_str(stem);
            let word = &mut self.words[*number as usize];
            // From here on, `last` is the position of the next posting.
            word.last = next;
            next += word.postings as usize;
            entries.push(WordEntry {
                text_end: text.len() as u32,
                postings_end: next as u32,
                server_counts: word.server_counts,
            });
        }
        let mut postings = vec![
            Posting {
                tool: 0,
                counts: [0; TOOL_FIELDS]
            };
            next
        ];
        for (number, posting) in self.postings {
            let position = &mut self.words[number as usize].last;
            postings[*position] = posting;
            *position += 1;
        }
        let prefixes = stems.iter().map(|(stem, _)| word_prefix(stem)).collect();
        let shapes = stems.iter().map(|(stem, _)| spelling_shape(stem)).collect();
        Segment {
            server,
            tools,
            server_lengths,
            text,
            entries,
            prefixes,
            shapes,
            postings,
        }
    }
}

/// Words of one tool on their way into a segment.
struct ToolText<'a> {
    words: &'a mut SegmentBuilder,
    tool: u32,
    /// Bytes that its words may still take.
    room: usize,
    lengths: [u16; TOOL_FIELDS],
}

impl ToolText<'_> {
    fn add(&mut self, field: TextField, text: &str) {
        for_each_word(text, |word| {
            let Some(posting) = self.posting_of(word.text) else {
                return false;
            };
            let count = &mut posting.counts[field as usize];
            *count = count.saturating_add(1);
            self.lengths[field as usize] += u16::from(!word.joined);
            true
        });
    }

    /// Posting of a word for this tool, as long as there is room for it.
    fn posting_of(&mut self, word: &str) -> Option<&mut Posting> {
        let number = self.words.number_of(word);
        let known = number
            .map(|number| self.words.words[number as usize])
            .filter(|word| word.postings > 0);
        // Tools come one after the other, so a posting of this tool can only be the word's last.
        if let Some(last) = known.map(|word| word.last)
            && self.words.postings[last].1.tool == self.tool
        {
            return Some(&mut self.words.postings[last].1);
        }
        // Charged in full even if another tool has the word already. Otherwise the bound would
        // depend on that tool.
        self.room = self
            .room
            .checked_sub(self.words.stem.len() + WORD_OVERHEAD)?;
        let number = number.unwrap_or_else(|| self.words.insert_stem());
        let builder = &mut self.words.words[number as usize];
        builder.last = self.words.postings.len();
        builder.postings += 1;
        self.words.postings.push((
            number,
            Posting {
                tool: self.tool,
                counts: [0; TOOL_FIELDS],
            },
        ));
        self.words.postings.last_mut().map(|(_, posting)| posting)
    }
}

/// First eight bytes of a word, as a number in the order of the words.
pub(crate) fn word_prefix(word: &str) -> u64 {
    let mut prefix = [0; 8];
    // Big endian below, so that the numbers compare as the words do.
    prefix
        .iter_mut()
        .zip(word.bytes())
        .for_each(|(to, from)| *to = from);
    u64::from_be_bytes(prefix)
}

/// Beginning of a text, in whole characters.
fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::ArgumentText;

    /// Memory of a server with one tool, besides names.
    fn bytes_of(description: &str, arguments: &[ArgumentText]) -> usize {
        let tool = ToolDocument {
            id: 0,
            exposed_name: "a__tool",
            own_name: "tool",
            description,
            arguments,
        };
        let segment = Segment::build(
            ServerDocument {
                name: "a",
                ..ServerDocument::default()
            },
            [tool],
        );
        let entries = segment.entries.len() * (size_of::<WordEntry>() + 2 * size_of::<u64>());
        segment.text.len() + entries + segment.postings.len() * size_of::<Posting>()
    }

    #[test]
    fn hostile_texts_cost_no_more_than_their_cap() {
        assert!(bytes_of(&"word ".repeat(200_000), &[]) < 200);
        assert!(bytes_of(&"w".repeat(1_000_000), &[]) < 200);
        assert!(bytes_of(&distinct_words(10_000), &[]) <= MAX_TOOL_BYTES + 200);
        let arguments: Vec<ArgumentText> = (0..500)
            .map(|n| ArgumentText {
                name: format!("argument{n}"),
                description: distinct_words(100),
            })
            .collect();
        assert!(bytes_of(&distinct_words(10_000), &arguments) <= MAX_TOOL_BYTES + 200);
    }

    fn distinct_words(count: usize) -> String {
        (0..count)
            .map(|n| format!("w{n:x}ord{n:x}tail"))
            .collect::<Vec<_>>()
            .join(" ")
    }
}
