#include "bench/training/training_runs.h"

#include <fmt/format.h>

#include <csignal>
#include <utility>

namespace pando::bench {
namespace {

// pando train gives its own processes 800 ms to leave, then kills them.
constexpr std::chrono::seconds kStopMax{5};
constexpr size_t kLogLines = 5;

}  // namespace

TrainingRuns::TrainingRuns(std::string program, std::string folder, ShutdownSignal& shutdown)
    : program_(std::move(program)),
      folder_(std::move(folder)),
      shutdown_(shutdown),
      group_([this](const ProcessExit& exit) { OnExit(exit); }) {}

TrainingRuns::~TrainingRuns() { Stop(); }

Status TrainingRuns::Start(const TrainPlan& plan, const std::vector<std::string>& more_words) {
  const std::string name = fmt::format("run-{}", names_.size());
  std::vector<std::string> words = TrainWords(plan, folder_ + "/" + name);
  words.insert(words.end(), more_words.begin(), more_words.end());
  names_.push_back(name);
  return group_.Start({.name = name,
                       .title = "pando train --strategy " + plan.strategy,
                       .args = std::move(words),
                       .log_path = fmt::format("{}/{}.log", folder_, name),
                       .program = program_});
}

Status TrainingRuns::Await(const std::function<Result<bool>()>& condition,
                           std::chrono::milliseconds interval) {
  const int signals[] = {shutdown_.fd()};
  const auto deadline = Clock::now() + kPatience;
  while (true) {
    const Result<bool> is_met = condition();
    if (!is_met.ok()) return is_met.status();
    if (*is_met) return Status();
    group_.Wait(Clock::now() + interval, signals);
    if (shutdown_.Take() != 0) return Interrupted("stopped by a signal");
    if (!failure_.ok()) return failure_;
    if (Clock::now() >= deadline) {
      return Unavailable(fmt::format("training made no progress within {} s; is the machine busy?",
                                     kPatience.count()));
    }
  }
}

void TrainingRuns::Stop() {
  group_.SignalAll(SIGINT);
  const auto deadline = Clock::now() + kStopMax;
  while (group_.running_count() > 0 && group_.Wait(deadline)) {
  }
  group_.KillAll();
}

void TrainingRuns::OnExit(const ProcessExit& exit) {
  if (!failure_.ok()) return;
  std::string text = fmt::format("{} ended: {}", exit.spec.title, ExitText(exit));
  for (const std::string& line : LogTail(exit.spec.log_path, kLogLines)) text += "; " + line;
  failure_ = Internal(text);
}

}  // namespace pando::bench
