#!/usr/bin/env bash
# Tries install.sh against a web server on loopback, in dash, busybox and bash.
#
#   install_script.sh BINARY WORK
#
# BINARY: a Linux binary for this machine. WORK: a folder for everything that is written. Needs what
# tests/packages/setup_debian.sh installs.
#
# shellcheck disable=SC2016,SC2317 # check calls most functions; faked programs have their own $1
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
binary="$1" failed=0 server='' gateway='' script=''
mkdir -p "$2"
work="$(cd "$2" && pwd)/install"
machine="$(uname -m)"
gnu="$machine-unknown-linux-gnu" musl="$machine-unknown-linux-musl"

pass() { echo "ok    $*"; }
fail() { echo "FAIL  $*"; failed=1; }
# check WHAT COMMAND...: runs it, and shows its output if it fails.
check() {
    local what="$1" said; shift
    if said="$("$@" 2>&1)"; then pass "$what"; else fail "$what"; head -c 3000 <<<"$said"; fi
}
same() { [ "$1" = "$2" ] || { printf 'expected: %s\ngot:      %s\n' "$1" "$2"; return 1; }; }
has_text() { case "$2" in *"$1"*) ;; *) printf 'no %s in:\n%s\n' "$1" "$2"; return 1 ;; esac; }
cleanup() {
    for pid in $server $gateway; do kill "$pid" 2>/dev/null || true; done
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# ---- releases ----

# make_release DIR TARGETS [PROGRAM]
make_release() {
    python3 "$here/make_release.py" --targets "$2" ${3:+--program "$3"} "$binary" "$1" \
        archives installer checksums >/dev/null
}

make_releases() {
    rm -rf "$work"
    mkdir -p "$work/tools"
    # A small program in the archives, since most runs are about the script.
    printf '#!/bin/sh\necho moongate 0.0.0\n' >"$work/program"
    make_release "$work/good" "$gnu,$musl" "$work/program"
    make_release "$work/gnu" "$gnu" "$work/program"
    cp "$binary" "$work/real-program"
    strip "$work/real-program"
    make_release "$work/real" "$gnu" "$work/real-program"
    archive="$(cd "$work/good" && echo moongate-*-"$gnu".tar.gz)"
    static="${archive/$gnu/$musl}"
    cp "$work/good"/{SHA256SUMS,*.tar.gz} "$work/"

    cp -r "$work/good" "$work/wrong"
    sed -i "/$archive/s/^......../00000000/" "$work/wrong/SHA256SUMS"
    cp -r "$work/good" "$work/unlisted"
    sed -i "/$archive/d" "$work/unlisted/SHA256SUMS"
    cp -r "$work/good" "$work/gone"
    rm "$work/gone/$archive"
}

# ---- running the script ----

# What the script may use, so that a test can take some away or replace them.
TOOLS="uname id sed cut head tr mktemp rm rmdir cp mv chmod mkdir tar gzip cat dirname
    getconf ldd curl sha256sum sh"

# tools NAME...: sets path to a folder with just these programs.
tools() {
    path="$(mktemp -d "$work/tools/XXXXXX")"
    local tool
    for tool in "$@"; do ln -s "$(command -v "$tool")" "$path/$tool"; done
    # The default folder is another one for root.
    fake id 'echo 1000'
}

# fake NAME SCRIPT: replaces a program in path.
fake() { rm -f "$path/$1"; printf '#!/bin/sh\n%s\n' "$2" >"$path/$1"; chmod 755 "$path/$1"; }

# run SHELL RELEASE [VARIABLE=VALUE...]: runs the release's script, or the one in script. Sets said
# and code. The home and the temporary folder are empty before it.
run() {
    local shell="$1" release="$2" start=() file
    shift 2
    file="$work/$release/install.sh"
    if [ ! -f "$file" ]; then file="$work/good/install.sh"; fi
    # A static busybox runs its own `id` whatever the PATH says, and root's default folder is the
    # machine's.
    if [ "${shell%% *}" = busybox ]; then
        set -- MOONGATE_INSTALL_DIR="$work/home/.local/bin" "$@"
    fi
    rm -rf "${work:?}"/{home,temp}
    mkdir -p "$work/home" "$work/temp"
    read -ra start <<<"$shell"
    start[0]="$(command -v "${start[0]}")"
    code=0
    said="$(cd "$work" && env -i HOME="$work/home" TMPDIR="$work/temp" PATH="$path" \
        SHELL=/bin/bash MOONGATE_DOWNLOAD="http://127.0.0.1:$port/$release" "$@" \
        "${start[@]}" <"${script:-$file}" 2>&1)" || code=$?
}

# Neither the home nor the temporary folder has anything in it.
left_nothing() { same "" "$(cd "$work" && find home temp -mindepth 1)"; }

# refuses WHAT TEXT...: the last run failed with all these texts, and left nothing.
refuses() {
    local what="$1" text; shift
    check "$what: exit 1" same 1 "$code"
    for text in "$@"; do check "$what: says ${text:0:50}" has_text "$text" "$said"; done
    check "$what: leaves nothing" left_nothing
}

# installs WHAT ARCHIVE: the last run installed this archive into the default folder.
installs() {
    check "$1" has_text "Downloading http://127.0.0.1:$port/${3:-good}/$2" "$said"
    check "$1: the program runs" same "moongate 0.0.0" "$("$work/home/.local/bin/moongate")"
    check "$1: leaves one file" same home/.local/bin/moongate \
        "$(cd "$work" && find home temp ! -type d)"
}

# ---- the checks ----

try_shells() {
    local shell
    # shellcheck disable=SC2086 # a list
    tools $TOOLS
    for shell in dash "busybox sh" "bash --posix"; do
        run "$shell" good
        installs "$shell" "$archive"
        check "$shell: at most seven lines" test "$(wc -l <<<"$said")" -le 7
        check "$shell: says how to reach it" has_text "export PATH=\"$work/home/.local/bin" "$said"
    done
    run dash good SHELL=/usr/bin/fish
    check "for fish" has_text "fish_add_path $work/home/.local/bin" "$said"
    run dash good PATH="$path:$work/home/.local/bin"
    check "a folder on the PATH" same "" "$(grep 'not on your PATH' <<<"$said")"
    run dash good MOONGATE_INSTALL_DIR="elsewhere" && rm -r "$work/elsewhere"
    check "a folder of one's choice" has_text "$work/elsewhere/moongate" "$said"
}

try_refusals() {
    # shellcheck disable=SC2086 # a list
    tools $TOOLS
    run dash wrong
    refuses "wrong sum" "nothing was installed" "expected sum: 00000000" \
        "its sum:      $(sha256sum "$work/good/$archive" | cut -d' ' -f1)"
    run dash unlisted
    refuses "sum missing" "SHA256SUMS has no sum for $archive"
    run dash gone
    refuses "archive missing" "$archive can't be downloaded" "404"
    run dash cut
    refuses "download cut" "$archive can't be downloaded"
    head -c 200 "$work/good/$archive" >"$work/gone/$archive"
    run dash gone
    refuses "archive cut" "$archive isn't the file that was released"
    run dash good MOONGATE_DOWNLOAD=http://127.0.0.1:1
    refuses "no server" "http://127.0.0.1:1/SHA256SUMS can't be downloaded"
    run dash good MOONGATE_INSTALL_DIR=/proc/moongate
    refuses "a folder that can't be made" "/proc/moongate can't be created"
    run dash good HOME=
    refuses "no home" "HOME isn't set"
    mkdir -p "$work/folder/moongate"
    run dash good MOONGATE_INSTALL_DIR="$work/folder"
    refuses "a folder in its place" "$work/folder/moongate is a folder"
}

try_tools() {
    # shellcheck disable=SC2086 # lists
    {
        tools ${TOOLS/sha256sum/}
        run dash good
        refuses "no program for sums" "needs sha256sum, shasum or openssl"
        tools ${TOOLS/sha256sum/shasum} perl
        run dash good
        installs "with shasum" "$archive"
        tools ${TOOLS/sha256sum/openssl}
        run dash good
        installs "with openssl" "$archive"
        run dash wrong
        refuses "wrong sum with openssl" "expected sum: 00000000"
        tools ${TOOLS/curl/}
        run dash good
        refuses "nothing to download with" "needs curl or wget"
        tools ${TOOLS/curl/wget}
        run dash good
        installs "with wget" "$archive"
        # It tries 20 times otherwise, with longer and longer pauses.
        echo tries=1 >"$work/wgetrc"
        run dash cut WGETRC="$work/wgetrc"
        refuses "download cut with wget" "$archive can't be downloaded"
        tools ${TOOLS/curl/}
        ln -s "$(command -v busybox)" "$path/wget"
        run dash good
        installs "with busybox's wget" "$archive"
    }
}

try_machines() {
    # shellcheck disable=SC2086 # a list
    tools $TOOLS
    fake getconf 'echo glibc 2.12'
    run dash good
    installs "an old glibc gets the static one" "$static"
    run dash gnu
    refuses "an old glibc without it" "Linux, processor $machine, glibc 2.12" \
        "    $gnu (glibc 2." "docs/guides/install.md"
    fake getconf '[ "$1" = LONG_BIT ] && echo 32 || echo glibc 2.36'
    run dash good
    installs "a 32-bit system gets the static one" "$static"
    fake getconf 'exit 1'
    fake ldd 'printf "musl libc (x86_64)\nVersion 1.2.5\n" >&2; exit 1'
    run dash good
    installs "musl gets the static one" "$static"
    run dash gnu
    refuses "musl without it" "processor $machine, musl"
    rm "$path/ldd"
    run dash good
    installs "an unknown libc gets the static one" "$static"
    fake ldd 'echo "ldd (Debian GLIBC 2.41-12) 2.41"'
    run dash good
    installs "a glibc that only ldd names" "$archive"

    fake uname '[ "$1" = -s ] && echo Linux || echo riscv64'
    run dash good
    refuses "another processor" "Linux, processor riscv64"
    fake uname '[ "$1" = -s ] && echo Darwin || echo arm64'
    run dash good
    refuses "another system" "Darwin, processor aarch64" "    $musl"
}

# A program that doesn't start, as on a system without the loader that it names.
try_broken_program() {
    # shellcheck disable=SC2086 # a list
    tools $TOOLS
    printf '#!/nowhere\n' >"$work/program"
    make_release "$work/broken" "$gnu" "$work/program"
    run dash broken
    check "a program that doesn't start" has_text "$gnu doesn't run on this machine" "$said"
    check "a program that doesn't start: leaves no file" same "" \
        "$(cd "$work" && find home temp -mindepth 1 ! -path home/.local)"
}

# Installs the real program over itself while it runs.
try_running_program() {
    local address program="$work/home/.local/bin/moongate" before
    # shellcheck disable=SC2086 # a list
    tools $TOOLS
    run dash real
    check "the real program" has_text "Installed $("$binary" --version) as $program" "$said"
    check "the same bytes" cmp "$program" "$work/real-program"
    before="$(stat -c %i "$program")"
    (cd "$work/home" && exec env HOME="$work/home" MOONGATE_GATEWAY__ADMIN=127.0.0.1:0 "$program" \
        --listen 127.0.0.1:0) >"$work/gateway.log" 2>&1 &
    gateway=$!
    for _ in $(seq 100); do
        address="$(grep -o 'http://[^ ]*/mcp' "$work/gateway.log" | head -n 1)" && break
        sleep 0.1
    done
    code=0
    env HOME="$work/home" TMPDIR="$work/temp" PATH="$path" \
        MOONGATE_DOWNLOAD="http://127.0.0.1:$port/real" "$(command -v dash)" \
        "$work/real/install.sh" >/dev/null 2>&1 || code=$?
    check "over a running one" same 0 "$code"
    check "over a running one: a new file" test "$before" != "$(stat -c %i "$program")"
    for _ in $(seq 50); do
        said="$("$program" call demo__add a=20 b=22 --url "$address" 2>&1)" && break
        sleep 0.1
    done
    check "the running one goes on" same 42 "$said"
    kill "$gateway"
    wait "$gateway" || true
    gateway=''
}

# A script that was cut does nothing: no request, no file.
try_cut_script() {
    local size at shell requests
    # shellcheck disable=SC2086 # a list
    tools $TOOLS
    size="$(stat -c %s "$work/good/install.sh")"
    requests="$(wc -l <"$work/requests")"
    for shell in dash "busybox sh"; do
        # Every byte of the last line but the line end and the brace before it, and some before.
        for at in $(seq 1 97 "$size") $(seq $((size - 40)) $((size - 2))); do
            head -c "$at" "$work/good/install.sh" >"$work/cut.sh"
            script="$work/cut.sh"
            run "$shell" good
            if ! left_nothing >/dev/null; then fail "$shell: cut at byte $at, it wrote files"; fi
        done
        check "$shell: a cut script asks for nothing" same "$requests" "$(wc -l <"$work/requests")"
    done
    script=''
}

try_interrupt() {
    # shellcheck disable=SC2086 # a list
    tools $TOOLS
    rm -rf "${work:?}"/{home,temp}
    mkdir -p "$work/home" "$work/temp"
    env HOME="$work/home" TMPDIR="$work/temp" PATH="$path" \
        MOONGATE_DOWNLOAD="http://127.0.0.1:$port/slow" "$(command -v setsid)" \
        "$(command -v dash)" "$work/good/install.sh" >"$work/interrupt.log" 2>&1 &
    local installer=$!
    for _ in $(seq 100); do
        if grep -q "/slow/$archive" "$work/requests"; then break; fi
        sleep 0.05
    done
    # As Ctrl-C does, to the script and to curl.
    kill -TERM -- "-$installer"
    code=0
    wait "$installer" || code=$?
    check "interrupted: exit 130" same 130 "$code"
    check "interrupted: leaves nothing" left_nothing
}

make_releases
check "shellcheck" shellcheck "$work/good/install.sh"
make_release "$work/again" "$gnu,$musl" "$work/program"
check "packing again gives the same bytes" cmp "$work/good/install.sh" "$work/again/install.sh"
: >"$work/requests"
exec 3< <(exec python3 "$here/file_server.py" "$work" "$work/requests")
server=$!
read -r port <&3

try_shells
try_refusals
try_tools
try_machines
try_broken_program
try_running_program
try_cut_script
try_interrupt
exit "$failed"
