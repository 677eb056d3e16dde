#!/usr/bin/env bash
# Sets up, builds and runs every test. The last line is "N passed, N failed", test cases counted;
# the exit status is that of the tests.
#   tools/test.sh [--no-setup]              all suites
#   tools/test.sh [--no-setup] --sanitize   unit and sim under ASan and UBSan, threads under TSan
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

sanitizers_only=no
setup=yes
for flag in "$@"; do
  case $flag in
    --sanitize) sanitizers_only=yes ;;
    --no-setup) setup=no ;;
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) die "unknown flag '$flag': see tools/test.sh --help" ;;
  esac
done
runner=()   # a command that runs the tests, where they need one
reports=()  # what each round of tests left behind, for the summary

# test_targets FOLDER SUITE...: the programs that the suites need.
test_targets() {
  local folder=$1
  shift
  meson introspect "$root/$folder" --tests --targets |
    python3 "$root/tools/test_report.py" targets "$root/$folder" "$@"
}

# run_suites FOLDER TIMEOUT_MULTIPLIER [SUITE...]: all suites where none is named. Failures are
# left to the summary.
run_suites() {
  local folder=$1 patience=$2 suite suites=()
  shift 2
  for suite in "$@"; do suites+=(--suite "$suite"); done
  say "testing $folder/${*:+: suites $*}"
  rm -f "$root/$folder/meson-logs/testlog.json"
  reports+=("$root/$folder/meson-logs/testlog.json")
  "${runner[@]}" meson test -C "$root/$folder" --no-rebuild --timeout-multiplier "$patience" \
    "${suites[@]}" || true
}

# Warnings are errors here alone: sanitizers add some that are false. -Wmaybe-uninitialized is one
# that g++ 12 gives for its own AVX-512 header (GCC bug 105593).
# CUDA kernels are compiled for one architecture, which saves minutes: newer GPUs compile them when they
# start.
test_release() {
  configure build --buildtype=release -Dwerror=true -Dcpp_args=-Wno-error=maybe-uninitialized \
    -Dgpu_archs=75 && compile build || return
  run_suites build 1
}

# Without -g the traces still name functions, and the build takes half the time.
test_sanitized() {
  local folder=$1 sanitizer=$2 targets
  shift 2
  configure "$folder" --buildtype=plain -Doptimization=1 -Db_lundef=false -Dcuda=disabled \
    -Db_sanitize="$sanitizer" -Dcpp_args=-D_GLIBCXX_ASSERTIONS || return
  targets=$(test_targets "$folder" "$@") || return
  if [ -z "$targets" ]; then
    say "no tests in suites $*"
    return
  fi
  # shellcheck disable=SC2086  # one word per target
  compile "$folder" $targets || return
  run_suites "$folder" 10 "$@"
}

# What carries the payloads of the fault tests changes with the commits: tcp, ipc or shared memory,
# by the commit's hash, which a shallow clone has too. PANDO_TEST_TRANSPORT chooses one.
if [ -z "${PANDO_TEST_TRANSPORT:-}" ]; then
  transports=(tcp ipc shm)
  commit=$(git -C "$root" rev-parse --quiet --verify HEAD 2>/dev/null || echo 0)
  export PANDO_TEST_TRANSPORT=${transports[16#${commit:0:7} % 3]}
fi

# A build that fails is a failure to be counted, not the end of the other rounds.
round() { "$@" || reports+=("broken:$*"); }

[ "$setup" = no ] || "$root/tools/setup.sh"
export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1"  # by default it reports and goes on
if [ "$sanitizers_only" = no ]; then
  round test_release
else
  round test_sanitized build-asan address,undefined unit sim
  # g++ 12's TSan cannot start where newer kernels put memory at random.
  if setarch -R true 2>/dev/null; then runner=(setarch -R); fi
  export TSAN_OPTIONS="suppressions=$root/tools/tsan.supp halt_on_error=1 second_deadlock_stack=1"
  round test_sanitized build-tsan thread threads
fi
python3 "$root/tools/test_report.py" summary "${reports[@]}"
