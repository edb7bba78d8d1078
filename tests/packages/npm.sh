#!/usr/bin/env bash
# Tries the npm packages: publishes them to a registry on loopback, and uses them through npx, as a
# user with nothing but Node.js does.
#
#   npm.sh BINARY WORK
#
# BINARY: a Linux binary for this machine. WORK: a folder for everything that is written. Needs
# tests/packages/setup.sh before it (its folder in MOONGATE_PACKAGES, if it isn't target/packages).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=try.sh
. "$(dirname "${BASH_SOURCE[0]}")/try.sh" "$@"
modules="$tools/npm/node_modules"
user_variables=(npm_config_update_notifier=false npm_config_fund=false)

start_registry() {
    mkdir -p "$work/registry"
    node "$here/registry.mjs" "$modules" "$work/registry" >"$work/registry/log" 2>&1 &
    registry_process=$!
    started+=("$registry_process")
    until_true 20 test -f "$work/registry/registry.json"
    read_field() { node -p "require('$work/registry/registry.json').$1"; }
    registry="$(read_field url)"
    token="$(read_field token)"
    user_variables+=("npm_config_registry=$registry")
}

publish_all() {
    local package
    printf '%s:_authToken=%s\n' "${registry#http:}" "$token" >"$work/npmrc"
    # The platforms first: nobody can install a `moongate` whose program isn't there yet.
    for package in "$work"/packages/moongate-linux-*.tgz "$work/packages/moongate-$version.tgz"; do
        npm publish "$package" --registry "$registry" --userconfig "$work/npmrc" \
            --access public --loglevel error || return 1
    done
}

no_token_no_publish() {
    ! npm publish "$work/packages/moongate-$version.tgz" --registry "$registry" \
        --userconfig /dev/null --loglevel error
}

# publint exits with 0 for suggestions, too.
lint() {
    local package said
    for package in "$work"/packages/*.tgz; do
        said="$(node "$modules/publint/src/cli.js" run "$package" 2>&1)" || true
        grep -q 'All good!' <<<"$said" || { echo "$said"; return 1; }
    done
}

# npx_says OUTPUT CODE ARGUMENT...: what npx prints to stdout, and its exit code.
npx_says() {
    local output="$1" code="$2" said got=0
    shift 2
    said="$(as_user npx "$@" </dev/null 2>"$work/npx.log")" || got=$?
    same "$output" "$said" && same "$code" "$got" || { cat "$work/npx.log"; return 1; }
}

# Starts the demo through npx, and notes the time until a tool call was answered.
demo_by_npx() {
    local began
    began="$(now)"
    demo_start setsid npx -y "moongate@$version"
    check "$1: the demo answers a tool call" until_true 10 demo_answers
    note "$1: answered after $(seconds_since "$began")"
}
launcher_is_named() {
    tr '\0' '\n' <"/proc/$(demo_process)/environ" | grep -qx MOONGATE_LAUNCHER=npx
}
# What a client does.
ends_with_npx() {
    kill -TERM "$demo"
    until_true 10 none_left && stopped_in_order
}
# What a terminal does: every process gets it, and npm and the launcher hand it on as well.
ends_with_group() {
    kill -INT -- "-$demo"
    until_true 10 none_left && stopped_in_order
}
stopped_in_order() {
    grep -q 'stopping;' "$work/demo.log" && ! grep -q 'stopped at once' "$work/demo.log"
}

stdio_client() {
    as_user node "$here/stdio_client.mjs" "$modules" npx -y "moongate@$version" stdio
}

entry_is_npx() {
    same "npx -y moongate@$version stdio --url $(demo_url)" "$(entry_words | tr '\n' ' ' | sed 's/ $//')"
}
entry_works_without_the_cache() {
    local words
    rm -rf "$home/.npm"
    mapfile -t words < <(entry_words)
    as_user node "$here/stdio_client.mjs" "$modules" "${words[@]}"
}

# What a client does that gives up: it kills npx, and its end of the pipe closes.
stdio_ends_when_npx_is_killed() {
    mkfifo "$work/pipe"
    (as_user npx -y "moongate@$version" stdio <"$work/pipe" >"$work/stdio.log" 2>&1) &
    local npx=$!
    exec 8>"$work/pipe"
    started+=("$npx")
    until_true 20 demo_process || return 1
    kill -KILL "$npx"
    exec 8>&-
    until_true 10 none_left
}

installed_globally() {
    as_user npm install --global --prefix "$home/global" --loglevel error "moongate@$version"
}
without_optional() {
    local said code=0
    mkdir -p "$home/project"
    (as_user npm install --omit=optional --prefix "$home/project" --loglevel error \
        "moongate@$version") || return 1
    said="$("$home/project/node_modules/.bin/moongate" --version 2>&1)" || code=$?
    same 1 "$code" && grep -q "error: .*linux $(node -p process.arch) with glibc" <<<"$said" \
        && grep -q -- '--omit=optional' <<<"$said" || { echo "$said"; return 1; }
}

new_home
began="$(now)"
check "pack.py packs for this machine" pack
size="$(kilobytes "$work"/packages/moongate-linux-*.tgz)"
note "packed in $(seconds_since "$began"); the npm package with the program has $size kB"
check "publint has nothing to say" lint
start_registry
check "nobody publishes without a token" no_token_no_publish
check "all packages are published" publish_all
check "npx --ignore-scripts runs the program" npx_says "moongate $version" 0 \
    --ignore-scripts --registry "$registry" -y "moongate@$version" --version
new_home
demo_by_npx "from an empty cache"
check "the program knows that npx started it" launcher_is_named
check "SIGTERM to npx ends every process in order" ends_with_npx
demo_by_npx "from a filled cache"
check "connect writes an entry" connects npx -y "moongate@$version"
check "the entry has the npx command of this version" entry_is_npx
check "a client uses the entry after the cache was emptied" entry_works_without_the_cache
check "SIGINT to the process group ends every process in order" ends_with_group
check "the official SDK works over npx moongate stdio" stdio_client
check "nothing is left when the client is gone" until_true 5 none_left
check "stdio ends when npx is killed" stdio_ends_when_npx_is_killed
check "the exit code is handed on" npx_says "" 2 -y "moongate@$version" check missing.toml
check "a global install runs" installed_globally
check "its command is moongate" same "moongate $version" "$("$home/global/bin/moongate" --version)"
check "an install without optional packages says what is missing" without_optional
kill "$registry_process"
check "npx works offline from its cache" npx_says "moongate $version" 0 \
    --offline -y "moongate@$version" --version
exit "$failed"
