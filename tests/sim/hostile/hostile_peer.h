// HostilePeer sends to a simulated job what no process may believe, until the run ends (P44):
//  - as a stranger, which no view names: any message;
//  - with the identity of a member, dead or alive: messages that its role may not send.
// Every message is well-formed. HostileMember has the lies that its role may send. Used by Cluster.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/sim/hostile/random_message.h"
#include "tests/sim/population.h"

namespace pando::sim {

class HostilePeer {
 public:
  // All outlive it.
  HostilePeer(const Stage& stage, const Population& population)
      : stage_(stage),
        population_(population),
        chance_(stage.world.chance().Fork("hostile peer")) {}
  void Begin();

 private:
  struct Identity {
    PeerId peer;
    Role role = Role::kClient;  // kClient: a stranger
  };
  void SendAndGoOn();
  void SendOne();
  std::vector<PeerId> Receivers() const;
  Identity DrawSender(const std::vector<PeerId>& peers);
  void CopyMember();
  size_t DrawKind(const Identity& sender, bool is_to_scheduler);

  const Stage stage_;
  const Population& population_;
  Chance chance_;
  std::vector<Identity> copies_;  // of members
  size_t copies_max_ = 0;
};

}  // namespace pando::sim
