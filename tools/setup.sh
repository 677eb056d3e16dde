#!/usr/bin/env bash
# Installs the Debian packages that Pando needs. Lists them before it installs them; does nothing if
# all are installed. For Debian 12.
#   tools/setup.sh [GROUP...]     build, test, lint and plots, or those named (--torch: all):
#     build   compilers and libraries, for pando and its tests
#     test    programs that the tests need
#     lint    programs that tools/lint.sh needs
#     plots   Matplotlib, for the plots of `pando bench report` and of tools/pictures.py
#     fuzz    clang with libFuzzer, for tools/fuzz.sh: only if it is named
#     torch   Debian's PyTorch, for the tests of python/: only if it is named
#     view    Chromium and Prometheus, for the tests of `pando view`: only if it is named
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

declare -A groups
groups[build]="
  g++ patch meson ninja-build ccache pkg-config python3
  libzmq3-dev cppzmq-dev libsodium-dev libcapnp-dev capnproto
  libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libspdlog-dev libfmt-dev
  libxxhash-dev zlib1g-dev libjpeg62-turbo-dev libturbojpeg0-dev libpng-dev
  libcurl4-openssl-dev libssl-dev libarchive-dev
  libcpp-httplib-dev prometheus-cpp-dev libncurses-dev
  libsqlite3-dev libgloo-dev
  doctest-dev libeigen3-dev"
groups[test]="git iproute2 python3-yaml etcd-server"
groups[lint]="git clang-format clang-tidy flake8 shellcheck"
groups[fuzz]="clang-14 libclang-rt-14-dev"
groups[plots]="python3-matplotlib"
# Without a BLAS library torch multiplies matrices at a twentieth of the speed.
groups[torch]="python3-torch python3-torchvision libopenblas0-serial"
groups[view]="chromium prometheus"

case ${1:-} in -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;; esac
[ $# -gt 0 ] || set -- build test lint plots
[ "$1" != --torch ] || set -- build test lint plots torch
packages=()
for group in "$@"; do
  [ -n "${groups[$group]:-}" ] ||
    die "unknown group '$group': expected build, test, lint, plots, fuzz, torch or view"
  read -r -d '' -a more <<<"${groups[$group]}" || true
  packages+=("${more[@]}")
done

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
  # Debian starts a service that nothing here uses: each test starts its own etcd.
  if [[ " $* " == *" etcd-server "* ]] && [ -d /run/systemd/system ]; then
    "${as_root[@]}" systemctl disable --now etcd.service >&2
  fi
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
