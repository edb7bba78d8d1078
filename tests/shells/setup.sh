#!/usr/bin/env bash
# Installs the shells that the tests of completions run in, from Debian's packages: zsh and fish.
#
# Safe to run again: with both there, it does nothing.
set -euo pipefail

missing=()
for shell in zsh fish; do
  command -v "$shell" >/dev/null || missing+=("$shell")
done
if [ "${#missing[@]}" != 0 ]; then
  line="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "error: the tests of completions need ${missing[*]}; on Debian: sudo sh -c '$line'" >&2
    exit 1
  fi
  echo "shells: installing ${missing[*]}"
  log="$(mktemp)"
  sh -c "$line" >"$log" 2>&1 || { tail "$log" >&2; exit 1; }
  rm -f "$log"
fi
echo "shells: $(zsh --version | cut -d' ' -f1-2), $(fish --version)"
