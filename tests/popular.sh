#!/usr/bin/env bash
# Looks whether the popular servers of `moongate popular` are alive: connects to each remote one, and lists its tools.
#
#   popular.sh [MOONGATE]      MOONGATE: the program, by default target/debug/moongate
#
# Some hosts refuse programs with a 403: USER_AGENT="Mozilla/5.0 ..." popular.sh looks at them as a browser does.
#
# Opt-in, for a release: it needs the internet, and says of each server how many tools it has, or why it failed. Write the
# day into `probed` and the number into `tools` of crates/config/src/popular/popular.toml for those that are fine.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
moongate="$(realpath "${1:-$root/target/debug/moongate}")"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

"$moongate" popular --format json > "$work/popular.json"
python3 - "$work" "${USER_AGENT:-}" > "$work/remote" << 'END'
import json, sys
work, agent = sys.argv[1:]
popular = json.load(open(f"{work}/popular.json"))["servers"]
headers = {"User-Agent": agent} if agent else {}
remote = {server["name"]: {"url": server["url"], "headers": headers} for server in popular if server["url"]}
json.dump({"servers": remote}, open(f"{work}/moongate.json", "w"))
for name, server in remote.items():
    print(name, server["url"])
END
[ -s "$work/remote" ] || { echo "error: $moongate lists no remote server" >&2; exit 1; }

failed=0
while read -r name url; do
  if "$moongate" tools --server "$name" --config "$work/moongate.json" --timeout 20s --format json > "$work/tools" 2> "$work/said" < /dev/null; then
    count="$(python3 -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["tools"]))' "$work/tools")"
    echo "$name: fine, $count tools"
    [ "$count" -gt 0 ] || failed=1
  else
    echo "$name: $url failed: $(head -1 "$work/said")"
    failed=1
  fi
done < "$work/remote"
exit "$failed"
