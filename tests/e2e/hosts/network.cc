#include "tests/e2e/hosts/network.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace pando {
namespace {

// No host has this hardware address: a switch floods such a frame, and no host accepts it.
constexpr const char* kNobodysAddress = "02:00:00:00:00:99";

bool Runs(const std::string& command) { return std::system(command.c_str()) == 0; }

void MustRun(const std::string& command) { REQUIRE_MESSAGE(Runs(command), command); }

bool WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  return !file.fail();
}

// Other users become root in a user namespace, if the kernel supports it.
bool EnterOwnNetwork() {
  if (geteuid() == 0) return unshare(CLONE_NEWNET) == 0;
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  return unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 && WriteFile("/proc/self/setgroups", "deny") &&
         WriteFile("/proc/self/uid_map", fmt::format("0 {} 1", uid)) &&
         WriteFile("/proc/self/gid_map", fmt::format("0 {} 1", gid));
}

// With `disk` a separate mount namespace, where that folder is an empty file system.
bool EnterHost(const std::string& disk) {
  if (disk.empty()) return unshare(CLONE_NEWNET) == 0;
  return unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 &&
         mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", disk.c_str(), "tmpfs", 0, "mode=0700") == 0;
}

// A child in the host's namespaces that does nothing.
pid_t StartHolder(const std::string& disk) {
  int ready[2];
  REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!EnterHost(disk) || write(ready[1], "", 1) != 1) _exit(1);
    for (;;) pause();
  }
  close(ready[1]);
  char byte;
  const bool is_ready = read(ready[0], &byte, 1) == 1;
  close(ready[0]);
  REQUIRE_MESSAGE(is_ready, "this machine allows no host, or no disk for it");
  return child;
}

std::string NetworkFor(const std::string& pid) {
  std::error_code none;  // of a process that has ended
  return std::filesystem::read_symlink("/proc/" + pid + "/ns/net", none).string();
}

// Whether the holder's host had other processes, which are killed.
bool KillProcessesBeside(pid_t holder) {
  const std::string network = NetworkFor(std::to_string(holder));
  bool has_found = false;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    const pid_t pid = std::atoi(name.c_str());
    if (pid <= 0 || pid == holder || NetworkFor(name) != network) continue;
    kill(pid, SIGKILL);
    has_found = true;
  }
  return has_found;
}

}  // namespace

Result<std::unique_ptr<TestNetwork>> TestNetwork::Make() {
  for (const char* program : {"ip", "nsenter"}) {
    if (!Runs(fmt::format("command -v {} >/dev/null", program)))
      return NotFound(fmt::format("there is no program '{}'", program));
  }
  if (!EnterOwnNetwork())
    return Unavailable(fmt::format("no network namespace: {}", strerror(errno)));
  if (!Runs("ip link add switch type bridge && ip link set switch up"))
    return Unavailable("no bridge in a network namespace");
  return std::unique_ptr<TestNetwork>(new TestNetwork());
}

TestNetwork::~TestNetwork() {
  for (const Host& host : hosts_) {
    if (host.holder < 0) continue;
    kill(host.holder, SIGKILL);
    waitpid(host.holder, nullptr, 0);
  }
}

HostId TestNetwork::AddHost(const std::string& disk) {
  const HostId host{static_cast<int>(hosts_.size())};
  hosts_.push_back({StartHolder(disk), disk});
  MustRun(
      fmt::format("ip link add cable{0} type veth peer name eth0 netns {1} &&"
                  "ip link set cable{0} master switch up",
                  host.index, Holder(host)));
  MustRun(
      fmt::format("nsenter --net=/proc/{0}/ns/net sh -c 'ip link set lo up &&"
                  "ip addr add {1}/24 dev eth0 && ip link set eth0 up'",
                  Holder(host), HostAddress(host)));
  return host;
}

std::string TestNetwork::HostAddress(HostId host) const {
  return fmt::format("10.77.0.{}", host.index + 1);
}

std::string TestNetwork::PathOn(HostId host, const std::string& path) const {
  return fmt::format("/proc/{}/root{}", Holder(host), path);
}

Args TestNetwork::Through(HostId host) const {
  const std::string namespaces = fmt::format("/proc/{}/ns/", Holder(host));
  const std::string& disk = hosts_[host.index].disk;
  Args args{"nsenter", "--net=" + namespaces + "net"};
  if (!disk.empty()) args.push_back("--mount=" + namespaces + "mnt");
  for (const char* word : {"unshare", "--uts", "sh", "-c", R"(hostname "$0" && exec "$@")"})
    args.push_back(word);
  args.push_back(fmt::format("host-{}", host.index));
  if (!disk.empty()) {
    for (const std::string& word : {std::string("env"), "--chdir=" + disk, "TMPDIR=" + disk})
      args.push_back(word);
  }
  return args;
}

void TestNetwork::PullCable(HostId host) {
  MustRun(fmt::format("ip link set cable{} down", host.index));
}

void TestNetwork::PlugIn(HostId host) {
  MustRun(fmt::format("ip link set cable{} up", host.index));
}

void TestNetwork::LoseHost(HostId host) {
  PullCable(host);
  REQUIRE(Becomes([&] { return !KillProcessesBeside(Holder(host)); }));
  kill(Holder(host), SIGKILL);
  waitpid(Holder(host), nullptr, 0);
  hosts_[host.index].holder = -1;
}

void TestNetwork::LoseFrames(HostId from, HostId to) {
  MustRun(fmt::format(
      "nsenter --net=/proc/{}/ns/net ip neigh replace {} lladdr {} dev eth0 nud permanent",
      Holder(from), HostAddress(to), kNobodysAddress));
}

void TestNetwork::StopLosing(HostId from, HostId to) {
  MustRun(fmt::format("nsenter --net=/proc/{}/ns/net ip neigh del {} dev eth0", Holder(from),
                      HostAddress(to)));
}

TestNetwork& TheNetwork() {
  static const std::unique_ptr<TestNetwork> kNetwork = [] {
    Result<std::unique_ptr<TestNetwork>> made = TestNetwork::Make();
    if (!made.ok()) {
      std::fprintf(stderr, "SKIPPED: hosts of real processes need network namespaces: %s\n",
                   made.status().message().c_str());
      std::exit(kSkipped);
    }
    return *std::move(made);
  }();
  return *kNetwork;
}

}  // namespace pando
