// Model is the protocol (docs/protocol.md, P1 to P30) as states and steps between them. A state's
// successors are the next actions of its servers, its workers and the scheduler, and the faults.
// The search (search.h) visits all of them.
//
// The rules are in rules_server.cc, rules_worker.cc and rules_scheduler.cc; this is their common
// part.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/model/configuration.h"
#include "tests/model/state.h"

namespace pando::model {

enum class Edge : uint8_t {
  kRepeated,  // happens in the end, because a sender repeats it: progress may depend on it
  kOnce,      // a fault, a free choice, or an old message, which may as well be lost
};

struct Step {
  State next;
  Edge edge;
  std::string text;  // empty unless the steps are described
};

// The steps that lead out of one state.
class Steps {
 public:
  explicit Steps(bool is_describing = false) : is_describing_(is_describing) {}
  template <typename Describe>  // std::string()
  void Add(const State& next, Edge edge, Describe&& describe) {
    steps_.push_back({next, edge, is_describing_ ? describe() : std::string()});
  }
  std::vector<Step>& all() { return steps_; }

 private:
  bool is_describing_;
  std::vector<Step> steps_;
};

class Model {
 public:
  explicit Model(const Configuration& configuration);

  const Configuration& configuration() const { return configuration_; }
  State Initial();
  void Successors(const State& state, Steps* steps);
  // The name of the invariant that this state breaks; none in a good state.
  std::optional<std::string> Violation(const State& state) const;
  // Every shard has committed the last version, and its snapshot is complete where there are any.
  bool IsFinished(const State& state) const;

  // ---- for the rules
  const View& ViewAt(const State& state, int number) const { return views_[state.views[number]]; }
  const View& Latest(const State& state) const { return ViewAt(state, state.view_count - 1); }
  const View& ViewFor(const State& state, const Server& server) const {
    return ViewAt(state, server.view);
  }
  const View& ViewFor(const State& state, const Worker& worker) const {
    return ViewAt(state, worker.view);
  }
  void AppendView(State* state, const View& view);

  // Whether the server acts as the shard's primary: by its own view, and with the data.
  bool Serves(const State& state, int server, int shard) const;
  // The life that messages for `server` reach: itself, unless a mutation of P19 lets them reach the
  // next life at the same address.
  int Reached(const State& state, int server) const;
  // P21: whether a message of one generation is taken by a node of the other.
  bool SameGeneration(int one, int other) const {
    return one == other || configuration_.Mutated(Mutation::kNoGeneration);
  }
  // Notes that `version` of the shard was shown or committed, unless it was in an old generation,
  // which affects no other node (P21).
  void MarkSeen(State* state, int shard, int version, int generation) const;
  // Whether two places name the same pair of source and newcomer (P24).
  bool SamePair(const ShardPlace& one, const ShardPlace& other) const;

 private:
  std::optional<std::string> BrokenBound(const State& state) const;
  uint16_t Intern(const View& view);
  void StartSplit(State* state);
  void Canonicalize(State* state) const;
  void ForgetDead(State* state) const;
  bool IsGenerationAlive(const State& state, int generation) const;

  const Configuration configuration_;
  std::vector<View> views_;  // by id; 0 stands for "not needed any more"
  std::map<View, uint16_t> view_ids_;
};

// P7: the replica makes its next version, and drops those that it does not keep.
void AddVersion(const Configuration& configuration, Replica* replica);
// The same at a primary: the pending sums belong to the steps after it.
void MakeVersion(const Configuration& configuration, Replica* replica);
// The primary has all gradients of the step that updates its newest version, which is committed.
bool RootIsComplete(const Replica& replica);
// Micro-batches of `step` that `view` gives to `worker`, as a mask (P17, P18).
int Assigned(const View& view, int step, int worker);
// Whether every shard of the server has another in-sync replica that lives.
bool CanBeSpared(const Model& model, const State& state, int server);
inline int Count(int mask) { return __builtin_popcount(static_cast<unsigned>(mask)); }
// A mask with kMicroBatches bits per step: the part of one step, and a part's place in the mask.
inline int PartFor(int mask, int step) { return mask >> (kMicroBatches * step) & kAllMicroBatches; }
inline int PlaceFor(int micro_batches, int step) { return micro_batches << (kMicroBatches * step); }
// Gradients of `step` that the worker keeps for the shard (P11), as a mask of micro-batches.
inline int UnrepliedFor(const Worker& worker, int shard, int step) {
  return PartFor(worker.unreplied[shard], step);
}
// The version that is committed in each shard, as far as the worker knows.
int KnownEverywhere(const Configuration& configuration, const Worker& worker);
// The shard is known to be at `version`: gradients of earlier steps are let go.
void Release(Worker* worker, int shard, int version);
// The worker asks every primary for (version, nodes held), and drops what it knew to be missing
// (P17).
void AskAll(const Configuration& configuration, Worker* worker);

// The rules, one file each.
void AddServerSteps(Model& model, const State& state, Steps& steps);
void AddWorkerSteps(Model& model, const State& state, Steps& steps);
void AddSchedulerSteps(Model& model, const State& state, Steps& steps);
void AddFaults(Model& model, const State& state, Steps& steps);

}  // namespace pando::model
