#!/usr/bin/env bash
# Checks the workflows of GitHub by zizmor: actions pinned by commit, narrow permissions, no text of
# others in a script. It is pinned, comes from PyPI into target/packages, and runs without network.
set -euo pipefail
cd "$(dirname "$0")/../.."

mkdir -p target/packages
exec 9>target/packages/zizmor.lock
if command -v flock >/dev/null; then flock 9; fi

python=target/packages/zizmor
sum=$(cksum <tests/packages/zizmor.txt)
if [ "$(cat "$python/.stamp" 2>/dev/null)" != "$sum" ]; then
    rm -rf "$python"
    python3 -m venv "$python"
    "$python/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --require-hashes -r tests/packages/zizmor.txt
    echo "$sum" >"$python/.stamp"
fi

failed=0
# zizmor WHERE: its findings, down to matters of style.
zizmor() { "$python/bin/zizmor" --offline --quiet --strict-collection --persona pedantic "$1" 2>&1; }

if said=$(zizmor .github); then
    echo "ok    zizmor finds nothing in .github"
else
    echo "FAIL  zizmor finds something in .github"
    echo "$said"
    failed=1
fi

# It finds something where there is something: a tag in place of a commit.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
sed -E 's#(actions/checkout)@[0-9a-f]{40}#\1@v7#' .github/workflows/release.yml >"$copy/release.yml"
if said=$(zizmor "$copy/release.yml") || ! grep -q 'unpinned-uses' <<<"$said"; then
    echo "FAIL  zizmor doesn't find an action that isn't pinned"
    echo "$said"
    failed=1
else
    echo "ok    zizmor finds an action that isn't pinned"
fi
exit "$failed"
