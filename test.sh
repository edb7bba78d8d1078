#!/usr/bin/env bash
# All tests, from a clean clone: format, lints, dependencies, unit and integration tests, interop with the official SDKs
# and servers, the official conformance suite, and two minutes of soak. Everything that is not Rust is fetched here,
# pinned, into target/interop and target/conformance; cargo-deny is built into target/tools.
#
# Needs: Rust 1.95, Node.js 20 or later with npm, Python 3.11 or later with venv.
set -euo pipefail
cd "$(dirname "$0")"

say() { printf '\n== %s\n' "$*"; }
need() { command -v "$1" >/dev/null || { echo "error: $1 is needed for the tests: $2" >&2; exit 1; }; }
need cargo "https://rustup.rs"
need node "Node.js 20 or later"
need npm "it comes with Node.js"
need python3 "Python 3.11 or later"

say "peers for the interop and conformance tests"
tests/conformance/setup.sh

say "format"
cargo fmt --all -- --check

say "lints"
cargo clippy --locked --all-targets -- -D warnings

say "dependencies: banned crates, licences, sources; advisories where there is internet"
tests/dependencies.sh

say "tests"
if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --locked
else
    # Without cargo-nextest the same tests run, one area after the other: in one process they would share its limits.
    cargo test --locked --lib --bins --test tidy --test conformance
    for area in $(sed -n 's/^mod \(.*\);$/\1/p' tests/it/main.rs); do
        cargo test --locked --test it -- "$area::"
    done
fi
cargo test --locked --doc

if [ "$(uname)" = Linux ]; then
    say "soak, two minutes"
    cargo test --locked --bench soak -- --seconds 90 --rate 150
fi
say "all tests passed"
