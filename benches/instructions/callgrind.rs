//! What a dump of callgrind says: instructions of each function, and how often the allocator was
//! called.
//!
//! Reads text alone. Invariant: the costs of the functions add up to the total that callgrind wrote
//! itself.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;

/// Costs between two points of a process's life.
#[derive(Debug, Default)]
pub(crate) struct CostProfile {
    /// Instructions in user space.
    pub(crate) instructions: u64,
    /// Calls of the allocator that give memory out, reallocations included.
    pub(crate) allocations: u64,
    /// Instructions of each function itself, without those that it calls.
    pub(crate) functions: BTreeMap<String, u64>,
}

impl CostProfile {
    /// Reads a dump that was written with `--compress-strings=no --compress-pos=no`.
    pub(crate) fn parse(dump: &str) -> Result<Self> {
        let mut profile = Self::default();
        let mut function = "";
        let mut callee = "";
        let mut total = None;
        let mut lines = dump.lines();
        while let Some(line) = lines.next() {
            if let Some(name) = line.strip_prefix("fn=") {
                function = name;
            } else if let Some(name) = line.strip_prefix("cfn=") {
                callee = name;
            } else if let Some(call) = line.strip_prefix("calls=") {
                // The next line is the cost of the callee, which has lines of its own where it is
                // the function.
                lines.next();
                if gives_memory(callee) && !is_allocator(function) {
                    profile.allocations += first_number(call)?;
                }
            } else if let Some(sum) = line.strip_prefix("totals:") {
                total = Some(first_number(sum)?);
            } else if line.starts_with(|start: char| start.is_ascii_digit()) {
                let (_, cost) = line
                    .split_once(' ')
                    .with_context(|| format!("a line without a cost: {line:?}"))?;
                *profile.functions.entry(function.to_owned()).or_default() += first_number(cost)?;
            }
        }
        profile.instructions = profile.functions.values().sum();
        let total = total.context("a dump without totals")?;
        ensure!(
            profile.instructions == total,
            "functions have {} of {total} instructions",
            profile.instructions
        );
        Ok(profile)
    }

    /// The share of the instructions whose functions have names: next to all of them, unless
    /// symbols were stripped.
    pub(crate) fn named_share(&self) -> f64 {
        let named = |name: &str| !name.starts_with("0x") && !name.starts_with("???");
        let known: u64 = self
            .functions
            .iter()
            .filter(|(name, _)| named(name))
            .map(|(_, cost)| cost)
            .sum();
        known as f64 / self.instructions.max(1) as f64
    }
}

fn first_number(text: &str) -> Result<u64> {
    let word = text.split_whitespace().next().unwrap_or_default();
    word.parse()
        .with_context(|| format!("not a number: {word:?}"))
}

/// Functions that any allocator has under these names, those with a prefix among them.
const GIVING: [&str; 11] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "aligned_alloc",
    "posix_memalign",
    "memalign",
    "valloc",
    "pvalloc",
    "mallocx",
    "rallocx",
];

/// A function that callers get memory from: of glibc, of musl, of jemalloc (`_rjem_` is what the
/// Rust crate puts before its names), or of mimalloc (`mi_malloc`, `mi_zalloc_aligned`,
/// `mi_heap_realloc` and many more).
fn gives_memory(name: &str) -> bool {
    let plain = ["_rjem_", "__libc_", "__GI___libc_", "__GI_"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix));
    GIVING.contains(&plain.unwrap_or(name)) || name.starts_with("mi_") && name.contains("alloc")
}

/// A function of the allocator, whose own calls of `malloc` are a part of an allocation that was
/// counted already.
fn is_allocator(name: &str) -> bool {
    gives_memory(name)
        || ["_rjem_", "mi_", "_mi_", "_mid_memalign"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
}
