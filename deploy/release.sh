#!/usr/bin/env bash
# The steps of a release. .github/workflows/release.yml takes them one by one; a rehearsal takes
# all, on one machine, and publishes nothing.
#
#     deploy/release.sh --rehearse [--tag TAG] [--binaries DIR] [--images] [--out DIR] [TARGET...]
#     deploy/release.sh check TAG                 the tag, the version and the changelog agree
#     deploy/release.sh try BINARIES OUT          each binary; OUT/TARGET.txt says how it ran
#     deploy/release.sh pack BINARIES OUT         every package, by deploy/packages/pack.py
#     deploy/release.sh sbom BINARIES OUT         the crates in each binary, as CycloneDX
#     deploy/release.sh image-sbom IMAGES OUT     the same of images: IMAGES/gateway.tar, full.tar
#     deploy/release.sh sums OUT                  SHA256SUMS of all files, with a list of them
#     deploy/release.sh notes TRIED               the text of the release
#
# A rehearsal builds the TARGETs with deploy/targets.sh, or takes the binaries in DIR. With --images
# it also builds the container images around the x86_64 binary for glibc. It writes to
# target/rehearsal, and continues there when it is run again. What would stop a release doesn't stop
# a rehearsal without --tag: it is listed at the end.
#
# MOONGATE_REPOSITORY: the address that download links begin with.
# MOONGATE_IMAGE_OPTIONS: options of deploy/build-and-try.sh, such as --stand-ins.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$PWD/target/release-tools
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
repository=${MOONGATE_REPOSITORY:-}
rehearses='' tag='' binaries='' images='' work=target/rehearsal problems=() targets=()

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
say() { printf '\n== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
# What must not be in a release; a rehearsal goes on.
problem() {
    if [ ! "$rehearses" ] || [ "$tag" ]; then die "$*"; fi
    echo "WOULD STOP A RELEASE: $*"
    problems+=("$*")
}

# What CHANGELOG.md says about this version.
section() {
    awk -v title="## [$version]" \
        'index($0, "## [") == 1 { on = index($0, title) == 1; next } on' CHANGELOG.md
}

check() {
    local expected=v$version
    [ "$1" = "$expected" ] || problem "the tag is $1, but Cargo.toml has $version ($expected)"
    [ -n "$(section | tr -d '[:space:]')" ] \
        || problem "CHANGELOG.md has nothing below '## [$version]'"
    [ "$(git rev-parse --verify --quiet "refs/tags/$1^{commit}")" = "$(git rev-parse HEAD)" ] \
        || problem "the commit here isn't tagged $1"
    [ -z "$(git status --porcelain)" ] || problem "there are changes that aren't committed"
    cargo metadata --locked --format-version 1 >/dev/null || problem "Cargo.lock isn't up to date"
    echo "$1: version $version, $(section | grep -c '^- ' || true) changes"
}

# The targets that have a binary in a folder.
targets_in() {
    local file
    for file in "$1"/*/moongate "$1"/*/moongate.exe; do
        if [ -f "$file" ]; then basename "$(dirname "$file")"; fi
    done
}
binary_of() {
    local file=$1/$2/moongate
    if [ -f "$file" ]; then echo "$file"; else echo "$file.exe"; fi
}

# A binary that was tried before isn't tried again.
try() {
    local target file sum code
    mkdir -p "$2"
    for target in $(targets_in "$1"); do
        file=$(binary_of "$1" "$target")
        sum=$(sha256sum <"$file")
        if [ "$(cat "$2/$target.sum" 2>/dev/null)" != "$sum" ]; then
            code=0
            deploy/try-binary.sh "$target" "$file" >"$2/$target.txt" || code=$?
            case $code in
                0) echo "$sum" >"$2/$target.sum" ;;
                3) ;;
                *) problem "$(cat "$2/$target.txt")" ;;
            esac
        fi
        cat "$2/$target.txt"
    done
}

pack() {
    python3 deploy/packages/pack.py --manylinux 2_17 ${repository:+--repository "$repository"} "$@"
}

# list_parts WHAT NAME FILE: what syft finds in WHAT, as CycloneDX.
list_parts() {
    SYFT_FORMAT_PRETTY=true SYFT_CHECK_FOR_APP_UPDATE=false "$tools/python/bin/syft" scan "$1" \
        --quiet --source-name "$2" --source-version "$version" --output "cyclonedx-json=$3"
}

# cargo-auditable puts the list of crates into the binary, and syft reads it from there: it is what
# was linked, not what a manifest asks for.
sbom() {
    local target file count
    deploy/release-tools.sh python
    for target in $(targets_in "$1"); do
        file=$2/moongate-$version-$target.cdx.json
        list_parts "file:$(binary_of "$1" "$target")" moongate "$file"
        count=$(grep -c '"purl": "pkg:cargo/' "$file" || true)
        if [ "$count" -gt 50 ]; then
            echo "$(basename "$file"): $count crates"
        else
            rm "$file"
            problem "the binary for $target has no list of its crates; build it by cargo-auditable"
        fi
    done
}

image-sbom() {
    local image kind machine
    machine=$(uname -m)
    machine=${machine/x86_64/amd64}
    machine=${machine/aarch64/arm64}
    deploy/release-tools.sh python
    mkdir -p "$2"
    for image in "$1"/*.tar; do
        kind=$(basename "$image" .tar)
        list_parts "docker-archive:$image" "moongate:$kind" \
            "$2/moongate-$version-image-$kind-$machine.cdx.json"
    done
}

# Other files than the packages may have come: SBOMs, the book.
sums() {
    (
        cd "$1"
        rm -f SHA256SUMS
        local lines
        lines=$(sha256sum -- *)
        echo "$lines" >SHA256SUMS
        while read -r sum name; do
            printf '%12d  %s  %s\n' "$(stat -c %s "$name")" "$sum" "$name"
        done <SHA256SUMS
    )
}

notes() {
    section
    printf '%s\n\n' '### Where the binaries ran'
    local file
    for file in "$1"/*.txt; do sed 's/^/- /' "$file"; done
    echo
    local tree=${repository:+$repository/blob/v$version/}
    echo "[How to check a download](${tree}docs/guides/verify.md)"
}

# ---- the rehearsal ----

try_images() {
    local options=(--binary "$binaries/x86_64-unknown-linux-gnu/moongate" --save "$work/images")
    # shellcheck disable=SC2206 # words of options
    options+=(${MOONGATE_IMAGE_OPTIONS:-})
    rm -rf "$work/images"
    deploy/build-and-try.sh "${options[@]}"
    image-sbom "$work/images" "$work/packages"
}

rehearse() {
    local step
    for step in check build try pack sbom images sums; do
        [ "$step" != images ] || [ "$images" ] || continue
        say "$step"
        SECONDS=0
        case $step in
            check) check "${tag:-v$version}" ;;
            build)
                if [ "$binaries" ]; then
                    echo "taken from $binaries"
                else
                    binaries=$work/binaries
                    deploy/targets.sh --out "$binaries" "${targets[@]}"
                fi ;;
            pack)
                rm -rf "$work/packages"
                pack "$binaries" "$work/packages" ;;
            try) try "$binaries" "$work/tried" ;;
            sbom) sbom "$binaries" "$work/packages" ;;
            images) try_images ;;
            sums) sums "$work/packages" ;;
        esac
        echo "$step: $SECONDS s"
    done
    notes "$work/tried" >"$work/NOTES.md"
    say "rehearsed: $work/packages, with the text of the release in $work/NOTES.md"
    [ ${#problems[@]} -eq 0 ] || printf 'WOULD STOP A RELEASE: %s\n' "${problems[@]}"
}

[ $# -gt 0 ] || usage
case $1 in
    --rehearse) rehearses=yes; shift ;;
    check | sums | notes) [ $# = 2 ] || usage; "$@"; exit ;;
    try | pack | sbom | image-sbom) [ $# = 3 ] || usage; "$@"; exit ;;
    *) usage ;;
esac
while [ $# -gt 0 ]; do
    case $1 in
        --tag) tag=${2:?--tag needs a tag}; shift ;;
        --binaries) binaries=${2:?--binaries needs a folder}; shift ;;
        --out) work=${2:?--out needs a folder}; shift ;;
        --images) images=yes ;;
        -*) usage ;;
        *) targets+=("$1") ;;
    esac
    shift
done
mkdir -p "$work"
rehearse
