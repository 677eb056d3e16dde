// EtcdServer is an etcd for tests, with an empty database, on a free port of 127.0.0.1. It ends
// with the test.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/unique_fd.h"
#include "run/etcd/etcd_client.h"
#include "tests/deadline.h"
#include "tests/temp_folder.h"

namespace pando {

class EtcdServer {
 public:
  // Returns whether this machine has etcd. Tests that need it return at once otherwise.
  static bool IsInstalled() {
    static const bool kIsInstalled = system("command -v etcd >/dev/null") == 0;
    if (!kIsInstalled) MESSAGE("SKIPPED: etcd is missing; run tools/setup.sh test");
    return kIsInstalled;
  }
  // Returns the one that the tests of this program share. Each test has its own prefix of keys.
  static EtcdServer& Shared() {
    static EtcdServer server;
    return server;
  }
  static std::string NewPrefix() {
    static int count = 0;
    return "/pando/test-" + std::to_string(++count) + "/";
  }

  explicit EtcdServer(std::vector<std::string> flags = {}, const std::string& scheme = "http")
      : flags_(std::move(flags)) {
    for (int tries = 0; tries < 5 && pid_ < 0; ++tries) {  // another program may take the port
      url_ = scheme + "://127.0.0.1:" + std::to_string(FreePort());
      Start();
    }
    REQUIRE_MESSAGE(pid_ >= 0, "etcd does not start");
  }
  ~EtcdServer() { Kill(); }
  EtcdServer(const EtcdServer&) = delete;
  EtcdServer& operator=(const EtcdServer&) = delete;

  const std::string& url() const { return url_; }
  // With patience for a slow machine.
  EtcdOptions options() const {
    return {.endpoints = {url_}, .connect_limit = kEventDeadline, .request_limit = kEventDeadline};
  }
  std::string DataFile(const std::string& name) const { return temp_.File("data/" + name); }

  void Kill() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // Starts etcd and waits until it answers. Its database is that of its last life.
  void Start() {
    const std::string peer = "http://127.0.0.1:" + std::to_string(FreePort());
    std::vector<std::string> args{"etcd",
                                  "--data-dir=" + temp_.File("data"),
                                  "--listen-client-urls=" + url_,
                                  "--advertise-client-urls=" + url_,
                                  "--listen-peer-urls=" + peer,
                                  "--initial-advertise-peer-urls=" + peer,
                                  "--initial-cluster=default=" + peer,
                                  "--unsafe-no-fsync",
                                  "--logger=zap",
                                  "--log-level=error"};
    args.insert(args.end(), flags_.begin(), flags_.end());
    std::vector<char*> pointers;
    for (std::string& arg : args) pointers.push_back(arg.data());
    pointers.push_back(nullptr);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int log = open(temp_.File("log").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
      dup2(log, STDOUT_FILENO);
      dup2(log, STDERR_FILENO);
      execvp("etcd", pointers.data());
      _exit(127);
    }
    AwaitAnswer();
  }

 private:
  // Polls, because etcd tells nothing when it is ready. If it has ended, there is no pid.
  void AwaitAnswer() {
    EtcdClient client({.endpoints = {url_}});
    const Micros deadline = SteadyNow() + kEventDeadline;
    // A refusal is an answer too.
    while (client.Get("/").status().code() == StatusCode::kUnavailable) {
      REQUIRE_MESSAGE(SteadyNow() < deadline, "etcd does not answer");
      if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
        pid_ = -1;
        return;
      }
      usleep(1000);
    }
  }

  static uint16_t FreePort() {
    const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    auto* name = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof(address);
    REQUIRE(bind(fd.get(), name, size) == 0);
    REQUIRE(getsockname(fd.get(), name, &size) == 0);
    return ntohs(address.sin_port);
  }

  const TempFolder temp_;
  const std::vector<std::string> flags_;
  std::string url_;
  pid_t pid_ = -1;
};

}  // namespace pando
