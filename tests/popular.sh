#!/usr/bin/env bash
# Looks whether the popular servers of `moongate popular` are alive: connects to each remote one, and lists its tools.
#
#   popular.sh [MOONGATE]      MOONGATE: the program, by default target/debug/moongate
#
# Opt-in, for a release: it needs the internet, and says of each server how many tools it has, or why it failed. Write the
# day into `probed` and the number into `tools` of crates/config/src/popular/popular.toml for those that are fine.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
moongate="$(realpath "${1:-$root/target/debug/moongate}")"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

"$moongate" popular --format json > "$work/popular.json"
remote='for s in json.load(open(sys.argv[1]))["servers"]: s["url"] and print(s["name"], s["url"])'
python3 -c "import json, sys
$remote" "$work/popular.json" > "$work/remote"
[ -s "$work/remote" ] || { echo "error: $moongate lists no remote server" >&2; exit 1; }

failed=0
while read -r name url; do
  if "$moongate" tools --url "$url" --timeout 20s --format json > "$work/tools" 2> "$work/said" < /dev/null; then
    count="$(python3 -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["tools"]))' "$work/tools")"
    echo "$name: fine, $count tools"
    [ "$count" -gt 0 ] || failed=1
  else
    echo "$name: $url failed: $(head -1 "$work/said")"
    failed=1
  fi
done < "$work/remote"
exit "$failed"
