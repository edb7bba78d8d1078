//! What is fuzzed (`fuzz/`) holds for every input of its corpus, each of which was once of
//! interest, and for some that chance makes of them.
//!
//! `FUZZ_SECONDS=60` makes new ones for so long for each target, and `FUZZ_SEED` others than usual.
//! That finds less than `cargo fuzz`, which follows the branches of the code, and needs nothing
//! installed.

#[path = "../../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "it is a crate of its own there")]
mod fuzz;

use std::path::Path;
use std::time::Duration;

use crate::sim::rng::Rng;

/// Inputs that are made for each target, unless there is a time for it.
const MADE: u64 = 200;
/// The longest input.
const LONGEST: usize = 4096;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(name);
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

#[test]
fn every_target_holds_for_its_corpus() {
    for (name, target) in fuzz::TARGETS {
        let inputs = corpus(name);
        assert!(inputs.len() >= 5, "{name} has a corpus");
        for input in inputs {
            told(name, target, &input);
        }
        told(name, target, b"");
        let file = format!("fuzz/fuzz_targets/{name}.rs");
        assert!(
            Path::new(env!("CARGO_MANIFEST_DIR")).join(file).exists(),
            "{name} can be fuzzed"
        );
    }
}

/// Says which input it was that ended in a panic.
fn told(name: &str, target: fuzz::Target, input: &[u8]) {
    struct CorpusInput<'a>(&'a str, &'a [u8]);
    impl Drop for CorpusInput<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("the input of {} was b\"{}\"", self.0, self.1.escape_ascii());
            }
        }
    }
    let _told = CorpusInput(name, input);
    target(input);
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is no number"))
    })
}

#[test]
fn every_target_holds_for_random_mutations_of_its_corpus() {
    let mut rng = Rng::new(number("FUZZ_SEED").unwrap_or_default());
    for (name, target) in fuzz::TARGETS {
        let inputs = corpus(name);
        let began = tokio::time::Instant::now();
        let mut made = 0;
        let goes_on = |made: u64| match number("FUZZ_SECONDS") {
            Some(seconds) => began.elapsed() < Duration::from_secs(seconds),
            None => made < MADE,
        };
        while goes_on(made) {
            told(name, target, &changed(&inputs, &mut rng));
            made += 1;
        }
        eprintln!("{name}: {made} inputs");
    }
}

/// One of the inputs, with some of its bytes changed, moved, doubled, gone, or of another.
fn changed(inputs: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let below = |rng: &mut Rng, n: usize| usize::try_from(rng.below(n.max(1) as u64)).unwrap();
    let mut input = inputs[below(rng, inputs.len())].clone();
    for _ in 0..1 + rng.below(6) {
        let at = below(rng, input.len() + 1).min(input.len());
        let end = (at + below(rng, 16)).min(input.len());
        match rng.below(7) {
            0 => drop(input.drain(at..end)),
            1 => input.insert(at, u8::try_from(rng.below(256)).unwrap()),
            2 if at < input.len() => input[at] ^= 1 << rng.below(8),
            3 => {
                let piece = input[at..end].to_vec();
                let to = below(rng, input.len());
                input.splice(to..to, piece);
            }
            4 => {
                let other = &inputs[below(rng, inputs.len())];
                let from = below(rng, other.len());
                let piece = other[from..(from + below(rng, 64)).min(other.len())].to_vec();
                input.splice(at..end, piece);
            }
            5 => {
                let odd: [&[u8]; 12] = [
                    b"\"",
                    b"\\",
                    b"\n",
                    b"\r\n",
                    b"\xef\xbb\xbf",
                    b"\xff",
                    b"\0",
                    b"{",
                    b"}",
                    b",",
                    b"null",
                    b"\\u0000",
                ];
                input.splice(at..at, odd[below(rng, odd.len())].to_vec());
            }
            _ => {
                let piece = input[at..end].to_vec();
                for _ in 0..rng.below(40) {
                    input.splice(at..at, piece.clone());
                }
            }
        }
    }
    input.truncate(LONGEST);
    input
}
