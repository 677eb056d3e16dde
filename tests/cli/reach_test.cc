#include "cli/reach.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <future>
#include <mutex>
#include <thread>

#include "cli/bind_choice.h"
#include "common/endpoint.h"
#include "common/event_fd.h"
#include "net/socket_address.h"
#include "tests/contains.h"

namespace pando {
namespace {

// A doctor that listens on loopback, as on the scheduler's machine.
class ListeningDoctor {
 public:
  ListeningDoctor()
      : thread_([this] {
          const Status status =
              ListenForDoctors("tcp://127.0.0.1:0", stop_.fd(), [this](const std::string& text) {
                const std::lock_guard lock(mutex_);
                if (events_.empty()) bound_.set_value(text);
                events_.push_back(text);
              });
          CHECK(status.ok());
        }),
        endpoint(bound_.get_future().get()) {}
  ~ListeningDoctor() { Stop(); }

  std::vector<std::string> Stop() {
    stop_.Raise();
    if (thread_.joinable()) thread_.join();
    return events_;
  }

 private:
  EventFd stop_;
  std::mutex mutex_;
  std::vector<std::string> events_;  // guarded by mutex_ while the thread runs
  std::promise<std::string> bound_;
  std::thread thread_;

 public:
  const std::string endpoint;
};

bool Says(const std::vector<std::string>& lines, const std::string& words) {
  for (const std::string& line : lines) {
    if (Contains(line, words)) return true;
  }
  return false;
}

TEST_CASE("two doctors reach each other, and say the clock and the packets") {
  ListeningDoctor other;
  const ReachReport report = TryReach({.join = other.endpoint});
  CHECK(report.problems.empty());
  CHECK(Says(report.found, "takes connections: round trip "));
  CHECK(Says(report.found, "its clock differs from ours by "));
  CHECK(Says(report.found, "it reaches this machine at tcp://127.0.0.1:"));
  CHECK(Says(other.Stop(), ": reached"));
}

TEST_CASE("an address that is not the one that connections come from is a problem") {
  ListeningDoctor other;
  const ReachReport report = TryReach({.join = other.endpoint, .bind = "tcp://127.0.0.2:0"});
  CHECK(Says(report.problems, "connections come from 127.0.0.1, and 127.0.0.2 is to be dialed"));
}

TEST_CASE("a port at which no process listens, and a name without an address, are problems") {
  uint16_t port = 0;
  { const Result<UniqueFd> closed = ListenTcp("127.0.0.1", 0, &port); }
  const std::string unused = "127.0.0.1:" + std::to_string(port);
  const ReachReport refused = TryReach({.join = "tcp://" + unused});
  REQUIRE(refused.problems.size() == 1);
  CHECK(Contains(refused.problems[0], unused + " refuses connections"));
  const ReachReport unnamed = TryReach({.join = "tcp://no-such-host.invalid:1"});
  CHECK(Says(unnamed.problems, "no-such-host.invalid"));
  CHECK(Says(TryReach({.join = "ipc:///tmp/x"}).problems, "this machine alone"));
}

TEST_CASE("a port that is taken, and an address of another machine, are problems of this one") {
  ListeningDoctor other;
  CHECK(Says(TryReach({.join = other.endpoint, .bind = other.endpoint}).problems,
             "Address already in use"));
  CHECK(Says(TryReach({.join = other.endpoint, .bind = "tcp://192.0.2.1:0"}).problems,
             "Cannot assign requested address"));
}

TEST_CASE("a program that is no doctor ends no doctor") {
  ListeningDoctor other;
  const uint16_t port = ParseEndpoint(other.endpoint)->port;
  UniqueFd stranger;
  REQUIRE(DialTcp("127.0.0.1", port, std::chrono::seconds(60), &stranger) == 0);
  REQUIRE(send(stranger.get(), "\xff\n", 2, MSG_NOSIGNAL) == 2);
  CHECK(TryReach({.join = other.endpoint}).problems.empty());
  CHECK(Says(other.Stop(), "127.0.0.1 has connected and is no doctor"));
}

TEST_CASE("a failed connection is explained by its cause") {
  CHECK(Contains(ExplainDial("10.0.0.1", 7070, ETIMEDOUT), "a firewall drops TCP to port 7070"));
  CHECK(Contains(ExplainDial("10.0.0.1", 7070, EHOSTUNREACH), "no route"));
  CHECK(Contains(ExplainDial("10.0.0.1", 7070, ECONNREFUSED), "no process listens there"));
  CHECK(ExplainDial("::1", 7, EACCES) == "a connection to [::1]:7 fails: Permission denied");
}

TEST_CASE("an interface's address is bound, at the port of a wildcard") {
  CHECK(*ChooseBind("", "lo") == "tcp://127.0.0.1:0");
  CHECK(*ChooseBind("tcp://*:7071", "lo") == "tcp://127.0.0.1:7071");
  CHECK(*ChooseBind("tcp://127.0.0.1:7070", "lo", "tcp://127.0.0.1:7070") ==
        "tcp://127.0.0.1:7070");
  CHECK(*ChooseBind("tcp://10.0.0.1:7070", "") == "tcp://10.0.0.1:7070");
  CHECK(Contains(ChooseBind("tcp://10.0.0.1:7070", "lo").status().message(), "leave one out"));
  const Result<std::string> unknown = ChooseBind("", "no-such-interface");
  REQUIRE(!unknown.ok());
  CHECK(Contains(unknown.status().message(), "'no-such-interface'"));
  CHECK(Contains(unknown.status().message(), "lo"));
}

}  // namespace
}  // namespace pando
