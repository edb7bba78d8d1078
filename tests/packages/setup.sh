#!/usr/bin/env bash
# Installs what the tests of the packages run, pinned: a registry, an MCP client and a linter from
# npm, uv and the judges of wheels from PyPI.
#
#   setup.sh [DIR]      DIR: where to install, by default target/packages
#
# To move a pin: edit npm/package.json and run `npm install --package-lock-only
# --omit-lockfile-registry-resolved` there, or edit python/requirements.txt, which is complete:
# nothing that it doesn't list is installed. The override of node-fetch names a version where
# verdaccio has the tag `cjs`, which mirrors of the registry may lack.
#
# Safe to run again, and from several processes at once; each part is skipped while its lock file
# is unchanged.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
dir="${1:-$here/../../target/packages}"
mkdir -p "$dir"
dir="$(cd "$dir" && pwd)"

say() { echo "packages: $*"; }

exec 9>"$dir/setup.lock"
flock 9

# fresh STAMP FILE...: whether STAMP holds the hash of the FILEs since the last complete install.
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
  hash_of "${lock[@]}" >"$dir/npm/.stamp"
fi

requirements="$here/python/requirements.txt"
if fresh "$dir/python/.stamp" "$requirements"; then
  say "Python packages: up to date"
else
  say "Python packages: installing"
  rm -rf "$dir/python"
  python3 -m venv --without-pip "$dir/python"
  python3 -m pip --python "$dir/python/bin/python" install --quiet --no-deps --only-binary :all: \
    --disable-pip-version-check -r "$requirements"
  hash_of "$requirements" >"$dir/python/.stamp"
fi
say "ready in $dir"
