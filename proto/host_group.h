// HostGroup: the workers of one host that sum there before anything leaves it, as a view says
// (P6a). Asked by the worker's session, and by its process, which dials the relay.
#pragma once

#include <vector>

#include "common/job_plan.h"
#include "proto/messages.h"

namespace pando {

struct HostGroup {
  PeerId relay;                 // to whom the others give their sums; kUnknownNode: there is none
  std::vector<NodeId> workers;  // those who own micro-batches, the relay first; at least two
  std::vector<bool> sums;       // by shard: whether it is summed on the host

  bool has_relay() const { return relay.node != kUnknownNode; }
};

// The group of this worker: its relay is the host's worker of the lowest rank. Without a relay
// where the worker owns nothing, owns alone, or every shard is the host's own.
HostGroup HostGroupOf(const View& view, const PeerId& self, const JobPlan& plan);

// The nodes of a step that the host has to give, if all of its workers give theirs.
std::vector<TreeNode> NodesOfHost(const HostGroup& group, const View& view, Step step,
                                  const MicroBatchTree& tree);

}  // namespace pando
