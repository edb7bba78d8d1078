#!/usr/bin/env bash
# Installs the browser tests of the admin page run in: Debian's Chromium, and the drivers from the npm registry, pinned.
#
#   setup.sh [DIR]      DIR: where to install, by default target/page
#
# To move a pin: edit npm/package.json and run `npm install --package-lock-only --omit-lockfile-registry-resolved` there.
# Safe to run again, and from several processes at once.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
dir="${1:-$here/../../target/page}"
mkdir -p "$dir"
dir="$(cd "$dir" && pwd)"

say() { echo "page: $*"; }

exec 9>"$dir/setup.lock"
flock 9

browser() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
if ! browser >/dev/null; then
  line="apt-get update && apt-get install -y --no-install-recommends chromium fonts-dejavu-core"
  if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "error: the tests of the page need Chromium; on Debian: sudo sh -c '$line'" >&2
    exit 1
  fi
  say "Chromium: installing"
  sh -c "$line" >"$dir/apt.log" 2>&1 || { tail "$dir/apt.log" >&2; exit 1; }
fi
say "Chromium: $(browser)"

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
