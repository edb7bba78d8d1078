# shellcheck shell=bash disable=SC2034
# What npm.sh and wheel.sh share: checks, packing for this machine, and the demo. Sourced by them.
#
# Sets `here`, `work`, `binary`, `tools`, `version` and `triple` from the arguments BINARY WORK.
# Invariant: what was started through `demo_start` is ended before the script ends.

[ $# = 2 ] || { echo "usage: $0 BINARY WORK" >&2; exit 2; }
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
binary="$(realpath "$1")"
rm -rf "$2"
mkdir -p "$2"
work="$(cd "$2" && pwd)"
tools="$(cd "${MOONGATE_PACKAGES:-$here/../../target/packages}" && pwd)"
version="$("$binary" --version | cut -d' ' -f2)"
triple="$(uname -m)-unknown-linux-gnu"
failed=0
started=()
# More variables for as_user.
user_variables=()

note() { echo "      $*"; }
# check WHAT COMMAND...: runs it, and shows its output if it fails.
check() {
    local what="$1" said
    shift
    if said="$("$@" 2>&1)"; then echo "ok    $what"; else
        echo "FAIL  $what"
        head -c 3000 <<<"$said"
        failed=1
    fi
}
same() { [ "$1" = "$2" ] || { printf 'expected: %s\ngot:      %s\n' "$1" "$2"; return 1; }; }
# until_true SECONDS COMMAND...: tries it until it succeeds.
until_true() {
    local end=$((SECONDS + $1))
    shift
    local said
    until said="$("$@" 2>&1)"; do
        [ "$SECONDS" -lt "$end" ] || { echo "still not: $*: $said"; return 1; }
        sleep 0.05
    done
}
kilobytes() { echo $(($(stat -c %s "$1") / 1000)); }
now() { date +%s%3N; }
seconds_since() { printf '%d.%02d s' $((($(now) - $1) / 1000)) $((($(now) - $1) % 1000 / 10)); }

stop_started() {
    local pid
    for pid in "${started[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
    for pid in $(processes); do kill -KILL "$pid" 2>/dev/null || true; done
}
trap stop_started EXIT

# Everything below the home of a user who has nothing yet.
home="$work/home"
new_home() {
    rm -rf "$home"
    mkdir -p "$home/empty"
}
# as_user COMMAND...: runs it in an empty folder, with nothing of the caller's environment but the
# path to programs.
as_user() {
    cd "$home/empty" || exit
    exec env -i PATH="$PATH" HOME="$home" LANG=C.UTF-8 "${user_variables[@]}" "$@"
}
# The processes whose program or script is in that home.
processes() { pgrep -f "$home/" || true; }
none_left() { [ -z "$(processes)" ]; }

# Packs the binary into $work/packages. A debug build loses its symbols first, which would take
# most of the time.
pack() {
    mkdir -p "$work/binaries/$triple"
    if "$binary" --version --verbose 2>/dev/null | grep -qx 'build: optimized'; then
        cp "$binary" "$work/binaries/$triple/moongate"
    else
        strip -o "$work/binaries/$triple/moongate" "$binary"
    fi
    python3 "$here/../../deploy/packages/pack.py" "$work/binaries" "$work/packages"
}

# demo_start COMMAND...: starts the gateway on ports that the system picks. Sets `demo` to its
# process, and waits for its address.
demo_start() {
    : >"$work/demo.log"
    local variables=(MOONGATE_GATEWAY__LISTEN=127.0.0.1:0 MOONGATE_GATEWAY__ADMIN=false)
    (as_user env "${variables[@]}" "$@" </dev/null >"$work/demo.log" 2>&1) &
    demo=$!
    started+=("$demo")
    until_true 30 grep -q 'listening on http' "$work/demo.log" || cat "$work/demo.log"
}
demo_url() { sed -n 's/.*listening on \(http[^ ]*\).*/\1/p' "$work/demo.log" | head -1; }
# A tool call to the demo, by the binary that was packed.
demo_answers() {
    same 42 "$("$work/binaries/$triple/moongate" call --url "$(demo_url)" demo__add a=20 b=22)"
}
# connects RUNNER...: has the program connect Cursor to the demo.
connects() {
    as_user "$@" connect cursor --stdio --write --yes --endpoint "$(demo_url)"
}
# The words of the entry that `connects` wrote, one a line.
entry_words() {
    node -p 'const { command, args } = require(process.argv[1]).mcpServers.moongate;
        [command, ...args].join("\n")' "$home/.cursor/mcp.json"
}
demo_process() { pgrep -f "^$home/.*/moongate( |$)" | head -1; }
