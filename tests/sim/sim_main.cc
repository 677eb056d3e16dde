// sim: the simulator's command line.
//   sim --seeds=1000              runs seeds 1..1000, every one in two processes with equal trace
//   hashes sim --seed=7 --trace          replays one seed and prints every message sim --seeds=1000
//   --mutation=no-barrier   (sim_mutated only) looks for the seed that finds the mutation
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/float_env.h"
#include "common/mutation.h"
#include "tests/sim/cluster.h"

namespace pando::sim {
namespace {

struct Arguments {
  uint64_t first = 1;
  uint64_t count = 1;
  bool is_tracing = false;
  std::optional<Mutation> mutation;
};

constexpr std::array<std::pair<std::string_view, Mutation>, 5> kMutations{{
    {"no-deduplication", Mutation::kNoDeduplication},
    {"sum-in-arrival-order", Mutation::kSumInArrivalOrder},
    {"no-barrier", Mutation::kNoBarrier},
    {"unanswered-duplicate", Mutation::kUnansweredDuplicate},
    {"uninterruptible-wait", Mutation::kUninterruptibleWait},
}};

bool TakeNumber(std::string_view argument, std::string_view name, uint64_t* number) {
  if (!argument.starts_with(name)) return false;
  argument.remove_prefix(name.size());
  return std::from_chars(argument.data(), argument.data() + argument.size(), *number).ec ==
         std::errc();
}

bool TakeMutation(std::string_view argument, Arguments* arguments) {
  constexpr std::string_view kName = "--mutation=";
  for (const auto& [name, mutation] : kMutations) {
    if (argument.starts_with(kName) && argument.substr(kName.size()) == name)
      arguments->mutation = mutation;
  }
  return arguments->mutation.has_value();
}

std::optional<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const bool is_known = TakeNumber(argument, "--seed=", &arguments.first) ||
                          TakeNumber(argument, "--seeds=", &arguments.count) ||
                          TakeNumber(argument, "--first=", &arguments.first) ||
                          TakeMutation(argument, &arguments);
    if (argument == "--trace") arguments.is_tracing = true;
    if (!is_known && argument != "--trace") {
      std::fprintf(stderr, "sim: unknown argument %s; see the head of tests/sim/sim_main.cc\n",
                   argv[i]);
      return std::nullopt;
    }
  }
  return arguments;
}

Outcome RunSeed(uint64_t seed, bool is_tracing) {
  Cluster cluster(seed, Faults{}, is_tracing);
  return cluster.Run();
}

// The same seeds in a second process, whose addresses and allocations are its own.
std::vector<uint64_t> HashesOfAnotherProcess(const Arguments& arguments, int read_fd) {
  std::vector<uint64_t> hashes(arguments.count);
  size_t bytes = 0;
  while (bytes < hashes.size() * sizeof(uint64_t)) {
    const ssize_t n =
        read(read_fd, reinterpret_cast<char*>(hashes.data()) + bytes, hashes.size() * 8 - bytes);
    if (n <= 0) break;
    bytes += static_cast<size_t>(n);
  }
  return hashes;
}

int RunTwice(const Arguments& arguments) {
  std::array<int, 2> fds{};
  if (pipe(fds.data()) != 0) return 2;
  const pid_t child = fork();
  if (child == 0) {
    for (uint64_t i = 0; i < arguments.count; ++i) {
      const uint64_t hash = RunSeed(arguments.first + i, false).trace_hash;
      if (write(fds[1], &hash, sizeof hash) != sizeof hash) _exit(2);
    }
    _exit(0);
  }
  close(fds[1]);
  std::vector<uint64_t> own;
  uint64_t failed_count = 0, message_count = 0;
  for (uint64_t i = 0; i < arguments.count; ++i) {
    const uint64_t seed = arguments.first + i;
    const Outcome outcome = RunSeed(seed, false);
    own.push_back(outcome.trace_hash);
    message_count += outcome.message_count;
    if (outcome.ok) continue;
    ++failed_count;
    std::printf("seed %lu: %s\n  replay: sim --seed=%lu --trace\n", seed, outcome.failure.c_str(),
                seed);
  }
  const std::vector<uint64_t> other = HashesOfAnotherProcess(arguments, fds[0]);
  waitpid(child, nullptr, 0);
  for (uint64_t i = 0; i < arguments.count; ++i) {
    if (own[i] == other[i]) continue;
    ++failed_count;
    std::printf("seed %lu: two processes differ\n", arguments.first + i);
  }
  std::printf("%lu seeds, each in two processes, %lu messages: %lu failed\n", arguments.count,
              message_count, failed_count);
  return failed_count == 0 ? 0 : 1;
}

// 0 when some seed finds the mutation.
[[maybe_unused]] int HuntMutation(const Arguments& arguments) {
  for (uint64_t i = 0; i < arguments.count; ++i) {
    const Outcome outcome = RunSeed(arguments.first + i, false);
    if (outcome.ok) continue;
    std::printf("found after %lu seeds: %s\n", i + 1, outcome.failure.c_str());
    return 0;
  }
  std::printf("not found within %lu seeds\n", arguments.count);
  return 1;
}

int Main(int argc, char** argv) {
  SetFloatEnvironment();
  const std::optional<Arguments> arguments = Parse(argc, argv);
  if (!arguments) return 2;
  if (arguments->mutation) {
#ifdef PANDO_MUTATIONS
    active_mutation = *arguments->mutation;
    return HuntMutation(*arguments);
#else
    std::fprintf(stderr, "sim: built without mutations; use sim_mutated\n");
    return 2;
#endif
  }
  if (!arguments->is_tracing) return RunTwice(*arguments);
  const Outcome outcome = RunSeed(arguments->first, true);
  std::printf("%s, trace hash %016lx\n", outcome.ok ? "ok" : outcome.failure.c_str(),
              outcome.trace_hash);
  return outcome.ok ? 0 : 1;
}

}  // namespace
}  // namespace pando::sim

int main(int argc, char** argv) { return pando::sim::Main(argc, argv); }
