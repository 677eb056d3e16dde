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

  // Lets those who will give to us dial: before a view can name us. Where that cannot be they push
  // for themselves.
  void Open(const PeerId& self);
  // Before the process speaks as another incarnation.
  void Close();
  // Dials the group's relay, if it is not us. Returns who is dialed.
  std::set<PeerId> Connect(const HostGroup& group, const PeerId& self);
  // Says in the log that the relay does not answer, and that it does again.
  void Tell(bool is_given_up);

 private:
  Transport& transport_;
  PeerId relay_;  // of the newest group
  bool is_bound_ = false;
  PeerId given_up_;  // of the relays
};

}  // namespace pando
