#!/usr/bin/env bash
# Cross-links the binaries of a release, with zig as the C compiler and the linker.
#
#     deploy/targets.sh [--out DIR] [--profile NAME] [--from-source] [TARGET...]
#
# Writes DIR/TARGET/moongate, which deploy/packages/pack.py takes; DIR is target/binaries unless
# named. Without a TARGET it builds all that zig can link. Each one takes minutes, so no test runs
# this. Run again, it continues where it stopped, because Cargo keeps what it has built.
#
# It needs Linux, Python 3 and the Rust of rust-toolchain.toml; pinned tools go into
# target/release-tools. rustup adds a target's standard library. Where it can't reach its server, or
# with --from-source, the library is built with Debian's Rust (rustc-web, cargo-web, rust-web-src),
# which MOONGATE_INSTALL_TOOLS=1 installs, as root. Such a binary shows that a target links and
# runs. It isn't for publishing, because nothing else is tested with Debian's Rust.
set -euo pipefail
cd "$(dirname "$0")/.."

all=(x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-unknown-linux-musl
    aarch64-unknown-linux-musl x86_64-pc-windows-gnu)
glibc=2.17
debian_packages=(rustc-web cargo-web rust-web-src)
out=target/binaries profile=dist from_source='' targets=()
tools=$PWD/target/release-tools

say() { echo "targets: $*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

while [ $# -gt 0 ]; do
    case $1 in
        --out) out=${2:?--out needs a folder}; shift ;;
        --profile) profile=${2:?--profile needs a name}; shift ;;
        --from-source) from_source=yes ;;
        -*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
        *)
            [[ " ${all[*]} " == *" $1 "* ]] || die "zig can't link $1; it can ${all[*]}"
            targets+=("$1") ;;
    esac
    shift
done
[ ${#targets[@]} -gt 0 ] || targets=("${all[@]}")
[ "$(uname -s)" = Linux ] || die "this needs Linux; other systems build for themselves"

# ---- the standard library of a target ----

has_std() { [ -d "$(rustc --print target-libdir --target "$1")" ]; }

# rustup waits long for a server that it can't reach, so that is asked first.
rustup_reaches_its_server() {
    local server=${RUSTUP_DIST_SERVER:-https://static.rust-lang.org}
    command -v rustup >/dev/null && curl --silent --fail --location --max-time 20 \
        --output /dev/null "$server/dist/channel-rust-stable.toml.sha256"
}

has_debian() {
    [ -x /usr/bin/cargo ] && [ -d /usr/lib/rustlib/src/rust/library/std ] || return 1
    local minor version
    minor=$(sed -n 's/^rust-version = "1\.\([0-9]*\).*"$/\1/p' Cargo.toml)
    version=$(cd / && /usr/bin/rustc --version | sed -n 's/^rustc 1\.\([0-9]*\)\..*/\1/p')
    [ "${version:-0}" -ge "$minor" ]
}

# Debian keeps one version of each package, so these have no pins. has_debian checks what came.
install_debian() {
    [ "${MOONGATE_INSTALL_TOOLS:-}" = 1 ] && [ "$(id -u)" = 0 ] || return 1
    say "installing ${debian_packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update >/dev/null \
        && apt-get install --yes --no-install-recommends "${debian_packages[@]}" >/dev/null
}

# Sets `rust` to toolchain or debian, whichever can build the target.
find_rust() {
    rust=toolchain
    has_std "$1" && return
    if [ ! "$from_source" ] && rustup_reaches_its_server; then
        rustup target add "$1"
        return
    fi
    rust=debian
    has_debian || { install_debian && has_debian; } || die "there is no standard library for $1:" \
        "run 'rustup target add $1', or on Debian 'apt-get install ${debian_packages[*]}'"
}

# Debian's compiler is a stable one, and building the standard library is an unstable option of
# Cargo. For musl, rustc names files that a program starts with, which come with rustup's targets
# only; zig has its own. Debian's rustc asks for two libraries of its MinGW, which zig has no use
# for; empty ones satisfy it.
use_debian() {
    export PATH="$tools/python/bin:$tools/bin:/usr/bin:$PATH"
    export CARGO=/usr/bin/cargo RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc RUSTC_BOOTSTRAP=1
    build+=("-Zbuild-std=std,panic_unwind")
    case $1 in
        *-musl) export RUSTFLAGS="-C link-self-contained=no" ;;
        *-windows-gnu)
            mkdir -p "$tools/empty"
            for library in ssp ssp_nonshared; do
                "$tools/python/bin/python-zig" ar rc "$tools/empty/lib$library.a"
            done
            export RUSTFLAGS="-L native=$tools/empty" ;;
    esac
}

# ---- one target ----

# build_target TARGET: in a shell of its own, since each one sets other variables.
build_target() (
    target=$1 versioned=$1 file=moongate
    case $target in
        *-linux-gnu) versioned=$target.$glibc ;;
        *-windows-*) file=moongate.exe ;;
    esac
    # Kernels with pages of 64 KiB are common on arm64, and jemalloc must be built for the largest
    # page that it will meet.
    if [[ $target == aarch64-* ]]; then export JEMALLOC_SYS_WITH_LG_PAGE=16; fi
    # aws-lc has its assembly for Windows assembled already, for those without nasm.
    export AWS_LC_SYS_PREBUILT_NASM=1
    build=(auditable zigbuild --locked --profile "$profile" --bin moongate --target "$versioned")
    export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target/targets}"
    export PATH="$tools/python/bin:$tools/bin:$PATH"
    unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
    if [ "$rust" = debian ]; then use_debian "$target"; fi
    say "$target, by $(rustc --version)"
    before=$SECONDS
    cargo "${build[@]}"
    # The folder of the profile dev is the one that has another name.
    built=$CARGO_TARGET_DIR/$target/${profile/#dev/debug}/$file
    install -D -m 755 "$built" "$out/$target/$file"
    size=$(stat -c %s "$out/$target/$file")
    say "$out/$target/$file: $((size / 1000000)) MB, $((SECONDS - before)) s"
)

deploy/release-tools.sh python auditable
for target in "${targets[@]}"; do
    find_rust "$target"
    build_target "$target"
done
