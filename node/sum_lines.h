// SumLines has a worker's connections to the workers that sum for it (P6a). A worker of a rack
// listens on the network. Others use a Unix socket in the abstract namespace, which only their
// host's processes reach. SessionWorker uses it. Threads: the transport's.
#pragma once

#include <set>
#include <string>

#include "net/transport.h"
#include "node/node_join.h"
#include "proto/assignment.h"

namespace pando {

class SumLines {
 public:
  explicit SumLines(Transport& transport) : transport_(transport) {}  // outlives it

  // Lets the workers of this worker's rack connect over the network, and registers the rack and
  // the endpoint. Call it before the process joins. `bind`: where; empty: DefaultBind, whose errors
  // it returns. Does nothing without a rack, or if the scheduler's endpoint is a path, so that the
  // run is of one host. If it cannot listen, it logs why, and the worker takes part without a rack.
  Status ListenForRack(const std::string& rack, std::string bind, JoiningProcess* process);
  // Lets the workers of this host connect, before a view can name this worker as their relay. If
  // that fails, they push separately.
  void Open(const PeerId& self);
  // Call it before the process becomes another incarnation.
  void Close();
  // Connects to the group's other relays. Returns those that could be dialed.
  std::set<PeerId> Connect(const SumGroup& group, const View& view, const PeerId& self);
  // Logs that a relay does not answer, or that all answer again.
  void Tell(bool is_given_up);

 private:
  Transport& transport_;
  std::set<PeerId> relays_;  // the newest group's
  bool is_in_rack_ = false;  // so that it listens on the network, in all its incarnations
  bool is_bound_ = false;    // to the Unix socket
  bool is_given_up_ = false;
};

}  // namespace pando
