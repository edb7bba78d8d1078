#!/usr/bin/env bash
# Tries the wheel: installs it by pip, runs it by uvx as a user with nothing but uv does, and has
# the judges of PyPI look at it.
#
#   wheel.sh BINARY WORK
#
# BINARY: a Linux binary for this machine. WORK: a folder for everything that is written. Needs
# tests/packages/setup.sh before it (its folder in MOONGATE_PACKAGES, if it isn't target/packages).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=try.sh
. "$(dirname "${BASH_SOURCE[0]}")/try.sh" "$@"
bin="$tools/python/bin"
# Nothing comes from PyPI: the wheel needs nothing else, and the Python is the one that is here.
user_variables=(UV_OFFLINE=1 UV_PYTHON_DOWNLOADS=never UV_NO_CONFIG=1 PIP_NO_INDEX=1)

installed_by_pip() {
    python3 -m venv --without-pip "$home/venv"
    as_user python3 -m pip --python "$home/venv/bin/python" install --quiet "$wheel"
}
same_program() { cmp "$home/venv/bin/moongate" "$work/binaries/$triple/moongate"; }
uninstalled_by_pip() {
    (as_user python3 -m pip --python "$home/venv/bin/python" uninstall --quiet --yes moongate) &&
        [ ! -e "$home/venv/bin/moongate" ]
}

uvx_says() {
    local output="$1" code="$2" said got=0
    shift 2
    said="$(as_user "$bin/uvx" --from "$wheel" "$@" </dev/null 2>"$work/uvx.log")" || got=$?
    same "$output" "$said" && same "$code" "$got" || { cat "$work/uvx.log"; return 1; }
}
demo_by_uvx() {
    local began
    began="$(now)"
    demo_start "$bin/uvx" --from "$wheel" moongate
    check "$1: the demo answers a tool call" until_true 10 demo_answers
    note "$1: answered after $(seconds_since "$began")"
}
ends_with_uvx() {
    kill -TERM "$demo"
    until_true 10 none_left && grep -q 'stopping;' "$work/demo.log"
}
stdio_client() {
    as_user node "$here/stdio_client.mjs" "$tools/npm/node_modules" \
        "$bin/uvx" --from "$wheel" moongate stdio
}

# connect also tries what it wrote, and this version is in no registry here: only the entry counts.
connect_writes_uvx() {
    (connects "$bin/uvx" --from "$wheel" moongate) || true
    same "uvx moongate@$version stdio --url $(demo_url)" "$(entry_words | tr '\n' ' ' | sed 's/ $//')"
}

# auditwheel derives the tag from the symbols, as pack.py does.
tag_is_confirmed() {
    local said tag
    said="$("$bin/auditwheel" show "$wheel" 2>&1)" || true
    tag="$(basename "$wheel" .whl | sed 's/.*-none-//; s/\..*//')"
    tr '\n' ' ' <<<"$said" | grep -q "following platform tag: *\"$tag\"" ||
        { echo "$said"; return 1; }
}

new_home
check "pack.py packs for this machine" pack
wheel="$(echo "$work"/packages/*.whl)"
note "$(basename "$wheel"): $(kilobytes "$wheel") kB"
check "twine check passes" "$bin/twine" check --strict "$wheel"
# W007: it has no library, only a script.
check "check-wheel-contents passes" "$bin/check-wheel-contents" --ignore W007 "$wheel"
check "auditwheel finds the same tag" tag_is_confirmed
check "pip installs it" installed_by_pip
check "its program has the bytes of the binary" same_program
check "its program runs" same "moongate $version" "$("$home/venv/bin/moongate" --version)"
check "pip uninstalls it" uninstalled_by_pip
check "uvx runs it" uvx_says "moongate $version" 0 moongate --version
check "the exit code is handed on" uvx_says "" 2 moongate check missing.toml
new_home
demo_by_uvx "from an empty cache"
check "SIGTERM to uvx ends every process in order" ends_with_uvx
demo_by_uvx "from a filled cache"
check "connect writes the uvx command of this version" connect_writes_uvx
check "SIGTERM to uvx ends every process in order" ends_with_uvx
check "the official SDK works over uvx moongate stdio" stdio_client
check "nothing is left when the client is gone" until_true 5 none_left
exit "$failed"
