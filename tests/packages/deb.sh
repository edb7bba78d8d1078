#!/usr/bin/env bash
# Tries the .deb: lintian, install, a tool call, upgrade, remove, purge, in a Debian of its own.
#
#   deb.sh BINARY WORK
#
# BINARY: a Linux binary for this machine. WORK: a folder for everything that is written. Needs
# root, and tests/packages/setup_debian.sh before it (its folder in MOONGATE_PACKAGES, if it isn't
# target/packages). MOONGATE_DEB_INIT=none doesn't use systemd as init, even if it starts here.
# shellcheck disable=SC2317 # check calls most functions
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source-path=SCRIPTDIR source=debian_root.sh
. "$here/debian_root.sh"

binary="$1" failed=0
mkdir -p "$2"
work="$(cd "$2" && pwd)"
packages="$(cd "${MOONGATE_PACKAGES:-$here/../../target/packages}" && pwd)"
version="$("$binary" --version | cut -d' ' -f2)"
next="${version%.*}.999"

trap stop_root EXIT
trap 'exit 130' INT TERM
# start_root sets these.
init="none" holder="" first="" root=""

pass() { echo "ok    $*"; }
fail() { echo "FAIL  $*"; failed=1; }
# check WHAT COMMAND...: runs it, and shows its output if it fails.
check() {
    local what="$1" said; shift
    if said="$("$@" 2>&1)"; then pass "$what"; else fail "$what"; head -c 3000 <<<"$said"; fi
}
# fails COMMAND...: true if it fails.
fails() { if "$@"; then return 1; fi; }
same() { [ "$1" = "$2" ] || { printf 'expected: %s\ngot:      %s\n' "$1" "$2"; return 1; }; }
now() { date +%s%3N; }

# ---- the packages ----

# pack VERSION DIR: prints the path of the package.
pack() { python3 "$here/make_release.py" --version "$1" "$program" "$2" debian; }

make_packages() {
    rm -rf "$work/debs"
    mkdir -p "$work/debs"
    program="$work/debs/moongate"
    cp "$binary" "$program"
    # A debug build has symbols, which releases don't have and lintian objects to.
    if ! "$binary" --version --verbose 2>/dev/null | grep -qx 'build: optimized'; then
        strip "$program"
    fi
    first_deb="$(pack "$version" "$work/debs/first")"
    next_deb="$(pack "$next" "$work/debs/next")"
    echo "      $(basename "$first_deb"): $(($(stat -c %s "$first_deb") / 1000)) kB"
    check "packing again gives the same bytes" \
        cmp "$first_deb" "$(pack "$version" "$work/debs/again")"
    check "lintian finds no error and no warning" lintian_is_silent "$first_deb"
    check "dpkg-shlibdeps finds the same dependencies" same \
        "$(shlibdeps)" "$(dpkg-deb -f "$first_deb" Depends | grep -o '^.*), ' | sed 's/, $//')"
}

lintian_is_silent() {
    local tags
    # Not without its fault: it objects to root.
    tags="$(lintian --fail-on none "$1" 2>/dev/null)"
    echo "$tags"
    fails grep -q '^[EW]:' <<<"$tags"
}

shlibdeps() {
    mkdir -p "$work/debs/source/debian"
    printf 'Source: moongate\n\nPackage: moongate\nArchitecture: any\n' \
        >"$work/debs/source/debian/control"
    (cd "$work/debs/source" && dpkg-shlibdeps -O "$program" 2>/dev/null) | sed 's/^[^=]*=//'
}

# ---- the service ----

# service_pid: the gateway's process, as seen in the copy.
service_pid() {
    if [ "$init" = systemd ]; then
        in_root systemctl show --property MainPID --value moongate.service
    else
        in_root cat /run/moongate.pid 2>/dev/null || true
    fi
}

# Without systemd: what the unit says, under its user and in its directory.
start_by_hand() {
    local unit=/usr/lib/systemd/system/moongate.service
    in_root bash -c "
        set -e
        value() { sed -n \"s/^\$1=//p\" $unit; }
        user=\$(value User) home=/var/lib/\$(value StateDirectory)
        install -d -m \"\$(value StateDirectoryMode)\" -o \"\$user\" -g \"\$user\" \"\$home\"
        cd \"\$home\"
        setpriv --reuid \"\$user\" --regid \"\$user\" --init-groups --no-new-privs \
            env HOME=\"\$home\" STATE_DIRECTORY=\"\$home\" \$(value ExecStart) \
            >/run/moongate.log 2>&1 &
        echo \$! >/run/moongate.pid"
}

stop_by_hand() {
    local pid
    pid="$(service_pid)"
    in_root bash -c "kill $pid; while [ -d /proc/$pid ]; do sleep 0.05; done; rm /run/moongate.*"
}

# install_deb PATH: as a user would, with the service started afterwards.
install_deb() {
    in_root dpkg -i "/srv/$(basename "$1")" >"$work/dpkg.log" 2>&1 || return 1
    [ "$init" = systemd ] || start_by_hand
}

# shellcheck disable=SC2016 # dpkg-query expands it
installed_version() { in_root dpkg-query -W -f '${Version}' moongate; }

# call SERVER: its tool `add`, as a user without rights. A server that has just started gets 5 s.
call() {
    in_root setpriv --reuid nobody --regid nogroup --clear-groups bash -c "
        for _ in {1..50}; do
            said=\$(moongate call $1__add a=20 b=22 2>&1) && break
            sleep 0.1
        done
        echo \"\$said\""
}

# ---- the checks in the copy ----

try_install() {
    local start
    start="$(now)"
    check "dpkg -i" install_deb "$first_deb"
    check "/readyz answers" wait_until_ready
    echo "      dpkg -i to an answering /readyz: $(($(now) - start)) ms (init: $init)"
    check "another user calls a tool of the default config" same 42 "$(call demo)"
    check "the service runs as its user" same moongate \
        "$(in_root stat -c %U "/proc/$(service_pid)")"
    check "systemd-analyze verify has nothing to say" same "" "$(in_root systemd-analyze verify \
        --man=no /usr/lib/systemd/system/moongate.{service,socket} 2>&1)"
    check "bash finds the completions" in_root bash -c \
        '. /usr/share/bash-completion/completions/moongate && complete -p moongate'
}

try_edit_and_upgrade() {
    local before config
    # The list of edits is the administrator's own, and not what a package may remove.
    check "moongate add, as root, reaches the service" in_root env XDG_STATE_HOME=/tmp \
        moongate add second -- /usr/bin/moongate mock --demo
    check "the added server is called" same 42 "$(call second)"
    config="$(in_root sha256sum /etc/moongate/moongate.toml)"
    before="$(service_pid)"
    [ "$init" = systemd ] || stop_by_hand
    check "upgrade" install_deb "$next_deb"
    check "the new version is installed" same "$next" "$(installed_version)"
    check "/readyz answers after the upgrade" wait_until_ready
    check "the upgrade started the new program" fails same "$before" "$(service_pid)"
    check "the upgrade keeps the edited config" same "$config" \
        "$(in_root sha256sum /etc/moongate/moongate.toml)"
    check "the edited config is served" same 42 "$(call second)"
}

# What only systemd does.
try_systemd() {
    local pid
    pid="$(service_pid)"
    check "the service can't write to /etc and /usr" in_root bash -c \
        "grep -q ' / / ro,' /proc/$pid/mountinfo || grep -qE '^[^ ]+ [^ ]+ [^ ]+ [^ ]+ / ro,' \
        /proc/$pid/mountinfo"
    check "the service has no capabilities" in_root grep -q '^CapBnd:.0*$' "/proc/$pid/status"
    check "systemctl reload" in_root systemctl reload moongate.service

    in_root systemctl disable --quiet --now moongate.service
    check "an upgrade of a disabled service" install_deb "$next_deb"
    check "a disabled service stays disabled" same disabled \
        "$(in_root systemctl is-enabled moongate.service)"
    check "a disabled service stays stopped" fails is_ready

    in_root systemctl enable --quiet moongate.service
    in_root sed -i '1i mistake =' /etc/moongate/moongate.toml
    check "an upgrade with a broken config still installs" install_deb "$next_deb"
    check "a broken config isn't served" fails is_ready
    in_root sed -i '1d' /etc/moongate/moongate.toml

    in_root sed -i '1i [gateway]\nlisten = "systemd"' /etc/moongate/moongate.toml
    check "the socket is enabled as its file says" in_root systemctl enable --now moongate.socket
    check "a connection to the socket starts the service" in_root bash -c ': </dev/tcp/127.0.0.1/8080'
    check "/readyz answers after the connection" wait_until_ready
}

try_remove_and_purge() {
    [ "$init" = systemd ] || stop_by_hand
    check "dpkg -r" in_root dpkg -r moongate
    check "removing stops the service" fails is_ready
    check "removing keeps the config" in_root test -f /etc/moongate/moongate.toml
    check "removing takes the program" fails in_root test -e /usr/bin/moongate
    # What an administrator may have put there.
    in_root bash -c 'umask 077; echo GITHUB_TOKEN=secret >/etc/moongate/environment'
    check "dpkg -P" in_root dpkg -P moongate
    check "purging takes the user" fails in_root getent passwd moongate
    check "purging takes the group" fails in_root getent group moongate
    check "dpkg doesn't know the package" fails in_root dpkg-query -W moongate
    list_files >"$work/after"
    check "no file, link or changed line is left" diff "$work/before" "$work/after"
}

make_packages
start_root "$packages/debian" "$work"
echo "      init: $init"
in_root mkdir -p /srv
cp "$first_deb" "$next_deb" "$root/srv/"
list_files >"$work/before"
try_install
try_edit_and_upgrade
[ "$init" != systemd ] || try_systemd
try_remove_and_purge
exit "$failed"
