// The scheduler's actions: views after deaths and joins (P17, P18, P22, P24), planned moves,
// manifests (P29), rollbacks (P21), its own restart (P25, P26).
//
// A view is persisted and announced in one step (P25), so the views of the state are the journal.
// While the scheduler is away it does nothing; as each of its steps may wait for ever anyway, that
// needs no separate state.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/model/model.h"

namespace pando::model {
namespace {

// A new view on its way: the latest one, to be changed.
struct Draft {
  Model& model;
  const State& state;
  State next;
  View view;

  Draft(Model& m, const State& s) : model(m), state(s), next(s), view(m.Latest(s)) {}
  int number() const { return state.view_count; }
  void Announce(Edge edge, const std::string& why, Steps& steps) {
    model.AppendView(&next, view);
    steps.Add(next, edge, [&] { return fmt::format("scheduler: view {}, {}", number(), why); });
  }
};

bool IsNamed(const Configuration& c, const View& view, int server) {
  for (int shard = 0; shard < c.shards; ++shard) {
    const ShardPlace& place = view.shards[shard];
    if (Has(place.in_sync, server) || place.syncing == server) return true;
  }
  return false;
}

// ---- servers that die

void DropServer(ShardPlace* place, int server) {
  place->in_sync = Without(place->in_sync, 1 << server);
  if (place->syncing == server) {
    place->syncing = kNobody;
    place->pair = 0;
  }
}

// P24: another primary and the same newcomer are another pair.
void Promote(const Draft& draft, ShardPlace* place, int server) {
  place->primary = static_cast<uint8_t>(server);
  const Configuration& c = draft.model.configuration();
  const bool stamps =
      !c.Mutated(Mutation::kPairStampsNewcomerOnly) && !c.Mutated(Mutation::kNoPairStamp);
  if (place->syncing != kNobody && stamps) place->pair = static_cast<uint8_t>(draft.number());
}

// Any in-sync replica may be promoted (P22): one view for every choice of new primaries.
void AddPromotions(const Draft& draft, int dead, Edge edge, const std::string& why, Steps& steps) {
  std::vector<Draft> drafts{draft};
  for (int shard = 0; shard < draft.model.configuration().shards; ++shard) {
    std::vector<Draft> chosen;
    for (Draft& candidate : drafts) {
      ShardPlace& place = candidate.view.shards[shard];
      DropServer(&place, dead);
      if (place.primary != dead) {
        chosen.push_back(candidate);
        continue;
      }
      const int in_sync = place.in_sync;
      for (int p = 0; p < kServerLivesMax; ++p) {
        if (!Has(in_sync, p) || !draft.state.servers[p].is_alive) continue;
        chosen.push_back(candidate);
        Promote(draft, &chosen.back().view.shards[shard], p);
      }
    }
    drafts = std::move(chosen);
  }
  for (Draft& promoted : drafts) promoted.Announce(edge, why, steps);
}

// P21: all shards go back to the newest manifest, on the servers that live, in each order that puts
// another one first.
void AddRollbacks(Draft draft, Edge edge, const std::string& why, Steps& steps) {
  const Configuration& c = draft.model.configuration();
  std::array<int, kServerLivesMax> living{};
  int count = 0;
  for (int p = 0; p < kServerLivesMax; ++p)
    if (draft.state.servers[p].is_alive && !Has(draft.next.removed, p)) living[count++] = p;
  draft.view.generation++;
  draft.view.base = draft.state.manifest;
  draft.next.stored = {};
  for (int shard = 0; shard < c.shards; ++shard) draft.next.seen[shard] = draft.view.base;
  for (int first = 0; first < count; ++first) {
    Draft placed(draft);
    for (int shard = 0; shard < c.shards; ++shard) {
      int in_sync = 0;
      for (int i = 0; i < std::min(c.replicas, count); ++i)
        in_sync |= 1 << living[(first + shard + i) % count];
      placed.view.shards[shard] = {.primary = static_cast<uint8_t>(living[(first + shard) % count]),
                                   .in_sync = static_cast<uint8_t>(in_sync),
                                   .syncing = kNobody,
                                   .pair = 0};
    }
    placed.Announce(edge, fmt::format("rollback to version {}, {}", placed.view.base, why), steps);
  }
}

void AddServerDeaths(Model& model, const State& state, Steps& steps) {
  const Configuration& c = model.configuration();
  for (int p = 0; p < kServerLivesMax; ++p) {
    const Server& server = state.servers[p];
    if (server.address == kNoAddress || !IsNamed(c, model.Latest(state), p)) continue;
    Draft draft(model, state);
    draft.next.removed = With(draft.next.removed, 1 << p);
    const bool is_spare = CanBeSpared(model, state, p);
    if (server.is_alive) {
      if (state.budget.suspicions == 0 || (!is_spare && !c.may_lose_replicas)) continue;
      draft.next.budget.suspicions--;
    } else if (c.Mutated(Mutation::kNoIncarnations) && model.Reached(state, p) != p) {
      continue;  // the next life's heartbeats hide the death
    }
    const Edge edge = server.is_alive ? Edge::kOnce : Edge::kRepeated;
    const std::string why =
        fmt::format("{} server {} out", server.is_alive ? "suspected, living" : "dead", p);
    if (is_spare || !c.may_lose_replicas) {
      AddPromotions(draft, p, edge, why, steps);
    } else {
      AddRollbacks(draft, edge, why, steps);
    }
  }
}

// ---- replicas that come

void StartSync(const Draft& draft, ShardPlace* place, int newcomer) {
  place->syncing = static_cast<uint8_t>(newcomer);
  place->pair = static_cast<uint8_t>(draft.number());
}

bool AllPrimariesLive(const Model& model, const State& state) {
  for (int shard = 0; shard < model.configuration().shards; ++shard)
    if (!state.servers[model.Latest(state).shards[shard].primary].is_alive) return false;
  return true;
}

void AddNewBackups(Model& model, const State& state, Steps& steps) {
  const Configuration& c = model.configuration();
  if (!AllPrimariesLive(model, state)) return;
  for (int p = 0; p < kServerLivesMax; ++p) {
    if (!state.servers[p].is_alive || (Has(state.removed, p) && !c.may_readd)) continue;
    Draft draft(model, state);
    bool has_changed = false;
    for (int shard = 0; shard < c.shards; ++shard) {
      ShardPlace& place = draft.view.shards[shard];
      if (Count(place.in_sync) >= c.replicas || place.syncing != kNobody || Has(place.in_sync, p))
        continue;
      StartSync(draft, &place, p);
      has_changed = true;
    }
    if (has_changed)
      draft.Announce(Edge::kRepeated, fmt::format("new backup: server {}", p), steps);
  }
}

// P24: a report counts for the current pair alone. It is sure to come while the primary that sent
// it lives and has the pair in its view.
void AddReports(Model& model, const State& state, Steps& steps) {
  const Configuration& c = model.configuration();
  for (int shard = 0; shard < c.shards; ++shard) {
    const Report& report = state.reports[shard];
    Draft draft(model, state);
    ShardPlace& place = draft.view.shards[shard];
    const bool is_current = c.Mutated(Mutation::kNoPairStamp) || place.pair == report.pair;
    if (!report.is_there || place.syncing != report.newcomer || !is_current) continue;
    place.in_sync = With(place.in_sync, 1 << report.newcomer);
    place.syncing = kNobody;
    place.pair = 0;
    if (!c.may_readd) draft.next.reports[shard] = Report{};
    const Server& primary = state.servers[place.primary];
    const ShardPlace& own_place = model.ViewFor(state, primary).shards[shard];
    const bool is_repeated =
        primary.is_alive && own_place.primary == place.primary &&
        own_place.syncing == report.newcomer &&
        (primary.replicas[shard].needs_newcomer || c.Mutated(Mutation::kReportWithoutAcks));
    draft.Announce(
        is_repeated ? Edge::kRepeated : Edge::kOnce,
        fmt::format("server {} in sync for shard {}", static_cast<int>(report.newcomer), shard),
        steps);
  }
}

// Planned moves, everybody alive: add and sync, promote, remove (and the sync given up).
void AddMoves(Model& model, const State& state, Steps& steps) {
  const Configuration& c = model.configuration();
  if (state.budget.moves == 0) return;
  for (int shard = 0; shard < c.shards; ++shard) {
    if (!Has(c.moved_shards, shard)) continue;
    for (int p = 0; p < kServerLivesMax; ++p) {
      if (!state.servers[p].is_alive) continue;
      Draft draft(model, state);
      draft.next.budget.moves--;
      ShardPlace& place = draft.view.shards[shard];
      std::string what;
      if (place.syncing == p && c.Mutated(Mutation::kPromoteBeforeSync)) {
        place = {
            .primary = place.syncing, .in_sync = With(place.in_sync, 1 << p), .syncing = kNobody};
        what = "promoted";
      } else if (place.syncing == p) {
        DropServer(&place, p);
        what = "given up as newcomer";
      } else if (!Has(place.in_sync, p) && place.syncing == kNobody && !Has(state.removed, p)) {
        StartSync(draft, &place, p);
        what = "added";
      } else if (Has(place.in_sync, p) && place.primary != p) {
        Draft removed(draft);
        Promote(draft, &place, p);
        what = "promoted";
        if (Count(removed.view.shards[shard].in_sync) > c.replicas) {
          DropServer(&removed.view.shards[shard], p);
          removed.Announce(Edge::kOnce,
                           fmt::format("move of shard {}: server {} removed", shard, p), steps);
        }
      }
      if (!what.empty())
        draft.Announce(Edge::kOnce, fmt::format("move of shard {}: server {} {}", shard, p, what),
                       steps);
    }
  }
}

// ---- workers

bool IsOwner(const View& view, int w, bool counts_previous) {
  for (const MicroBatchOwner& owner : view.owners)
    if (owner.worker == w || (counts_previous && owner.previous == w)) return true;
  return false;
}

// P18: a dead worker's micro-batches go to `heir`, from the lowest incomplete step on; where the
// dead one was the previous owner, the first step lapses. Mutated: the heir has a first step, and
// the dead worker is the previous owner.
void Inherit(const Configuration& c, int dead, int heir, int first_step, MicroBatchOwner* owner) {
  const auto heir_id = static_cast<uint8_t>(heir);
  if (owner->worker == dead && owner->previous == dead) {
    const bool names_dead = c.Mutated(Mutation::kDeadPreviousOwner) && first_step > 0;
    *owner = {.worker = heir_id,
              .previous = names_dead ? static_cast<uint8_t>(dead) : heir_id,
              .first_step = static_cast<uint8_t>(first_step)};
  } else if (owner->worker == dead) {
    *owner = {.worker = owner->previous, .previous = owner->previous, .first_step = 0};
  } else if (owner->previous == dead) {
    *owner = {.worker = owner->worker, .previous = owner->worker, .first_step = 0};
  }
  if (owner->worker == owner->previous) owner->first_step = 0;
}

void AddWorkerDeaths(Model& model, const State& state, Steps& steps) {
  const Configuration& c = model.configuration();
  const bool names_dead = c.Mutated(Mutation::kDeadPreviousOwner);
  for (int w = 0; w < kWorkersMax; ++w) {
    if (state.workers[w].phase != kDead || !IsOwner(model.Latest(state), w, !names_dead)) continue;
    for (int heir = 0; heir < kWorkersMax; ++heir) {
      if (!IsAlive(state.workers[heir])) continue;
      for (int first_step = 0; first_step < (names_dead ? c.steps : 1); ++first_step) {
        Draft draft(model, state);
        for (MicroBatchOwner& owner : draft.view.owners) Inherit(c, w, heir, first_step, &owner);
        draft.Announce(first_step == 0 ? Edge::kRepeated : Edge::kOnce,
                       fmt::format("dead worker {}'s work to {} from step {}", w, heir, first_step),
                       steps);
      }
    }
  }
}

void AddWorkerJoins(Model& model, const State& state, Steps& steps) {
  const View& latest = model.Latest(state);
  for (int w = 0; w < kWorkersMax; ++w) {
    if (state.workers[w].phase != kJoining || IsOwner(latest, w, true)) continue;
    for (int m = 0; m < kMicroBatches; ++m) {
      const MicroBatchOwner& owner = latest.owners[m];
      if (!IsAlive(state.workers[owner.worker]) || owner.worker != owner.previous) continue;
      for (int first_step = 0; first_step < model.configuration().steps; ++first_step) {
        Draft draft(model, state);
        MicroBatchOwner& joined = draft.view.owners[m];
        joined.worker = static_cast<uint8_t>(w);
        joined.first_step = static_cast<uint8_t>(first_step);
        if (first_step == 0) joined.previous = joined.worker;
        draft.Announce(
            Edge::kRepeated,
            fmt::format("worker {} joins, micro-batch {} from step {}", w, m, first_step), steps);
      }
    }
  }
}

// ---- the journal

// P29: all shards of one generation have stored a version: its manifest is persisted, then acked.
void AddManifest(const Model& model, const State& state, Steps& steps) {
  const Configuration& c = model.configuration();
  for (int version = state.manifest + 1; version <= c.steps; ++version) {
    bool all_stored = true;
    for (int shard = 0; shard < c.shards; ++shard)
      all_stored = all_stored && Has(state.stored[shard], version - 1);
    if (!all_stored) continue;
    State next = state;
    next.manifest = static_cast<uint8_t>(version);
    steps.Add(next, Edge::kRepeated,
              [&] { return fmt::format("scheduler: manifest of version {}", version); });
  }
}

// P26: a new term begins with the journal's last view under a new number. What was not in the
// journal is gone. (A late start, P27, is the same and slower.)
void AddSchedulerRestart(Model& model, const State& state, Steps& steps) {
  if (state.budget.scheduler_restarts == 0) return;
  Draft draft(model, state);
  draft.next.budget.scheduler_restarts--;
  draft.next.reports = {};
  draft.next.stored = {};
  if (model.configuration().Mutated(Mutation::kAnnounceBeforePersist) && state.view_count > 1)
    draft.view = model.ViewAt(state, state.view_count - 2);
  draft.Announce(Edge::kOnce, "scheduler dies and starts again", steps);
}

// P8: two replicas have made different bits; it does not matter which.
void AddDivergence(Model& model, const State& state, Steps& steps) {
  if (state.budget.divergences == 0) return;
  Draft draft(model, state);
  draft.next.budget.divergences--;
  AddRollbacks(draft, Edge::kOnce, "replicas differ", steps);
}

}  // namespace

void AddSchedulerSteps(Model& model, const State& state, Steps& steps) {
  AddManifest(model, state, steps);
  if (state.view_count == model.configuration().views_max) return;
  AddServerDeaths(model, state, steps);
  AddNewBackups(model, state, steps);
  AddReports(model, state, steps);
  AddMoves(model, state, steps);
  AddWorkerDeaths(model, state, steps);
  AddWorkerJoins(model, state, steps);
  AddSchedulerRestart(model, state, steps);
  AddDivergence(model, state, steps);
}

}  // namespace pando::model
