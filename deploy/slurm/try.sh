#!/bin/bash
# Tries pando.sbatch on this machine, from nothing: a private Slurm with two nodes trains on MNIST
# while a node is preempted, a node is lost, and the job is preempted and requeued. The final weights
# must be those of a serial run.
#
#   deploy/slurm/try.sh --data FOLDER [--pando PROGRAM] [--epochs N]
#
# FOLDER holds MNIST. Installs Debian's slurm-wlm and munge if they are missing, which takes root.
# Exit code 0: the weights agree; 1: they do not, or a step failed; 77: Slurm cannot be had here.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
pando=$root/build/cli/pando
data='' epochs=6
while [ $# -gt 1 ]; do
  case $1 in
    --data) data=$(realpath "$2") ;;
    --pando) pando=$(realpath "$2") ;;
    --epochs) epochs=$2 ;;
    *) break ;;
  esac
  shift 2
done
if [ $# != 0 ] || [ ! -d "$data" ]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
[ -x "$pando" ] || { echo "no program at $pando; build it, or give --pando PROGRAM" >&2; exit 2; }

say() { printf '== %s\n' "$*" >&2; }
skip() { say "skipped: $*"; exit 77; }
die() { say "failed: $*"; tail -n 40 "$dir"/job.log "$dir"/slurm/* >&2 || true; exit 1; }

install_slurm() {
  command -v slurmctld munged >/dev/null && return
  [ "$(id -u)" = 0 ] || skip "slurm-wlm and munge are not installed, and only root may install them"
  say "installing slurm-wlm and munge"
  apt-get update -qq >&2 || skip "apt-get update fails"
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends slurm-wlm munge >&2 ||
    skip "apt-get cannot install slurm-wlm and munge"
}

# ---- a private Slurm -------------------------------------------------------------------------------

dir=$(mktemp -d "${TMPDIR:-/tmp}/pando-slurm-XXXXXX")
export PANDO_TRY=$dir  # marks all that is started here
# Prints the processes whose environment has all these settings.
with_variables() {
  local files=(/proc/[0-9]*/environ) setting
  for setting in "$@"; do
    mapfile -t files < <(grep -lzsx -- "$setting" "${files[@]}" /dev/null)
  done
  printf '%s\n' "${files[@]}" | cut -d/ -f3
}
# Prints the processes that write this log: a daemon, and the slurmstepds that it has started.
writers_of() { find /proc/[0-9]*/fd -lname "$1" 2>/dev/null | cut -d/ -f3 | sort -u; }
kill_all() { [ $# = 0 ] || kill -KILL "$@" 2>/dev/null || true; }
clean_up() {
  local log
  for log in "$dir"/slurm/*.log; do
    # shellcheck disable=SC2046  # a list
    kill_all $(writers_of "$log")
  done
  # shellcheck disable=SC2046  # a list
  kill_all $(with_variables "PANDO_TRY=$dir")
  rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

start_munge() {
  mkdir -m 700 "$dir/munge"
  head -c 128 /dev/urandom >"$dir/munge/key"
  chmod 400 "$dir/munge/key"
  munged --foreground --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" \
    --pid-file="$dir/munge/pid" --log-file="$dir/munge/log" --seed-file="$dir/munge/seed" \
    2>"$dir/munge/err" &
  disown
}

write_config() {
  local host user
  host=$(hostname -s) user=$(id -un)
  mkdir "$dir/slurm" "$dir/state"
  cat >"$dir/slurm.conf" <<END
ClusterName=pando-try
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool-%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$dir/slurm/slurmctld.log
SlurmdLogFile=$dir/slurm/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
FirstJobId=$((50000 + RANDOM))
SlurmdTimeout=30
NodeName=try-a NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=1
NodeName=try-b NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=1
PartitionName=try Nodes=try-a,try-b Default=YES MaxTime=INFINITE State=UP
END
  export SLURM_CONF=$dir/slurm.conf
}

start_slurmd() {
  mkdir -p "$dir/spool-$1"
  slurmd -D -N "$1" 2>>"$dir/slurm/slurmd-$1.err" &
  disown
}

# await WHAT COMMAND...: tries the command until it succeeds, for two minutes.
await() {
  local what=$1 deadline=$((SECONDS + 120))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || die "$what does not happen"
    sleep 0.2
  done
  say "$what"
}
both_are_idle() { [ "$(sinfo -h -N -t idle -o %N 2>/dev/null | wc -l)" = 2 ]; }

# ---- the job ---------------------------------------------------------------------------------------

run=$dir/run
rows() { { wc -l <"$run/metrics.csv"; } 2>/dev/null || echo 0; }
has_rows() { [ "$(rows)" -ge "$1" ]; }
has_ended() { [ -e "$run/summary.json" ] && ! squeue -h -j "$job_id" 2>/dev/null | grep -q .; }
is_running() { [ "$(squeue -h -j "$job_id" -o %T)" = RUNNING ]; }
has_restarted() { is_running && scontrol show job "$job_id" | grep -q "Restarts=$1"; }
in_events() { grep -q -- "$1" "$run/events.jsonl"; }
value() { sed -n "s/^ *\"$2\": \"\\{0,1\\}\\([^\",]*\\).*/\\1/p" "$1/summary.json" | head -n 1; }
node_step() { scontrol show step "$job_id" | grep -B 3 -e "NodeList=$1\$" | sed -n 's/StepId=\([0-9.]*\) .*/\1/p'; }
two_steps() { [ -n "$(node_step try-a)" ] && [ -n "$(node_step try-b)" ]; }

install_slurm
port=$((20000 + RANDOM % 10000))
start_munge
write_config
await "munge answers" test -S "$dir/munge/socket"
slurmctld -D -i 2>"$dir/slurm/slurmctld.err" &
disown  # so that bash does not print its end
start_slurmd try-a
start_slurmd try-b
await "two nodes are idle" both_are_idle

flags=(--model mlp --dataset mnist --data "$data" --epochs "$epochs" --global-batch 128)
"$pando" train "${flags[@]}" --workers 2 --servers 2 --snapshot-every 100 --dry-run >"$dir/job.toml"
say "the serial run"
"$pando" train "${flags[@]}" --serial --run-dir "$dir/serial" >"$dir/serial.log" 2>&1
say "serial: $(value "$dir/serial" weights_hash)"

job_id=$(PANDO=$pando sbatch --parsable --nodes=2 --output="$dir/job.log" --time=30 \
  --cpus-per-task=1 "$root/deploy/slurm/pando.sbatch" "$dir/job.toml" "$run")
await "the job trains" has_rows 100
await "each node has a step" two_steps

say "preempting step $(node_step try-b)"
scancel --ctld --signal=USR1 "$(node_step try-b)"
await "the preempted node is drained" in_events '"event":"drained","details":{"node":"worker'
await "the run goes on" has_rows $(($(rows) + 200))

scancel --batch --signal=USR1 "$job_id"
await "the job has stopped with a notice, and is requeued" has_restarted 1
await "it trains again" has_rows $(($(rows) + 200))

scontrol requeue "$job_id"
await "the job is requeued without a notice" has_restarted 2
await "it trains again" has_rows $(($(rows) + 200))
await "each node has a step" two_steps

# shellcheck disable=SC2046  # lists
kill_all $(writers_of "$dir/slurm/slurmd-try-b.log") \
  $(with_variables "PANDO_TRY=$dir" SLURMD_NODENAME=try-b)
scontrol update NodeName=try-b State=DOWN Reason=lost
await "a node is lost, and the run goes on" has_rows $(($(rows) + 200))

await "the job ends" has_ended
status=$(value "$run" status) hash=$(value "$run" weights_hash)
say "the job: $status, $hash"
[ "$status" = completed ] || die "the run has not completed"
[ "$hash" = "$(value "$dir/serial" weights_hash)" ] || die "the weights differ from the serial run's"
say "passed: the same weights"
