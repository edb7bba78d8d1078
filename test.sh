#!/usr/bin/env bash
# All tests, from a clean clone: format, lints, dependencies, unit and integration tests, interop with the official SDKs
# and servers, the official conformance suite, the gates of the ranking, and two minutes of soak. Everything that is not
# Rust is fetched here, pinned, into target/interop, target/conformance, target/login, target/search, target/page and
# target/packages, apart from Chromium, zsh, fish and the tools that try a .deb, which come from Debian; cargo-deny is
# built into target/tools. The type check for macOS and Windows is skipped where its tools are missing
# (`tests/platforms.sh`).
#
# `./test.sh quick` is for the minutes between two changes: format, lints, and the tests that need nothing but Rust,
# without the matrices of faults, revisions and masks (the profile `quick` in .config/nextest.toml). It fetches nothing.
#
# Needs: Rust 1.95, and without `quick` also Node.js 20 or later with npm, and Python 3.11 or later with venv.
set -euo pipefail
cd "$(dirname "$0")"

case "$*" in
    "") quick= ;;
    quick) quick=yes ;;
    *)
        echo "error: ./test.sh does not know \"$*\": run it without an argument for all tests, or as ./test.sh quick" >&2
        exit 2
        ;;
esac

say() { printf '\n== %s\n' "$*"; }
need() { command -v "$1" >/dev/null || { echo "error: $1 is needed for the tests: $2" >&2; exit 1; }; }
need cargo "https://rustup.rs"

check_format_and_lints() {
    say "format"
    cargo fmt --all -- --check

    say "lints"
    cargo clippy --locked --all-targets -- -D warnings
}

# Without cargo-nextest the same tests run, one area after the other: in one process they would share its limits.
run_areas() {
    for area in $(sed -n 's/^mod \(.*\);$/\1/p' tests/it/main.rs); do
        cargo test --locked --package moongate --test it -- "$area::" "$@"
    done
}

if [ "$quick" ]; then
    check_format_and_lints
    say "tests that need nothing but Rust, without the matrices"
    if cargo nextest --version >/dev/null 2>&1; then
        SIM_SEEDS=${SIM_SEEDS:-200} cargo nextest run --locked --profile quick
    else
        cargo test --locked --lib --bins --test tidy
        SIM_SEEDS=${SIM_SEEDS:-200} run_areas --skip interop:: --skip login::oidc_provider:: --skip login::on_the_page:: --skip faults:: --skip pairs:: --skip masks:: --skip pasted_texts:: --skip search::tokens:: --skip page::the_page_works --skip page::the_scripts_of --skip page::many_tools --skip packages:: --skip page_try:: --skip pictures:: --skip zsh_and_fish --skip nginx_ --skip caddy_ --skip systemd_ --skip the_images_build_lines
    fi
    say "the quick tests passed; ./test.sh runs all"
    exit
fi

need node "Node.js 20 or later"
need npm "it comes with Node.js"
need python3 "Python 3.11 or later"

# Beside the lints and the build: fetching waits for others, and the last crate of a check leaves cores to the others.
fetch_and_check_others() {
    say "peers for the interop and conformance tests, an authorization server, corpora for the ranking, a tokeniser, a browser for the page, shells, package managers"
    tests/conformance/setup.sh
    tests/login/setup.sh
    tests/search/setup.sh
    tests/page/setup.sh
    tests/shells/setup.sh
    tests/packages/setup.sh
    tests/packages/setup_debian.sh

    say "macOS and Windows: type check"
    tests/platforms.sh

    say "dependencies: banned crates, licences, sources; advisories where there is internet"
    tests/dependencies.sh
}
mkdir -p target
log=target/others.log
say "meanwhile: peers, other systems, dependencies; what they say follows after the build, and is in $log"
# `set -e` holds in the background, where no `||` waits for it.
fetch_and_check_others >"$log" 2>&1 &
others=$!
trap 'kill "$others" 2>/dev/null || true' EXIT

check_format_and_lints

has_nextest=$(cargo nextest --version 2>/dev/null || true)
if [ "$has_nextest" ]; then
    say "build of the tests"
    cargo nextest run --locked --no-run
fi

# Beside the rest of the checks, since it leaves most of the machine to them. Before the tests, since one of them builds
# the program in its own way, and some crates would be built once more after it.
if [ "$(uname)" = Linux ]; then
    say "soak, two minutes"
    cargo test --locked --bench soak -- --seconds 90 --rate 150
fi

checked=0
wait "$others" || checked=$?
trap - EXIT
cat "$log"
[ "$checked" = 0 ] || { echo "error: the last of these steps failed" >&2; exit "$checked"; }

say "tests"
cargo test --locked --doc
if [ "$has_nextest" ]; then
    cargo nextest run --locked
else
    cargo test --locked --lib --bins --test tidy --test conformance --test corpora
    run_areas
fi
say "all tests passed"
