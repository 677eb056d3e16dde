#!/bin/sh
# The units of deploy/systemd pass `systemd-analyze verify` without a word.
#
#   tests/e2e/systemd_units.sh PROGRAM
#
# Exit code 77 where systemd-analyze is missing.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
pando=$(realpath "$1")
if ! command -v systemd-analyze >/dev/null; then
  echo "skipped: systemd-analyze is not installed" >&2
  exit 77
fi
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
for unit in "$root"/deploy/systemd/*.service; do
  # The program is not installed; verify wants it to be there.
  copy=$temp/$(basename "$unit")
  sed "s|/usr/local/bin/pando|$pando|" "$unit" >"$copy"
  printf "%s\n" "${unit##*/}"
  systemd-analyze verify --man=no "$copy" >"$temp/said" 2>&1 || { cat "$temp/said"; exit 1; }
  [ ! -s "$temp/said" ] || { cat "$temp/said"; exit 1; }
done
