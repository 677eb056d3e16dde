// HostLines has the connections of one host's workers to the worker that sums for them (P6a), over
// a Unix socket in the abstract namespace, which only this host's processes reach. SessionWorker
// uses it. Threads: the transport's.
#pragma once

#include <set>

#include "net/transport.h"
#include "proto/assignment.h"

namespace pando {

class HostLines {
 public:
  explicit HostLines(Transport& transport) : transport_(transport) {}  // outlives it

  // Lets the workers of this host connect, before a view can name this worker as their relay. If
  // that fails, they push separately.
  void Open(const PeerId& self);
  // Call it before the process becomes another incarnation.
  void Close();
  // Connects to the group's relay, if this process is not the relay. Returns the peers.
  std::set<PeerId> Connect(const HostGroup& group, const View& view, const PeerId& self);
  // Logs that the relay does not answer, or that it answers again.
  void Tell(bool is_given_up);

 private:
  Transport& transport_;
  PeerId relay_;  // the newest group's relay
  bool is_bound_ = false;
  PeerId given_up_;  // the relay that was given up
};

}  // namespace pando
