// TestNetwork: separate hosts for end-to-end tests, in network namespaces of this machine: each
// has a name, one address and a cable to a common switch, and cables can be pulled.
//
// The switch is in a namespace that this program moves into, so nothing of the machine's own
// network is touched, and everything is gone with this program, however it ends.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "tests/e2e/process.h"

namespace pando {

struct HostId {
  int index = -1;
};

class TestNetwork {
 public:
  // Call it before any thread is started. An error says what this machine does not allow.
  static Result<std::unique_ptr<TestNetwork>> Make();
  ~TestNetwork();
  TestNetwork(const TestNetwork&) = delete;
  TestNetwork& operator=(const TestNetwork&) = delete;

  HostId AddHost();
  std::string HostAddress(HostId host) const;  // "10.77.0.1"
  // What runs a process on the host: Process's `through`.
  Args Through(HostId host) const;

  // The host's cable: nothing goes in or out until it is plugged in again. Connections are not
  // reset: both ends see silence.
  void PullCable(HostId host);
  void PlugIn(HostId host);

  // One way: what `from` sends to `to` is lost, the other direction works.
  void LoseFrames(HostId from, HostId to);
  void StopLosing(HostId from, HostId to);

 private:
  TestNetwork() = default;
  pid_t Holder(HostId host) const { return holders_[host.index]; }

  // Each keeps one host's namespace alive.
  std::vector<pid_t> holders_;
};

}  // namespace pando
