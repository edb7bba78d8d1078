#!/usr/bin/env bash
# Checks the crates that this one is built from, by deny.toml: banned crates, licences and sources always; security
# advisories where their database can be reached, which is on GitHub. Then checks that every crate can be published.
#
# cargo-deny is built once, pinned, into target/tools; one of the same version on the path is used as it is.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.20.2
tools="$PWD/target/tools"

export PATH="$PATH:$tools/bin"
if [ "$(cargo deny --version 2>/dev/null)" != "cargo-deny $version" ]; then
    echo "dependencies: building cargo-deny $version"
    # It runs once, for a second: neither optimised nor with symbols.
    CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug --no-default-features --root "$tools" \
        --target-dir "$tools/build" cargo-deny@$version
    rm -rf "$tools/build"
    export PATH="$tools/bin:$PATH"
fi

cargo deny --locked --log-level error check --hide-inclusion-graph bans licenses sources

if timeout 60 cargo deny --locked fetch db >/dev/null 2>&1; then
    cargo deny --locked --log-level error check --hide-inclusion-graph advisories
else
    echo "dependencies: advisories were not checked, since their database cannot be reached from here"
fi

# Every crate can be published, so that `cargo install moongate` can work.
cargo package --locked --quiet --workspace --no-verify --allow-dirty --target-dir target/package
rm -rf target/package
