// TestNetwork: separate hosts for end-to-end tests, in network namespaces of this machine: each
// has a name, one address and a cable to a common switch, and cables can be pulled. A host may also
// have a disk, in a mount namespace, and be lost for good with it.
//
// The switch is in a namespace that this program moves into, so nothing of the machine's own
// network is touched, and everything is gone with this program, however it ends.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
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

  // `disk`: a folder that processes on the host find empty at first. Its files are on this host
  // alone, and are lost with it. It is also their working folder and their TMPDIR. Without one they
  // see this machine's files.
  HostId AddHost(const std::string& disk = "");
  std::string HostAddress(HostId host) const;  // "10.77.0.1"
  // How this program reaches a path of a host that has a disk.
  std::string PathOn(HostId host, const std::string& path) const;
  // Words that run a process on the host: Process's `through`.
  Args Through(HostId host) const;

  // The host's cable: nothing goes in or out until it is plugged in again. Connections are not
  // reset: both ends see silence.
  void PullCable(HostId host);
  void PlugIn(HostId host);

  // For good, as in a power failure: the host is silent first, then its processes are killed, and
  // its disk is gone. REQUIRES: it is not lost yet.
  void LoseHost(HostId host);

  // One way: what `from` sends to `to` is lost, the other direction works.
  void LoseFrames(HostId from, HostId to);
  void StopLosing(HostId from, HostId to);

 private:
  struct Host {
    pid_t holder;  // the process that keeps the host's namespaces alive; -1: the host is lost
    std::string disk;
  };
  TestNetwork() = default;
  pid_t Holder(HostId host) const { return hosts_[host.index].holder; }

  std::vector<Host> hosts_;
};

// The one network of a program, since the program moves into it. Ends the test as skipped, loudly,
// if this machine allows none.
TestNetwork& TheNetwork();

}  // namespace pando
