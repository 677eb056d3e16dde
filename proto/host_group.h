// HostGroup: the workers of one host that sum there before anything leaves it, by the view (P6a).
// Used by the worker's session, and by its process, which dials the relay.
#pragma once

#include <vector>

#include "plan/job_plan.h"
#include "proto/messages.h"

namespace pando {

struct HostGroup {
  PeerId relay;                 // gets the other workers' sums; kUnknownNode: there is none
  std::vector<NodeId> workers;  // those that own micro-batches, the relay first; at least two
  std::vector<bool> sums;       // by shard: whether it is summed on the host

  bool has_relay() const { return relay.node != kUnknownNode; }
};

// The group of this worker; its relay is the host's worker of the lowest rank. There is no relay if
// the worker owns nothing, is the only owner, or every shard's primary is on this host.
HostGroup HostGroupFor(const View& view, const PeerId& self, const JobPlan& plan);

// The nodes of a step that the host must give, if all of its workers give theirs.
std::vector<TreeNode> NodesOfHost(const HostGroup& group, const View& view, Step step,
                                  const MicroBatchTree& tree);

}  // namespace pando
