#include "bench/training/train_flags.h"

#include <fmt/format.h>

namespace pando::bench {
namespace {

constexpr uint64_t kEndlessSteps = 1'000'000'000'000;  // the most that a job may have

}  // namespace

std::vector<std::string> TrainWords(const TrainPlan& plan, const std::string& run_dir) {
  const auto text = [](uint64_t value) { return fmt::format("{}", value); };
  std::vector<std::string> words{"train"};
  const auto add = [&](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  add(plan.workload.Flags());
  add({"--strategy",
       plan.strategy,
       "--steps",
       text(kEndlessSteps),
       "--global-batch",
       text(plan.global_batch),
       "--micro-batches",
       text(plan.workers),
       "--seed",
       text(plan.seed),
       "--device",
       "cpu",
       "--threads",
       "1",
       "--snapshot-every",
       text(plan.snapshot_every),
       "--set",
       "train.last_batch=drop",
       "--set",
       "eval.every_epochs=0",
       "--run-dir",
       run_dir});
  if (plan.strategy != "single") add({"--workers", text(plan.workers)});
  if (plan.strategy == "ps") {
    add({"--servers", text(plan.servers), "--replicas", text(plan.replicas), "--transport",
         plan.transport});
  }
  if (plan.is_verbose) add({"-v"});
  return words;
}

}  // namespace pando::bench
