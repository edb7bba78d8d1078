//! Milliseconds to build the index and to search it, on the corpora of `tests/search/setup.sh`.
//!
//! Prints percentiles at 2,255 tools, and at 10,000: the same tools on more servers.

#![allow(clippy::unwrap_used)] // a bench that cannot go on has failed
#![allow(clippy::disallowed_methods)] // real time is what it measures
#![allow(clippy::print_stdout)]

#[allow(dead_code)] // some parts are only for gates
#[path = "../tests/corpora/load.rs"]
mod load;

use std::time::Instant;

use load::{Corpora, CorpusServer, index_of};
use moongate_search::{RankingWeights, SearchIndex};

fn milliseconds<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let done = work();
    (start.elapsed().as_secs_f64() * 1000.0, done)
}

fn report(label: &str, index: &SearchIndex<usize>, queries: &[&str]) {
    // Every third tool is hidden: rules cost something. The best of five runs leaves out what else
    // the machine does.
    let once = |query: &str| milliseconds(|| index.search(query, |id| id % 3 != 0, 5)).0;
    let search = |query: &&str| (0..5).map(|_| once(query)).fold(f64::MAX, f64::min);
    let mut times: Vec<f64> = queries.iter().map(search).collect();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "{label}: p50 {:.2} ms, p99 {:.2} ms, most {:.2} ms",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

fn main() {
    let corpora = Corpora::load();
    let weights = RankingWeights::default();
    let tools = |servers: &[CorpusServer]| {
        servers
            .iter()
            .map(|server| server.tools.len())
            .sum::<usize>()
    };
    let count = tools(&corpora.live_mcp_bench) + tools(&corpora.bfcl);
    let all = || corpora.live_mcp_bench.iter().chain(&corpora.bfcl);
    index_of(all(), &weights);
    let (build, index) = milliseconds(|| index_of(all(), &weights));
    println!("build, {count} tools: {build:.1} ms");
    let queries: Vec<&str> = corpora
        .steps
        .iter()
        .chain(&corpora.functions)
        .map(|query| &*query.text)
        .collect();
    let misspelled: Vec<&str> = corpora.typos.iter().map(|query| &*query.text).collect();
    report(&format!("{count} tools"), &index, &queries);
    report(
        &format!("{count} tools, names with typos"),
        &index,
        &misspelled,
    );

    let mut servers: Vec<CorpusServer> = Vec::new();
    for round in 0.. {
        let missing = 10_000 - tools(&servers);
        if missing == 0 {
            break;
        }
        let again = Corpora::load();
        let mut left = missing;
        servers.extend(
            again
                .live_mcp_bench
                .into_iter()
                .chain(again.bfcl)
                .map(|mut server| {
                    server.name += &round.to_string();
                    server.tools.truncate(left);
                    left -= server.tools.len();
                    server
                }),
        );
    }
    let (build, index) = milliseconds(|| index_of(&servers, &weights));
    println!("build, {} tools: {build:.1} ms", tools(&servers));
    report("10000 tools", &index, &queries);
    report("10000 tools, names with typos", &index, &misspelled);
}
