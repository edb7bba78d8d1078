#!/usr/bin/env bash
# Connects real MCP clients by `moongate connect`, and asks each if it sees the gateway.
#
#   real.sh [MOONGATE]      MOONGATE: the program, by default target/debug/moongate
#
# Opt-in: it installs about 1.2 GB from the npm registry into target/clients. The clients need no account, and reach no
# other host than this one. The pins are in npm/package.json. There is no lock file: most of the clients are one program in
# a package for each platform.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
moongate="$(realpath "${1:-$root/target/debug/moongate}")"
dir="$root/target/clients"
mkdir -p "$dir"

stamp="$(sha256sum < "$here/npm/package.json" | cut -d' ' -f1)"
if [ "$(cat "$dir/npm/.stamp" 2>/dev/null)" != "$stamp" ]; then
  rm -rf "$dir/npm"
  mkdir -p "$dir/npm"
  cp "$here/npm/package.json" "$dir/npm/"
  # Some of them fetch their program in an install script.
  (cd "$dir/npm" && npm install --no-package-lock --no-audit --no-fund --loglevel=error)
  echo "$stamp" > "$dir/npm/.stamp"
fi

work="$(mktemp -d)"
trap 'kill "$gateway" 2>/dev/null || true; rm -rf "$work"' EXIT
home="$work/home"
mkdir -p "$home/project"
key=mg_a_key_of_the_tests_that_is_long_enough
cat > "$work/moongate.toml" <<CONFIG
[gateway]
listen = "127.0.0.1:0"
admin = false
[servers.demo]
command = "$moongate"
args = ["mock", "--demo"]
[[auth.keys]]
name = "clients"
key = "$key"
CONFIG
"$moongate" --config "$work/moongate.toml" 2> "$work/log" &
gateway=$!
for _ in $(seq 100); do
  url="$(sed -n 's/.*listening on \(http[^ ]*\).*/\1/p' "$work/log" | head -1)"
  [ -n "$url" ] && break
  sleep 0.1
done
[ -n "$url" ] || { cat "$work/log"; exit 1; }

# Nothing of the caller's environment but the way to programs.
run() {
  (cd "$home/project" && env -i PATH="$dir/npm/node_modules/.bin:$PATH" HOME="$home" XDG_CONFIG_HOME="$home/.config" \
    MOONGATE_KEY="$key" CI=1 NO_COLOR=1 timeout 60 "$@" < /dev/null 2>&1)
}

# Gemini and its like connect servers in trusted folders only.
for client in .gemini .qwen; do
  mkdir -p "$home/$client"
  printf '{"%s": "TRUST_FOLDER"}\n' "$home/project" > "$home/$client/trustedFolders.json"
done

failed=0
# look CLIENT HOW PATTERN COMMAND...: looks for the pattern in what the client's command prints.
look() {
  local client="$1" how="$2" pattern="$3" said
  shift 3
  said="$(run "$@" || true)"
  if grep -qiE "$pattern" <<< "$said"; then
    echo "$client, $how: fine"
  else
    echo "$client, $how: it does not see the gateway; $* says:"; echo "$said" | head -30; failed=1
  fi
}

# check CLIENT PATTERN COMMAND...: connects the client by its file, and by the command that `moongate connect` prints.
check() {
  local client="$1" pattern="$2" said
  shift 2
  if ! said="$(run "$moongate" connect "$client" --write --yes --endpoint "$url")"; then
    echo "$client: not connected"; echo "$said"; failed=1; return
  fi
  look "$client" "by its file" "$pattern" "$@"
  run "$moongate" connect "$client" --remove --yes --endpoint "$url" > /dev/null
  local line
  line="$(run "$moongate" connect "$client" --endpoint "$url" | grep -E '^[a-z]+ mcp add ')"
  if ! said="$(run bash -c "$line")"; then
    echo "$client: $line"; echo "$said"; failed=1; return
  fi
  look "$client" "by its command" "$pattern" "$@"
}

check codex 'bearer_token_env_var: MOONGATE_KEY|"bearer_token_env_var": "MOONGATE_KEY"' codex mcp get moongate --json
check gemini 'moongate.*connected' gemini mcp list
check qwen 'moongate.*connected' qwen mcp list
check opencode 'moongate.*connected' opencode mcp list
check copilot-cli 'http://127.0.0.1' copilot mcp get moongate
check augment 'moongate.*http' auggie mcp list
exit "$failed"
