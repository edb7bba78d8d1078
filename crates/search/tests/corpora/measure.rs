//! Measures of a ranking over a set of queries.

use moongate_search::SearchIndex;

use crate::load::CorpusQuery;

/// Hits that are looked at.
const DEPTH: usize = 20;

/// Queries that count: tune weights on even ones, and see on odd ones whether that carries over.
#[derive(Clone, Copy)]
pub(crate) enum QueryHalf {
    All,
    Even,
    Odd,
}

/// Measures over a set, in percent. The reciprocal rank is a fraction.
#[derive(Clone, Copy, Default)]
pub(crate) struct RankMeasures {
    /// Share of the wanted tools among the first 1, 5 and 10.
    pub(crate) recall: [f64; 3],
    /// Mean of one over the rank of the first wanted tool.
    pub(crate) reciprocal_rank: f64,
    /// Share of queries without a hit.
    pub(crate) unanswered: f64,
}

pub(crate) fn measure(
    index: &SearchIndex<usize>,
    queries: &[CorpusQuery],
    half: QueryHalf,
) -> RankMeasures {
    let mut sum = RankMeasures::default();
    let mut count = 0.0;
    for (n, query) in queries.iter().enumerate() {
        if matches!((half, n % 2), (QueryHalf::Even, 1) | (QueryHalf::Odd, 0)) {
            continue;
        }
        count += 1.0;
        let hits = index.search(&query.text, |_| true, DEPTH);
        let rank_of = |ids: &Vec<usize>| hits.iter().position(|hit| ids.contains(&hit.id));
        let ranks: Vec<usize> = query.wanted.iter().filter_map(rank_of).collect();
        for (recall, depth) in sum.recall.iter_mut().zip([1, 5, 10]) {
            let found = ranks.iter().filter(|rank| **rank < depth).count();
            *recall += 100.0 * found as f64 / query.wanted.len().max(1) as f64;
        }
        sum.reciprocal_rank += ranks
            .iter()
            .min()
            .map_or(0.0, |rank| 1.0 / (rank + 1) as f64);
        sum.unanswered += if hits.is_empty() { 100.0 } else { 0.0 };
    }
    RankMeasures {
        recall: sum.recall.map(|recall| recall / count),
        reciprocal_rank: sum.reciprocal_rank / count,
        unanswered: sum.unanswered / count,
    }
}
