// A model of P39 alone, beside the one in model.h: two workers of one kind agree on engines while
// they and the scheduler die. Every order of messages is tried; a message may be lost, repeated and
// late. Exits with 0 if no two workers ever use different engines, and each living worker comes to
// use some by what is repeated until it happens (P10). With --mutation the engines are announced
// before they are in the journal, and it exits with 0 if two workers then use different engines.
#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/model/small_search.h"

namespace {

using pando::model::Finding;
using pando::model::SearchStates;

constexpr int kWorkers = 2;
constexpr int kLivesMax = 3;                  // of each worker
constexpr int kLives = kWorkers * kLivesMax;  // each life measures other engines: its number + 1
constexpr int kNone = 0;                      // engines: none

enum Phase : uint8_t { kAsks, kMeasures, kProposes, kUses };

struct State {
  // The scheduler: what it has decided, and what its journal has.
  uint8_t decided = kNone;
  uint8_t journaled = kNone;
  uint8_t used = kNone;  // by any worker so far
  struct Worker {
    uint8_t life = 0;
    Phase phase = kAsks;
    auto operator<=>(const Worker&) const = default;
  };
  std::array<Worker, kWorkers> workers;
  // Messages that were sent and may still arrive, any number of times. By life.
  uint8_t questions = 0;
  uint8_t proposals = 0;
  std::array<uint8_t, kLives> answers{};  // bit e: engines e
  auto operator<=>(const State&) const = default;
};

class EngineModel {
 public:
  using State = ::State;
  using Step = pando::model::Step<State>;
  explicit EngineModel(bool is_mutated) : is_mutated_(is_mutated) {}

  std::vector<Step> Steps(const State& state) const {
    std::vector<Step> steps;
    for (int w = 0; w < kWorkers; ++w) AddWorkerSteps(state, w, steps);
    for (int life = 0; life < kLives; ++life) AddArrivals(state, life, steps);
    if (state.decided != state.journaled) {  // only with the mutation
      Add(steps, "journal", true, state, [](State& s) { s.journaled = s.decided; });
    }
    Add(steps, "scheduler dies", false, state, [](State& s) { s.decided = s.journaled; });
    return steps;
  }

  static bool IsBroken(const State& before, const State& after) {
    return before.used != kNone && after.used != before.used;
  }
  static bool IsDone(const State& state) {
    return std::ranges::all_of(state.workers, [](const auto& w) { return w.phase == kUses; });
  }

 private:
  static int Number(int worker, const State& state) {
    return worker * kLivesMax + state.workers[static_cast<size_t>(worker)].life;
  }
  template <class Change>
  static void Add(std::vector<Step>& steps, const std::string& name, bool is_repeated, State state,
                  Change change) {
    change(state);
    steps.push_back({name, state, is_repeated});
  }

  static void AddWorkerSteps(const State& state, int w, std::vector<Step>& steps) {
    const auto at = static_cast<size_t>(w);
    const int life = Number(w, state);
    const std::string name = "worker " + std::to_string(w);
    const auto bit = static_cast<uint8_t>(1 << life);
    const Phase phase = state.workers[at].phase;
    if (phase == kAsks)
      Add(steps, name + " asks", true, state, [&](State& s) { s.questions |= bit; });
    if (phase == kMeasures)
      Add(steps, name + " has measured", true, state,
          [&](State& s) { s.workers[at].phase = kProposes; });
    if (phase == kProposes)
      Add(steps, name + " proposes", true, state, [&](State& s) { s.proposals |= bit; });
    if (state.workers[at].life + 1 < kLivesMax)
      Add(steps, name + " dies", false, state, [&](State& s) {
        s.workers[at] = {static_cast<uint8_t>(s.workers[at].life + 1), kAsks};
      });
  }

  void AddArrivals(const State& state, int life, std::vector<Step>& steps) const {
    const auto bit = static_cast<uint8_t>(1 << life);
    const std::string name = "life " + std::to_string(life);
    if ((state.questions & bit) != 0)
      Add(steps, "question of " + name, true, state, [&](State& s) { Answer(s, life); });
    if ((state.proposals & bit) != 0)
      Add(steps, "proposal of " + name, true, state, [&](State& s) {
        if (s.decided == kNone) s.decided = static_cast<uint8_t>(life + 1);
        if (!is_mutated_) s.journaled = s.decided;
        Answer(s, life);
      });
    for (int engines = kNone; engines <= kLives; ++engines) {
      if ((state.answers[static_cast<size_t>(life)] >> engines & 1) == 0) continue;
      Add(steps, "answer " + std::to_string(engines) + " to " + name, true, state,
          [&](State& s) { Take(s, life, engines); });
    }
  }

  static void Answer(State& state, int life) {
    state.answers[static_cast<size_t>(life)] |= static_cast<uint8_t>(1 << state.decided);
  }

  // As EngineAgreement::OnDecision.
  static void Take(State& state, int life, int engines) {
    const int worker = life / kLivesMax;
    State::Worker& taker = state.workers[static_cast<size_t>(worker)];
    if (Number(worker, state) != life || taker.phase == kUses) return;
    if (engines == kNone) {
      if (taker.phase == kAsks) taker.phase = kMeasures;
      return;
    }
    taker.phase = kUses;
    state.used = static_cast<uint8_t>(engines);
  }

  const bool is_mutated_;
};

}  // namespace

int main(int argc, char** argv) {
  const bool is_mutated = argc > 1 && std::string_view(argv[1]) == "--mutation";
  const Finding finding = SearchStates(EngineModel(is_mutated), "two workers use different engines",
                                       "a worker never gets engines");
  return finding == (is_mutated ? Finding::kLoss : Finding::kNone) ? 0 : 1;
}
