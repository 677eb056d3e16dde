#include "tests/e2e/hosts/network.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
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

// A child in a separate network namespace that does nothing.
pid_t StartHolder() {
  int ready[2];
  REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (unshare(CLONE_NEWNET) != 0 || write(ready[1], "", 1) != 1) _exit(1);
    for (;;) pause();
  }
  close(ready[1]);
  char byte;
  const bool is_ready = read(ready[0], &byte, 1) == 1;
  close(ready[0]);
  REQUIRE(is_ready);
  return child;
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
  for (const pid_t holder : holders_) {
    kill(holder, SIGKILL);
    waitpid(holder, nullptr, 0);
  }
}

HostId TestNetwork::AddHost() {
  const HostId host{static_cast<int>(holders_.size())};
  holders_.push_back(StartHolder());
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

Args TestNetwork::Through(HostId host) const {
  return {"nsenter",
          fmt::format("--net=/proc/{}/ns/net", Holder(host)),
          "unshare",
          "--uts",
          "sh",
          "-c",
          R"(hostname "$0" && exec "$@")",
          fmt::format("host-{}", host.index)};
}

void TestNetwork::PullCable(HostId host) {
  MustRun(fmt::format("ip link set cable{} down", host.index));
}

void TestNetwork::PlugIn(HostId host) {
  MustRun(fmt::format("ip link set cable{} up", host.index));
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

}  // namespace pando
