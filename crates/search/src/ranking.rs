//! Ranking: BM25F over the tools that the caller may see.
//!
//! Owns scores. Does not know names. Invariant: frequencies and averages count visible tools only,
//! so a score says nothing about the others.

use std::array;

use crate::nearest::Spelling;
use crate::query::QueryWord;
use crate::segment::{Segment, SegmentWord, ToolEntry, word_prefix};
use crate::synonyms::synonyms;
use crate::weights::{FieldWeight, RankingWeights, SERVER_FIELDS, TOOL_FIELDS, TextField};

/// Words with a similar spelling that stand in for one that was found nowhere.
const NEAREST_WORDS: usize = 3;
/// Rarest words of a query that the best possible score counts: long requests say much that no tool
/// says.
const TELLING_WORDS: usize = 3;
/// Words of a query that are compared by spelling.
const MAX_RESPELLED: usize = 8;
/// Shortest word that is compared by spelling.
const MIN_RESPELLED: usize = 4;
/// Words of one server that are compared with one word of the query.
const MAX_COMPARED: usize = 4096;

/// Tools that the caller may see, with their statistics.
pub(crate) struct VisibleTools<'a, Id> {
    segments: Vec<VisibleSegment<'a, Id>>,
    weights: &'a RankingWeights,
    /// Visible tools.
    total: usize,
    /// Visible and hidden tools.
    slots: usize,
}

struct VisibleSegment<'a, Id> {
    segment: &'a Segment<Id>,
    is_visible: Vec<bool>,
    count: usize,
    /// Slot of its first tool.
    base: usize,
    /// Worth of a word in each field.
    tool_worth: Vec<[f32; TOOL_FIELDS]>,
    server_worth: [f32; SERVER_FIELDS],
}

/// Scores of one query.
pub(crate) struct QueryScores {
    /// Scores by slot.
    pub(crate) tools: Vec<ToolScore>,
    /// Score of a tool that has the rarest words of the query in full.
    pub(crate) possible: f32,
}

/// Score of one tool.
#[derive(Clone, Copy, Default)]
pub(crate) struct ToolScore {
    pub(crate) score: f32,
    /// Words of the query that it has, one bit each.
    pub(crate) matched: u64,
}

/// Occurrences of a word among visible tools.
struct VisibleWord<'a> {
    parts: Vec<(usize, SegmentWord<'a>)>,
    tools: usize,
}

impl<'a, Id> VisibleTools<'a, Id> {
    pub(crate) fn new(
        segments: impl Iterator<Item = &'a Segment<Id>>,
        weights: &'a RankingWeights,
        filter: impl Fn(&Id) -> bool,
    ) -> Self {
        let mut all = VisibleTools {
            segments: Vec::new(),
            weights,
            total: 0,
            slots: 0,
        };
        let mut sums = [0_u64; TOOL_FIELDS + SERVER_FIELDS];
        for segment in segments {
            let is_visible: Vec<bool> = segment.tools.iter().map(|tool| filter(&tool.id)).collect();
            let visible = segment
                .tools
                .iter()
                .zip(&is_visible)
                .filter(|(_, is_visible)| **is_visible);
            let mut count = 0;
            for (tool, _) in visible {
                count += 1;
                let lengths = tool.lengths.iter().chain(&segment.server_lengths);
                sums.iter_mut()
                    .zip(lengths)
                    .for_each(|(sum, length)| *sum += u64::from(*length));
            }
            if count > 0 {
                let tool_worth = Vec::new();
                let server_worth = [0.0; SERVER_FIELDS];
                let base = all.slots;
                all.segments.push(VisibleSegment {
                    segment,
                    is_visible,
                    count,
                    base,
                    tool_worth,
                    server_worth,
                });
                all.slots += segment.tools.len();
                all.total += count;
            }
        }
        // At least 1, since an empty field would divide by zero and turn scores into NaN.
        let averages = sums.map(|sum| (sum as f32 / all.total.max(1) as f32).max(1.0));
        all.segments
            .iter_mut()
            .for_each(|part| part.set_worth(&weights.fields, &averages));
        all
    }

    /// Visible tools with their slots.
    pub(crate) fn tools(&self) -> impl Iterator<Item = (usize, &'a ToolEntry<Id>)> {
        self.segments.iter().flat_map(|part| {
            let tools = part.segment.tools.iter().zip(&part.is_visible).enumerate();
            tools
                .filter(|(_, (_, is_visible))| **is_visible)
                .map(|(at, (tool, _))| (part.base + at, tool))
        })
    }

    /// Scores all visible tools.
    pub(crate) fn scores(&self, words: &[QueryWord]) -> QueryScores {
        let mut scores = vec![ToolScore::default(); self.slots];
        let mut best = vec![0.0_f32; self.slots];
        let mut rarities = Vec::with_capacity(words.len());
        let mut respelled = 0;
        for (bit, word) in words.iter().enumerate() {
            // `best` keeps the highest worth of a word and its stand-ins. A sum would reward tools
            // that list synonyms.
            let found = self.find(&word.stem);
            let mut rarity = self.rarity(found.tools);
            let mut is_found = found.tools > 0;
            if is_found {
                self.raise(&found, 1.0, &mut best);
            } else if word.joined {
                continue;
            }
            for synonym in synonyms(&word.stem) {
                let found = self.find(synonym);
                // A word that no tool has would be infinitely rare. Its synonym's rarity is the
                // fair measure.
                if !is_found {
                    rarity = self.rarity(found.tools);
                }
                is_found |= found.tools > 0;
                self.raise(&found, self.weights.synonym, &mut best);
            }
            rarities.push(rarity);
            // Spellings are the expensive part, so only a few words that were found nowhere get
            // there.
            if !is_found && word.stem.chars().count() >= MIN_RESPELLED && respelled < MAX_RESPELLED
            {
                respelled += 1;
                for (near, similarity) in self.nearest(&word.stem) {
                    self.raise(&near, self.weights.nearest * similarity, &mut best);
                }
            }
            for (tool, best) in scores.iter_mut().zip(&mut best) {
                tool.score += *best;
                tool.matched |= u64::from(*best > 0.0) << bit;
                *best = 0.0;
            }
        }
        rarities.sort_unstable_by(|a, b| b.total_cmp(a));
        QueryScores {
            tools: scores,
            possible: rarities.iter().take(TELLING_WORDS).sum(),
        }
    }

    fn find(&self, stem: &str) -> VisibleWord<'a> {
        let mut found = VisibleWord {
            parts: Vec::new(),
            tools: 0,
        };
        let prefix = word_prefix(stem);
        for (n, part) in self.segments.iter().enumerate() {
            let Some(word) = part.segment.find(stem, prefix) else {
                continue;
            };
            let tools = part.tools_with(&word);
            if tools > 0 {
                found.parts.push((n, word));
                found.tools += tools;
            }
        }
        found
    }

    /// Inverse document frequency.
    fn rarity(&self, tools: usize) -> f32 {
        (1.0 + (self.total as f32 - tools as f32 + 0.5) / (tools as f32 + 0.5)).ln()
    }

    /// Raises `best` to what this word is worth to each tool. What it says of hidden ones is never
    /// read.
    fn raise(&self, word: &VisibleWord, factor: f32, best: &mut [f32]) {
        let worth = factor * self.rarity(word.tools);
        for (n, word) in &word.parts {
            let part = &self.segments[*n];
            let slots = &mut best[part.base..part.base + part.segment.tools.len()];
            let server_count = weigh(&part.server_worth, &word.server_counts);
            if server_count > 0.0 {
                slots
                    .iter_mut()
                    .for_each(|best| self.raise_score(best, worth, server_count));
            }
            for posting in word.postings {
                let at = posting.tool as usize;
                let count = server_count + weigh(&part.tool_worth[at], &posting.counts);
                self.raise_score(&mut slots[at], worth, count);
            }
        }
    }

    /// Raises one score to what a word is worth with this count.
    fn raise_score(&self, best: &mut f32, worth: f32, count: f32) {
        *best = best.max(worth * count / (self.weights.saturation + count));
    }

    /// Words with the most similar spelling.
    fn nearest(&self, stem: &str) -> Vec<(VisibleWord<'a>, f32)> {
        let spelling = Spelling::new(stem);
        let mut buffer = Vec::new();
        let mut near: Vec<(f32, &str)> = Vec::new();
        for part in &self.segments {
            let visible = part
                .segment
                .similar_words(&spelling)
                .filter(|word| part.tools_with(word) > 0);
            for word in visible.take(MAX_COMPARED) {
                near.extend(
                    spelling
                        .similarity(word.text, &mut buffer)
                        .map(|similarity| (similarity, word.text)),
                );
            }
        }
        // Ties go by the word itself: the order of servers must not decide an answer.
        near.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        near.dedup();
        near.truncate(NEAREST_WORDS);
        near.into_iter()
            .map(|(similarity, word)| (self.find(word), similarity))
            .collect()
    }
}

/// Count of a word over some fields, by the worth of each.
fn weigh<const N: usize>(worth: &[f32; N], counts: &[u8; N]) -> f32 {
    worth
        .iter()
        .zip(counts)
        .map(|(worth, count)| worth * f32::from(*count))
        .sum()
}

/// Worth of one word in a field: less in a text longer than the average.
fn field_worth(field: &FieldWeight, length: u16, average: f32) -> f32 {
    field.weight / (1.0 - field.length_penalty + field.length_penalty * f32::from(length) / average)
}

impl<Id> VisibleSegment<'_, Id> {
    fn set_worth(&mut self, fields: &[FieldWeight; 6], averages: &[f32; 6]) {
        let tools = self.segment.tools.iter();
        self.tool_worth = tools
            .map(|tool| array::from_fn(|n| field_worth(&fields[n], tool.lengths[n], averages[n])))
            .collect();
        self.server_worth = array::from_fn(|n| {
            let field = TOOL_FIELDS + n;
            field_worth(
                &fields[field],
                self.segment.server_lengths[n],
                averages[field],
            )
        });
    }

    /// Number of visible tools that a word counts for.
    fn tools_with(&self, word: &SegmentWord) -> usize {
        if word.server_counts.iter().any(|count| *count > 0) {
            self.count
        } else if self.count == self.segment.tools.len() {
            // All tools of the server are visible, so no posting needs a check.
            word.postings.len()
        } else {
            word.postings
                .iter()
                .filter(|posting| self.is_visible[posting.tool as usize])
                .count()
        }
    }
}

const _: () = assert!(TextField::ServerName as usize == TOOL_FIELDS);
