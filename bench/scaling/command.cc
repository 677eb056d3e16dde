// The flags of `pando bench scaling`.
#include <algorithm>
#include <memory>

#include "bench/commands.h"
#include "bench/scaling/scaling.h"
#include "bench/training/common_flags.h"

namespace pando::bench {
namespace {

struct Flags {
  TrainingFlags training{.models = {"mnist-cnn", "resnet18-cifar"}};
  ScalingOptions options;
  std::string out = kDefaultOut;
  bool is_quick = false;
};

// Some seconds; what was asked for by a flag stays.
void MakeQuick(const CLI::App& command, Flags* flags) {
  if (command.count("--workers") == 0) flags->options.workers = {1, 2};
  MakeTrainingQuick(command, &flags->training, &flags->options.window);
}

Status Resolve(const TrainingFlags& flags, ScalingOptions* o) {
  if (Status s = ResolveTraining(flags, &o->program, &o->workloads); !s.ok()) return s;
  o->rounds = flags.rounds;
  std::ranges::sort(o->workers);
  const auto twice = std::ranges::unique(o->workers);
  o->workers.erase(twice.begin(), twice.end());
  const bool is_strong = std::ranges::find(o->modes, kStrong) != o->modes.end();
  for (const Workload& workload : o->workloads) {
    if (!is_strong || workload.worker_batch >= o->workers.back()) continue;
    return InvalidArgument(
        "--batch: with strong scaling the workers share it; give at least a sample for each");
  }
  return Status();
}

int Run(const CLI::App& command, Flags flags) {
  if (flags.is_quick) MakeQuick(command, &flags);
  if (Status s = Resolve(flags.training, &flags.options); !s.ok()) return Report(s);
  ShutdownSignal shutdown;  // before any thread
  return Finish(RunScaling(flags.options, shutdown, ProgressLine()), flags.out);
}

}  // namespace

std::function<int()> AddScaling(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "scaling",
      "images/s by the number of workers: with a batch for each (weak), and with one that they\n"
      "share (strong); efficiency against the fewest.");
  const auto flags = std::make_shared<Flags>();
  AddTrainingFlags(command, &flags->training);
  ScalingOptions* o = &flags->options;
  command.add_option("--workers", o->workers, "How many workers of 1 thread, each in turn")
      ->delimiter(',')
      ->check(CLI::Range(1u, kWorkersMax))
      ->capture_default_str();
  command.add_option("--scaling", o->modes, "weak, strong")
      ->delimiter(',')
      ->check(CLI::IsMember({kWeak, kStrong}))
      ->capture_default_str();
  AddStrategyFlag(command, &o->strategies);
  command.add_option("--transport", o->transport, "As pando train --transport")
      ->check(CLI::IsMember(TransportNames()))
      ->capture_default_str();
  command.add_option("--servers", o->servers, "How many servers, with 1 replica of each shard")
      ->check(CLI::Range(1u, kWorkersMax))
      ->capture_default_str();
  AddWindowFlags(command, &o->window);
  command.add_flag("--quick", flags->is_quick, "Some seconds in all: does it work?");
  AddOutOption(command, &flags->out);
  return [&command, flags] { return Run(command, *flags); };
}

}  // namespace pando::bench
