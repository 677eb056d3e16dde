// The flags of `pando bench kernels`.
#include <memory>

#include "bench/commands.h"
#include "bench/kernels/layer_bench.h"

namespace pando::bench {
namespace {

constexpr uint32_t kBatchMax = 4096;
constexpr uint32_t kRoundsMax = 10'000;

struct Flags {
  LayerBenchOptions options;
  std::string out = kDefaultOut;
  bool is_quick = false;
};

int Run(const CLI::App& command, Flags flags) {
  LayerBenchOptions& o = flags.options;
  // What was asked for by a flag stays.
  if (flags.is_quick && command.count("--model") == 0) o.models = {"mnist-cnn"};
  if (flags.is_quick && command.count("--rounds") == 0) o.rounds = 2;
  ShutdownSignal shutdown;
  return Finish(RunLayerBench(o, shutdown, ProgressLine()), flags.out);
}

}  // namespace

std::function<int()> AddKernels(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "kernels",
      "Each layer of the zoo's models on one core: GFLOP/s, and the share of its multiply-adds or\n"
      "of its memory's bandwidth that it gets.");
  const auto flags = std::make_shared<Flags>();
  LayerBenchOptions* o = &flags->options;
  command.add_option("--model", o->models, "Models of the zoo, each in turn")
      ->delimiter(',')
      ->capture_default_str();
  command.add_option("--batch", o->batch, "Samples of a pass")
      ->check(CLI::Range(1u, kBatchMax))
      ->capture_default_str();
  command.add_option("--rounds", o->rounds, "Samples of each point; all points take turns")
      ->check(CLI::Range(1u, kRoundsMax))
      ->capture_default_str();
  command.add_flag("--quick", flags->is_quick, "Some seconds in all: does it work?");
  AddOutOption(command, &flags->out);
  return [&command, flags] { return Run(command, *flags); };
}

}  // namespace pando::bench
