// Norms exchanges the partial values of updates that need several shards (P14 to P16). It sends
// those of this lane's shards to the lanes whose shards share a tensor with them, and their sum
// over the NormTree if every update needs the total. It pulls what is missing until it arrives. A
// value is named by (shard, step) and has the same bits on every replica, so any replica may
// answer. It is a part of the lane. Threads: none. Owns: others' values of two steps.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "proto/silence.h"
#include "proto/view_member.h"
#include "server/lane_part.h"
#include "server/norms/norm_tree.h"
#include "server/norms/shard_sum.h"

namespace pando {

class Norms : LanePart {
 public:
  // `maker` outlives it. `peers_max` is NormTree's.
  Norms(const LanePart& part, const VersionMaker& maker, Micros lease,
        size_t peers_max = NormTree::kPeersMax)
      : LanePart(part), maker_(maker), peers_max_(peers_max), silence_(2 * lease) {}

  void OnPartials(const Envelope& envelope, const Partials& partials);
  void OnPartialsPull(const Envelope& envelope, const PartialsPull& pull);
  // Makes the shard's partial values.  Returns the factors that the optimizer needs beyond the
  // shard's gradient, or none while values of other shards are missing; these are pulled.
  // REQUIRES: shard.is_ready().
  std::optional<std::vector<float>> CollectFactors(Micros now, Shard& shard,
                                                   const StepScalars& scalars);
  // Is called when a shard of this lane has made the step's version from a backup's root (P22): its
  // values are in the record, and CollectFactors was not called for them.
  void OnAdopted(Step step) {
    if (!maker_.has_partials()) return;
    has_news_ = true;
    TellSums(step);
  }
  // Returns once whether there are new values. Shards that wait for values may then advance.
  bool TakeNews() { return std::exchange(has_news_, false); }

  void EnterView(Micros now);
  void Clear() { steps_.clear(); }  // a new generation begins
  void Tick(Micros now) {
    SendGathered(now);
    while (auto silent = silence_.TakeDue(now)) member_.SendToScheduler(*silent);  // P23
    if (awaits_others_ && now >= pull_at_) PullMissing(now);
  }
  Micros NextDeadline() const {
    if (has_news_) return Micros(0);
    const Micros pull_at = awaits_others_ ? pull_at_ : kNever;
    return std::min({held_until_.value_or(kNever), pull_at, silence_.NextDeadline()});
  }

 private:
  // The news of one step from other lanes.
  struct Heard {
    std::map<ShardId, std::vector<float>> values;
    std::map<PeerId, PartialSum> sums;  // the newest of each lane
    std::optional<PartialTotal> total;  // over all shards
    bool has_told_up = false;           // in this view
    bool has_told_down = false;
  };

  // P4. Returns where to keep values of the step: the lowest one of this lane's shards or the next.
  // Returns null for other steps. Forgets lower ones.
  Heard* Open(Step step);
  std::span<const float> Find(ShardId shard, Step step) const;
  // Returns whether this lane has the values of all shards that it leads.
  bool HasOwn(Step step) const;
  // Returns the sum of the known values of `shards`.
  ShardSum Collect(const Heard& heard, Step step, const std::vector<bool>& shards) const;
  void TellNeighbours(const Shard& shard);
  void TellSums(Step step);
  void SendGathered(Micros now);
  void PullMissing(Micros now);
  // Missing is the values to pull, by the primary's lane.
  using Missing = std::map<PeerId, std::set<std::pair<Step, ShardId>>>;
  void AddIfMissing(ShardId shard, Step step, Missing* missing) const;
  void AddMissingOfTotal(Step step, Missing* missing) const;

  const VersionMaker& maker_;
  const size_t peers_max_;
  NormTree tree_;
  const std::vector<bool> all_ = std::vector<bool>(plan_.shards.shard_count(), true);
  std::map<Step, Heard> steps_;
  bool has_news_ = false;
  std::map<PeerId, Partials> out_;  // until Tick, or a little longer
  std::optional<Micros> held_until_;
  bool awaits_others_ = false;
  // In a new view primaries may have sent their values before, so they are asked at once.
  bool is_view_fresh_ = false;
  Micros pull_at_{0};
  Silence silence_;  // of the lanes that were asked
};

}  // namespace pando
