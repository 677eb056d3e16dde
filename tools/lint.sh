#!/usr/bin/env bash
# Checks the repository against its house style, and prints one line per finding.
#   tools/lint.sh [CHECK...]      all checks, or those named; exits 1 when there is a finding
#   tools/lint.sh --report        the figures beside their limits; exits 0
#   tools/lint.sh --fix           formats the C++ files in place, then checks
#   tools/lint.sh --shrink        drops exceptions that are no longer needed, and lowers the others
#   tools/lint.sh --accept REASON adds exceptions for all findings: for moves, not for new code
#   tools/lint.sh --help          the names of the checks, and the other flags
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

command -v python3 >/dev/null || die "python3 is missing: run tools/setup.sh"
exec python3 -B "$root/tools/lint/lint.py" --root "$root" "$@"
