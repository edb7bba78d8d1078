//! Index of tools: one segment a server, shared between copies.
//!
//! Owns the order of hits. Does not know who asks: the filter does. Invariant: replacing a server
//! touches no other.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::document::{ServerDocument, ToolDocument};
use crate::query::{QueryWord, query_words};
use crate::ranking::{ToolScore, VisibleTools};
use crate::segment::{Segment, ToolEntry};
use crate::weights::RankingWeights;

/// Searchable tools of all servers. A copy shares their words.
#[derive(Clone)]
pub struct SearchIndex<Id> {
    /// By name of the server.
    segments: Vec<Arc<Segment<Id>>>,
    weights: RankingWeights,
}

/// Tool that fits a query.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchHit<Id> {
    /// Key of the tool.
    pub id: Id,
    /// Share of the best possible score, at most 1. A name has 1.
    pub score: f32,
    /// Words of the query that the tool has, or a synonym of them, or a word with a similar
    /// spelling.
    pub matched_words: Vec<String>,
}

impl<Id> Default for SearchIndex<Id> {
    fn default() -> Self {
        SearchIndex::with_weights(RankingWeights::default())
    }
}

impl<Id> SearchIndex<Id> {
    /// Creates an empty index with other weights, to see what they are worth.
    pub fn with_weights(weights: RankingWeights) -> Self {
        SearchIndex {
            segments: Vec::new(),
            weights,
        }
    }

    /// Inserts a server's tools, and replaces those that it had.
    pub fn replace_server<'a>(
        &mut self,
        server: ServerDocument,
        tools: impl IntoIterator<Item = ToolDocument<'a, Id>>,
    ) {
        let segment = Arc::new(Segment::build(server, tools));
        match self.position(server.name) {
            Ok(at) => self.segments[at] = segment,
            Err(at) => self.segments.insert(at, segment),
        }
    }

    /// Removes a server with its tools.
    pub fn remove_server(&mut self, name: &str) {
        if let Ok(at) = self.position(name) {
            self.segments.remove(at);
        }
    }

    fn position(&self, server: &str) -> Result<usize, usize> {
        self.segments
            .binary_search_by(|segment| (*segment.server).cmp(server))
    }
}

impl<Id: Clone> SearchIndex<Id> {
    /// Finds the tools that fit a query best, among those that the filter lets through.
    ///
    /// Exposed names come first, then names at servers, then the ranking. Ties go by exposed name.
    /// Nothing comes if nothing fits.
    pub fn search(
        &self,
        query: &str,
        filter: impl Fn(&Id) -> bool,
        limit: usize,
    ) -> Vec<SearchHit<Id>> {
        // The filter runs before any statistics. Otherwise a score would reveal how often hidden
        // tools have a word.
        let visible = VisibleTools::new(
            self.segments.iter().map(|segment| &**segment),
            &self.weights,
            filter,
        );
        let words = query_words(query);
        let scores = visible.scores(&words);
        let name = query.trim();
        let mut found: Vec<RankedTool<Id>> = visible
            .tools()
            .map(|(slot, tool)| RankedTool {
                name: NameMatch::of(name, tool),
                score: scores.tools[slot],
                tool,
            })
            .filter(|ranked| ranked.name != NameMatch::None || ranked.score.matched != 0)
            .collect();
        if found.len() > limit && limit > 0 {
            // Of 10,000 tools a caller needs five: only those are worth sorting. Exposed names are
            // unique, so no tie is left to chance.
            found.select_nth_unstable_by(limit - 1, RankedTool::order);
        }
        found.truncate(limit);
        found.sort_unstable_by(RankedTool::order);
        // One floor for all: a first hit that fits may have weaker ones next to it, which a task
        // needs, too.
        let floor = self.weights.floor * scores.possible;
        if found
            .first()
            .is_some_and(|first| first.name == NameMatch::None && first.score.score < floor)
        {
            found.clear();
        }
        found
            .iter()
            .map(|ranked| ranked.hit(&words, scores.possible))
            .collect()
    }
}

/// Tool among others of its query.
struct RankedTool<'a, Id> {
    name: NameMatch,
    score: ToolScore,
    tool: &'a ToolEntry<Id>,
}

impl<Id: Clone> RankedTool<'_, Id> {
    fn order(&self, other: &Self) -> Ordering {
        self.name
            .cmp(&other.name)
            .then_with(|| other.score.score.total_cmp(&self.score.score))
            .then_with(|| self.tool.exposed_name.cmp(&other.tool.exposed_name))
    }

    fn hit(&self, words: &[QueryWord], possible: f32) -> SearchHit<Id> {
        let is_name = self.name != NameMatch::None;
        let matched = words
            .iter()
            .enumerate()
            .filter(|(bit, _)| self.score.matched & 1 << bit != 0);
        SearchHit {
            id: self.tool.id.clone(),
            score: if is_name {
                1.0
            } else {
                (self.score.score / possible).min(1.0)
            },
            matched_words: matched.map(|(_, word)| word.text.clone()).collect(),
        }
    }
}

/// Name of a tool that a query is, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NameMatch {
    Exposed,
    Own,
    None,
}

impl NameMatch {
    fn of<Id>(query: &str, tool: &ToolEntry<Id>) -> NameMatch {
        if query.eq_ignore_ascii_case(&tool.exposed_name) {
            NameMatch::Exposed
        } else if query.eq_ignore_ascii_case(&tool.own_name) {
            NameMatch::Own
        } else {
            NameMatch::None
        }
    }
}

#[cfg(test)]
mod tests;
