//! Gates of the ranking, on corpora that aren't part of the tree: LiveMCPBench and BFCL.
//!
//! `tests/search/setup.sh` fetches them, pinned. The table is printed: `cargo nextest run -p
//! moongate-search --test corpora --no-capture`. Tune weights on even queries; odd ones show
//! whether that carries over.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod load;
mod measure;

use load::{Corpora, CorpusQuery, index_of};
use measure::{QueryHalf, RankMeasures, measure};
use moongate_search::{FieldWeight, RankingWeights, SearchIndex, TextField};

/// Indexes of one set of weights.
struct CorpusIndexes {
    live_mcp_bench: SearchIndex<usize>,
    bfcl: SearchIndex<usize>,
    both: SearchIndex<usize>,
}

impl CorpusIndexes {
    fn build(corpora: &Corpora, weights: &RankingWeights) -> CorpusIndexes {
        CorpusIndexes {
            live_mcp_bench: index_of(&corpora.live_mcp_bench, weights),
            bfcl: index_of(&corpora.bfcl, weights),
            both: index_of(corpora.live_mcp_bench.iter().chain(&corpora.bfcl), weights),
        }
    }

    /// Measures of each set that has a gate, in the order of `SETS`.
    fn measure(&self, corpora: &Corpora, half: QueryHalf) -> [RankMeasures; 5] {
        let sets: [(&SearchIndex<usize>, &[CorpusQuery]); 5] = [
            (&self.live_mcp_bench, &corpora.steps),
            (&self.live_mcp_bench, &corpora.tasks),
            (&self.bfcl, &corpora.functions),
            (&self.both, &corpora.steps),
            (&self.live_mcp_bench, &corpora.typos),
        ];
        sets.map(|(index, queries)| measure(index, queries, half))
    }
}

/// Sets of queries, each with the least that it must reach: recall at 1, 5 and 10, reciprocal rank.
const SETS: [(&str, [f64; 4]); 5] = [
    ("steps", [52.0, 69.0, 0.0, 0.60]),
    ("tasks", [0.0, 38.0, 44.0, 0.0]),
    ("functions", [65.0, 83.5, 0.0, 0.73]),
    ("steps, both", [0.0, 60.0, 0.0, 0.0]),
    ("typos", [0.0, 94.0, 0.0, 0.0]),
];

fn values(measures: &RankMeasures) -> [f64; 4] {
    let [first, five, ten] = measures.recall;
    [first, five, ten, measures.reciprocal_rank]
}

fn print_row(label: &str, measures: &[RankMeasures]) {
    let cells = measures.iter().map(|measures| {
        let [first, five, ten, rank] = values(measures);
        format!("{first:4.1} {five:4.1} {ten:4.1} {rank:.3}")
    });
    eprintln!("| {label:26} | {} |", cells.collect::<Vec<_>>().join(" | "));
}

#[test]
fn the_ranking_reaches_its_gates() {
    let corpora = Corpora::load();
    let names = SETS.map(|(name, _)| format!("{name:20}"));
    eprintln!("| R@1 R@5 R@10 MRR            | {} |", names.join(" | "));
    let indexes = CorpusIndexes::build(&corpora, &RankingWeights::default());
    let reached = indexes.measure(&corpora, QueryHalf::All);
    print_row("all queries", &reached);
    print_row("even queries", &indexes.measure(&corpora, QueryHalf::Even));
    print_row("odd queries", &indexes.measure(&corpora, QueryHalf::Odd));
    let mut failed = Vec::new();
    for ((name, gates), measures) in SETS.iter().zip(&reached) {
        let is_below = gates
            .iter()
            .zip(values(measures))
            .any(|(gate, value)| value < *gate);
        if is_below {
            failed.push(format!("{name}: {:?} is below {gates:?}", values(measures)));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Rows of the table that show what each part is worth. No gates: a part may help people more than
/// these corpora.
#[test]
fn each_part_of_the_ranking_can_be_switched_off() {
    let corpora = Corpora::load();
    let with = RankingWeights::default;
    let mut rows: Vec<(String, RankingWeights)> = TextField::ALL
        .map(|field| (format!("without {field:?}"), with().without(field)))
        .into();
    rows.push((
        "without synonyms".to_owned(),
        RankingWeights {
            synonym: 0.0,
            ..with()
        },
    ));
    rows.push((
        "without nearest words".to_owned(),
        RankingWeights {
            nearest: 0.0,
            ..with()
        },
    ));
    rows.push(("plain BM25".to_owned(), plain_bm25()));
    for (label, weights) in rows {
        print_row(
            &label,
            &CorpusIndexes::build(&corpora, &weights).measure(&corpora, QueryHalf::All),
        );
    }
}

/// BM25 with its usual numbers, over names and descriptions alone.
fn plain_bm25() -> RankingWeights {
    let field = |weight| FieldWeight {
        weight,
        length_penalty: 0.75,
    };
    RankingWeights {
        fields: [1.0, 1.0, 0.0, 0.0, 0.0, 0.0].map(field),
        saturation: 1.2,
        synonym: 0.0,
        nearest: 0.0,
        floor: 0.0,
    }
}

/// Requests for which BFCL offers no function that fits. Other servers' tools may fit a few of them
/// after all.
#[test]
fn requests_that_nothing_fits_find_nothing_more_often() {
    let corpora = Corpora::load();
    let indexes = CorpusIndexes::build(&corpora, &RankingWeights::default());
    let unanswered =
        |index, queries: &[CorpusQuery]| measure(index, queries, QueryHalf::All).unanswered;
    let answerable = [
        unanswered(&indexes.live_mcp_bench, &corpora.steps),
        unanswered(&indexes.live_mcp_bench, &corpora.tasks),
        unanswered(&indexes.bfcl, &corpora.functions),
    ];
    let elsewhere = unanswered(&indexes.live_mcp_bench, &corpora.irrelevant);
    eprintln!(
        "unanswered: {answerable:.1?} of steps, tasks, functions; {elsewhere:.1} of irrelevant \
         requests"
    );
    assert!(
        answerable.iter().all(|share| *share <= 2.5),
        "{answerable:?} is too much"
    );
    assert!(elsewhere >= 10.0, "{elsewhere} is too little");
}
