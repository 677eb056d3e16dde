#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, in calls of bounded length. A call prints each row as soon as it is measured, keeps
# it in RESULTS/gpu-CALL.txt ($OUT, or .gpu-results), and ends with a table of what ran. Where a GPU is lent for fifteen
# minutes, its start included, run `first` and `speed`:
#   tools/gpu.sh first     270 s at most: the libraries, doctor, kernels, networks, trainer, memcheck of some kernels
#   tools/gpu.sh speed     300 s at most: ResNet-50 in bf16 at batch 256, in gpu_bench and PyTorch, with two servers and in
#                          one process
# More, in less than ten minutes each:
#   tools/gpu.sh runs      checks that it runs: doctor, kernels, networks, trainer
#   tools/gpu.sh compute   gpu_bench on random data, and PyTorch in the same precisions, alone and with optimizer and upload
#   tools/gpu.sh exchange  training: ResNet-50 in one process, with a worker and two servers, with --codec bf16; MNIST CNN.
#                          Stalls for data and exposed exchange are printed
#   tools/gpu.sh safety    processes killed on a GPU; memcheck and racecheck of our kernels
#   tools/gpu.sh accuracy  trains to the accuracies of the papers' networks (bench/python/accuracy.py --gpu) on real data: 10
#                          minutes and more; the words after it go to bench/python/accuracy.py, for example --only
#   tools/gpu.sh part N    puts the Nth part of those data (1 to 4; each fits a call of 64 MiB) into .gpu-data/, to be
#                          carried there; then `tools/gpu.sh keep` moves it to the place where `accuracy` looks
#   tools/gpu.sh bundle    on a machine with CUDA's toolkit and no GPU: packs the programs and the libraries that they need
#                          into .gpu.tar.gz, to be carried to one with a GPU beside this repository (CPUs from x86-64-v3)
# On a machine with a GPU the programs are built first, unless .gpu.tar.gz or .gpu/ is there. The exit status is 1 where
# something failed, 77 where there is no GPU.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

parts=("cifar-10-batches-bin/data_batch_[12].bin" "cifar-10-batches-bin/data_batch_[34].bin"
  "cifar-10-batches-bin/data_batch_5.bin cifar-10-batches-bin/[bt]*" "mnist/* fashion-mnist/*")
data_there=${XDG_CACHE_HOME:-$HOME/.cache}/pando-data
programs=(tests/kernels/kernels_gpu_test tests/models/models_gpu_test tests/train/trainer_gpu_test
  tests/e2e/e2e_gpu_test cli/pando bench/cpp/kernels/gpu_bench)
bundle=$root/.gpu
archive=$root/.gpu.tar.gz

build_programs() {
  configure build-gpu --buildtype=release -Dcuda=enabled -Dgpu_archs="${GPU_ARCHS:-90}"
  compile build-gpu "${programs[@]}"
}

# Every machine has C's own libraries, so only the others that the programs name are packed. ICU's data, half of the
# bundle, serve libarchive's readers of XML, which nothing here calls: an empty symbol is enough.
make_bundle() {
  local program library
  build_programs
  rm -rf "$bundle"
  mkdir -p "$bundle/lib"
  for program in "${programs[@]}"; do
    cp "$root/build-gpu/$program" "$bundle/"
    ldd "$root/build-gpu/$program" | awk '$3 ~ /^\// { print $3 }' |
      { grep -vE '/(lib(c|m|mvec|dl|rt|pthread|resolv|util|anl|nss_.*|gcc_s|stdc\+\+)|ld-.*)\.so' || true; } |
      while read -r library; do cp -L "$library" "$bundle/lib/"; done
  done
  for library in "$bundle"/lib/libicudata.so.*; do
    [ -e "$library" ] || continue
    echo "const char icudt${library##*.}_dat[64];" |
      cc -shared -fPIC -x c - -Wl,-soname,"${library##*/}" -o "$library"
  done
  strip "$bundle"/*_test "$bundle"/gpu_bench "$bundle"/pando "$bundle"/lib/*
  echo "$root" >"$bundle/root"  # where the tests look for their golden files
  tar -C "$root" -c .gpu | gzip -9 >"$archive"  # a bare machine has no xz
  du -sh "$bundle" "$archive" >&2
}

unpack_bundle() {
  [ -e "$archive" ] && [ ! "$bundle/root" -nt "$archive" ] || return 0
  rm -rf "$bundle"
  tar -C "$root" -xzf "$archive"
  touch "$bundle/root"  # newer than its archive
}

# Checks that the loader finds all libraries that the programs name; NVIDIA's are loaded later.
check_libraries() {
  local program missing
  missing=$(for program in "${programs[@]}"; do
    [ -x "$bundle/${program##*/}" ] || echo "$program"
    ldd "$bundle/${program##*/}" | grep "not found" || true
  done)
  [ -z "$missing" ] || { printf 'missing here:\n%s\n' "$missing"; return 1; }
  echo "all libraries of ${#programs[@]} programs are here"
}

results=()
failed=no
seconds_per_call=560  # the limit of a whole call
store=${OUT:-$root/.gpu-results}

# row NAME SECONDS COMMAND...: runs the command, within the call's remaining time, and notes how it ended. Each line is
# in the file as soon as it is printed.
row() {
  local name=$1 limit=$2 left=$((seconds_per_call - SECONDS)) status=0
  shift 2
  if [ "$left" -lt 10 ]; then
    results+=("not run  $name (no time left)")
    failed=yes
    return
  fi
  say "$name" 2>&1 | tee -a "$log" >&2
  timeout -k 5 $((limit < left ? limit : left)) stdbuf -oL "$@" 2>&1 | tee -a "$log" || status=${PIPESTATUS[0]}
  case $status in
    0) results+=("ok       $name") ;;
    77) results+=("skipped  $name") ;;
    *) results+=("FAILED   $name (exit $status)"); failed=yes ;;
  esac
}

# native has the libraries that pando needs. Python has its own, and those of the machine's LD_LIBRARY_PATH.
native() { row "$1" "$2" env LD_LIBRARY_PATH="$libraries" "${@:3}"; }
python() { row "$1" "$2" python3 "${@:3}"; }

# train NAME SECONDS MODEL DATASET BATCH STEPS FLAG...: prints images/s and the waiting time that no computing hides.
train() {
  local folder
  folder=$(mktemp -d)
  native "$1" "$2" "$bundle/pando" train --model "$3" --dataset "$4" --global-batch "$5" --steps "$6" --micro-batches 1 \
    --device cuda --snapshot-every 0 --set eval.every_epochs=0 --set "run.reader_threads=$(nproc)" --run-dir "$folder/run" \
    "${@:7}"
  [ ! -e "$folder/run/summary.json" ] || python "$1: figures" 20 - "$folder/run" "$5" <<'END'
import csv, json, sys
run, batch = sys.argv[1], int(sys.argv[2])
rows = [row for row in csv.DictReader(open(f"{run}/metrics.csv")) if row["loss"]]
warm, last = rows[len(rows) // 4], rows[-1]
steps = int(last["step"]) - int(warm["step"])
seconds = float(last["elapsed_seconds"]) - float(warm["elapsed_seconds"])
print(f"  images/s after the first quarter of the steps: {steps * batch / seconds:.0f}")
print(f"  ms a step {last['step_ms']}, without samples {last['data_stall_ms']}, without parameters {last['exposed_sync_ms']}")
print(f"  weights_hash {json.load(open(f'{run}/summary.json'))['weights_hash']}")
END
  rm -rf "$folder"
}

# Copies one part of the data, which are not in this repository, so that it can travel with it.
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

# Where cuDNN and cuBLAS are: in the bundle, the toolkit, or the wheels that PyTorch brings along.
use_libraries() {
  local built_in wheels
  built_in=$(cat "$bundle/root")
  if [ ! -e "$built_in" ]; then mkdir -p "$(dirname "$built_in")" && ln -s "$root" "$built_in"; fi
  wheels=$(python3 - 2>/dev/null <<'END' || true
import glob, site, sys
folders = site.getsitepackages() + [site.getusersitepackages()] + sys.path
print(":".join(sorted({path for folder in folders for path in glob.glob(f"{folder}/nvidia/*/lib")})))
END
)
  libraries=$bundle/lib:${CUDA_HOME:-/usr/local/cuda}/lib64${wheels:+:$wheels}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

has_gpu() { nvidia-smi -L >/dev/null 2>&1; }

require_gpu() {
  if has_gpu; then return; fi
  say "there is no GPU here; 'tools/gpu.sh bundle' makes what can be carried to one"
  exit 77
}

build_here() {
  local program
  unpack_bundle
  [ ! -e "$bundle/root" ] || return 0
  build_programs
  mkdir -p "$bundle/lib"
  for program in "${programs[@]}"; do cp "$root/build-gpu/$program" "$bundle/"; done
  echo "$root" >"$bundle/root"
}

call_first() {
  native "libraries" 10 bash "$0" libraries
  native "doctor" 30 "$bundle/pando" doctor
  native "kernels on a GPU" 80 "$bundle/kernels_gpu_test"
  native "networks on a GPU" 80 "$bundle/models_gpu_test"
  native "trainer on a GPU" 60 "$bundle/trainer_gpu_test"
  check_memory memcheck 60 "*linear*,*flatten*"
}

call_speed() {
  local resnet=(resnet50 synthetic-imagenet 256 40 --precision bf16)
  native "pando, ResNet-50, bfloat16" 60 "$bundle/gpu_bench" bfloat16 resnet50
  train "ResNet-50, two servers" 70 "${resnet[@]}" --workers 1 --servers 2 --replicas 1
  train "ResNet-50, one process" 60 "${resnet[@]}" --serial
  python "PyTorch, ResNet-50, bfloat16" 110 "$root/bench/python/pytorch_gpu.py" --seconds 1 --precision bf16 --models resnet50
}

call_runs() {
  native "doctor" 60 "$bundle/pando" doctor
  native "kernels on a GPU" 150 "$bundle/kernels_gpu_test"
  native "networks on a GPU" 150 "$bundle/models_gpu_test"
  native "trainer on a GPU" 150 "$bundle/trainer_gpu_test"
}

call_compute() {
  local bench=$root/bench/python/pytorch_gpu.py
  native "pando, bfloat16" 120 "$bundle/gpu_bench" bfloat16
  python "PyTorch, bfloat16" 120 "$bench" --seconds 1 --precision bf16
  native "pando, tf32" 90 "$bundle/gpu_bench" float
  python "PyTorch, tf32" 100 "$bench" --seconds 1 --precision tf32 --models resnet50,mnist-cnn
  python "PyTorch, bfloat16, with optimizer and upload" 120 "$bench" --seconds 1 --precision bf16 --train \
    --models resnet50,mobilenet_v2,mnist-cnn
}

call_exchange() {
  local resnet=(resnet50 synthetic-imagenet 256 40 --precision bf16) mnist=(mnist-cnn synthetic-digits 128 2000 --precision bf16)
  local servers=(--workers 1 --servers 2 --replicas 1)
  train "ResNet-50, one process" 100 "${resnet[@]}" --serial
  train "ResNet-50, two servers" 100 "${resnet[@]}" "${servers[@]}"
  train "ResNet-50, two servers, codec bf16" 100 "${resnet[@]}" "${servers[@]}" --codec bf16
  train "MNIST CNN, one process" 40 "${mnist[@]}" --serial
  train "MNIST CNN, two servers" 40 "${mnist[@]}" "${servers[@]}"
}

call_safety() {
  local small="*on every shape*,*linear*,*cross-entropy*,*flatten*"
  native "runs on a GPU" 240 env PANDO_PROGRAM="$bundle/pando" PANDO_NEEDS_GPU=1 "$bundle/e2e_gpu_test"
  check_memory memcheck 140 "$small"
  check_memory racecheck 140 "$small"
}

# check_memory TOOL SECONDS TEST_CASES: checks the kernels with compute-sanitizer.
check_memory() {
  local sanitizer
  if ! has_gpu; then
    results+=("skipped  $1 (there is no GPU here)")
    return
  fi
  sanitizer=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
  if [ ! -x "$sanitizer" ]; then
    results+=("skipped  $1 (no compute-sanitizer here)")
    return
  fi
  native "$1" "$2" "$sanitizer" --tool "$1" --error-exitcode 1 "$bundle/kernels_gpu_test" -tc="$3"
}

run_call() {
  [ "$1" = first ] || require_gpu  # `first` also runs without a GPU, to show that nothing else is missing
  SECONDS=0
  case $1 in
    first) seconds_per_call=270 ;;
    speed) seconds_per_call=300 ;;
  esac
  build_here
  use_libraries
  mkdir -p "$store"
  log=$store/gpu-$1.txt
  : >"$log"
  if has_gpu; then
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee "$log"
  fi
  "call_$1"
  printf '%s\n' "${results[@]}" | tee -a "$log"
  [ "$failed" = no ] || return 1
  require_gpu
}

case ${1:---help} in
  bundle) make_bundle ;;
  libraries) check_libraries ;;
  part) make_part "${2:-}" ;;
  keep) keep_part ;;
  accuracy)
    require_gpu
    build_here
    use_libraries
    data=$data_there
    [ -d "$data" ] || data=$root/../shared/data
    LD_LIBRARY_PATH=$libraries exec python3 "$root/bench/python/accuracy.py" --gpu --pando "$bundle/pando" --data "$data" "${@:2}"
    ;;
  first | speed | runs | compute | exchange | safety) run_call "$1" ;;
  -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" ;;
  *) die "unknown command '$1': see tools/gpu.sh --help" ;;
esac
