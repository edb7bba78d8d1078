#!/usr/bin/env bash
# Builds both images and uses them as a user would: keys, a tool call, health, a strange user id, a read-only root,
# npx and uvx servers, and a clean stop.
#
#     deploy/build-and-try.sh [--stand-ins] [--only gateway|full] [--binary FILE] [--save DIR] [--clean]
#
# --binary puts a binary that is built already into the images, as a release does: its images, archives and packages
# have the same bytes. --save writes the images that were tried to DIR/gateway.tar and DIR/full.tar.
#
# Uses Docker if an engine runs, else Podman. --stand-ins is for machines that reach no image registry: Podman then
# gets look-alikes of the base images, made of the distribution's packages (debootstrap), this machine's Rust toolchain
# and the package registries, in a storage of its own under $MOONGATE_TRY_DIR. What is proved with them is the
# Dockerfile and the images' behaviour; sizes and versions of the base images are only similar.
#
# MOONGATE_TRY_CA: certificates (PEM) that npx and uvx servers need on this network, if a proxy has its own.
set -euo pipefail
cd "$(dirname "$0")/.."

DIR=${MOONGATE_TRY_DIR:-${TMPDIR:-/var/tmp}/moongate-try}
RUN=moongate-try-$$
KEY=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
ADMIN_KEY=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
NPX_SERVER=@modelcontextprotocol/server-memory@2026.8.31
UVX_SERVER=mcp-server-time@2026.10.19
STAND_INS='' ONLY='' BINARY='' SAVE='' PASSED=0 FAILED=0 SKIPPED=0 CONTAINERS=()

while [ $# -gt 0 ]; do
    case $1 in
        --stand-ins) STAND_INS=1 ;;
        --only) ONLY=$2; shift ;;
        --binary) BINARY=$(realpath "$2"); shift ;;
        --save) SAVE=$(realpath -m "$2"); shift ;;
        --clean) CLEAN=1 ;;
        *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
    esac
    shift
done

say() { printf '\n== %s\n' "$*"; }
pass() { PASSED=$((PASSED + 1)); printf 'ok    %s\n' "$*"; }
fail() { FAILED=$((FAILED + 1)); printf 'FAIL  %s\n' "$*"; }
skip() { SKIPPED=$((SKIPPED + 1)); printf 'skip  %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
# expect WHAT TEXT PATTERN: whether the text has the pattern (extended regular expression) in it.
expect() { if grep -Eq -- "$3" <<<"$2"; then pass "$1"; else fail "$1: no /$3/ in:"; head -c 2000 <<<"$2"; echo; fi; }

# ---- the engine ----

if [ -z "$STAND_INS" ] && command -v docker >/dev/null && timeout 20 docker info >/dev/null 2>&1; then
    ENGINE=(docker) BUILD=(build) LIMITS=()
elif command -v podman >/dev/null; then
    # Its own complaints, such as that there is no systemd for health checks, are not ours; failures are still said.
    ENGINE=(podman --log-level fatal)
    # HEALTHCHECK is not part of the OCI format.
    BUILD=(build --format docker)
    # An engine that is itself confined may not raise limits, as it does by default.
    LIMITS=(--ulimit nofile=1024:1024 --ulimit nproc=512:512)
    if [ -n "$STAND_INS" ]; then
        ENGINE+=(--root "$DIR/storage" --runroot "$DIR/run")
        BUILD+=(--pull-never --isolation chroot --network host)
    fi
    # crun refuses a machine with both versions of cgroups; runc does not.
    if [ -d /sys/fs/cgroup/unified ] && command -v runc >/dev/null; then ENGINE+=(--runtime runc); fi
else
    die "neither a running Docker engine nor podman was found"
fi
engine() { timeout "${LIMIT:-60}" "${ENGINE[@]}" "$@"; }

cleanup() {
    for container in "${CONTAINERS[@]}"; do engine rm -f "$container" >/dev/null 2>&1 || true; done
    rm -rf "${TEMP:?}"
    if [ -n "${CLEAN:-}" ] && [ -n "$STAND_INS" ]; then
        engine rmi -af >/dev/null 2>&1 || true
        rm -rf "${DIR:?}"
    fi
}
TEMP=$(mktemp -d)
trap cleanup EXIT
trap 'exit 130' INT TERM
mkdir -p "$DIR"

# ---- stand-ins for the base images ----

arg() { sed -n "s/^ARG $1=//p" Dockerfile; }
DEBIAN=$(arg DEBIAN) RUST=$(arg RUST) NODE=$(arg NODE) UV=$(arg UV)
missing() { ! engine image exists "$1" && say "stand-in for $1"; }

stand_ins() {
    local debian=docker.io/library/debian:$DEBIAN-slim tree=$TEMP/tree
    [ "$(id -u)" = 0 ] || die "--stand-ins needs root, for debootstrap"
    if missing "$debian"; then
        local sources
        # shellcheck disable=SC2016 # apt-get fills these in
        sources=$(apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' \
            | awk -v r="$DEBIAN" '$3 == r || index($3, r "-") == 1' | sort -u)
        LIMIT=900 bounded debootstrap --variant=minbase "$DEBIAN" "$tree" \
            "$(awk -v r="$DEBIAN" '$3 == r { print $2; exit }' <<<"$sources")" >"$TEMP/log" || die "$(tail -5 "$TEMP/log")"
        echo "$sources" >"$tree/etc/apt/sources.list"
        # What the slim images leave out, and how they keep apt from leaving it again.
        printf '%s\n' 'Dir::Cache::pkgcache "";' 'Dir::Cache::srcpkgcache "";' \
            'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; };' >"$tree/etc/apt/apt.conf.d/docker-clean"
        rm -rf "$tree"/var/cache/apt/*.bin "$tree"/var/cache/apt/archives/*.deb "$tree"/var/lib/apt/lists/* \
            "$tree"/usr/share/{doc,man,info,locale,lintian}/*
        tar -C "$tree" -c . | LIMIT=300 engine import -q - "$debian"
    fi
    if [ -z "$BINARY" ] && missing "docker.io/library/rust:$RUST-$DEBIAN"; then
        local sysroot
        sysroot=$(rustc --print sysroot)
        [[ $(rustc --version) == "rustc $RUST."* ]] || die "the Dockerfile builds with Rust $RUST, here is $(rustc --version)"
        mkdir -p "$TEMP/rust/bin"
        cp "$sysroot"/bin/{cargo,rustc} "$TEMP/rust/bin"
        cp -a "$sysroot/lib" "$sysroot/libexec" "$TEMP/rust"
        cp -L /etc/ssl/certs/ca-certificates.crt "$TEMP/rust"
        printf '%s\n' "FROM $debian" \
            'RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev make ca-certificates' \
            'ENV CARGO_HOME=/usr/local/cargo' \
            'COPY . /usr/local/' 'RUN mv /usr/local/ca-certificates.crt /etc/ssl/certs/' >"$TEMP/Containerfile"
        LIMIT=900 engine "${BUILD[@]}" -q -t "docker.io/library/rust:$RUST-$DEBIAN" -f "$TEMP/Containerfile" "$TEMP/rust"
    fi
    if missing "docker.io/library/node:$NODE-$DEBIAN-slim"; then
        local arch root=$TEMP/node/usr/local version
        case $(uname -m) in x86_64) arch=x64 ;; aarch64) arch=arm64 ;; *) die "no Node.js for $(uname -m)" ;; esac
        mkdir -p "$root/bin" "$root/lib/node_modules/npm"
        version=$(bounded npm view "node-linux-$arch@$NODE" version --json 2>/dev/null \
            | grep -o '[0-9.]\{5,\}' | sort -V | tail -1)
        (cd "$TEMP" && bounded npm pack --silent "node-linux-$arch@$version" npm@11) >/dev/null 2>&1
        tar -xzf "$TEMP/node-linux-$arch-$version.tgz" -C "$root" --strip-components 1 package/bin/node
        tar -xzf "$TEMP"/npm-11.*.tgz -C "$root/lib/node_modules/npm" --strip-components 1
        tar -C "$TEMP/node" -c . | LIMIT=300 engine import -q - "docker.io/library/node:$NODE-$DEBIAN-slim"
    fi
    if missing "ghcr.io/astral-sh/uv:$UV"; then
        mkdir -p "$TEMP/uv/root"
        bounded python3 -m pip download -q --no-deps -d "$TEMP/uv" "uv==$UV"
        python3 -m zipfile -e "$TEMP"/uv/uv-*.whl "$TEMP/uv/wheel"
        install -m 755 "$TEMP"/uv/wheel/uv-*.data/scripts/{uv,uvx} "$TEMP/uv/root"
        tar -C "$TEMP/uv/root" -c . | LIMIT=300 engine import -q - "ghcr.io/astral-sh/uv:$UV"
    fi
}
bounded() { timeout "${LIMIT:-300}" "$@"; }

# ---- using an image ----

# start NAME IMAGE [OPTION...]: in the background, with a key and nothing that it does not need.
start() {
    local name=$1 image=$2
    shift 2
    CONTAINERS+=("$name")
    engine run -d --name "$name" "${LIMITS[@]}" -e "MOONGATE_KEY=$KEY" \
        -e 'MOONGATE_ADMIN__KEYS=[{"name":"try","key":"'"$ADMIN_KEY"'"}]' -p 127.0.0.1::8080 -p 127.0.0.1::9090 \
        --cap-drop ALL --security-opt no-new-privileges "$@" "$image" >/dev/null
    URL=http://$(engine port "$name" 8080/tcp | head -1)
    ADMIN=http://$(engine port "$name" 9090/tcp | head -1)
    for _ in $(seq 50); do
        if engine exec "$name" moongate health >/dev/null 2>&1; then return 0; fi
        sleep 0.2
    done
    engine logs "$name" 2>&1 | tail -20
    die "$name does not become ready"
}

# rpc METHOD PARAMS [CURL OPTION...]: one request of the stateless revision, and its answer.
rpc() {
    local method=$1 params=$2 named
    shift 2
    named=$(sed -n 's/^"name":"\([^"]*\)".*/\1/p' <<<"$params")
    curl -sS --max-time 90 "$URL/mcp" "$@" -H 'Content-Type: application/json' \
        -H 'Accept: application/json, text/event-stream' -H 'MCP-Protocol-Version: 2026-07-28' \
        -H "Mcp-Method: $method" ${named:+-H "Mcp-Name: $named"} -d '{"jsonrpc":"2.0","id":1,"method":"'"$method"'",
        "params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
        "io.modelcontextprotocol/clientInfo":{"name":"build-and-try","version":"1"},
        "io.modelcontextprotocol/clientCapabilities":{}}'"${params:+,$params}"'}}' 2>&1 || true
}
call() { rpc tools/call '"name":"'"$1"'","arguments":'"$2" -H "Authorization: Bearer $KEY"; }

# The status of all servers, once none of them is on its way any more, or time is up.
servers() {
    local status=''
    for _ in $(seq 120); do
        status=$(curl -sS --max-time 5 -H "Authorization: Bearer $ADMIN_KEY" "$ADMIN/api/v1/status" 2>&1 || true)
        grep -Eq '"state":"(starting|backing_off)"' <<<"$status" || break
        sleep 1
    done
    echo "$status"
}

# stop NAME: by SIGTERM, which must be enough, and end well.
stop() {
    local before=$SECONDS
    LIMIT=60 engine stop -t 30 "$1" >/dev/null
    expect "$1 stops by SIGTERM with exit code 0" "$(engine inspect --format 'exit {{.State.ExitCode}}' "$1")" '^exit 0$'
    if [ $((SECONDS - before)) -le 8 ]; then pass "within $((SECONDS - before)) s"; else fail "it took $((SECONDS - before)) s"; fi
}

healthy() {
    if [ "${ENGINE[0]}" = podman ]; then
        engine healthcheck run "$1" && echo healthy
        return
    fi
    for _ in $(seq 30); do
        [ "$(engine inspect --format '{{.State.Health.Status}}' "$1")" != healthy ] || { echo healthy; return; }
        sleep 1
    done
    engine inspect --format '{{json .State.Health}}' "$1"
}

# of_pid_1 NAME FIELD: from its status. Only where containers are processes of this machine.
of_pid_1() { awk -v field="$2:" '$1 == field { print $2, $3 }' "/proc/$(engine inspect --format '{{.State.Pid}}' "$1")/status"; }

try_common() {
    local image=$1 name=$RUN-$2
    say "$image: without a key"
    local out code=0
    out=$(engine run --rm "${LIMITS[@]}" "$image" 2>&1) || code=$?
    expect "it refuses to start with exit code 2" "code $code" '^code 2$'
    expect "and says what is missing" "$out" 'MOONGATE_KEY is not set'
    code=0
    out=$(engine run --rm "${LIMITS[@]}" -v "$TEMP/keyless.toml:/etc/moongate/moongate.toml:ro" "$image" 2>&1) || code=$?
    expect "a config without keys is refused, too" "code $code" '^code 2$'
    expect "and it says so" "$out" 'there are no `\[\[auth\.keys'
    expect "its user is not root" "$(engine image inspect --format 'user {{.Config.User}}' "$image")" '^user 10001:0$'

    say "$image: as it is"
    start "$name" "$image"
    expect "a tool answers through the gateway" "$(call demo__add '{"a":2,"b":40}')" '42'
    expect "not without the key" "$(rpc tools/list '' -w ' %{http_code}')" ' 401$'
    expect "the engine finds it healthy" "$(healthy "$name" 2>&1)" 'healthy'
    expect "metrics are served" "$(curl -sS --max-time 5 "$ADMIN/metrics")" '^moongate_build_info'
    if [ -d /proc/1 ] && [ -r "/proc/$(engine inspect --format '{{.State.Pid}}' "$name")/status" ]; then
        expect "PID 1 is not root" "$(of_pid_1 "$name" Uid)" '^10001 '
        expect "and has no capabilities" "$(of_pid_1 "$name" CapEff)" '^0+ '
    else
        skip "PID 1's user: the container is on another machine"
    fi
    stop "$name"

    say "$image: any user, read-only root"
    start "$name-strict" "$image" --user 12345:0 --read-only --tmpfs /tmp
    expect "a tool answers through the gateway" "$(call demo__echo '{"text":"moonlight"}')" 'moonlight'
    # A stream that never ends by itself must not hold up the end.
    curl -sS -N --max-time 60 "$URL/mcp" -H "Authorization: Bearer $KEY" -H "Accept: text/event-stream" \
        -H "Mcp-Session-Id: $(session)" -H 'MCP-Protocol-Version: 2025-06-18' -o "$TEMP/stream" 2>/dev/null &
    local stream=$!
    sleep 1
    if kill -0 "$stream" 2>/dev/null; then pass "a stream is open"; else fail "the stream ended: $(cat "$TEMP/stream")"; fi
    stop "$name-strict"
    wait "$stream" || true
}

session() {
    curl -sS --max-time 10 -D - -o /dev/null "$URL/mcp" -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \
        -H 'Accept: application/json, text/event-stream' -d '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{
        "protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"build-and-try","version":"1"}}}' \
        | tr -d '\r' | sed -n 's/^mcp-session-id: //Ip'
}

try_full() {
    local image=$1 name=$RUN-servers out
    say "$image: its programs"
    for program in node npm npx uv uvx python3 tini; do
        out=$(engine run --rm "${LIMITS[@]}" --user 12345:0 --entrypoint "$program" "$image" --version 2>&1) || true
        expect "$program" "$out" '[0-9]+\.[0-9]+'
    done
    local ca=() env=''
    if [ -n "${MOONGATE_TRY_CA:-}" ]; then
        ca=(-v "$MOONGATE_TRY_CA:/etc/moongate/ca.pem:ro" -e NODE_EXTRA_CA_CERTS=/etc/moongate/ca.pem
            -e SSL_CERT_FILE=/etc/moongate/ca.pem)
        env='env = { NODE_EXTRA_CA_CERTS = "/etc/moongate/ca.pem", SSL_CERT_FILE = "/etc/moongate/ca.pem" }'
    fi
    if ! out=$(LIMIT=90 engine run --rm "${LIMITS[@]}" "${ca[@]}" --entrypoint npm "$image" view "${NPX_SERVER}" version 2>&1); then
        skip "npx and uvx servers: the npm registry is not reached from a container: $(tail -1 <<<"$out")"
        return
    fi
    say "$image: servers by npx and uvx, any user, read-only root"
    cat >"$TEMP/servers.toml" <<TOML
[[auth.keys]]
name = "try"
key = "\${MOONGATE_KEY}"

[defaults]
start_timeout = "120s"

[servers.memory]
command = "npx"
args = ["-y", "$NPX_SERVER"]
$env

[servers.time]
command = "uvx"
args = ["$UVX_SERVER"]
$env
TOML
    chmod 644 "$TEMP/servers.toml"
    # Programs are run from the caches, which engines forbid on a tmpfs unless told otherwise.
    start "$name" "$image" --user 12345:0 --read-only --tmpfs /tmp --tmpfs /var/lib/moongate:exec,mode=1777 \
        -v "$TEMP/servers.toml:/etc/moongate/moongate.toml:ro" "${ca[@]}"
    local before=$SECONDS
    servers >"$TEMP/status"
    echo "      both settled after $((SECONDS - before)) s"
    out=$(call memory__create_entities '{"entities":[{"name":"Moon","entityType":"place","observations":["is bright"]}]}')
    expect "the npx server answers ($NPX_SERVER)" "$out" 'is bright'
    out=$(call time__get_current_time '{"timezone":"UTC"}')
    expect "the uvx server answers ($UVX_SERVER)" "$out" 'timezone'
    if [ "$FAILED" -gt 0 ]; then cat "$TEMP/status"; fi
    stop "$name"
}

# ---- go ----

printf '[servers.demo]\ncommand = "moongate"\nargs = ["mock", "--demo"]\n' >"$TEMP/keyless.toml"
chmod 755 "$TEMP"
chmod 644 "$TEMP/keyless.toml"
if [ -n "$STAND_INS" ]; then stand_ins; fi
FILE=Dockerfile
if [ -n "$BINARY" ]; then
    # The stages that build it go, and a folder with the binary has the name that the others copy it from.
    FILE=$TEMP/Dockerfile
    sed '/^# ---- what the dependencies are built from/,/^# ---- what both images start from/d' Dockerfile >"$FILE"
    install -D -m 755 "$BINARY" "$TEMP/build/src/target/dist/moongate"
    BUILD+=(--build-context "build=$TEMP/build")
fi
for target in ${ONLY:-gateway full}; do
    say "build $target"
    before=$SECONDS
    LIMIT=5400 engine "${BUILD[@]}" --file "$FILE" --target "$target" -t "moongate-try:$target" .
    size=$(engine image inspect --format '{{.Size}}' "moongate-try:$target")
    echo "$target: $((size / 1000000)) MB, built in $((SECONDS - before)) s"
    try_common "moongate-try:$target" "$target"
    if [ "$target" = full ]; then try_full "moongate-try:$target"; fi
    if [ -n "$SAVE" ]; then
        mkdir -p "$SAVE"
        LIMIT=300 engine save --output "$SAVE/$target.tar" "moongate-try:$target"
    fi
done
say "done"
echo "$PASSED passed, $FAILED failed, $SKIPPED skipped"
[ "$FAILED" = 0 ]
