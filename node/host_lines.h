// HostLines: the connections of one host's workers to the one that sums for them (P6a): a Unix
// socket in the abstract namespace, which only this host's processes reach. Used by the worker
// process. Threads: that of the transport.
#pragma once

#include <set>

#include "net/transport.h"
#include "proto/host_group.h"

namespace pando {

class HostLines {
 public:
  explicit HostLines(Transport& transport) : transport_(transport) {}  // outlives it

  // Lets the workers of this host connect, before a view can name this one as their relay. If that
  // fails they push separately.
  void Open(const PeerId& self);
  // Call before the process becomes another incarnation.
  void Close();
  // Connects to the group's relay, if this process is not the relay. Returns the peers.
  std::set<PeerId> Connect(const HostGroup& group, const PeerId& self);
  // Logs that the relay does not answer, and that it answers again.
  void Tell(bool is_given_up);

 private:
  Transport& transport_;
  PeerId relay_;  // of the newest group
  bool is_bound_ = false;
  PeerId given_up_;  // of the relays
};

}  // namespace pando
