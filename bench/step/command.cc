// The flags of `pando bench step`.
#include <memory>

#include "bench/commands.h"
#include "bench/step/step.h"
#include "bench/training/common_flags.h"

namespace pando::bench {
namespace {

struct Flags {
  TrainingFlags training{.models = {"mnist-cnn", "resnet18-cifar"}};
  StepOptions options;
  std::string out = kDefaultOut;
  bool is_quick = false;
};

// Some seconds; what was asked for by a flag stays.
void MakeQuick(const CLI::App& command, Flags* flags) {
  StepOptions& o = flags->options;
  if (command.count("--transport") == 0) o.transports = {"auto"};
  if (command.count("--replicas") == 0) o.replicas = {1};
  MakeTrainingQuick(command, &flags->training, &flags->options.window);
}

int Run(const CLI::App& command, Flags flags) {
  if (flags.is_quick) MakeQuick(command, &flags);
  StepOptions* o = &flags.options;
  o->rounds = flags.training.rounds;
  if (Status s = ResolveTraining(flags.training, &o->program, &o->workloads); !s.ok())
    return Report(s);
  ShutdownSignal shutdown;  // before any thread
  return Finish(RunStep(flags.options, shutdown, ProgressLine()), flags.out);
}

}  // namespace

std::function<int()> AddStep(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "step",
      "images/s in training, with servers and by allreduce, and the part of them that is lost to\n"
      "the exchange: beside the same workers with a local update in its place.");
  const auto flags = std::make_shared<Flags>();
  AddTrainingFlags(command, &flags->training);
  StepOptions* o = &flags->options;
  command.add_option("--workers", o->workers, "How many workers of 1 thread, each in turn")
      ->delimiter(',')
      ->check(CLI::Range(1u, kWorkersMax))
      ->capture_default_str();
  AddStrategyFlag(command, &o->strategies);
  AddTransportFlag(command, &o->transports);
  command.add_option("--replicas", o->replicas, "Of each shard, each in turn")
      ->delimiter(',')
      ->check(CLI::Range(1u, 2u))
      ->capture_default_str();
  command.add_option("--servers", o->servers, "How many servers; as many as replicas, at least")
      ->check(CLI::Range(1u, kWorkersMax))
      ->capture_default_str();
  AddWindowFlags(command, &o->window);
  command.add_flag("--quick", flags->is_quick, "Some seconds in all: does it work?");
  AddOutOption(command, &flags->out);
  return [&command, flags] { return Run(command, *flags); };
}

}  // namespace pando::bench
