#!/usr/bin/env bash
# Sets up, builds and runs the tests. The last line is "N passed, N failed", test cases counted; the
# exit status is that of the tests. docs/testing.md says what is in which tier, and how long it takes.
#   tools/test.sh                the tests that every change must pass, and one thorough test that the
#                                commit's hash selects
#   tools/test.sh --all          every test: also the suite "thorough"
#   tools/test.sh --sanitize     unit and sim under ASan and UBSan, threads under TSan; with --all the
#                                long ones too
#   tools/test.sh --no-setup     ... without changing the system's packages
#   tools/test.sh --tests-only   ... without set-up and compilation: the tests that are built
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

all=no
sanitize=no
setup=yes
builds=yes
for flag in "$@"; do
  case $flag in
    --all) all=yes ;;
    --sanitize) sanitize=yes ;;
    --no-setup) setup=no ;;
    --tests-only) setup=no builds=no ;;
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) die "unknown flag '$flag': see tools/test.sh --help" ;;
  esac
done
runner=()   # a command that runs the tests, if they need one
reports=()  # what each round of tests left behind, for the summary
spent=()    # "set-up=12": the seconds of each part
commit=$(git -C "$root" rev-parse --quiet --verify HEAD 2>/dev/null || echo 0)

# timed NAME COMMAND...: adds the command's seconds to those of the part.
timed() {
  local name=$1 started=$SECONDS status=0
  shift
  "$@" || status=$?
  spent+=("$name=$((SECONDS - started))")
  return $status
}

# test_targets FOLDER SUITE...: the programs that the suites need.
test_targets() {
  local folder=$1
  shift
  meson introspect "$root/$folder" --tests --targets |
    python3 "$root/tools/test_report.py" targets "$root/$folder" "$@"
}

# run_tests FOLDER LOG [ARGUMENT OF "meson test"...]: runs tests; the summary counts failures.
run_tests() {
  local folder=$1 log=$2
  shift 2
  rm -f "$root/$folder/meson-logs/$log.json"
  reports+=("$root/$folder/meson-logs/$log.json")
  "${runner[@]}" meson test -C "$root/$folder" --no-rebuild --logbase "$log" "$@" || true
}

# run_suites FOLDER [SUITE...]: runs these suites, or all if none is named.
run_suites() {
  local folder=$1 suite arguments=()
  shift
  [ -e "$root/$folder/build.ninja" ] || die "$folder/ is not built: run this without --tests-only first"
  for suite in "$@"; do arguments+=(--suite "$suite"); done
  [ $all = yes ] || arguments+=(--no-suite thorough)
  say "testing $folder/${*:+: suites $*}"
  timed test run_tests "$folder" testlog "${arguments[@]}"
}

# Runs one test of the suite "thorough", which the commit's hash selects.
run_slice() {
  local name
  name=$(meson introspect "$root/build" --tests | python3 "$root/tools/test_report.py" slice "$commit") || return
  say "testing build/: $name, the choice of commit ${commit:0:7} from the suite thorough"
  timed test run_tests build slicelog "$name"
}

# Warnings are errors only here, because sanitizers add false ones. g++ 12 gives
# -Wmaybe-uninitialized for its own AVX-512 header (GCC bug 105593).
# CUDA kernels are compiled for one architecture, which saves minutes: newer GPUs compile them when they
# start.
test_release() {
  if [ $builds = yes ]; then
    timed compile build_release || return
  fi
  run_suites build
  [ $all = yes ] || run_slice
}
build_release() {
  configure build --buildtype=release -Dwerror=true -Dcpp_args=-Wno-error=maybe-uninitialized \
    -Dgpu_archs=75 && compile build
}

# Without -g the traces still name functions, and the build takes half the time.
test_sanitized() {
  local folder=$1 sanitizer=$2
  shift 2
  if [ $builds = yes ]; then
    timed compile build_sanitized "$folder" "$sanitizer" "$@" || return
  fi
  run_suites "$folder" "$@"
}
build_sanitized() {
  local folder=$1 sanitizer=$2 targets
  shift 2
  configure "$folder" --buildtype=plain -Doptimization=1 -Db_lundef=false -Dcuda=disabled \
    -Db_sanitize="$sanitizer" -Dcpp_args=-D_GLIBCXX_ASSERTIONS || return
  targets=$(test_targets "$folder" "$@") || return
  [ -n "$targets" ] || { say "no tests in suites $*"; return 1; }
  # shellcheck disable=SC2086  # one word per target
  compile "$folder" $targets
}

# The commit's hash, which a shallow clone has too, chooses the transport of the fault tests' payloads:
# tcp, ipc or shared memory. PANDO_TEST_TRANSPORT overrides it.
if [ -z "${PANDO_TEST_TRANSPORT:-}" ]; then
  transports=(tcp ipc shm)
  export PANDO_TEST_TRANSPORT=${transports[16#${commit:0:7} % 3]}
fi

# A build that fails is a failure to be counted, not the end of the other rounds.
round() { "$@" || reports+=("broken:$*"); }

[ "$setup" = no ] || timed set-up "$root/tools/setup.sh"
# The tests' files are here, so that those of a killed test are removed too. The name is short, because the
# paths of sockets must be.
TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/pt.XXXX")
export TMPDIR CCACHE_STATSLOG=$TMPDIR/ccache-stats
trap 'rm -rf "$TMPDIR"' EXIT
export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1"  # by default it reports and goes on
if [ "$sanitize" = no ]; then
  round test_release
else
  round test_sanitized build-asan address,undefined unit sim
  # g++ 12's TSan cannot start where newer kernels put memory at random.
  if setarch -R true 2>/dev/null; then runner=(setarch -R); fi
  export TSAN_OPTIONS="suppressions=$root/tools/tsan.supp halt_on_error=1 second_deadlock_stack=1"
  round test_sanitized build-tsan thread threads
fi
if [ -s "$CCACHE_STATSLOG" ]; then
  hits=$(ccache --show-log-stats | awk '/Hits:/ && !n++ { print "ccache=" $2 "/" $4 }') || true
  [ -z "$hits" ] || spent+=("$hits")
fi
python3 "$root/tools/test_report.py" summary "${spent[@]}" "${reports[@]}"
