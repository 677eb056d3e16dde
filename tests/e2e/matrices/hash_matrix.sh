#!/bin/sh
# Invariant I5 on real data: the weights of the MNIST CNN are the serial run's for every number of
# workers, servers and threads, over TCP, ipc and shared memory, with 8 micro-batches and with 6.
#
#   tests/e2e/matrices/hash_matrix.sh [--epochs N] [--data FOLDER] [--pando PROGRAM]
#
# Prints a row per run and PASS or FAIL; exit code 0 or 1. 89 runs: about 15 minutes on two cores
# with the default of 3 epochs. --epochs 0.05 is a quick look.
set -eu

epochs=3
root=$(cd "$(dirname "$0")/../../.." && pwd)
data="$root/../shared/data/mnist"
pando="$root/build/cli/pando"
while [ $# -gt 0 ]; do
  case $1 in
    --epochs) epochs=$2 ;;
    --data) data=$2 ;;
    --pando) pando=$2 ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift 2
done
[ -x "$pando" ] || { echo "no program at $pando; build it, or give --pando PROGRAM" >&2; exit 2; }
[ -d "$data" ] || { echo "no MNIST in $data; give --data FOLDER" >&2; exit 2; }

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
trap 'exit 130' INT TERM

# Prints the weights_hash of a run with these flags, or what went wrong.
hash_of() {
  if "$pando" train --model mnist-cnn --dataset mnist --data "$data" --epochs "$epochs" \
      --global-batch 128 --optimizer adam --lr 0.01 --schedule one-cycle \
      --run-dir "$temp/run" --force --json "$@" >"$temp/summary" 2>"$temp/err"; then
    sed -n 's/.*"weights_hash": "\(.*\)".*/\1/p' "$temp/summary"
  else
    cat "$temp/err" "$temp/run/events.jsonl" >&2 || true
    echo "failed"
  fi
}

failures=0
# row EXPECTED-HASH NAME FLAGS...
row() {
  expected=$1 name=$2
  shift 2
  found=$(hash_of "$@")
  verdict=same
  if [ "$found" != "$expected" ]; then
    verdict=DIFFERS
    failures=$((failures + 1))
  fi
  printf '%-52s %s  %s\n' "$name" "$found" "$verdict"
}

serial=$(hash_of --serial --seed 1 --micro-batches 8)
printf '%-52s %s\n' "serial, 8 micro-batches, seed 1" "$serial"
row "$serial" "serial, 2 threads" --serial --seed 1 --micro-batches 8 --threads 2
for transport in tcp ipc shm; do
  for workers in 1 2 3 5; do
    for servers in 1 2 3; do
      for threads in 1 2; do
        row "$serial" "$transport, $workers workers, $servers servers, $threads threads" \
          --seed 1 --micro-batches 8 --transport $transport --workers $workers \
          --servers $servers --threads $threads
      done
    done
  done
done

six=$(hash_of --serial --seed 1 --micro-batches 6)
printf '%-52s %s\n' "serial, 6 micro-batches, seed 1" "$six"
for workers in 1 2 3 5; do
  for servers in 1 2 3; do
    row "$six" "6 micro-batches, $workers workers, $servers servers" --seed 1 \
      --micro-batches 6 --workers $workers --servers $servers
  done
done

seeded=$(hash_of --serial --seed 2 --micro-batches 8)
printf '%-52s %s\n' "serial, 8 micro-batches, seed 2" "$seeded"
row "$seeded" "seed 2, 2 workers, 2 servers" --seed 2 --micro-batches 8
for pair in "$serial $six" "$serial $seeded" "$six $seeded"; do
  if [ "${pair% *}" = "${pair#* }" ]; then
    echo "two jobs that differ have the same weights: $pair"
    failures=$((failures + 1))
  fi
done

if [ "$failures" -eq 0 ]; then echo PASS; else echo "FAIL: $failures"; exit 1; fi
