// HostileMember speaks as living members of a simulated job about what is not theirs (P46), until
// the run ends: the member's key has leaked, and the thief has its identity. What it says is near
// the truth, so that a process that believes it goes wrong. It never speaks about what the member
// has, had or decides itself. Used by Cluster.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tests/sim/hostile/random_message.h"
#include "tests/sim/population.h"

namespace pando::sim {

class HostileMember {
 public:
  // Its text about snapshots that are sound.
  static constexpr const char* kLie = "forged";

  // All outlive it.
  HostileMember(const Stage& stage, const Population& population)
      : stage_(stage),
        population_(population),
        chance_(stage.world.chance().Fork("hostile member")) {}
  void Begin();
  // Sees what is sent: which worker gets which slice of the test set.
  void OnSent(const Envelope& envelope);
  // The journal has another view.
  void OnView(const View& newest);

 private:
  using Slice = std::pair<Version, uint32_t>;

  void SpeakAndGoOn();
  void Speak();
  // A lie that this member may send; none if all shards were its own, for example.
  std::optional<Message> DrawLie(const PeerId& self, Role role, bool is_to_scheduler);
  std::optional<Message> LieAboutShard(const PeerId& self, Role role, ShardId shard);
  std::optional<Message> LieOfWorker(const PeerId& self);
  std::optional<Message> LieToPeers(Role role, ShardId shard);
  std::optional<Message> LieAboutVersion(const PeerId& self);
  Message LieAboutRows();
  std::optional<ShardId> DrawOthersShard(const PeerId& self);
  bool HasHad(const PeerId& self, ShardId shard) const;
  bool HasComputed(NodeId worker, Step step, MicroBatch m) const;
  const View& view() const { return views_.back(); }
  Version committed() const;
  Version DrawVersion();

  const Stage stage_;
  const Population& population_;
  Chance chance_;
  std::vector<View> views_;                           // of the generation
  std::map<Slice, std::vector<Incarnation>> slices_;  // the workers that were given each
  std::map<Slice, uint64_t> slice_samples_;
};

}  // namespace pando::sim
