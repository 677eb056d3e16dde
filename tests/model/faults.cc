// The faults: kills of servers and workers. And processes that start: a server again, as
// another life at its address (P19), a worker that joins. False suspicion and the scheduler's own
// death are views, so they stand in rules_scheduler.cc.
#include <fmt/core.h>

#include "tests/model/model.h"

namespace pando::model {
namespace {

// A kill is allowed where an in-sync replica of every shard is left (I2), or, where a configuration
// looks at rollbacks, a server to roll back to.
bool MayKill(const Model& model, const State& state, int server) {
  if (CanBeSpared(model, state, server)) return true;
  if (!model.configuration().may_lose_replicas) return false;
  for (int p = 0; p < kServerLivesMax; ++p)
    if (p != server && state.servers[p].is_alive && !Has(state.removed, p)) return true;
  return false;
}

void AddServerKills(const Model& model, const State& state, Steps& steps) {
  if (state.budget.server_kills == 0) return;
  for (int p = 0; p < kServerLivesMax; ++p) {
    if (!state.servers[p].is_alive || !MayKill(model, state, p)) continue;
    State next = state;
    next.budget.server_kills--;
    next.servers[p] = Server{.address = state.servers[p].address};
    steps.Add(next, Edge::kOnce, [&] { return fmt::format("KILL server {}", p); });
  }
}

bool IsOccupied(const State& state, int address) {
  for (const Server& server : state.servers)
    if (server.is_alive && server.address == address) return true;
  return false;
}

void AddServerRestarts(const State& state, Steps& steps) {
  if (state.budget.server_restarts == 0) return;
  int life = 0;
  while (life < kServerLivesMax && state.servers[life].address != kNoAddress) ++life;
  if (life == kServerLivesMax) return;
  for (int dead = 0; dead < life; ++dead) {
    const uint8_t address = state.servers[dead].address;
    if (state.servers[dead].is_alive || IsOccupied(state, address)) continue;
    State next = state;
    next.budget.server_restarts--;
    next.servers[life] = Server{
        .is_alive = 1, .view = static_cast<uint8_t>(state.view_count - 1), .address = address};
    steps.Add(next, Edge::kOnce, [&] {
      return fmt::format("server address {} starts again, empty, as life {}",
                         static_cast<int>(address), life);
    });
  }
}

void AddWorkerKills(const State& state, Steps& steps) {
  int living = 0;
  for (const Worker& worker : state.workers) living += IsAlive(worker) ? 1 : 0;
  if (state.budget.worker_kills == 0 || living < 2) return;
  for (int w = 0; w < kWorkersMax; ++w) {
    if (!IsAlive(state.workers[w])) continue;
    State next = state;
    next.budget.worker_kills--;
    next.workers[w].phase = kDead;
    steps.Add(next, Edge::kOnce, [&] { return fmt::format("KILL worker {}", w); });
  }
}

void AddWorkerStarts(const Model& model, const State& state, Steps& steps) {
  if (state.budget.worker_joins == 0) return;
  for (int w = 0; w < kWorkersMax; ++w) {
    if (state.workers[w].phase != kUnstarted) continue;
    State next = state;
    next.budget.worker_joins--;
    Worker& worker = next.workers[w];
    worker = Worker{.phase = kJoining,
                    .view = static_cast<uint8_t>(state.view_count - 1),
                    .generation = model.Latest(state).generation};
    worker.current.fill(kNothing);
    steps.Add(next, Edge::kOnce, [&] { return fmt::format("worker {} starts", w); });
    return;
  }
}

}  // namespace

void AddFaults(Model& model, const State& state, Steps& steps) {
  AddServerRestarts(state, steps);
  AddWorkerStarts(model, state, steps);
  // Where no view is left to answer with, a kill would be the end by the model's own bound.
  if (state.view_count == model.configuration().views_max) return;
  AddServerKills(model, state, steps);
  AddWorkerKills(state, steps);
}

}  // namespace pando::model
