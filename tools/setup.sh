#!/usr/bin/env bash
# Installs the Debian packages that Pando needs to build and to run its tests. Lists them before it
# installs them; does nothing if all are installed. For Debian 12.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

packages=(
  g++ meson ninja-build pkg-config python3           # tools
  libzmq3-dev libcapnp-dev capnproto      # messages
  libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libspdlog-dev libfmt-dev  # command line, files, logs
  libxxhash-dev zlib1g-dev                           # hashes, compressed data sets
  libturbojpeg0-dev libpng-dev                       # pictures in files
  libcurl4-openssl-dev libssl-dev libarchive-dev     # pando data fetch
  libsqlite3-dev                                     # the scheduler's journal
  libgloo-dev                                        # --strategy allreduce
  doctest-dev iproute2                               # tests; partitions
  libeigen3-dev                                      # references of products in tests and benchmarks
  python3-matplotlib                                 # plots of `pando bench report`
  clang-format clang-tidy flake8 shellcheck git      # tools/lint.sh
)

installed_packages() {
  dpkg-query -W -f '${db:Status-Abbrev} ${binary:Package}\n' "${packages[@]}" 2>/dev/null |
    sed -n 's/^ii *\([^:]*\).*/\1/p' || true
}

find_missing() {
  local installed package
  installed=$(installed_packages)
  for package in "${packages[@]}"; do
    grep -qxF -- "$package" <<<"$installed" || echo "$package"
  done
}

install_packages() {
  local as_root=() apt=(apt-get -q -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0)
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null ||
      die "installing packages needs root, and there is no sudo. As root: apt-get install $*"
    as_root=(sudo)
  fi
  "${as_root[@]}" "${apt[@]}" update >&2 || die "'apt-get update' failed: is this machine online?"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    "${apt[@]}" install -y --no-install-recommends "$@" >&2 ||
    die "apt-get could not install: $*. The lines above say why (no network? not Debian 12?)"
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  die "no apt-get here: this script supports only Debian. Install the contents of these Debian packages:" \
    "${packages[*]}. Then give tools/demo.sh or tools/test.sh the flag --no-setup."
fi
mapfile -t missing < <(find_missing)
if [ ${#missing[@]} = 0 ]; then
  say "set-up: all ${#packages[@]} packages are installed"
  exit 0
fi
say "set-up: installing ${missing[*]}"
install_packages "${missing[@]}"
say "set-up: done"
