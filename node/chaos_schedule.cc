#include "node/chaos_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <sstream>
#include <utility>

#include "common/system.h"

namespace pando {
namespace {

using Words = std::vector<std::string>;

// The beginnings of the processes' names, by ChaosTarget.
constexpr auto kNamePrefixes =
    std::to_array({"worker-", "server-", "scheduler", "worker-", "server-", ""});

// The time after which we look again for a target that was not running.
constexpr Micros kAbsentRetry = std::chrono::milliseconds(50);
constexpr Micros kDurationMax = std::chrono::hours(1);
// The shares of random chaos: kinds in percent, the rest are partitions; durations in seconds.
constexpr double kRandomKillShare = 0.6;
constexpr double kRandomStopShare = 0.2;
constexpr double kRandomWorkerShare = 0.5;
constexpr double kRandomServerShare = 0.35;
constexpr double kRandomSecondsMin = 0.2;
constexpr double kRandomSecondsMax = 3;

Words SplitWords(std::string_view text) {
  std::istringstream stream{std::string(text)};
  return {std::istream_iterator<std::string>(stream), {}};
}

std::optional<Micros> ParseDuration(std::string_view text) {
  const size_t unit_at = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view unit = text.substr(unit_at);
  const std::optional<double> value = ParseNumber<double>(text.substr(0, unit_at));
  const double unit_us = unit == "ms" ? 1e3 : unit == "s" ? 1e6 : unit == "m" ? 6e7 : 0;
  if (!value || unit_us == 0) return std::nullopt;
  const double us = *value * unit_us;
  if (us < 1 || us > static_cast<double>(kDurationMax.count())) return std::nullopt;
  return Micros(static_cast<int64_t>(us));
}

// Reads one entry, word by word.
class EntryParser {
 public:
  EntryParser(std::string text, const ChaosField& field)
      : text_(std::move(text)), words_(SplitWords(text_)), field_(field) {}

  Result<ChaosEntry> Parse() {
    ChaosEntry entry{.text = fmt::format("{}", fmt::join(words_, " "))};
    for (auto part : {&EntryParser::ParseAction, &EntryParser::ParseTarget,
                      &EntryParser::ParseLength, &EntryParser::ParseWhen}) {
      PANDO_RETURN_IF_ERROR((this->*part)(&entry));
    }
    if (at_ < words_.size()) return Error(fmt::format("nothing is expected after '{}'", Last()));
    return entry;
  }

 private:
  Status Error(const std::string& what) const {
    return InvalidArgument(fmt::format("--chaos '{}': {}", fmt::join(words_, " "), what));
  }
  const std::string& Word() const {
    static const std::string nothing;
    return at_ < words_.size() ? words_[at_] : nothing;
  }
  const std::string& Last() const { return words_[at_ - 1]; }

  // Returns the index of the next word among `known`.
  Result<size_t> MatchWord(const char* what, const Words& known) {
    const auto found = std::ranges::find(known, Word());
    if (found != known.end()) {
      ++at_;
      return static_cast<size_t>(found - known.begin());
    }
    std::string hint = DidYouMean(Word(), known);
    if (hint.empty()) hint = fmt::format("it is one of {}", fmt::join(known, ", "));
    if (Word().empty()) return Error(fmt::format("the {} is missing; {}", what, hint));
    return Error(fmt::format("unknown {} '{}'; {}", what, Word(), hint));
  }

  template <class E>
  Status TakeName(const char* what, E* value) {
    const Result<size_t> index = MatchWord(what, {kEnumNames<E>.begin(), kEnumNames<E>.end()});
    if (index.ok()) *value = static_cast<E>(*index);
    return index.ok() ? Status() : index.status();
  }

  Status ParseAction(ChaosEntry* entry) { return TakeName("action", &entry->action); }

  Status ParseTarget(ChaosEntry* entry) {
    PANDO_RETURN_IF_ERROR(TakeName("target", &entry->target));
    const bool is_one =
        entry->target == ChaosTarget::kWorker || entry->target == ChaosTarget::kServer;
    entry->index = ParseNumber<uint32_t>(Word());
    if (!entry->index) return Status();
    if (!is_one) return Error(fmt::format("'{}' takes no number", Last()));
    ++at_;
    const uint32_t count =
        entry->target == ChaosTarget::kWorker ? field_.worker_count : field_.server_count;
    if (*entry->index < count) return Status();
    return Error(fmt::format("there is no {} {}: the run has {}, counted from 0",
                             EnumName(entry->target), *entry->index, count));
  }

  Status ParseLength(ChaosEntry* entry) {
    const std::optional<Micros> duration = ParseDuration(Word());
    if (entry->action == ChaosAction::kKill) {
      if (duration)
        return Error(fmt::format("'kill' takes no duration, but there is '{}'", Word()));
      return Status();
    }
    if (!duration) {
      return Error(fmt::format("'{}' needs a duration up to an hour: 2s, 250ms, 3m",
                               EnumName(entry->action)));
    }
    entry->duration = *duration;
    ++at_;
    return Status();
  }

  Status ParseWhen(ChaosEntry* entry) {
    PANDO_ASSIGN_OR_RETURN(size_t when, MatchWord("time", {"at", "every"}));
    if (when == 0) return ParseStep(entry);
    const std::optional<Micros> interval = ParseDuration(Word());
    if (!interval) return Error("'every' needs a duration up to an hour: 3s, 500ms");
    entry->interval = *interval;
    ++at_;
    return Status();
  }

  Status ParseStep(ChaosEntry* entry) {
    PANDO_RETURN_IF_ERROR(MatchWord("time", {"step"}).status());
    const std::optional<uint64_t> step = ParseNumber<uint64_t>(Word());
    if (!step) return Error("'at step' needs a number");
    if (*step >= field_.step_count) {
      return Error(fmt::format("the job ends with step {}; give a lower step", field_.step_count));
    }
    if (*step < field_.first_step) {
      return Error(fmt::format("the run goes on from step {}; step {} is behind it",
                               field_.first_step, *step));
    }
    entry->step = Step(*step);
    ++at_;
    return Status();
  }

  const std::string text_;
  const Words words_;
  const ChaosField& field_;
  size_t at_ = 0;  // the next word
};

// Reads "random", "random:7" or "random:7:5s".
Result<RandomChaos> ParseRandom(const std::string& text) {
  constexpr uint64_t kDrawnSeedMax = 1'000'000'000;  // small enough to type again
  if (text == "random") return RandomChaos{.seed = NewIncarnation().value() % kDrawnSeedMax};
  const size_t seed_at = text.find(':') + 1;
  const size_t seed_end = std::min(text.find(':', seed_at), text.size());
  const std::optional<uint64_t> seed =
      ParseNumber<uint64_t>(std::string_view(text).substr(seed_at, seed_end - seed_at));
  RandomChaos random;
  std::optional<Micros> mean = random.mean_interval;
  if (seed_end < text.size()) mean = ParseDuration(std::string_view(text).substr(seed_end + 1));
  if (!seed || !mean) {
    return InvalidArgument(fmt::format(
        "--chaos '{}': expected random:SEED or random:SEED:5s, the seed a whole number", text));
  }
  return RandomChaos{*seed, *mean};
}

}  // namespace

Result<ChaosPlan> ParseChaos(std::string_view text, const ChaosField& field) {
  ChaosPlan plan{.field = field};
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(';', at), text.size());
    const std::string part(text.substr(at, end - at));
    at = end + 1;
    const Words words = SplitWords(part);
    if (words.empty()) continue;
    if (words.size() == 1 && (words[0] == "random" || words[0].starts_with("random:"))) {
      PANDO_ASSIGN_OR_RETURN(RandomChaos random, ParseRandom(words[0]));
      if (plan.random) return InvalidArgument("--chaos: 'random' is given twice");
      plan.random = random;
      continue;
    }
    PANDO_ASSIGN_OR_RETURN(ChaosEntry entry, EntryParser(part, field).Parse());
    plan.entries.push_back(std::move(entry));
  }
  if (plan.is_empty()) return InvalidArgument("--chaos: the text is empty");
  return plan;
}

ChaosSchedule::ChaosSchedule(ChaosPlan plan) : field_(plan.field), random_(plan.random) {
  for (ChaosEntry& entry : plan.entries) {
    const Micros due_at = entry.interval;
    pending_.push_back({.entry = std::move(entry), .due_at = due_at});
  }
  if (!random_) return;
  key_ = MakePhiloxKey(random_->seed, RandomPurpose::kShuffle, "chaos");
  DrawGap();
}

std::vector<ChaosAct> ChaosSchedule::Due(Micros now, Step step,
                                         const std::set<std::string>& running) {
  std::vector<ChaosAct> acts;
  for (Pending& pending : pending_) {
    if (!IsDue(pending, now, step)) continue;
    const ChaosEntry& entry = pending.entry;
    const Names names = FindTargets(entry, running);
    for (const std::string& name : names) acts.push_back({entry.action, name, entry.duration});
    pending.has_come |= !names.empty();
    pending.due_at = now + (names.empty() ? kAbsentRetry : entry.interval);
  }
  while (random_ && now >= random_at_) {
    if (std::optional<ChaosAct> act = Draw(running)) acts.push_back(*act);
    DrawGap();
  }
  return acts;
}

bool ChaosSchedule::IsDue(const Pending& pending, Micros now, Step step) const {
  if (!pending.entry.step) return now >= pending.due_at;
  return !pending.has_come && step >= *pending.entry.step;
}

Micros ChaosSchedule::NextDeadline() const {
  Micros next = random_ ? random_at_ : kNever;
  for (const Pending& pending : pending_) {
    if (!pending.entry.step) next = std::min(next, pending.due_at);
  }
  return next;
}

std::vector<std::string> ChaosSchedule::Unmet() const {
  Names unmet;
  for (const Pending& pending : pending_) {
    if (!pending.has_come) unmet.push_back(pending.entry.text);
  }
  return unmet;
}

ChaosSchedule::Names ChaosSchedule::FindTargets(const ChaosEntry& entry,
                                                const std::set<std::string>& running) {
  const std::string_view prefix = kNamePrefixes[static_cast<size_t>(entry.target)];
  if (entry.index) {
    const std::string name = fmt::format("{}{}", prefix, *entry.index);
    return running.contains(name) ? Names{name} : Names{};
  }
  if (entry.target == ChaosTarget::kWorker)
    return InTurn(prefix, field_.worker_count, &worker_turn_, running);
  if (entry.target == ChaosTarget::kServer)
    return InTurn(prefix, field_.server_count, &server_turn_, running);
  Names names;
  std::ranges::copy_if(running, std::back_inserter(names),
                       [&](const std::string& name) { return name.starts_with(prefix); });
  return names;
}

// Returns the next process in turn that runs.
ChaosSchedule::Names ChaosSchedule::InTurn(std::string_view prefix, uint32_t count, uint32_t* turn,
                                           const std::set<std::string>& running) const {
  for (uint32_t i = 0; i < count; ++i) {
    const std::string name = fmt::format("{}{}", prefix, (*turn + i) % count);
    if (!running.contains(name)) continue;
    *turn = (*turn + i + 1) % count;
    return {name};
  }
  return {};
}

// Exponential gaps: at any moment the next fault is equally far away, on average.
void ChaosSchedule::DrawGap() {
  const double mean_us = static_cast<double>(random_->mean_interval.count());
  random_at_ += Micros(1 + static_cast<int64_t>(-std::log(1 - NextUniform()) * mean_us));
}

// Every draw takes the same count of numbers, so that the set of running processes changes one act
// and not all later ones.
std::optional<ChaosAct> ChaosSchedule::Draw(const std::set<std::string>& running) {
  const double kind = NextUniform();
  const double role = NextUniform();
  const double which = NextUniform();
  const double seconds =
      kRandomSecondsMin + NextUniform() * (kRandomSecondsMax - kRandomSecondsMin);
  ChaosAct act;
  if (kind >= kRandomKillShare) {
    act.action =
        kind < kRandomKillShare + kRandomStopShare ? ChaosAction::kStop : ChaosAction::kPartition;
    act.duration = Micros(static_cast<int64_t>(seconds * 1e6));
  }
  Names names{"scheduler"};
  const auto pick = [&](const char* prefix, uint32_t count) {
    uint32_t turn = static_cast<uint32_t>(which * count);
    names = InTurn(prefix, count, &turn, running);
  };
  if (role < kRandomWorkerShare) {
    pick("worker-", field_.worker_count);
  } else if (role < kRandomWorkerShare + kRandomServerShare) {
    pick("server-", field_.server_count);
  }
  if (names.empty() || !running.contains(names[0])) return std::nullopt;
  act.process = names[0];
  return act;
}

double ChaosSchedule::NextUniform() {
  return UniformFloat(Philox4x32({drawn_++, 0, 0, 0}, key_)[0]);
}

}  // namespace pando
