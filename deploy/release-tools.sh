#!/usr/bin/env bash
# Installs what a release is made with, pinned, into target/release-tools:
#
#     deploy/release-tools.sh python       zig, cargo-zigbuild and syft from PyPI, by their hashes
#     deploy/release-tools.sh auditable    cargo-auditable from crates.io
#
# Safe to run again: what is there stays.
set -euo pipefail
cd "$(dirname "$0")/.."

auditable=0.7.7
tools=$PWD/target/release-tools

install_python() {
    local sum
    sum=$(sha256sum <deploy/release-tools.txt)
    [ "$(cat "$tools/python/.stamp" 2>/dev/null)" != "$sum" ] || return 0
    echo "release-tools: installing zig, cargo-zigbuild and syft"
    rm -rf "$tools/python"
    python3 -m venv "$tools/python"
    "$tools/python/bin/pip" install --quiet --disable-pip-version-check --no-deps \
        --only-binary :all: --require-hashes -r deploy/release-tools.txt
    echo "$sum" >"$tools/python/.stamp"
}

install_auditable() {
    mkdir -p "$tools"
    ! cargo install --list --root "$tools" | grep -q "^cargo-auditable v$auditable:" || return 0
    echo "release-tools: building cargo-auditable $auditable"
    cargo install --quiet --locked --root "$tools" --target-dir "$tools/build" \
        "cargo-auditable@$auditable"
    rm -rf "$tools/build"
}

for name in "$@"; do
    case $name in
        python) install_python ;;
        auditable) install_auditable ;;
        *) echo "error: there is no tool $name; there are python and auditable" >&2; exit 2 ;;
    esac
done
