// The flags of `pando bench recovery`.
#include <memory>

#include "bench/commands.h"
#include "bench/recovery/recovery.h"
#include "bench/training/common_flags.h"

namespace pando::bench {
namespace {

struct Flags {
  TrainingFlags training{.models = {"mnist-cnn"}, .rounds = 5};
  RecoveryOptions options;
  std::string out = kDefaultOut;
  bool is_quick = false;
};

// Some seconds; what was asked for by a flag stays.
void MakeQuick(const CLI::App& command, Flags* flags) {
  const auto was_given = [&](const char* flag) { return command.count(flag) != 0; };
  RecoveryOptions& o = flags->options;
  if (!was_given("--batch")) flags->training.worker_batch = 16;
  if (!was_given("--rounds")) flags->training.rounds = 1;
  if (!was_given("--fault")) o.faults = {"worker", "server", "scheduler"};
  if (!was_given("--snapshot-every")) o.snapshot_every = 40;
  if (!was_given("--warm-up")) o.warm_up_steps = 10;
  if (!was_given("--at-step")) o.fault_step = 60;
  if (!was_given("--steps-after")) o.steps_after = 60;
}

Status Resolve(const TrainingFlags& flags, RecoveryOptions* o) {
  if (flags.models.size() != 1) return InvalidArgument("--model: recovery takes one model");
  if (o->warm_up_steps >= o->fault_step) {
    return InvalidArgument("--at-step: the fault comes behind the steps of --warm-up; raise it");
  }
  std::vector<Workload> workloads;
  if (Status s = ResolveTraining(flags, &o->program, &workloads); !s.ok()) return s;
  o->workload = workloads.front();
  o->rounds = flags.rounds;
  return Status();
}

int Run(const CLI::App& command, Flags flags) {
  if (flags.is_quick) MakeQuick(command, &flags);
  if (Status s = Resolve(flags.training, &flags.options); !s.ok()) return Report(s);
  ShutdownSignal shutdown;  // before any thread
  return Finish(RunRecovery(flags.options, shutdown, ProgressLine()), flags.out);
}

void AddSteps(CLI::App& command, RecoveryOptions* o) {
  const auto add = [&](const char* flag, uint64_t* steps, uint64_t at_least, const char* text) {
    command.add_option(flag, *steps, text)
        ->check(CLI::Range(at_least, uint64_t{1'000'000}))
        ->capture_default_str();
  };
  add("--snapshot-every", &o->snapshot_every, 1, "Steps between snapshots");
  add("--warm-up", &o->warm_up_steps, 1, "Steps before time is taken");
  add("--at-step", &o->fault_step, 1, "The fault comes when so many steps are committed");
  add("--steps-after", &o->steps_after, 1, "Steps from the fault to where the delay is taken");
}

}  // namespace

std::function<int()> AddRecovery(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "recovery",
      "How long a run waits for its next step when a process is killed or stopped, and what it\n"
      "loses in all: with servers, and by allreduce, which begins again at a snapshot.");
  const auto flags = std::make_shared<Flags>();
  AddTrainingFlags(command, &flags->training);
  RecoveryOptions* o = &flags->options;
  AddStrategyFlag(command, &o->strategies);
  command.add_option("--fault", o->faults, "Who is killed, or stopped for good, each in turn")
      ->delimiter(',')
      ->check(CLI::IsMember(FaultNames()))
      ->capture_default_str();
  command.add_option("--workers", o->workers, "How many workers of 1 thread")
      ->check(CLI::Range(2u, kWorkersMax))
      ->capture_default_str();
  command.add_option("--servers", o->servers, "How many servers, with 2 replicas of each shard")
      ->check(CLI::Range(2u, kWorkersMax))
      ->capture_default_str();
  command.add_option("--transport", o->transport, "As pando train --transport")
      ->check(CLI::IsMember(TransportNames()))
      ->capture_default_str();
  AddSteps(command, o);
  command.add_flag("--quick", flags->is_quick, "Some seconds in all: does it work?");
  AddOutOption(command, &flags->out);
  return [&command, flags] { return Run(command, *flags); };
}

}  // namespace pando::bench
