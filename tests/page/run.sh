#!/usr/bin/env bash
# Runs the tests of the admin page in a browser: its views, and the pictures of the documentation.
#
#   run.sh                      all of them
#   UPDATE_PICTURES=1 run.sh    takes the pictures in docs/pictures again; the ports 8080 and 9090 must be free
#
# Look at the pictures before you commit them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tests/page/setup.sh
areas="page:: page_try:: login::on_the_page:: broker::in_a_browser:: pictures::"
[ -z "${UPDATE_PICTURES:-}" ] || areas="pictures::"
for area in $areas; do
    # In one process, since the pictures have a place and ports of their own.
    cargo test --locked --package moongate --test it -- "$area" --test-threads 1
done
