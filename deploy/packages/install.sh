#!/bin/sh
# Installs Moongate @VERSION@ from its archive, after checking the archive's sum:
#
#     curl -fsSL @DOWNLOAD@/install.sh | sh
#
# It needs curl or wget, tar and gzip, and one of sha256sum, shasum and openssl. Variables:
#
#     MOONGATE_INSTALL_DIR  where the program goes; default ~/.local/bin, for root /usr/local/bin
#     MOONGATE_DOWNLOAD     a folder or mirror to download from: the address of SHA256SUMS without
#                           that name
#
# It changes one file, $MOONGATE_INSTALL_DIR/moongate, and nothing if a step fails.
set -eu

# The release's archives, with the oldest glibc that each one runs on.
targets='@TARGETS@'

say() { printf '%s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

# Sets system, machine, libc and glibc_minor.
detect() {
    system="$(uname -s)" machine="$(uname -m)" libc='' glibc_minor=0
    case "$machine" in
        x86_64 | amd64) machine=x86_64 ;;
        aarch64 | arm64) machine=aarch64 ;;
    esac
    case "$system" in
        Linux) detect_libc ;;
        Darwin)
            # A shell under Rosetta is told that the processor is an Intel one.
            if [ "$(sysctl -n sysctl.proc_translated 2>/dev/null || :)" = 1 ]; then
                machine=aarch64
            fi
            ;;
    esac
}

detect_libc() {
    # `glibc 2.36`; musl has no such variable.
    version="$(getconf GNU_LIBC_VERSION 2>/dev/null || :)"
    # Systems without getconf: `ldd (Debian GLIBC 2.36-9) 2.36`, or `musl libc (x86_64)`.
    [ -n "$version" ] || version="$(ldd --version 2>&1 | head -n 1 || :)"
    case "$version" in
        glibc\ 2.* | *GLIBC*\ 2.* | *GNU\ libc*\ 2.*)
            version="${version##* }"
            libc="glibc $version"
            glibc_minor="${version#2.}"
            glibc_minor="${glibc_minor%%[!0-9]*}" # it may be 2.36.1
            ;;
        *musl*) libc=musl ;;
        *) libc='an unknown libc' ;;
    esac
    # A 32-bit system on a 64-bit kernel, as on many Raspberry Pis, has the wrong glibc.
    if [ "$(getconf LONG_BIT 2>/dev/null || :)" = 32 ]; then
        libc='a 32-bit libc'
        glibc_minor=0
    fi
}

# Sets target to the archive that fits. The static one runs with every libc, and is a little slower.
choose() {
    target=''
    case "$system" in
        Darwin) if has_target "$machine-apple-darwin"; then target="$machine-apple-darwin"; fi ;;
        Linux)
            if has_target "$machine-unknown-linux-gnu" && [ "$glibc_minor" -ge "$needs" ]; then
                target="$machine-unknown-linux-gnu"
            elif has_target "$machine-unknown-linux-musl"; then
                target="$machine-unknown-linux-musl"
            fi
            ;;
    esac
    if [ -n "$target" ]; then return; fi
    say "error: no archive of Moongate @VERSION@ fits this machine: $system, processor" \
        "$machine${libc:+, $libc}" >&2
    {
        say 'This release has:'
        say "$targets" | sed 's/ 0$//; s/ \([0-9]*\)$/ (glibc 2.\1 or newer)/; s/^/    /'
        say 'Other ways, among them a build from source and containers:'
        say '    @REPOSITORY@/blob/v@VERSION@/docs/guides/install.md'
    } >&2
    exit 1
}

# True if the release has this target; sets needs to the minor version of glibc that it needs.
has_target() {
    needs="$(say "$targets" | sed -n "s/^$1 //p")"
    [ -n "$needs" ]
}

# download NAME: into the temporary folder.
download() {
    case "$base" in https:*) https_only=1 ;; *) https_only='' ;; esac
    if has curl; then
        curl -fsSL ${https_only:+--proto '=https'} -o "$temp/$1" "$base/$1"
    elif has wget; then
        wget -q -O "$temp/$1" "$base/$1"
    else
        die "downloading needs curl or wget; nothing was installed"
    fi || die "$base/$1 can't be downloaded; nothing was installed"
}

# Prints the SHA-256 of a file.
sum_of() {
    if has sha256sum; then sha256sum "$1" | cut -d' ' -f1
    elif has shasum; then shasum -a 256 "$1" | cut -d' ' -f1
    else openssl dgst -sha256 "$1" | sed 's/.* //'
    fi
}

verify() {
    expected="$(sed -n "s/^\([0-9a-f]\{64\}\)  $archive\$/\1/p" "$temp/SHA256SUMS")"
    [ -n "$expected" ] || die "$base/SHA256SUMS has no sum for $archive; nothing was installed"
    actual="$(sum_of "$temp/$archive")"
    if [ "$actual" != "$expected" ]; then
        say "error: $archive isn't the file that was released; nothing was installed" >&2
        say "expected sum: $expected" >&2
        say "its sum:      $actual" >&2
        exit 1
    fi
}

# Unpacks next to the old program and renames, so that one which runs goes on, and no other process
# ever sees half a file.
place() {
    tar -xzf "$temp/$archive" -C "$temp" "$folder/moongate" || die "$archive can't be unpacked"
    [ -d "$directory" ] || made="$directory"
    mkdir -p "$directory" || die "$directory can't be created; set MOONGATE_INSTALL_DIR"
    [ ! -d "$directory/moongate" ] || die "$directory/moongate is a folder"
    new="$directory/.moongate-$$"
    cp "$temp/$folder/moongate" "$new" || die "can't write to $directory; set MOONGATE_INSTALL_DIR"
    chmod 755 "$new"
    installed="$("$new" --version)" || die "$target doesn't run on this machine"
    mv -f "$new" "$directory/moongate"
    say "Installed $installed as $directory/moongate"
}

advise() {
    case ":$PATH:" in
        *":$directory:"*) ;;
        *)
            say "$directory is not on your PATH. Add it, here and in your shell's start file:"
            case "${SHELL:-}" in
                */fish) say "    fish_add_path $directory" ;;
                *) say "    export PATH=\"$directory:\$PATH\"" ;;
            esac
            ;;
    esac
    found="$(command -v moongate || :)"
    if [ -n "$found" ] && [ "$found" != "$directory/moongate" ]; then
        say "Your shell finds another one first: $found"
    fi
    say "Try it: moongate serves a demo, and moongate import takes over your clients' servers."
}

clean_up() {
    rm -rf "$temp"
    if [ -n "$new" ]; then rm -f "$new"; fi
    # A folder that was made for nothing is empty.
    if [ -n "$made" ]; then rmdir "$made" 2>/dev/null || :; fi
}

main() {
    base="${MOONGATE_DOWNLOAD:-@DOWNLOAD@}"
    base="${base%/}"
    if [ "$(id -u)" = 0 ]; then default=/usr/local/bin; else default="${HOME:-}/.local/bin"; fi
    directory="${MOONGATE_INSTALL_DIR:-$default}"
    case "$directory" in
        /.local/bin) die "HOME isn't set; set MOONGATE_INSTALL_DIR" ;;
        /*) ;;
        *) directory="$PWD/$directory" ;;
    esac
    has sha256sum || has shasum || has openssl ||
        die "checking the download needs sha256sum, shasum or openssl; nothing was installed"
    detect
    choose
    folder="moongate-@VERSION@-$target"
    archive="$folder.tar.gz"
    temp="$(mktemp -d)" new='' made=''
    trap clean_up EXIT
    trap 'exit 130' HUP INT TERM
    say "Downloading $base/$archive"
    download SHA256SUMS
    download "$archive"
    verify
    place
    advise
}

# On the last line and in braces, so that a script that was cut short in its download does nothing.
{ main "$@"; }
