#!/usr/bin/env bash
# Fetches what the conformance tests run, pinned: the official suite and its Node.js from the npm registry; the sources
# of the Python SDK, which hold the fixture server and the reference client, from PyPI. They run in the environment
# that tests/interop/setup.sh makes, so that is run first.
#
#   setup.sh [DIR]      DIR: where to install, by default target/conformance; its sibling `interop` is the other's
#
# To move a pin: edit npm/package.json and run
# `npm install --package-lock-only --omit-lockfile-registry-resolved --ignore-scripts` there, or edit python/*.txt
# (`mcp` together with tests/interop/python).
#
# Safe to run again, and from several processes at once; each part is skipped while its lock file is unchanged.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
dir="${1:-$here/../../target/conformance}"
mkdir -p "$dir"
dir="$(cd "$dir" && pwd)"

say() { echo "conformance: $*"; }

"$here/../interop/setup.sh" "$dir/../interop"

exec 9>"$dir/setup.lock"
flock 9

# fresh STAMP FILE...: whether STAMP holds the hash of the FILEs, as it was after the last complete install.
hash_of() { cat "$@" | sha256sum | cut -d' ' -f1; }
fresh() {
  local stamp="$1"
  shift
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(hash_of "$@")" ]
}

lock=("$here/npm/package.json" "$here/npm/package-lock.json")
if fresh "$dir/npm/.stamp" "${lock[@]}"; then
  say "suite: up to date"
else
  say "suite: installing"
  rm -rf "$dir/npm"
  mkdir -p "$dir/npm"
  cp "${lock[@]}" "$dir/npm/"
  # The suite says that it needs Node.js 22, and gets it; npm itself may run on an older one.
  (cd "$dir/npm" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
  hash_of "${lock[@]}" > "$dir/npm/.stamp"
fi
# No binary for this machine among the packages: then its own Node.js has to do.
[ -x "$dir/npm/node_modules/.bin/node" ] || ln -s "$(command -v node)" "$dir/npm/node_modules/.bin/node"

sources=("$here"/python/*.txt)
if fresh "$dir/sdk/.stamp" "${sources[@]}"; then
  say "fixture: up to date"
else
  say "fixture: fetching"
  rm -rf "$dir/sdk"
  mkdir -p "$dir/sdk"
  PIP_CONSTRAINT="$here/python/build.txt" python3 -m pip download --quiet --no-deps --no-binary mcp \
    --disable-pip-version-check --require-hashes -r "$here/python/fixture.txt" -d "$dir/sdk"
  tar -xzf "$dir"/sdk/mcp-*.tar.gz -C "$dir/sdk" --strip-components=1
  hash_of "${sources[@]}" > "$dir/sdk/.stamp"
fi
say "ready in $dir"
