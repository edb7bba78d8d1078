# shellcheck shell=bash
# A copy of the small Debian from setup_debian.sh, running: sourced by deb.sh.
#
# With systemd as its first process in a Podman container, where that starts. Elsewhere as a chroot
# with its own network and processes, where deb.sh starts what the unit says. Sets `init` to
# systemd or none. Invariant: stop_root ends every process in the copy and takes its mounts away.

# start_root TEMPLATE DIR: copies TEMPLATE to DIR/root and starts it. Sets first to the id of its
# first process.
start_root() {
    root="$2/root" container=moongate-deb-$$
    rm -rf "$root"
    cp -a "$1" "$root"
    # They would write files of their own between the two lists that deb.sh compares.
    rm -rf "$root/etc/systemd/system/timers.target.wants"
    if [ "${MOONGATE_DEB_INIT:-}" != none ] && start_container "$2"; then
        init=systemd
    else
        start_chroot "$2"
    fi
}

# Fails if systemd doesn't start.
start_container() {
    command -v podman >/dev/null || return 1
    podman=(podman --log-level fatal --root "$1/podman" --runroot "$1/podman-run"
        --cgroup-manager cgroupfs)
    # crun refuses a machine with both versions of cgroups; runc doesn't.
    if [ -d /sys/fs/cgroup/unified ] && command -v runc >/dev/null; then
        podman+=(--runtime runc)
    fi
    # Without SYS_ADMIN, systemd leaves out the parts of a unit's sandbox that need mounts. An
    # engine that is confined may not raise limits, as it does by default.
    if ! "${podman[@]}" run --detach --name "$container" --systemd always --cap-add SYS_ADMIN \
        --network none --ulimit nofile=1024:1024 --ulimit nproc=512:512 \
        --rootfs "$root" /sbin/init >"$1/podman.log" 2>&1; then
        return 1
    fi
    first="$("${podman[@]}" inspect --format '{{.State.Pid}}' "$container")"
    for _ in $(seq 100); do
        case "$(in_container systemctl is-system-running 2>/dev/null)" in
            running | degraded) return 0 ;;
        esac
        sleep 0.1
    done
    "${podman[@]}" rm --force "$container" >/dev/null 2>&1 || true
    return 1
}

# start_chroot DIR
start_chroot() {
    # Bash waits for every process whose parent has ended, as an init does.
    unshare --net --mount --pid --fork --kill-child bash -c "
        ip link set lo up && mount -t proc proc '$root/proc' || exit
        while :; do sleep 60 & wait; done" >"$1/chroot.log" 2>&1 &
    holder=$!
    for _ in $(seq 100); do
        first="$(ps -o pid= --ppid "$holder" | tr -d ' ')"
        [ -z "$first" ] || [ ! -e "/proc/$first/root$root/proc/1" ] || return 0
        sleep 0.05
    done
    echo "error: the chroot doesn't start" >&2
    exit 1
}

# A tenth of a second faster than `podman exec`, and used more than fifty times.
in_container() {
    nsenter --target "$first" --mount --net --pid --ipc --uts \
        env --ignore-environment PATH="$PATH" HOME=/root "$@"
}

# in_root COMMAND...: runs a command in the copy, as root.
in_root() {
    if [ "$init" = systemd ]; then
        in_container "$@"
    else
        in_container chroot "$root" "$@"
    fi
}

stop_root() {
    if [ "$init" = systemd ]; then
        "${podman[@]}" rm --force --time 5 "$container" >/dev/null 2>&1 || true
    elif [ -n "$holder" ]; then
        # The kernel ends all others of the namespace with its first process.
        kill -KILL "${first:-$holder}" 2>/dev/null || true
        wait "$holder" 2>/dev/null || true
    fi
}

# is_ready: true if /readyz answers 200.
is_ready() { in_root bash -c "$READY"; }

# wait_until_ready: up to ten seconds.
wait_until_ready() {
    in_root bash -c "for _ in {1..200}; do ($READY) && exit; sleep 0.05; done; exit 1"
}

# Bash reads and writes it, since the small Debian has no HTTP client.
# shellcheck disable=SC2016 # the bash in the copy expands it
READY='exec 2>/dev/null 3<>/dev/tcp/127.0.0.1/9090 || exit 1
printf "GET /readyz HTTP/1.1\r\nHost: localhost:9090\r\nConnection: close\r\n\r\n" >&3
read -r _ status _ <&3 && [ "$status" = 200 ]'

# Everything in the copy that a package could leave: each path with its kind, owner, mode and link
# target, and the sums of the files in /etc. Not what dpkg and the journal keep of every package.
list_files() {
    in_root find / -xdev \( -path /var/log -o -path /var/lib/dpkg -o -path /proc -o -path /run \
        -o -path /tmp \) -prune -o -printf '%p %y %u:%g %m %l\n' | sort
    in_root find /etc -type f ! -name '*-' -exec sha256sum {} + | sort
}
