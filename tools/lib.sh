# The settings and functions that the scripts of this folder share. Sourced, never run.
# shellcheck shell=bash
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export LC_ALL=C.UTF-8  # always there; Meson wants UTF-8
export CCACHE_BASEDIR=$root  # equal checkouts in other folders share the objects

say() { printf '== %s\n' "$*" >&2; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# One job per core, but no more than the memory can take: a file full of templates needs up to 1.5 GB.
job_count() {
  local cores by_memory
  cores=$(nproc)
  by_memory=$(awk '/^MemAvailable:/ { print int($2 / 1500000) }' /proc/meminfo 2>/dev/null || true)
  by_memory=${by_memory:-$cores}
  [ "$by_memory" -ge 1 ] || by_memory=1
  echo $((cores < by_memory ? cores : by_memory))
}

# configure FOLDER [MESON OPTION...]: prepares a build folder, or brings it up to date with the
# meson.build files. Meson's many lines are shown only when it fails.
configure() {
  local folder=$1 log
  shift
  log=$(mktemp)
  if [ -e "$root/$folder/build.ninja" ]; then
    set -- ninja -C "$root/$folder" build.ninja
  else
    say "configuring $folder/"
    set -- meson setup "$root/$folder" "$root" "$@"
  fi
  "$@" >"$log" 2>&1 || {
    cat "$log" >&2
    rm -f "$log"
    return 1
  }
  rm -f "$log"
}

# compile FOLDER [TARGET...]: compiles these targets, or all if none is named.
compile() {
  local folder=$1 jobs quiet=()
  shift
  jobs=$(job_count)
  [ -t 1 ] || quiet=(--quiet)
  say "compiling $folder/ with $jobs jobs"
  ninja -C "$root/$folder" -j"$jobs" "${quiet[@]}" "$@" >&2
}
