#!/usr/bin/env bash
# Sets up, builds, and trains the MNIST CNN with a scheduler, 2 servers and 2 workers, each a
# separate process; prints the final test accuracy. Then trains a short job twice, once in one
# process and once while a worker, a server and the scheduler are killed, and compares the weights.
#   tools/demo.sh [--no-setup] [FLAG OF "pando train"...]
# for example: tools/demo.sh --data ~/mnist --workers 4
# Without --data it uses MNIST in data/mnist or ../shared/data/mnist, else the built-in
# synthetic-digits.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

case ${1:-} in -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;; esac
setup=yes
if [ "${1:-}" = --no-setup ]; then setup=no; shift; fi
flags=("$@")

# The defaults below would override a job file, so none is accepted.
while [ $# -gt 0 ]; do
  case $1 in
    --serial | --dry-run | --force | --json | -v | --verbose | -*=*) shift ;;
    -*) shift; [ $# -eq 0 ] || shift ;;
    *)
      printf "error: '%s' is not a flag, and the demo takes only flags; give a job file to pando train\n" "$1" >&2
      exit 2
      ;;
  esac
done

# given FLAG: whether the user gave it, as "--flag value" or "--flag=value".
given() {
  local flag
  for flag in "${flags[@]}"; do
    case $flag in "$1" | "$1="*) return 0 ;; esac
  done
  return 1
}

# by_default FLAG VALUE: adds the flag unless the user gave it.
by_default() { given "$1" || flags+=("$1" "$2"); }

value_of() {
  local i
  for i in "${!flags[@]}"; do
    case ${flags[i]} in
      "$1") echo "${flags[i + 1]:-}" ;;
      "$1="*) echo "${flags[i]#*=}" ;;
    esac
  done
}

# absolute FLAG: makes the user's path independent of the current folder.
absolute() {
  local i
  for i in "${!flags[@]}"; do
    case ${flags[i]} in
      "$1") [ -z "${flags[i + 1]:-}" ] || flags[i + 1]=$(realpath -m -- "${flags[i + 1]}") ;;
      "$1="*) flags[i]="$1=$(realpath -m -- "${flags[i]#*=}")" ;;
    esac
  done
}

if [ $setup = yes ]; then
  say "step 1 of 3: Debian's packages that pando is built from (usually 2 minutes)"
  "$root/tools/setup.sh" build
fi
say "step 2 of 3: compiling pando (usually 5 minutes on two cores)"
configure build --buildtype=release
compile build cli/pando

absolute --data
absolute --run-dir
cd "$root"  # pando looks for data/mnist and ../shared/data/mnist from here
by_default --model mnist-cnn
given --steps || by_default --epochs 3
by_default --global-batch 128
by_default --micro-batches 8
by_default --optimizer adam
by_default --lr 0.01
by_default --schedule one-cycle
by_default --workers 2
by_default --servers 2
by_default --run-dir "runs/demo-$(date +%Y%m%d-%H%M%S)-$$"

say "step 3 of 3: training and faults (usually 1 minute)"
say "pando train ${flags[*]}"
build/cli/pando train "${flags[@]}"

run_dir=$(value_of --run-dir)
summary=$run_dir/summary.json
[ -e "$summary" ] || exit 0  # --dry-run
accuracy=$(sed -n 's/.*"test_accuracy": *\([-+.0-9e]*\).*/\1/p' "$summary")
say "final test accuracy: ${accuracy:-not in $summary} (more in $(dirname "$summary"))"

short=(--model mnist-cnn --dataset synthetic-digits --steps 500 --optimizer adam --lr 0.01
  --schedule one-cycle --workers 3 --servers 3)
chaos="kill worker at step 100; kill server at step 200; kill scheduler at step 300"
hash_in() { sed -n 's/.*"weights_hash": *"\([0-9a-f]*\)".*/\1/p' "$1/summary.json"; }

say "the same again, smaller: once without faults, once with kill -9 for one process of each role"
build/cli/pando train "${short[@]}" --serial --run-dir "$run_dir-serial" --force
say "pando train --chaos \"$chaos\""
build/cli/pando train "${short[@]}" --chaos "$chaos" --run-dir "$run_dir-chaos" --force
say "weights without faults: $(hash_in "$run_dir-serial")"
say "weights under kill -9:  $(hash_in "$run_dir-chaos")"
[ "$(hash_in "$run_dir-serial")" = "$(hash_in "$run_dir-chaos")" ] || die "the weights differ"
