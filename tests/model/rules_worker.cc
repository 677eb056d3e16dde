// The workers' actions: pushes (P3, P6, P11), the question of a new view (P17, P18), requests and
// their answers (P4, P9, P10), computing, and computing again (P12).
#include <fmt/core.h>

#include <algorithm>

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

// The aggregator takes a micro-batch of the step that reads its newest version, once that version
// is committed (P3, P4); with all of them it makes the next version (P7).
void AddPush(const Model& model, const State& state, int w, int shard, int step, int micro_batch,
             Steps& steps) {
  const Configuration& c = model.configuration();
  const Worker& worker = state.workers[w];
  for (int server = 0; server < kServerLivesMax; ++server) {
    if (!PushReaches(model, state, worker, shard, server)) continue;
    const Replica& replica = state.servers[server].replicas[shard];
    if (static_cast<int>(replica.committed) != step || replica.newest != replica.committed ||
        Has(static_cast<int>(replica.leaves), micro_batch))
      continue;
    State next = state;
    Replica& changed = next.servers[server].replicas[shard];
    changed.leaves |= (1u << micro_batch) & 3u;
    if (changed.leaves == kAllMicroBatches && !c.has_partials) {
      changed.oldest = changed.newest;
      ++changed.newest;
      changed.leaves = 0;
      changed.was_made_here = c.Mutated(Mutation::kForgetRoot);
    }
    if (c.Mutated(Mutation::kForgetPushed) && IsAlive(worker))
      next.workers[w].unreplied[shard] =
          Without(worker.unreplied[shard], 1 << micro_batch << (kMicroBatches * step));
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

// P17: all shards have answered. The worker goes to the lowest incomplete step, or computes again
// what a shard lacks of it.
void Decide(const Model& model, State* state, int w) {
  const Configuration& c = model.configuration();
  Worker& worker = state->workers[w];
  const View& view = model.ViewFor(*state, worker);
  const auto answers = worker.answered_version.begin();
  const int lowest = *std::min_element(answers, answers + c.shards);
  if (lowest < c.steps) {
    const int assigned = Assigned(view, lowest, w);
    const int first = FirstAssigned(model, view, lowest, w);
    if (worker.phase == kJoining) {
      if (first < c.steps) {
        worker.phase = kWorking;
        worker.next_step = static_cast<uint8_t>(first);
      }
    } else if (worker.next_step <= lowest) {
      worker.next_step = static_cast<uint8_t>(lowest);
    } else if (worker.next_step > lowest + 1) {
      // P18: it waits for a first step that has lapsed.
      if (first < c.steps && !c.Mutated(Mutation::kJoinerKeepsWaiting))
        worker.next_step = static_cast<uint8_t>(first);
    } else {
      int missing = 0;
      for (int shard = 0; shard < c.shards; ++shard) {
        if (worker.answered_version[shard] == lowest)
          missing |=
              assigned & ~worker.answered_leaves[shard] & ~UnrepliedFor(worker, shard, lowest);
      }
      worker.missing = static_cast<uint8_t>(missing);
      worker.missing_step = static_cast<uint8_t>(missing == 0 ? 0 : lowest);
    }
  }
  worker.answered_version = {};
  worker.answered_leaves = {};
}

void AddAnswer(const Model& model, const State& state, int w, int shard, const Replica& replica,
               Steps& steps) {
  State next = state;
  Worker& worker = next.workers[w];
  const bool is_made = replica.newest > replica.committed;
  worker.unasked = Without(worker.unasked, 1 << shard);
  worker.answered_version[shard] = replica.committed & 3u;
  worker.answered_leaves[shard] =
      static_cast<uint8_t>(is_made ? kAllMicroBatches : static_cast<int>(replica.leaves));
  if (worker.unasked == 0) Decide(model, &next, w);
  steps.Add(next, Edge::kRepeated, [&] {
    return fmt::format("Question of worker {}: shard {} is at version {}, holds {}{}", w, shard,
                       static_cast<int>(replica.committed),
                       is_made ? "all" : fmt::format("{:#b}", static_cast<int>(replica.leaves)),
                       worker.missing != 0 ? "; something is missing" : "");
  });
}

// ---- requests

// P12: whether a forward that has begun keeps the worker from what is missing.
bool IsStuckInForward(const Configuration& c, const Worker& worker) {
  if (!c.Mutated(Mutation::kUninterruptibleWait)) return false;
  for (int shard = 0; shard < c.shards; ++shard) {
    const int current = worker.current[shard];
    if (!Has(c.unread_shards, shard) && current != kNothing && current > worker.missing_step)
      return true;
  }
  return false;
}

// The missing step has been completed by others, as far as this shard goes.
void AddReplyToMissing(const Model& model, const State& state, int w, int shard, Steps& steps) {
  State next = state;
  Worker& worker = next.workers[w];
  const int version = worker.missing_step + 1;
  worker.known[shard] = static_cast<uint8_t>(version);
  Release(&worker, shard, version);
  model.MarkSeen(&next, shard, version, worker.generation);
  bool all_known = true;
  for (int other = 0; other < model.configuration().shards; ++other)
    all_known = all_known && worker.known[other] >= version;
  if (all_known) worker.missing_step = worker.missing = 0;
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

  // P9: committed versions only.
  const int shown =
      static_cast<int>(c.Mutated(Mutation::kShowUncommitted) ? replica.newest : replica.committed);
  const bool computes_missing = worker.missing != 0 && !IsStuckInForward(c, worker);
  if (computes_missing && shown > worker.missing_step && worker.known[shard] <= worker.missing_step)
    AddReplyToMissing(model, state, w, shard, steps);

  const int wanted = computes_missing ? worker.missing_step : worker.next_step;
  const bool is_read = !Has(c.unread_shards, shard);
  if (!is_read && c.Mutated(Mutation::kNoBarrier)) {
    AddUnawaitedReply(state, w, shard, shown, steps);
    return;
  }
  const bool needs = is_read ? worker.current[shard] != wanted : worker.known[shard] < wanted;
  if (!needs) return;
  if (wanted < static_cast<int>(replica.oldest)) {
    AddBehind(model, state, w, shard, static_cast<int>(replica.committed), steps);
  } else if (wanted <= shown) {
    AddParams(model, state, w, shard, wanted, steps);
  }
}

// ---- computing

bool HoldsParametersFor(const Configuration& c, const Worker& worker, int version) {
  for (int shard = 0; shard < c.shards; ++shard)
    if (!Has(c.unread_shards, shard) && worker.current[shard] != version) return false;
  return true;
}

bool KnowsCommitted(const Configuration& c, const Worker& worker, int version) {
  for (int shard = 0; shard < c.shards; ++shard)
    if (worker.known[shard] < version) return false;
  return true;
}

void KeepGradients(const Configuration& c, Worker* worker, int step, int micro_batches) {
  for (int shard = 0; shard < c.shards; ++shard) {
    if (worker->known[shard] <= step)
      worker->unreplied[shard] =
          With(worker->unreplied[shard], micro_batches << (kMicroBatches * step));
  }
}

void AddCompute(const Model& model, const State& state, int w, Steps& steps) {
  const Configuration& c = model.configuration();
  const Worker& worker = state.workers[w];
  const int step = worker.next_step;
  if (step >= c.steps || !HoldsParametersFor(c, worker, step)) return;
  if (!KnowsCommitted(c, worker, step) && !c.Mutated(Mutation::kNoBarrier)) return;
  State next = state;
  Worker& changed = next.workers[w];
  const int assigned = Assigned(model.ViewFor(state, worker), step, w);
  KeepGradients(c, &changed, step, assigned);
  changed.next_step = static_cast<uint8_t>(step + 1);
  // P4: what it computes from is committed everywhere, so nothing of the step before is missing.
  if (!c.Mutated(Mutation::kNoBarrier)) changed.missing_step = changed.missing = 0;
  steps.Add(next, Edge::kRepeated, [&] {
    return fmt::format("worker {} computes micro-batches {:#b} of step {}", w, assigned, step);
  });
}

void AddComputeMissing(const Model& model, const State& state, int w, Steps& steps) {
  const Configuration& c = model.configuration();
  const Worker& worker = state.workers[w];
  const int step = worker.missing_step;
  if (worker.missing == 0 || !HoldsParametersFor(c, worker, step)) return;
  State next = state;
  Worker& changed = next.workers[w];
  KeepGradients(c, &changed, step, worker.missing);
  changed.missing_step = changed.missing = 0;
  steps.Add(next, Edge::kRepeated, [&] {
    return fmt::format("worker {} computes missing micro-batches {:#b} of step {}", w,
                       static_cast<int>(worker.missing), step);
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
