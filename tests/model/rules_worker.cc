// The workers' actions: pushes (P3, P6, P11), the question of a new view (P17, P18), requests and
// their answers (P4, P9, P10), computing, and computing again (P12).
#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "tests/model/model.h"

namespace pando::model {
namespace {

// ---- pushes

// Whether a push of this worker may arrive at the server: at the primary of its view, or, if the
// worker is dead, as an old message anywhere. Pushes count from any view of the same generation
// (P13, P21).
bool PushReaches(const Model& model, const State& state, const Worker& worker, int shard,
                 int server) {
  if (!model.Serves(state, server, shard)) return false;
  const View& view = model.ViewFor(state, state.servers[server]);
  if (!model.SameGeneration(worker.generation, view.generation)) return false;
  if (!IsAlive(worker)) return true;
  return model.Reached(state, model.ViewFor(state, worker).shards[shard].primary) == server;
}

// Whether the primary takes gradients of the step (P3, P4): it has a pending sum for the step that
// updates its newest version, and for the `staleness` steps after it.
bool CollectsStep(const Configuration& c, const Replica& replica, int step) {
  const auto newest = static_cast<int>(replica.newest);
  if (step < newest || step > newest + c.staleness) return false;
  // Without staleness only a promoted primary gets gradients before it has committed its newest
  // version (P22). They are folded into those that arrive later.
  return replica.committed == replica.newest || c.staleness > 0;
}

// The aggregator takes a micro-batch. With all of a step it makes the next version, once the one
// before is committed (P7).
void AddPush(const Model& model, const State& state, int w, int shard, int step, int micro_batch,
             Steps& steps) {
  const Configuration& c = model.configuration();
  const Worker& worker = state.workers[w];
  for (int server = 0; server < kServerLivesMax; ++server) {
    if (!PushReaches(model, state, worker, shard, server)) continue;
    const Replica& replica = state.servers[server].replicas[shard];
    if (!CollectsStep(c, replica, step)) continue;
    const int place = PlaceFor(1 << micro_batch, step - static_cast<int>(replica.newest));
    if ((static_cast<int>(replica.leaves) & place) != 0) continue;
    State next = state;
    Replica& changed = next.servers[server].replicas[shard];
    changed.leaves |= static_cast<uint32_t>(place) & 15u;
    if (!c.has_partials && RootIsComplete(changed)) MakeVersion(c, &changed);
    if (c.Mutated(Mutation::kForgetPushed) && IsAlive(worker))
      next.workers[w].unreplied[shard] =
          Without(worker.unreplied[shard], PlaceFor(1 << micro_batch, step));
    steps.Add(next, IsAlive(worker) ? Edge::kRepeated : Edge::kOnce, [&] {
      return fmt::format("Push of shard {}, step {}, micro-batch {}: worker {}{} to server {}",
                         shard, step, micro_batch, w, IsAlive(worker) ? "" : " (dead)", server);
    });
  }
}

void AddPushes(const Model& model, const State& state, int w, Steps& steps) {
  for (int shard = 0; shard < model.configuration().shards; ++shard) {
    for (int step = 0; step < model.configuration().steps; ++step) {
      const int unreplied = UnrepliedFor(state.workers[w], shard, step);
      for (int m = 0; m < kMicroBatches; ++m)
        if (Has(unreplied, m)) AddPush(model, state, w, shard, step, m, steps);
    }
  }
}

// ---- the question of a new view

// The first step from `step` on of which the worker owns something.
int FirstAssigned(const Model& model, const View& view, int step, int w) {
  while (step < model.configuration().steps && Assigned(view, step, w) == 0) ++step;
  return step;
}

// Micro-batches of the step that the shard's answer does not name. An answer of version v names
// those of step v and, with staleness, of step v + 1.
int Lacking(const Configuration& c, const Worker& worker, int shard, int step) {
  const int version = worker.answered_version[shard];
  if (version > step) return 0;
  if (version + c.staleness < step) return kAllMicroBatches;
  return kAllMicroBatches & ~PartFor(worker.answered_leaves[shard], step - version);
}

// The worker's micro-batches, as a mask of steps, that a shard lacks of the steps from `lowest` on
// which the worker has passed.
int Missing(const Configuration& c, const View& view, int w, const Worker& worker, int lowest) {
  int missing = 0;
  for (int step = lowest; step < std::min<int>(worker.next_step, c.steps); ++step) {
    for (int shard = 0; shard < c.shards; ++shard) {
      const int lacking = Lacking(c, worker, shard, step) & ~UnrepliedFor(worker, shard, step);
      missing |= PlaceFor(Assigned(view, step, w) & lacking, step);
    }
  }
  return missing;
}

// The lowest incomplete step, as the answers say. With staleness the worker's own knowledge counts,
// too: it goes on although a promoted primary answers with an older version (P22).
int LowestIncomplete(const Configuration& c, const Worker& worker) {
  const auto answers = worker.answered_version.begin();
  const int lowest = *std::min_element(answers, answers + c.shards);
  return c.staleness == 0 ? lowest : std::max(lowest, KnownEverywhere(c, worker));
}

// P17: all shards have answered. The worker goes to the lowest incomplete step, or computes again
// what a shard lacks of it and of the steps after it.
void Decide(const Model& model, State* state, int w) {
  const Configuration& c = model.configuration();
  Worker& worker = state->workers[w];
  const View& view = model.ViewFor(*state, worker);
  const int lowest = LowestIncomplete(c, worker);
  if (lowest < c.steps) {
    const int first = FirstAssigned(model, view, lowest, w);
    if (worker.phase == kJoining) {
      if (first < c.steps) {
        worker.phase = kWorking;
        worker.next_step = static_cast<uint8_t>(first);
      }
    } else if (worker.next_step <= lowest) {
      worker.next_step = static_cast<uint8_t>(lowest);
    } else if (worker.next_step > lowest + 1 + c.staleness) {
      // P18: it waits for a first step that has lapsed.
      if (first < c.steps && !c.Mutated(Mutation::kJoinerKeepsWaiting))
        worker.next_step = static_cast<uint8_t>(first);
    } else {
      worker.missing = static_cast<uint8_t>(Missing(c, view, w, worker, lowest));
    }
  }
  worker.answered_version = {};
  worker.answered_leaves = {};
}

// P22: a version that is made and not committed counts as if its step lacked nothing. The pending
// sums belong to the steps after it.
int NamedInAnswer(const Configuration& c, const Replica& replica) {
  const auto leaves = static_cast<int>(replica.leaves);
  const bool is_made = replica.newest > replica.committed;
  const int named = is_made ? kAllMicroBatches | PlaceFor(leaves, 1) : leaves;
  const int next = c.Mutated(Mutation::kAnswerNamesOneStep) ? kAllMicroBatches : PartFor(named, 1);
  return PartFor(named, 0) | (c.staleness == 0 ? 0 : PlaceFor(next, 1));
}

void AddAnswer(const Model& model, const State& state, int w, int shard, const Replica& replica,
               Steps& steps) {
  State next = state;
  Worker& worker = next.workers[w];
  const int named = NamedInAnswer(model.configuration(), replica);
  worker.unasked = Without(worker.unasked, 1 << shard);
  worker.answered_version[shard] = replica.committed & kVersionBits;
  worker.answered_leaves[shard] = static_cast<uint8_t>(named);
  if (worker.unasked == 0) Decide(model, &next, w);
  steps.Add(next, Edge::kRepeated, [&] {
    return fmt::format("Question of worker {}: shard {} is at version {}, holds {:#b}{}", w, shard,
                       static_cast<int>(replica.committed), named,
                       worker.missing != 0 ? "; something is missing" : "");
  });
}

// ---- requests

// The lowest step of which something is missing; 0 if nothing is.
int MissingStep(const Worker& worker) {
  return worker.missing == 0 ? 0 : std::countr_zero(worker.missing) / kMicroBatches;
}

void ForgetMissingBefore(Worker* worker, int step) {
  worker->missing = Without(worker->missing, PlaceFor(1, step) - 1);
}

// P12: the next step reads a version that is committed although this step is incomplete. So its
// forward need not be abandoned for what is missing.
bool MayGoOn(const Configuration& c, const Worker& worker) {
  const int next = worker.next_step;
  return worker.missing != 0 && next < c.steps && next <= MissingStep(worker) + c.staleness;
}

int Shown(const Configuration& c, const Replica& replica) {
  return static_cast<int>(c.Mutated(Mutation::kShowUncommitted) ? replica.newest
                                                                : replica.committed);
}

// P12: whether a forward that has begun keeps the worker from what is missing.
bool IsStuckInForward(const Configuration& c, const Worker& worker) {
  if (!c.Mutated(Mutation::kUninterruptibleWait)) return false;
  for (int shard = 0; shard < c.shards; ++shard) {
    const int current = worker.current[shard];
    if (!Has(c.unread_shards, shard) && current != kNothing && current > MissingStep(worker))
      return true;
  }
  return false;
}

// A forward that never waits for an uncommitted version has begun. It is not abandoned (P12).
bool FinishesForward(const Configuration& c, const Worker& worker) {
  const int wanted = c.VersionReadBy(worker.next_step);
  if (!MayGoOn(c, worker) || wanted == c.VersionReadBy(MissingStep(worker))) return false;
  for (int shard = 0; shard < c.shards; ++shard)
    if (!Has(c.unread_shards, shard) && worker.current[shard] == wanted) return true;
  return false;
}

// The missing step has been completed by others, as far as this shard goes.
void AddReplyToMissing(const Model& model, const State& state, int w, int shard, Steps& steps) {
  State next = state;
  Worker& worker = next.workers[w];
  const int version = MissingStep(worker) + 1;
  worker.known[shard] = static_cast<uint8_t>(version);
  Release(&worker, shard, version);
  model.MarkSeen(&next, shard, version, worker.generation);
  ForgetMissingBefore(&worker, KnownEverywhere(model.configuration(), worker));
  steps.Add(next, Edge::kRepeated, [&] {
    return fmt::format("reply to worker {}: shard {} is at version {}", w, shard, version);
  });
}

// P10: the version is gone, so others have completed the step: ask again, all.
void AddBehind(const Model& model, const State& state, int w, int shard, int current,
               Steps& steps) {
  const Configuration& c = model.configuration();
  if (c.Mutated(Mutation::kNoBehind)) return;
  const Worker& before = state.workers[w];
  State next = state;
  Worker& worker = next.workers[w];
  worker.known[shard] = static_cast<uint8_t>(std::max<int>(worker.known[shard], current));
  Release(&worker, shard, current);
  const bool has_asked = before.unasked == (1 << c.shards) - 1;
  if (has_asked && before.missing == 0 && worker.known[shard] == before.known[shard]) return;
  AskAll(c, &worker);
  steps.Add(next, Edge::kRepeated, [&] {
    return fmt::format("Behind: shard {} tells worker {} of version {}", shard, w, current);
  });
}

void AddParams(const Model& model, const State& state, int w, int shard, int version,
               Steps& steps) {
  const Configuration& c = model.configuration();
  State next = state;
  Worker& worker = next.workers[w];
  // P10, mutated: a push whose reply was lost is never answered.
  const bool is_reply = version > 0 && UnrepliedFor(worker, shard, version - 1) != 0;
  const bool is_repeated = !c.Mutated(Mutation::kSilentDuplicate) || !is_reply;
  if (!Has(c.unread_shards, shard)) worker.current[shard] = static_cast<uint8_t>(version);
  worker.known[shard] = static_cast<uint8_t>(std::max<int>(worker.known[shard], version));
  Release(&worker, shard, version);
  model.MarkSeen(&next, shard, version, worker.generation);
  steps.Add(next, is_repeated ? Edge::kRepeated : Edge::kOnce, [&] {
    return fmt::format("Params of shard {}, version {}, to worker {}", shard, version, w);
  });
}

// The replies to pushes of a step may come before the worker wants the version.
void AddReplies(const Model& model, const State& state, int w, int shard, int shown, Steps& steps) {
  const Worker& before = state.workers[w];
  for (int version = before.known[shard] + 1; version <= shown; ++version) {
    if (UnrepliedFor(before, shard, version - 1) == 0) continue;
    State next = state;
    Worker& worker = next.workers[w];
    worker.known[shard] = static_cast<uint8_t>(version);
    Release(&worker, shard, version);
    model.MarkSeen(&next, shard, version, worker.generation);
    steps.Add(next, Edge::kRepeated, [&] {
      return fmt::format("reply to a push of worker {}: shard {} is at version {}", w, shard,
                         version);
    });
  }
}

// P4, mutated: an unread shard's version is learnt from the reply to a push alone, and not waited
// for.
void AddUnawaitedReply(const State& state, int w, int shard, int shown, Steps& steps) {
  const Worker& before = state.workers[w];
  if (shown <= before.known[shard] || before.unreplied[shard] == 0) return;
  State next = state;
  next.workers[w].known[shard] = static_cast<uint8_t>(shown);
  Release(&next.workers[w], shard, shown);
  steps.Add(next, Edge::kRepeated, [&] {
    return fmt::format("reply to worker {}: unread shard {} is at version {}", w, shard, shown);
  });
}

// The worker pulls a version. A primary shows committed versions only (P9).
void AddRequest(const Model& model, const State& state, int w, int shard, const Replica& replica,
                int wanted, Steps& steps) {
  const Configuration& c = model.configuration();
  const Worker& worker = state.workers[w];
  const bool is_read = !Has(c.unread_shards, shard);
  const bool needs = is_read ? worker.current[shard] != wanted : worker.known[shard] < wanted;
  if (!needs) return;
  if (wanted < static_cast<int>(replica.oldest)) {
    AddBehind(model, state, w, shard, static_cast<int>(replica.committed), steps);
  } else if (wanted <= Shown(c, replica)) {
    AddParams(model, state, w, shard, wanted, steps);
  }
}

void AddAnswersFor(const Model& model, const State& state, int w, int shard, Steps& steps) {
  const Configuration& c = model.configuration();
  const Worker& worker = state.workers[w];
  const View& view = model.ViewFor(state, worker);
  const int server = model.Reached(state, view.shards[shard].primary);
  if (!model.Serves(state, server, shard)) return;
  const View& view_there = model.ViewFor(state, state.servers[server]);
  if (!model.SameGeneration(view.generation, view_there.generation)) return;
  const Replica& replica = state.servers[server].replicas[shard];
  if (Has(worker.unasked, shard)) AddAnswer(model, state, w, shard, replica, steps);
  if (worker.phase == kJoining) return;

  const int shown = Shown(c, replica);
  const bool has_missing = worker.missing != 0 && !IsStuckInForward(c, worker);
  if (has_missing && shown > MissingStep(worker) && worker.known[shard] <= MissingStep(worker))
    AddReplyToMissing(model, state, w, shard, steps);
  if (c.staleness > 0) AddReplies(model, state, w, shard, shown, steps);
  if (Has(c.unread_shards, shard) && c.Mutated(Mutation::kNoBarrier)) {
    AddUnawaitedReply(state, w, shard, shown, steps);
    return;
  }

  const int for_next = c.VersionReadBy(worker.next_step);
  const int for_missing = c.VersionReadBy(MissingStep(worker));
  if (has_missing && !FinishesForward(c, worker))
    AddRequest(model, state, w, shard, replica, for_missing, steps);
  if (!has_missing || (MayGoOn(c, worker) && for_next != for_missing))
    AddRequest(model, state, w, shard, replica, for_next, steps);
}

// ---- computing

bool HoldsParametersFor(const Configuration& c, const Worker& worker, int version) {
  for (int shard = 0; shard < c.shards; ++shard)
    if (!Has(c.unread_shards, shard) && worker.current[shard] != version) return false;
  return true;
}

void KeepGradients(const Configuration& c, Worker* worker, int step, int micro_batches) {
  for (int shard = 0; shard < c.shards; ++shard) {
    if (worker->known[shard] <= step)
      worker->unreplied[shard] = With(worker->unreplied[shard], PlaceFor(micro_batches, step));
  }
}

void AddCompute(const Model& model, const State& state, int w, Steps& steps) {
  const Configuration& c = model.configuration();
  const Worker& worker = state.workers[w];
  const int step = worker.next_step;
  const int version = c.VersionReadBy(step);
  if (step >= c.steps || !HoldsParametersFor(c, worker, version)) return;
  const int barrier = c.Mutated(Mutation::kBarrierOneLater) ? std::max(0, version - 1) : version;
  if (KnownEverywhere(c, worker) < barrier && !c.Mutated(Mutation::kNoBarrier)) return;
  State next = state;
  Worker& changed = next.workers[w];
  const int assigned = Assigned(model.ViewFor(state, worker), step, w);
  KeepGradients(c, &changed, step, assigned);
  changed.next_step = static_cast<uint8_t>(step + 1);
  // P4: what it computes from is committed everywhere, so nothing of the steps before is missing.
  if (!c.Mutated(Mutation::kNoBarrier)) ForgetMissingBefore(&changed, barrier);
  steps.Add(next, Edge::kRepeated, [&] {
    return fmt::format("worker {} computes micro-batches {:#b} of step {}", w, assigned, step);
  });
}

void AddComputeMissing(const Model& model, const State& state, int w, Steps& steps) {
  const Configuration& c = model.configuration();
  const Worker& worker = state.workers[w];
  const int step = MissingStep(worker);
  if (worker.missing == 0 || !HoldsParametersFor(c, worker, c.VersionReadBy(step))) return;
  State next = state;
  Worker& changed = next.workers[w];
  const int missing = PartFor(worker.missing, step);
  KeepGradients(c, &changed, step, missing);
  ForgetMissingBefore(&changed, step + 1);
  steps.Add(next, Edge::kRepeated, [&] {
    return fmt::format("worker {} computes missing micro-batches {:#b} of step {}", w, missing,
                       step);
  });
}

// ---- views

void EnterView(const Model& model, State* state, int w, int number) {
  const Configuration& c = model.configuration();
  Worker& worker = state->workers[w];
  const View& view = model.ViewAt(*state, number);
  worker.view = static_cast<uint8_t>(number);
  if (worker.generation != view.generation) {
    worker.generation = view.generation;
    if (!c.Mutated(Mutation::kKeepStateAtRollback)) {  // P21: it starts as a joiner does
      worker.phase = kJoining;
      worker.next_step = 0;
      for (int shard = 0; shard < c.shards; ++shard) worker.current[shard] = kNothing;
      worker.known = worker.unreplied = {};
    }
  }
  if (worker.phase == kJoining || !c.Mutated(Mutation::kNoQuestion)) AskAll(c, &worker);
}

void AddWorkerViews(const Model& model, const State& state, int w, Steps& steps) {
  const Configuration& c = model.configuration();
  const Worker& worker = state.workers[w];
  const int newest = state.view_count - 1;
  for (int number = worker.view + 1; number <= newest; ++number) {
    if (c.skips_superseded_views && number != newest) continue;
    State next = state;
    EnterView(model, &next, w, number);
    steps.Add(next, number == newest ? Edge::kRepeated : Edge::kOnce,
              [&] { return fmt::format("view {} reaches worker {}", number, w); });
    const bool awaits_answers = worker.unasked != 0 && worker.unasked != (1 << c.shards) - 1;
    if (!c.Mutated(Mutation::kLateAnswerCounts) || !awaits_answers) continue;
    next = state;
    next.workers[w].view = static_cast<uint8_t>(number);
    steps.Add(next, Edge::kOnce, [&] {
      return fmt::format("view {} reaches worker {}; answers to its earlier question count", number,
                         w);
    });
  }
}

}  // namespace

void AddWorkerSteps(Model& model, const State& state, Steps& steps) {
  for (int w = 0; w < kWorkersMax; ++w) {
    const Worker& worker = state.workers[w];
    AddPushes(model, state, w, steps);
    if (!IsAlive(worker)) continue;
    AddWorkerViews(model, state, w, steps);
    for (int shard = 0; shard < model.configuration().shards; ++shard)
      AddAnswersFor(model, state, w, shard, steps);
    if (worker.phase == kJoining) continue;
    AddCompute(model, state, w, steps);
    AddComputeMissing(model, state, w, steps);
  }
}

}  // namespace pando::model
