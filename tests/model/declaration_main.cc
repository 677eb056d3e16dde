// A model of P43 alone, beside the one in model.h: three workers declare a run while they and the
// scheduler die. Each life of a worker declares its own version 0, in two parts, and the last one
// another model. A part may be lost, repeated and late. Exits with 0 if all welcomes name one whole
// declaration that the disk has, the members declare that model, no worker leaves that does, and
// each worker gets an answer by what is repeated until it happens (P10, I7). With --mutation=NAME
// one rule is left out, and it exits with 0 if that breaks what the table of mutations says.
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

constexpr int kWorkers = 3;
constexpr int kLivesMax = 2;  // of each worker
constexpr int kLives = kWorkers * kLivesMax;
constexpr int kOtherModel = kLives - 1;  // the life that declares another model
constexpr int kParts = 2;
constexpr int8_t kNone = -1;  // no life

enum class Rule : uint8_t {
  kAll,
  kWholeVersion,      // the scheduler keeps the first part alone
  kOneSupplier,       // a part counts from any worker
  kFromTheFirstByte,  // a new supplier goes on where the last one ended
  kAnotherSupplier,   // no worker takes a dead supplier's place
  kNextPartOnly,      // a late part is read as the first one: it has no job
  kAskAgain,          // a lost part is not wanted again
  kDurableFirst,      // welcomes before both files are written
  kVersionBeforeJob,  // job.toml is written before init.safetensors
  kCompare,           // a worker does not compare its model with the run's
};

using Mutation = pando::model::NamedMutation<Rule>;
constexpr std::array kMutations{
    Mutation{"keep-part", Rule::kWholeVersion, Finding::kLoss},
    Mutation{"any-supplier", Rule::kOneSupplier, Finding::kLoss},
    Mutation{"mix-suppliers", Rule::kFromTheFirstByte, Finding::kLoss},
    Mutation{"keep-supplier", Rule::kAnotherSupplier, Finding::kHang},
    Mutation{"read-late-part", Rule::kNextPartOnly, Finding::kLoss},
    Mutation{"want-once", Rule::kAskAgain, Finding::kHang},
    Mutation{"welcome-before-durable", Rule::kDurableFirst, Finding::kLoss},
    Mutation{"job-before-version", Rule::kVersionBeforeJob, Finding::kLoss},
    Mutation{"no-comparison", Rule::kCompare, Finding::kLoss},
};

// A run by the lives that supplied it: its job, and each part of version 0.
struct Run {
  int8_t job = kNone;
  std::array<int8_t, kParts> parts{kNone, kNone};
  auto operator<=>(const Run&) const = default;
  bool IsOfOneLife() const {
    return job != kNone && std::ranges::all_of(parts, [&](int8_t part) { return part == job; });
  }
};

enum Stage : uint8_t { kIntake, kWhole, kHalfWritten, kLeads };
enum Phase : uint8_t { kJoins, kIsMember, kHasLeft };

struct State {
  // The scheduler. A life of it that dies is followed by the next one, which reads the disk.
  Stage stage = kIntake;
  int8_t supplier = kNone;
  Run run;   // in memory
  Run disk;  // init.safetensors has the parts, job.toml the rest
  Run told;  // by the last Welcome
  struct Worker {
    uint8_t life = 0;
    Phase phase = kJoins;
    auto operator<=>(const Worker&) const = default;
  };
  std::array<Worker, kWorkers> workers;
  uint16_t sent = 0;  // bit life * kParts + part: it may still arrive, any number of times
  auto operator<=>(const State&) const = default;
};

template <class Workers>
auto& Of(int life, Workers& workers) {
  return workers[static_cast<size_t>(life / kLivesMax)];
}
bool DeclaresSame(int life, int other) { return (life == kOtherModel) == (other == kOtherModel); }

class DeclarationModel {
 public:
  using State = ::State;
  using Step = pando::model::Step<State>;
  explicit DeclarationModel(Rule left_out) : left_out_(left_out) {}

  std::vector<Step> Steps(const State& state) const {
    std::vector<Step> steps;
    for (int life = 0; life < kLives; ++life) {
      if (life % kLivesMax > Of(life, state.workers).life) continue;
      AddRegister(state, life, steps);
      for (int part = 0; part < kParts; ++part) {
        if ((state.sent & Bit(life, part)) == 0) continue;
        Add(steps, "part " + std::to_string(part) + " of " + Name(life), false, state,
            [&](State& s) { TakePart(s, life, part); });
      }
      if (IsCurrent(life, state) && life % kLivesMax + 1 < kLivesMax)
        Add(steps, Name(life) + " dies", false, state, [&](State& s) {
          Of(life, s.workers) = {static_cast<uint8_t>(life % kLivesMax + 1), kJoins};
        });
    }
    if (state.stage == kWhole || state.stage == kHalfWritten)
      Add(steps, "scheduler writes", true, state, [&](State& s) { Write(s); });
    Add(steps, "scheduler dies", false, state, Restart);
    return steps;
  }

  static bool IsBroken(const State& before, const State& after) {
    const bool is_told = after.told != Run();
    if (is_told && !after.told.IsOfOneLife()) return true;
    if (before.told != Run() && before.told != after.told) return true;
    for (int life = 0; life < kLives; ++life) {
      const Phase phase = IsCurrent(life, after) ? Of(life, after.workers).phase : kJoins;
      const bool fits = is_told && DeclaresSame(life, after.told.job);
      if (phase == kIsMember && !fits) return true;
      if (phase == kHasLeft && (fits || !is_told)) return true;
    }
    return false;
  }
  static bool IsDone(const State& state) {
    return std::ranges::none_of(state.workers, [](const auto& w) { return w.phase == kJoins; });
  }

 private:
  static bool IsCurrent(int life, const State& state) {
    return life != kNone && life % kLivesMax == Of(life, state.workers).life;
  }
  static bool IsJoining(int life, const State& state) {
    return IsCurrent(life, state) && Of(life, state.workers).phase == kJoins;
  }
  static uint16_t Bit(int life, int part) {
    return static_cast<uint16_t>(1 << (life * kParts + part));
  }
  static std::string Name(int life) { return "life " + std::to_string(life); }
  bool Has(Rule rule) const { return left_out_ != rule; }
  template <class Change>
  static void Add(std::vector<Step>& steps, const std::string& name, bool is_repeated, State state,
                  Change change) {
    change(state);
    steps.push_back({name, state, is_repeated});
  }

  // A registration may be late: its sender is dead or has an answer. A worker that joins repeats
  // it, and gets an answer in the end.
  void AddRegister(const State& state, int life, std::vector<Step>& steps) const {
    const bool is_joining = IsJoining(life, state);
    const std::string name = Name(life) + " registers";
    if (state.stage == kLeads || (!Has(Rule::kDurableFirst) && state.stage != kIntake)) {
      Add(steps, name + "; its welcome is lost", false, state, [](State& s) { s.told = s.run; });
      if (is_joining)
        Add(steps, name + "; welcomed", true, state, [&](State& s) { Welcome(s, life); });
    } else if (state.stage == kIntake && state.supplier == life) {
      const int part = NextPart(state);
      if (!is_joining || !Has(Rule::kAskAgain)) return;
      Add(steps, name + "; sends part " + std::to_string(part), true, state, [&](State& s) {
        s.sent |= Bit(life, part);
        TakePart(s, life, part);
      });
    } else if (state.stage == kIntake && (state.supplier == kNone || Has(Rule::kAnotherSupplier))) {
      // A supplier that lives may be silent for long, but not in the end.
      const bool is_sure = is_joining && !IsJoining(state.supplier, state);
      Add(steps, name + "; supplies", is_sure, state, [&](State& s) {
        s.supplier = static_cast<int8_t>(life);
        if (Has(Rule::kFromTheFirstByte)) s.run = {};
        if (is_joining) s.sent |= Bit(life, NextPart(s));
      });
    }
  }

  static int NextPart(const State& state) { return state.run.parts[0] == kNone ? 0 : 1; }

  // As DeclarationIntake::OnDeclaration. A part that counts is followed by the next one.
  void TakePart(State& state, int life, int part) const {
    const bool is_suppliers = state.supplier == life || !Has(Rule::kOneSupplier);
    if (state.stage != kIntake || !is_suppliers) return;
    if (part != NextPart(state)) {
      const bool is_read = part > 0 && !Has(Rule::kNextPartOnly);
      if (is_read && IsJoining(life, state)) Of(life, state.workers).phase = kHasLeft;  // refused
      return;
    }
    state.run.parts[static_cast<size_t>(part)] = static_cast<int8_t>(life);
    if (part == 0) state.run.job = static_cast<int8_t>(life);
    if (part + 1 == kParts || !Has(Rule::kWholeVersion)) {
      state.stage = kWhole;
    } else if (IsJoining(life, state)) {
      state.sent |= Bit(life, part + 1);
    }
  }

  void Write(State& state) const {
    const bool is_second = state.stage == kHalfWritten;
    if (is_second != Has(Rule::kVersionBeforeJob)) {
      state.disk.parts = state.run.parts;
    } else {
      state.disk.job = state.run.job;
    }
    state.stage = is_second ? kLeads : kHalfWritten;
  }

  static void Restart(State& state) {
    const bool is_declared = state.disk.job != kNone;
    state.stage = is_declared ? kLeads : kIntake;
    state.run = is_declared ? state.disk : Run();
    state.supplier = kNone;
  }

  // As ProgramWorker::Check.
  void Welcome(State& state, int life) const {
    state.told = state.run;
    const bool stays = DeclaresSame(life, state.run.job) || !Has(Rule::kCompare);
    Of(life, state.workers).phase = stays ? kIsMember : kHasLeft;
  }

  const Rule left_out_;
};

}  // namespace

int main(int argc, char** argv) {
  return pando::model::SearchAsAsked<DeclarationModel>(
      argc, argv, kMutations, "a welcome or a refusal is wrong", "a worker never gets an answer");
}
