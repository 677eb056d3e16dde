#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, in one call of less than ten minutes: the GPU tests, compute-sanitizer on the
# small ones, the benchmark of kernels and networks, and PyTorch's figures beside it. One table at the end.
#   tools/gpu.sh           on a machine with a GPU: builds, or takes what `bundle` left in .gpu/, and runs it all
#   tools/gpu.sh accuracy  on a machine with a GPU: trains to the accuracies of the papers' networks (bench/python/accuracy.py
#                          --gpu) on real data: 10 minutes and more; behind it what bench/python/accuracy.py takes, as --only
#   tools/gpu.sh part N    puts the Nth part of those data (1 to 4; each fits a call of 64 MiB) into .gpu-data/, to be
#                          carried there, where `tools/gpu.sh keep` takes it to where `accuracy` looks for it
#   tools/gpu.sh bundle    on a machine with CUDA's toolkit and none: builds into .gpu/ the programs and the libraries
#                          that they need, to be carried to one with a GPU beside this repository (CPUs from x86-64-v3)
# The exit status is 1 where something failed, 77 where there is no GPU.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

parts=("cifar-10-batches-bin/data_batch_[12].bin" "cifar-10-batches-bin/data_batch_[34].bin"
  "cifar-10-batches-bin/data_batch_5.bin cifar-10-batches-bin/[bt]*" "mnist/* fashion-mnist/*")
data_there=${TMPDIR:-/tmp}/pando-data
programs=(tests/kernels/kernels_gpu_test tests/models/models_gpu_test tests/train/trainer_gpu_test
  tests/e2e/e2e_gpu_test cli/pando bench/cpp/kernels/gpu_bench)
bundle=$root/.gpu

build_programs() {
  configure build-gpu --buildtype=release -Dcuda=enabled -Dgpu_archs="${GPU_ARCHS:-90}" -Dcpu_arch=x86-64-v3
  compile build-gpu "${programs[@]}"
}

# C's own libraries are every machine's; of the others the ones that the programs name.
make_bundle() {
  local program library
  build_programs
  rm -rf "$bundle"
  mkdir -p "$bundle/lib"
  for program in "${programs[@]}"; do
    cp "$root/build-gpu/$program" "$bundle/"
    ldd "$root/build-gpu/$program" | awk '$3 ~ /^\// { print $3 }' |
      { grep -vE '/(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+)\.so' || true; } |
      while read -r library; do cp -L "$library" "$bundle/lib/"; done
  done
  strip "$bundle"/*_test "$bundle"/gpu_bench "$bundle"/pando
  echo "$root" >"$bundle/root"  # where the tests look for their golden files
  du -sh "$bundle" >&2
}

results=()
failed=no
# row NAME SECONDS COMMAND...: runs it and notes how it ended.
row() { row_of_shell "$1" timeout "${@:2}"; }

# row_of_shell NAME FUNCTION...: the same of what ends by itself.
row_of_shell() {
  local name=$1 status=0
  shift
  say "$name"
  "$@" || status=$?
  case $status in
    0) results+=("ok       $name") ;;
    77) results+=("skipped  $name") ;;
    *) results+=("FAILED   $name (exit $status)"); failed=yes ;;
  esac
}

# through_servers MODEL DATASET BATCH STEPS [FLAG...]: training with one worker and two servers on this machine; the
# images a second are in the last lines.
through_servers() {
  local folder status=0
  folder=$(mktemp -d)
  timeout 90 "$bundle/pando" train --model "$1" --dataset "$2" --global-batch "$3" --steps "$4" --micro-batches 1 --workers 1 \
    --servers 2 --replicas 1 --device cuda --snapshot-every 0 --set eval.every_epochs=0 --set run.reader_threads=8 \
    --run-dir "$folder/run" "${@:5}" || status=$?
  rm -rf "$folder"
  return $status
}

# Cuts what is not in this repository into pieces that may travel with it.
make_part() {
  local number=$1 source=${PANDO_DATA:-$root/../shared/data} file
  [[ $number =~ ^[1-4]$ ]] || die "expected 'part N', N being 1 to 4; got '$number'"
  rm -rf "$root/.gpu-data"
  cd "$source"
  # shellcheck disable=SC2086  # the patterns of a part
  for file in $(compgen -G "${parts[number - 1]%% *}"; compgen -G "${parts[number - 1]##* }"); do
    mkdir -p "$root/.gpu-data/$(dirname "$file")"
    cp "$file" "$root/.gpu-data/$file"
  done
  du -sh "$root/.gpu-data" >&2
}

keep_part() {
  [ -d "$root/.gpu-data" ] || die "there is no .gpu-data here: make one with 'tools/gpu.sh part N' and carry it"
  mkdir -p "$data_there"
  cp -r "$root/.gpu-data/." "$data_there/"
  find "$data_there" -type f -exec ls -l {} + >&2
}

use_libraries() {
  local built_in
  built_in=$(cat "$bundle/root")
  if [ ! -e "$built_in" ]; then mkdir -p "$(dirname "$built_in")" && ln -s "$root" "$built_in"; fi
  export LD_LIBRARY_PATH=$bundle/lib:${CUDA_HOME:-/usr/local/cuda}/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

require_gpu() {
  nvidia-smi -L >/dev/null 2>&1 && return
  say "there is no GPU here; 'tools/gpu.sh bundle' makes what can be carried to one"
  exit 77
}

build_here() {
  local program
  [ ! -e "$bundle/root" ] || return 0
  build_programs
  mkdir -p "$bundle/lib"
  for program in "${programs[@]}"; do cp "$root/build-gpu/$program" "$bundle/"; done
  echo "$root" >"$bundle/root"
}

run_all() {
  local sanitizer small="*on every shape*,*linear*,*cross-entropy*,*flatten*"
  build_here
  use_libraries
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true
  row "kernels on a GPU" 120 "$bundle/kernels_gpu_test"
  row "models on a GPU" 120 "$bundle/models_gpu_test"
  row "trainer on a GPU" 120 "$bundle/trainer_gpu_test"
  row "runs on a GPU" 150 env PANDO_PROGRAM="$bundle/pando" "$bundle/e2e_gpu_test"
  sanitizer=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
  if [ -x "$sanitizer" ]; then
    row "memcheck" 90 "$sanitizer" --tool memcheck --error-exitcode 1 "$bundle/kernels_gpu_test" -tc="$small"
    row "racecheck" 90 "$sanitizer" --tool racecheck --error-exitcode 1 "$bundle/kernels_gpu_test" -tc="$small"
  fi
  row "benchmark, bfloat16" 120 "$bundle/gpu_bench" bfloat16
  row "benchmark, float" 60 "$bundle/gpu_bench" float
  row_of_shell "ResNet-50 through two servers" through_servers resnet50 synthetic-imagenet 256 40 --precision bf16
  row_of_shell "MobileNetV2 through two servers" through_servers mobilenet-v2 synthetic-imagenet 256 40 --precision bf16
  row_of_shell "MNIST CNN through two servers" through_servers mnist-cnn synthetic-digits 128 2000
  row "PyTorch" 150 python3 "$root/bench/python/pytorch_gpu.py" --seconds 1
  printf '%s\n' "${results[@]}"
  [ "$failed" = no ]
}

case ${1:-run} in
  bundle) make_bundle ;;
  part) make_part "${2:-}" ;;
  keep) keep_part ;;
  accuracy)
    require_gpu
    build_here
    use_libraries
    data=$data_there
    [ -d "$data" ] || data=$root/../shared/data
    exec python3 "$root/bench/python/accuracy.py" --gpu --pando "$bundle/pando" --data "$data" "${@:2}"
    ;;
  run)
    require_gpu
    run_all
    ;;
  -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" ;;
  *) die "unknown command '$1': see tools/gpu.sh --help" ;;
esac
