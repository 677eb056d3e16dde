#include "tests/model/model.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"

namespace pando::model {

void AddVersion(const Configuration& configuration, Replica* replica) {
  ++replica->newest;
  const int kept = configuration.OldestKept(static_cast<int>(replica->newest));
  if (static_cast<int>(replica->oldest) < kept)
    replica->oldest = static_cast<uint32_t>(kept) & kVersionBits;
}

void MakeVersion(const Configuration& configuration, Replica* replica) {
  AddVersion(configuration, replica);
  replica->leaves = replica->leaves >> kMicroBatches & kAllMicroBatches;
  replica->was_made_here = configuration.Mutated(Mutation::kForgetRoot) ||
                           configuration.Mutated(Mutation::kPartialsNotInBackups);
}

bool RootIsComplete(const Replica& replica) {
  return replica.committed == replica.newest && replica.awaits_answers == 0 &&
         PartFor(static_cast<int>(replica.leaves), 0) == kAllMicroBatches;
}

int Assigned(const View& view, int step, int worker) {
  int mask = 0;
  for (int m = 0; m < kMicroBatches; ++m) {
    const MicroBatchOwner& owner = view.owners[m];
    const int computes = step >= owner.first_step ? owner.worker : owner.previous;
    if (computes == worker) mask |= 1 << m;
  }
  return mask;
}

bool CanBeSpared(const Model& model, const State& state, int server) {
  const View& latest = model.Latest(state);
  for (int shard = 0; shard < model.configuration().shards; ++shard) {
    const int in_sync = latest.shards[shard].in_sync;
    bool has_other = false;
    for (int p = 0; p < kServerLivesMax; ++p)
      has_other = has_other || (p != server && Has(in_sync, p) && state.servers[p].is_alive);
    if (Has(in_sync, server) && !has_other) return false;
  }
  return true;
}

// Servers that live and have not been given up.
int CountLiving(const State& state) {
  int count = 0;
  for (int p = 0; p < kServerLivesMax; ++p)
    if (state.servers[p].is_alive && !Has(state.removed, p)) ++count;
  return count;
}

int KnownEverywhere(const Configuration& configuration, const Worker& worker) {
  return *std::min_element(worker.known.begin(), worker.known.begin() + configuration.shards);
}

void Release(Worker* worker, int shard, int version) {
  for (int step = 0; step < std::min(version, kStepsMax); ++step)
    worker->unreplied[shard] = Without(worker->unreplied[shard], PlaceFor(kAllMicroBatches, step));
}

void AskAll(const Configuration& configuration, Worker* worker) {
  worker->unasked = static_cast<uint8_t>((1 << configuration.shards) - 1);
  worker->answered_version = {};
  worker->answered_leaves = {};
  worker->missing = 0;
}

Model::Model(const Configuration& configuration) : configuration_(configuration), views_(1) {
  PANDO_CHECK(configuration.shards <= kShardsMax && configuration.steps <= kStepsMax);
  PANDO_CHECK(configuration.servers <= kServerLivesMax && configuration.workers <= kWorkersMax);
  PANDO_CHECK(configuration.views_max <= kViewsMax);
  PANDO_CHECK(configuration.staleness <= kStalenessMax);
}

State Model::Initial() {
  const Configuration& c = configuration_;
  View view{};
  for (int shard = 0; shard < kShardsMax; ++shard) {
    const int primary = shard % (c.replicas == 1 ? c.servers : c.replicas);
    const int in_sync = c.replicas == 1 ? 1 << primary : (1 << c.replicas) - 1;
    view.shards[shard] = {.primary = static_cast<uint8_t>(primary),
                          .in_sync = static_cast<uint8_t>(in_sync),
                          .syncing = kNobody,
                          .pair = 0};
  }
  for (int m = 0; m < kMicroBatches; ++m) {
    const auto worker = static_cast<uint8_t>(m % c.workers);
    view.owners[m] = {.worker = worker, .previous = worker, .first_step = 0};
  }
  State state{};
  state.budget = c.budget;
  AppendView(&state, view);
  for (int p = 0; p < kServerLivesMax; ++p) {
    Server& server = state.servers[p];
    server.is_alive = p < c.servers;
    server.address = p < c.servers ? static_cast<uint8_t>(p) : kNoAddress;
    for (int shard = 0; shard < c.shards; ++shard) {
      if (server.is_alive && Has(view.shards[shard].in_sync, p))
        server.replicas[shard].data = kComplete;
    }
  }
  for (int w = 0; w < c.workers; ++w) state.workers[w].phase = kWorking;
  if (c.starts_split) StartSplit(&state);
  Canonicalize(&state);
  return state;
}

// A reachable state that shortens the search: the workers have computed the steps up to the first
// one that does not read version 0. Its update is complete in shard 0 alone, and worker 0 knows.
void Model::StartSplit(State* state) {
  const Configuration& c = configuration_;
  const View& view = Latest(*state);
  const int step = c.staleness;
  for (int shard = 0; shard < c.shards; ++shard) {
    const int version = shard == 0 ? step + 1 : step;
    state->seen[shard] = static_cast<uint8_t>(version);
    for (int p = 0; p < c.servers; ++p) {
      Replica& replica = state->servers[p].replicas[shard];
      if (replica.data != kComplete) continue;
      replica.newest = static_cast<uint32_t>(version) & kVersionBits;
      if (p == view.shards[shard].primary) replica.committed = replica.newest;
    }
  }
  for (int w = 0; w < c.workers; ++w) {
    Worker& worker = state->workers[w];
    worker.next_step = static_cast<uint8_t>(step + 1);
    worker.known.fill(static_cast<uint8_t>(step));
    worker.unreplied.fill(static_cast<uint8_t>(PlaceFor(Assigned(view, step, w), step)));
  }
  Worker& knowing = state->workers[0];
  knowing.current[0] = static_cast<uint8_t>(c.VersionReadBy(step + 1));
  knowing.known[0] = static_cast<uint8_t>(step + 1);
  knowing.unreplied[0] = 0;
}

void Model::Successors(const State& state, Steps* steps) {
  steps->all().clear();
  AddServerSteps(*this, state, *steps);
  AddWorkerSteps(*this, state, *steps);
  AddSchedulerSteps(*this, state, *steps);
  AddFaults(*this, state, *steps);
  for (Step& step : steps->all()) Canonicalize(&step.next);
}

std::optional<std::string> Model::Violation(const State& state) const {
  const View& latest = Latest(state);
  for (int shard = 0; shard < configuration_.shards; ++shard) {
    const std::string of_shard = " of shard " + std::to_string(shard);
    for (int p = 0; p < kServerLivesMax; ++p) {
      const Server& server = state.servers[p];
      if (!server.is_alive || !Has(latest.shards[shard].in_sync, p)) continue;
      const Replica& replica = server.replicas[shard];
      const bool is_restoring =
          replica.data == kRestoring || ViewFor(state, server).generation != latest.generation;
      if (replica.data != kComplete && !is_restoring)
        return "I2: in-sync replica " + std::to_string(p) + of_shard + " has no data";
      const int newest = is_restoring ? latest.base : static_cast<int>(replica.newest);
      if (newest < state.seen[shard])
        return "I2: in-sync replica " + std::to_string(p) + of_shard + " has version " +
               std::to_string(newest) + ", version " + std::to_string(state.seen[shard]) +
               " was seen";
    }
    for (int w = 0; w < kWorkersMax; ++w) {
      const Worker& worker = state.workers[w];
      if (IsAlive(worker) && worker.generation == latest.generation &&
          worker.known[shard] > state.seen[shard])
        return "I3: worker " + std::to_string(w) + " knows version " +
               std::to_string(worker.known[shard]) + of_shard + ", which this generation has not";
    }
  }
  // A mutation must lead to a loss or a hang, so it may break the bounds that prevent them.
  return configuration_.mutation == Mutation::kNone ? BrokenBound(state) : std::nullopt;
}

// The bounds of P4 on an in-sync replica, where `lowest` is the lowest incomplete step.
std::optional<std::string> Model::BrokenBound(const State& state) const {
  const View& latest = Latest(state);
  const int lowest =
      *std::min_element(state.seen.begin(), state.seen.begin() + configuration_.shards);
  for (int p = 0; p < kServerLivesMax; ++p) {
    const Server& server = state.servers[p];
    if (!server.is_alive || ViewFor(state, server).generation != latest.generation) continue;
    for (int shard = 0; shard < configuration_.shards; ++shard) {
      const Replica& replica = server.replicas[shard];
      if (replica.data != kComplete || !Has(latest.shards[shard].in_sync, p)) continue;
      const std::string name =
          "replica " + std::to_string(p) + " of shard " + std::to_string(shard);
      const auto newest = static_cast<int>(replica.newest);
      if (newest > lowest + configuration_.staleness + 1)
        return "P4: " + name + " is at version " + std::to_string(newest) + ", and step " +
               std::to_string(lowest) + " is incomplete";
      if (static_cast<int>(replica.oldest) > configuration_.VersionReadBy(lowest))
        return "P4: " + name + " lacks the version that step " + std::to_string(lowest) + " reads";
      for (int step = newest; step <= newest + configuration_.staleness; ++step) {
        if (PartFor(static_cast<int>(replica.leaves), step - newest) != 0 &&
            configuration_.VersionReadBy(step) > lowest)
          return "P4: " + name + " has a gradient of step " + std::to_string(step) + ", and step " +
                 std::to_string(lowest) + " is incomplete";
      }
    }
  }
  return std::nullopt;
}

bool Model::IsFinished(const State& state) const {
  const View& latest = Latest(state);
  for (int shard = 0; shard < configuration_.shards; ++shard) {
    const int p = latest.shards[shard].primary;
    const Server& server = state.servers[p];
    const View& view = ViewFor(state, server);
    if (!server.is_alive || view.shards[shard].primary != p ||
        view.generation != latest.generation ||
        static_cast<int>(server.replicas[shard].committed) != configuration_.steps)
      return false;
    if (configuration_.wants_replicas &&
        Count(latest.shards[shard].in_sync) < std::min(configuration_.replicas, CountLiving(state)))
      return false;
  }
  return !configuration_.has_snapshots || state.manifest == configuration_.steps;
}

void Model::AppendView(State* state, const View& view) {
  PANDO_CHECK(state->view_count < kViewsMax);
  state->views[state->view_count++] = Intern(view);
}

uint16_t Model::Intern(const View& view) {
  const auto [it, is_new] = view_ids_.try_emplace(view, static_cast<uint16_t>(views_.size()));
  if (is_new) views_.push_back(view);
  PANDO_CHECK(views_.size() < 65536);
  return it->second;
}

bool Model::Serves(const State& state, int server, int shard) const {
  const Server& s = state.servers[server];
  return s.is_alive && ViewFor(state, s).shards[shard].primary == server &&
         s.replicas[shard].data == kComplete;
}

int Model::Reached(const State& state, int server) const {
  const bool is_mixed_up = configuration_.Mutated(Mutation::kNoReceiverIncarnation) ||
                           configuration_.Mutated(Mutation::kNoIncarnations);
  if (server == kNobody || state.servers[server].is_alive || !is_mixed_up) return server;
  for (int life = 0; life < kServerLivesMax; ++life) {
    if (state.servers[life].is_alive &&
        state.servers[life].address == state.servers[server].address)
      return life;
  }
  return server;
}

void Model::MarkSeen(State* state, int shard, int version, int generation) const {
  if (generation != Latest(*state).generation) return;
  state->seen[shard] = static_cast<uint8_t>(std::max<int>(state->seen[shard], version));
}

bool Model::SamePair(const ShardPlace& one, const ShardPlace& other) const {
  return one.primary == other.primary && one.syncing == other.syncing &&
         (one.pair == other.pair || configuration_.Mutated(Mutation::kNoPairStamp));
}

// P20: an image has all versions that the replica keeps.
uint32_t OldestOfImage(const Configuration& configuration, const Replica& replica) {
  if (configuration.Mutated(Mutation::kTransferOneVersion)) return replica.committed;
  if (configuration.Mutated(Mutation::kTransferTwoVersions) && replica.oldest < replica.committed)
    return replica.committed - 1u;
  return replica.oldest;
}

// Two states with equal futures become the same bytes.
void Model::Canonicalize(State* state) const {
  for (int p = 0; p < kServerLivesMax; ++p) {
    for (int shard = 0; shard < configuration_.shards; ++shard) {
      Replica& replica = state->servers[p].replicas[shard];
      for (int version = 1; version <= state->manifest; ++version)
        replica.to_store &= ~(1u << (version - 1)) & 15u;
      if (!Serves(*state, p, shard) || replica.is_frozen) continue;
      // P20: the primary freezes its committed records as soon as it learns of the pair. (A commit
      // in between would only make the frozen copy newer.)
      if (ViewFor(*state, state->servers[p]).shards[shard].syncing == kNobody) continue;
      replica.is_frozen = 1;
      replica.frozen_newest = replica.committed;
      replica.frozen_oldest = OldestOfImage(configuration_, replica) & kVersionBits;
    }
  }
  ForgetDead(state);
}

// Whether any server still takes messages of the generation.
bool Model::IsGenerationAlive(const State& state, int generation) const {
  const bool counts_all = configuration_.Mutated(Mutation::kNoGeneration);
  if (counts_all || generation == Latest(state).generation) return true;
  for (const Server& server : state.servers)
    if (server.is_alive && ViewFor(state, server).generation == generation) return true;
  return false;
}

void Model::ForgetDead(State* state) const {
  int oldest_view = state->view_count - 1;
  for (const Server& server : state->servers)
    if (server.is_alive) oldest_view = std::min<int>(oldest_view, server.view);
  for (Worker& worker : state->workers) {
    if (IsAlive(worker)) oldest_view = std::min<int>(oldest_view, worker.view);
    if (worker.phase != kDead) continue;
    const Worker left = worker;
    worker = Worker{.phase = kDead, .generation = left.generation, .unreplied = left.unreplied};
    for (int shard = 0; shard < configuration_.shards; ++shard) {
      if (left.generation == Latest(*state).generation) Release(&worker, shard, state->seen[shard]);
    }
    if (configuration_.drops_old_pushes || !IsGenerationAlive(*state, left.generation))
      worker.unreplied = {};
  }
  if (configuration_.Mutated(Mutation::kAnnounceBeforePersist))
    oldest_view = std::min(oldest_view, state->view_count - 2);
  for (int i = 0; i < oldest_view; ++i) state->views[i] = 0;

  const View& latest = Latest(*state);
  for (int shard = 0; shard < configuration_.shards; ++shard) {
    Report& report = state->reports[shard];
    if (!report.is_there) continue;
    // A report of a pair that is gone is kept only where the same newcomer may be added again.
    const bool may_return = configuration_.may_readd && state->budget.suspicions > 0;
    const bool is_gone = latest.shards[shard].syncing != report.newcomer && !may_return;
    if (!state->servers[report.newcomer].is_alive || is_gone) report = Report{};
  }
}

}  // namespace pando::model
