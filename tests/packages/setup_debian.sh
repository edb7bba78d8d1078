#!/usr/bin/env bash
# Installs what deb.sh, install_script.sh and formula.py need: Debian's packages, and a small Debian
# made by debootstrap, in which the .deb is tried.
#
#   setup_debian.sh [DIR]      DIR: where the small Debian goes, by default target/packages
#
# Needs Debian or Ubuntu, and root. Safe to run again, and from several processes at once.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
dir="${1:-$here/../../target/packages}"
mkdir -p "$dir"
dir="$(cd "$dir" && pwd)"
root="$dir/debian"
mirror=http://deb.debian.org/debian

# What the .deb depends on, and systemd as its init.
includes=systemd,systemd-sysv,dbus,libgcc-s1,ca-certificates

say() { echo "packages: $*"; }

exec 9>"$dir/debian.lock"
flock 9

# Each tool with the package that has it.
missing=()
for tool in lintian debootstrap ruby shellcheck busybox podman runc curl wget ip:iproute2 \
    strip:binutils dpkg-shlibdeps:dpkg-dev nsenter:util-linux; do
    command -v "${tool%:*}" >/dev/null || missing+=("${tool#*:}")
done
if [ "${#missing[@]}" != 0 ]; then
    line="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
    if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
        echo "error: the tests of packages need ${missing[*]}; on Debian: sudo sh -c '$line'" >&2
        exit 1
    fi
    say "installing ${missing[*]}"
    DEBIAN_FRONTEND=noninteractive sh -c "$line" >"$dir/apt.log" 2>&1 ||
        { tail "$dir/apt.log" >&2; exit 1; }
fi

# A binary that was built here needs this system's libraries. Elsewhere than on Debian, the newest
# stable Debian comes closest.
suite="$(. /etc/os-release && [ "$ID" = debian ] && echo "$VERSION_CODENAME" || echo trixie)"
stamp="$suite $includes"
if [ "$(cat "$root.stamp" 2>/dev/null)" = "$stamp" ]; then
    say "Debian $suite: up to date"
else
    say "Debian $suite: installing, about a minute"
    rm -rf "$root"
    debootstrap --variant=minbase --include="$includes" "$suite" "$root" "$mirror" \
        >"$dir/debootstrap.log" 2>&1 || { tail "$dir/debootstrap.log" >&2; exit 1; }
    # What no test reads isn't copied by each.
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* \
        "$root"/usr/share/{doc,info,locale,man}/*
    echo "$stamp" >"$root.stamp"
fi
say "ready in $dir"
