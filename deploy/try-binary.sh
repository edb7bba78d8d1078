#!/usr/bin/env bash
# Tries one binary of a release: its demo answers a call, by the means that this machine has.
#
#     deploy/try-binary.sh TARGET BINARY
#
# Prints one line that says how it ran. Exit code 0: it works. 1: it doesn't. 3: it can't be run
# here, which the line says as well.
#
# A binary for another system runs by qemu-user-static (arm64; with libc6-arm64-cross for glibc) or
# wine (Windows). A static one runs in a root folder that is empty otherwise, to show that it needs
# nothing.
set -euo pipefail

[ $# = 2 ] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
target=$1
binary=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
tools=$(cd "$(dirname "$0")/.." && pwd)/target/release-tools
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

fail() { echo "$target: FAILED: $*"; exit 1; }
cannot() { echo "$target: NOT RUN, only linked: $*"; exit 3; }
has() { command -v "$1" >/dev/null; }
limited() { if has timeout; then timeout 120 "$@"; else "$@"; fi; }

# try HOW COMMAND...: COMMAND starts the binary; `server` is how the binary itself starts it again.
try() {
    local how=$1 said
    shift
    [ ${#server[@]} -gt 0 ] || server=("$@")
    said=$(limited "$@" --version 2>&1) || fail "--version, $how: $said"
    grep -q '^moongate [0-9]' <<<"$said" || fail "--version, $how, says: $said"
    said=$(limited "$@" call echo text=moonlight -- "${server[@]}" mock --demo 2>&1) \
        || fail "$how: $said"
    grep -q moonlight <<<"$said" || fail "the demo, $how, answers: $said"
    echo "$target: its demo answered a call, $how"
    exit 0
}
server=()

system() {
    local name=''
    if [ -r /etc/os-release ]; then
        name=$(sed -n 's/^PRETTY_NAME="\?\([^"]*\)"\?$/\1/p' /etc/os-release)
    fi
    if has sw_vers; then name="macOS $(sw_vers -productVersion)"; fi
    echo "${name:-$(uname -s)}, $(uname -m)"
}

# In a namespace, root needs no rights outside it.
in_empty_root() {
    local root=$temp/root enter=(chroot)
    mkdir -p "$root/tmp"
    cp "$binary" "$root/moongate"
    [ "$(id -u)" = 0 ] || enter=(unshare --map-root-user chroot)
    "${enter[@]}" "$root" /moongate --version >/dev/null 2>&1 || {
        [ "$(id -u)" = 0 ] && fail "it doesn't start in an empty root"
        try "on $(system) (no right to make it an empty root)" "$binary"
    }
    server=(/moongate)
    try "in an empty root on $(system)" "${enter[@]}" "$root" /moongate
}

by_qemu() {
    has qemu-aarch64-static || cannot "no qemu-aarch64-static"
    local emulator=(qemu-aarch64-static)
    if [[ $target == *-gnu ]]; then
        [ -d /usr/aarch64-linux-gnu/lib ] || cannot "no libraries for arm64 (libc6-arm64-cross)"
        emulator+=(-L /usr/aarch64-linux-gnu)
    fi
    try "by $(qemu-aarch64-static --version | sed -n '1s/ (.*//p')" "${emulator[@]}" "$binary"
}

# Programs by Rust take random numbers from bcryptprimitives.dll, which wine has from 8.12 on. The
# one for older ones asks the same source under its former name.
by_wine() {
    has wine || cannot "no wine"
    cp "$binary" "$temp/moongate.exe"
    local version with=''
    version=$(wine --version)
    if [ "$(printf '%s\n' wine-8.12 "$version" | sort -V | head -1)" != wine-8.12 ]; then
        [ -x "$tools/python/bin/python-zig" ] || cannot "$version has no bcryptprimitives.dll"
        printf '%s\n' '#include <windows.h>' 'BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);' \
            '__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size)' \
            '{ return SystemFunction036(data, (ULONG)size); }' >"$temp/random.c"
        "$tools/python/bin/python-zig" cc -target x86_64-windows-gnu -shared \
            -o "$temp/bcryptprimitives.dll" "$temp/random.c" -ladvapi32
        with=" with a bcryptprimitives.dll made for it"
    fi
    export WINEPREFIX=$temp/wine WINEDEBUG=-all DISPLAY=''
    limited wine wineboot --init >/dev/null 2>&1 || true
    cd "$temp"
    server=(./moongate.exe)
    try "by $version$with" wine ./moongate.exe
}

case "$target on $(uname -s) $(uname -m)" in
    x86_64-*-linux-gnu\ on\ Linux\ x86_64 | aarch64-*-linux-gnu\ on\ Linux\ aarch64) ;;
    x86_64-*-linux-*\ on\ Linux\ x86_64 | aarch64-*-linux-*\ on\ Linux\ aarch64) in_empty_root ;;
    aarch64-*-linux-*\ on\ Linux\ x86_64) by_qemu ;;
    *-windows-*\ on\ Linux\ x86_64) by_wine ;;
    x86_64-apple-darwin\ on\ Darwin\ x86_64 | aarch64-apple-darwin\ on\ Darwin\ arm64) ;;
    x86_64-*-windows-*\ on\ M[IS]*\ x86_64) ;;
    *) cannot "this is $(system)" ;;
esac
try "on $(system)" "$binary"
