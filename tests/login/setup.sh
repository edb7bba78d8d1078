#!/usr/bin/env bash
# Installs the authorization server that the tests of logins run, pinned, from the npm registry. It needs Node.js 22, so
# it runs in the one that tests/conformance/setup.sh fetches, and that is run first.
#
#   setup.sh [DIR]      DIR: where to install, by default target/login; its sibling `conformance` is the other's
#
# To move a pin: edit npm/package.json and run `npm install --package-lock-only --omit-lockfile-registry-resolved` there.
# Safe to run again, and from several processes at once.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
dir="${1:-$here/../../target/login}"
mkdir -p "$dir"
dir="$(cd "$dir" && pwd)"

say() { echo "login: $*"; }

"$here/../conformance/setup.sh" "$dir/../conformance"

exec 9>"$dir/setup.lock"
flock 9

lock=("$here/npm/package.json" "$here/npm/package-lock.json")
hash="$(cat "${lock[@]}" | sha256sum | cut -d' ' -f1)"
if [ -f "$dir/npm/.stamp" ] && [ "$(cat "$dir/npm/.stamp")" = "$hash" ]; then
  say "npm packages: up to date"
else
  say "npm packages: installing"
  rm -rf "$dir/npm"
  mkdir -p "$dir/npm"
  cp "${lock[@]}" "$dir/npm/"
  (cd "$dir/npm" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
  echo "$hash" >"$dir/npm/.stamp"
fi
say "ready in $dir"
