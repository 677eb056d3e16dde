#!/usr/bin/env bash
# Runs a fuzz target of tests/fuzz with libFuzzer, ASan and UBSan. It builds the target in build-fuzz/
# with clang. New inputs stay in a scratch folder, unless CORPUS is given.
#   tools/fuzz.sh NAME SECONDS [CORPUS]   exit status 1: an input failed, and is kept
#   tools/fuzz.sh --list                  the names
# CORPUS is a folder that keeps what libFuzzer finds, for a later run. FUZZ_INPUTS=N ends after N inputs.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

folder=build-fuzz
names() { sed -n "s/^  '\([a-z_]*\)': \[\[.*/\1/p" "$root/tests/fuzz/meson.build"; }

case ${1:-} in
  --list) names; exit 0 ;;
  -h | --help | "") sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
esac
name=$1
seconds=${2:-}
names | grep -qxF -- "$name" || die "no fuzz target '$name': tools/fuzz.sh --list has the names"
[[ $seconds =~ ^[1-9][0-9]*$ ]] || die "how many seconds? tools/fuzz.sh $name 60"
clang=$(command -v clang++-14 || command -v clang++) || die "no clang++: run tools/setup.sh fuzz"
echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
  "$clang" -x c++ - -fsanitize=fuzzer -o /dev/null 2>/dev/null ||
  die "$clang has no libFuzzer: run tools/setup.sh fuzz"
cache=
if command -v ccache >/dev/null; then cache="ccache "; fi

CC="$cache${clang/++/}" CXX="$cache$clang" configure $folder -Dfuzzers=true -Dcuda=disabled -Dcpu_arch=native \
  -Dgloo=disabled --buildtype=plain -Doptimization=1 -Db_lundef=false -Db_sanitize=address,undefined \
  -Dcpp_args="['-fsanitize=fuzzer-no-link,float-cast-overflow', '-fno-sanitize-recover=all', '-gline-tables-only', '-D_GLIBCXX_ASSERTIONS']"
compile $folder "tests/fuzz/fuzz_$name"

scratch=$(mktemp -d "${TMPDIR:-/tmp}/fuzz-$name.XXXX")
failures=$scratch/failures
mkdir -p "$scratch/found" "$scratch/seeds" "$failures" "$scratch/tmp"
program=$root/$folder/tests/fuzz/fuzz_$name
"$program" --seeds="$scratch/seeds"
corpora=("${3:-$scratch/found}" "$scratch/seeds")
if [ -d "$root/tests/fuzz/corpus/$name" ]; then corpora+=("$root/tests/fuzz/corpus/$name"); fi
mkdir -p "${corpora[0]}"
status=0
# An input of 64 KiB that needs more memory than this, or more seconds, is a finding.
TMPDIR=$scratch/tmp "$program" "${corpora[@]}" -artifact_prefix="$failures/" -max_total_time="$seconds" \
  -runs="${FUZZ_INPUTS:--1}" -max_len=65536 -malloc_limit_mb=256 -rss_limit_mb=2048 -timeout=10 \
  -print_final_stats=1 || status=$?
rm -rf "$scratch/tmp"
if [ -z "$(ls -A "$failures")" ] && [ $status = 0 ]; then
  rm -rf "$scratch"
  exit 0
fi
for input in "$failures"/*; do
  printf 'failed: %s\nrepeat: %s %s\n' "$input" "$program" "$input"
done
exit 1
