#!/usr/bin/env bash
# Installs the programs the interop tests run: MCP servers and SDKs, pinned, from the npm registry and PyPI.
#
#   setup.sh [DIR]      DIR: where to install, by default target/interop
#
# To move a pin: edit npm/package.json and run `npm install --package-lock-only --omit-lockfile-registry-resolved`
# there, or edit python/requirements-*.txt (each is named after the newest revision that its SDK knows, and complete:
# nothing that it does not list is installed).
#
# Safe to run again, and from several processes at once; each part is skipped while its lock file is unchanged.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
dir="${1:-$here/../../target/interop}"
mkdir -p "$dir"
dir="$(cd "$dir" && pwd)"

say() { echo "interop: $*"; }

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
  say "npm packages: up to date"
else
  say "npm packages: installing"
  rm -rf "$dir/npm"
  mkdir -p "$dir/npm"
  cp "${lock[@]}" "$dir/npm/"
  (cd "$dir/npm" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
  hash_of "${lock[@]}" > "$dir/npm/.stamp"
fi

for requirements in "$here"/python/requirements-*.txt; do
  name="$(basename "$requirements" .txt)"
  venv="$dir/python-${name#requirements-}"
  if fresh "$venv/.stamp" "$requirements"; then
    say "Python packages, ${name#requirements-}: up to date"
    continue
  fi
  say "Python packages, ${name#requirements-}: installing"
  rm -rf "$venv"
  # One pip fills every environment: a pip in each would take longer than what it installs.
  python3 -m venv --without-pip "$venv"
  python3 -m pip --python "$venv/bin/python" install --quiet --no-deps --no-compile --only-binary :all: \
    --disable-pip-version-check -r "$requirements"
  hash_of "$requirements" > "$venv/.stamp"
done
say "ready in $dir"
