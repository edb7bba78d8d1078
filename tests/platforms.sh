#!/usr/bin/env bash
# Type-checks everything, tests and benches too, for macOS and Windows. Warnings are errors. Nothing is linked or run.
#
# It needs dlltool for Windows (binutils-mingw-w64-x86-64) and the standard library of both targets. The toolchain may
# have that (`rustup target add ...`). Otherwise it is checked from its source with Debian's Rust (rustc-web, cargo-web,
# rust-web-src). MOONGATE_INSTALL_TOOLS=1 installs the tools from Debian, as root. Without tools the check is skipped,
# loudly. Its own folder is target/platforms.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=(aarch64-apple-darwin x86_64-pc-windows-gnu)
packages=(rustc-web cargo-web rust-web-src binutils-mingw-w64-x86-64)
minor=$(sed -n 's/^rust-version = "1\.\([0-9]*\).*"$/\1/p' Cargo.toml)

# True if the toolchain of this folder has the standard library of all targets.
has_targets() {
    command -v x86_64-w64-mingw32-dlltool >/dev/null || return 1
    local target
    for target in "${targets[@]}"; do
        [ -d "$(rustc --print target-libdir --target "$target")" ] || return 1
    done
}

# True if Debian's Rust is there with its source, and new enough.
has_debian() {
    command -v x86_64-w64-mingw32-dlltool >/dev/null || return 1
    [ -x /usr/bin/cargo ] && [ -d /usr/lib/rustlib/src/rust/library/std ] || return 1
    local version
    version=$(cd / && /usr/bin/rustc --version 2>/dev/null | sed -n 's/^rustc 1\.\([0-9]*\)\..*/\1/p')
    [ "${version:-0}" -ge "$minor" ]
}

# Debian keeps one version of each package, so these have no pins. has_debian checks what came.
install_debian() {
    [ "${MOONGATE_INSTALL_TOOLS:-}" = 1 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "platforms: installing ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update && apt-get install --yes --no-install-recommends "${packages[@]}"; } >/dev/null
}

if has_targets; then
    cargo=cargo build_std=()
    export RUSTFLAGS="-D warnings"
elif has_debian || { install_debian && has_debian; }; then
    cargo=/usr/bin/cargo build_std=(-Zbuild-std=std,panic_abort -Zbuild-std-features=panic-unwind -Zwarnings --config "build.warnings='deny'")
    # Debian's compiler is a stable one, and checking the standard library is an unstable option of cargo.
    export RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc RUSTC_BOOTSTRAP=1
else
    echo "platforms: SKIPPED. NOT CHECKED for ${targets[*]}." >&2
    echo "platforms: run 'rustup target add ${targets[*]}', or on Debian as root 'apt-get install ${packages[*]}'" >&2
    exit 0
fi

# Checking needs no C compiler: cargo takes these answers in place of the build scripts that would call one.
aws_lc=aws_lc_$(sed -n '/^name = "aws-lc-sys"$/{n;s/version = "\(.*\)"/\1/p}' Cargo.lock | tr . _)
config=()
for target in "${targets[@]}"; do
    config+=(--config "target.$target.$aws_lc.rustc-cfg=['universal']" --config "target.$target.$aws_lc.include='none'")
    config+=(--config "target.$target.jemalloc.rustc-cfg=['prefixed']")
done

export CARGO_TARGET_DIR=$PWD/target/platforms
# All at once: what is built for this system, like macros, is built once, and no target waits for the end of another one.
"$cargo" check --quiet --locked ${build_std[@]+"${build_std[@]}"} "${config[@]}" --workspace --all-targets \
    "${targets[@]/#/--target=}" "$@"
echo "platforms: ${targets[*]} compile"
