//! The count of instructions (`benches/instructions`): what it reads in callgrind's dumps, and when
//! it says no.
//!
//! The dumps are real, but for their paths. A program of a few lines told callgrind to begin at
//! zero, allocated twice with `malloc` or its like, twice with `realloc`, once with `calloc` and
//! once for an alignment of 64 bytes, and told callgrind to dump. It was built with each allocator.

#[path = "../../benches/instructions/callgrind.rs"]
mod callgrind;
#[path = "../../benches/instructions/table.rs"]
mod table;

use callgrind::CostProfile;
use table::{CallCosts, HEAD, RowChanges, RowRatio, line, ratios};

const GLIBC: &str = include_str!("instructions/glibc.callgrind");
const JEMALLOC: &str = include_str!("instructions/jemalloc.callgrind");
const MIMALLOC: &str = include_str!("instructions/mimalloc.callgrind");

#[test]
fn each_allocation_counts_once_with_any_allocator() {
    for (dump, instructions) in [(GLIBC, 2086), (JEMALLOC, 1695), (MIMALLOC, 912)] {
        let profile = CostProfile::parse(dump).unwrap();
        assert_eq!(profile.allocations, 6, "{instructions} instructions");
        assert_eq!(profile.instructions, instructions);
        assert!(profile.named_share() > 0.99);
    }
}

#[test]
fn functions_have_their_own_costs_with_what_was_inlined_and_without_what_they_call() {
    let profile = CostProfile::parse(GLIBC).unwrap();
    // Twelve of its instructions are inlined from another file.
    assert_eq!(profile.functions["free"], 96);
    assert_eq!(profile.functions["six::main"], 13);
    let dearest = CallCosts {
        profile,
        calls: 1,
        sse: false,
    }
    .dearest();
    let names: Vec<&str> = dearest
        .lines()
        .filter_map(|line| line.split("  ").last())
        .collect();
    assert_eq!(names[..3], ["_int_malloc", "_int_free", "realloc"]);
    assert_eq!(names.len(), 10);
}

#[test]
fn a_dump_that_lacks_something_is_an_error() {
    let cut = GLIBC.split_once("totals:").unwrap().0;
    assert!(
        CostProfile::parse(cut)
            .unwrap_err()
            .to_string()
            .contains("totals")
    );
    let lacks_a_function = GLIBC.replacen("fn=free\n3350 8\n", "fn=free\n", 1);
    let error = CostProfile::parse(&lacks_a_function)
        .unwrap_err()
        .to_string();
    assert_eq!(error, "functions have 2078 of 2086 instructions");
}

#[test]
fn a_binary_without_symbols_shows() {
    let stripped =
        "ob=/bin/moongate\nfl=???\nfn=0x00000000004aad60\n0 900\nfn=malloc\n0 100\ntotals: 1000\n";
    assert!(CostProfile::parse(stripped).unwrap().named_share() < 0.2);
}

fn costs(instructions: u64) -> CallCosts {
    let profile = CostProfile {
        instructions,
        allocations: 42_000,
        ..CostProfile::default()
    };
    CallCosts {
        profile,
        calls: 1000,
        sse: false,
    }
}

#[test]
fn the_table_is_read_as_it_was_written() {
    let label = "legacy → legacy, 64 B JSON";
    let row = line(label, &costs(73_600_000), &costs(50_200_000)).unwrap();
    assert_eq!(
        row,
        format!("| {label} | 73600 | 1.466 | 42.0 | 50200 | 42.0 | JSON |\n")
    );
    let table = format!("Counted today.\n\n{HEAD}{row}\nMore text.\n");
    assert_eq!(
        ratios(&table).unwrap(),
        [RowRatio {
            label: label.to_owned(),
            ratio: 1.466
        }]
    );
}

#[test]
fn only_a_row_that_grew_by_more_than_three_percent_is_a_problem() {
    let row = |label: &str, ratio| RowRatio {
        label: label.to_owned(),
        ratio,
    };
    let before = [row("a", 1.5), row("b", 2.0)];
    let changes = |run: &[RowRatio]| RowChanges::between(&before, run);
    assert_eq!(
        changes(&[row("a", 1.544), row("b", 1.945)]),
        RowChanges::default()
    );
    assert_eq!(changes(&[row("b", 2.0)]), RowChanges::default());
    let changed = changes(&[row("a", 1.546), row("b", 1.9)]);
    assert_eq!(
        changed.problems,
        ["a: 1.546 times the ceiling, 1.500 in the table: +3.1 %"]
    );
    assert_eq!(
        changed.improvements,
        ["b: 1.900 times the ceiling, 2.000 in the table: -5.0 %"]
    );
    assert_eq!(
        changes(&[row("c", 1.0)]).problems,
        ["c: it isn't in the table"]
    );
}
