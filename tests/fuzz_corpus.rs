//! What is fuzzed (`fuzz/`) holds for every input of its corpus: each was once of interest.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "it is a crate of its own there")]
mod fuzz;

#[test]
fn every_target_holds_for_its_corpus() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    for (name, target) in fuzz::TARGETS {
        let mut inputs = 0;
        for entry in std::fs::read_dir(root.join("corpus").join(name)).unwrap() {
            let path = entry.unwrap().path();
            eprintln!("{}", path.display());
            target(&std::fs::read(&path).unwrap());
            inputs += 1;
        }
        target(b"");
        assert!(inputs >= 5, "{name} has a corpus");
        assert!(root.join(format!("fuzz_targets/{name}.rs")).exists(), "{name} can be fuzzed");
    }
}
