// sim: the simulator's command line.
//   sim --seeds=1000                     runs seeds 1..1000, each in two processes, whose trace
//                                        hashes must be equal
//   sim --seeds=100000 --jobs=2          each once, in N processes, with coverage
//   sim --seeds=2000 --jobs=2 --hashes   the same, with the trace hash of each seed
//   sim --seed=7 --trace                 replays one seed and prints every message and fault
//   sim --scenarios                      the seeds that once found a bug
//   sim_mutated --seeds=1000 --mutation=no-barrier   looks for a seed that finds the mutation
//   sim_mutated --seeds=1000 --mutation=no-barrier --known=14,31   tries these seeds first
// --first=N begins at another seed; --focus=NAME directs the faults (tests/sim/swarm.h).
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

#include "common/system.h"
#include "tests/sim/cluster.h"
#include "tests/sim/declarations.h"
#include "tests/sim/mutations.h"
#include "tests/sim/scenarios.h"

namespace pando::sim {
namespace {

// This many seeds with general faults must reach full coverage.
constexpr uint64_t kSeedsThatMeetAll = 2000;

struct Arguments {
  uint64_t first = 1;
  uint64_t count = 1;
  uint64_t jobs = 0;  // 0: each seed in two processes
  bool is_tracing = false;
  bool prints_hashes = false;
  bool runs_scenarios = false;
  Focus focus = Focus::kNone;
  std::string_view focus_name = "none";
  std::optional<NamedMutation> mutation;
  std::vector<uint64_t> known_seeds;  // that found the mutation before
};

// The report of a process that ran some seeds. Plain bytes: it goes through a pipe.
struct Tally {
  uint64_t seed_count = 0;
  uint64_t failed_count = 0;
  uint64_t message_count = 0;
  Coverage coverage;
};

bool TakeNumber(std::string_view argument, std::string_view name, uint64_t* number) {
  if (!argument.starts_with(name)) return false;
  argument.remove_prefix(name.size());
  return std::from_chars(argument.data(), argument.data() + argument.size(), *number).ec ==
         std::errc();
}

std::optional<std::string_view> TakeText(std::string_view argument, std::string_view name) {
  if (!argument.starts_with(name)) return std::nullopt;
  return argument.substr(name.size());
}

bool TakeNumbers(std::string_view argument, std::string_view name, std::vector<uint64_t>* numbers) {
  if (!argument.starts_with(name)) return false;
  argument.remove_prefix(name.size());
  for (const auto part : argument | std::views::split(',')) {
    if (!TakeNumber({part.begin(), part.end()}, "", &numbers->emplace_back())) return false;
  }
  return true;
}

bool TakeName(std::string_view argument, Arguments* arguments) {
  if (const auto focus = TakeText(argument, "--focus=")) {
    const std::optional<Focus> named = FocusNamed(*focus);
    if (named) arguments->focus = *named;
    arguments->focus_name = *focus;
    return named.has_value();
  }
  if (const auto mutation = TakeText(argument, "--mutation=")) {
    const auto all = Mutations();
    const auto it = std::ranges::find(all, *mutation, &NamedMutation::name);
    if (it != all.end()) arguments->mutation = *it;
    return it != all.end();
  }
  if (argument == "--trace") return arguments->is_tracing = true;
  if (argument == "--hashes") return arguments->prints_hashes = true;
  if (argument == "--scenarios") return arguments->runs_scenarios = true;
  return false;
}

std::optional<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const bool is_known = TakeNumber(argument, "--seed=", &arguments.first) ||
                          TakeNumber(argument, "--seeds=", &arguments.count) ||
                          TakeNumber(argument, "--first=", &arguments.first) ||
                          TakeNumber(argument, "--jobs=", &arguments.jobs) ||
                          TakeNumbers(argument, "--known=", &arguments.known_seeds) ||
                          TakeName(argument, &arguments);
    if (is_known) continue;
    std::fprintf(stderr, "sim: unknown argument %s; see the head of tests/sim/sim_main.cc\n",
                 argv[i]);
    return std::nullopt;
  }
  return arguments;
}

Outcome RunSeed(uint64_t seed, Focus focus, bool is_tracing = false) {
  const Cluster::Options options{.seed = seed, .focus = focus, .is_tracing = is_tracing};
  if (focus == Focus::kDeclared) return Declarations(options).Run();
  Cluster cluster(options);
  return cluster.Run();
}

void PrintFailed(const Arguments& arguments, uint64_t seed, const std::string& what) {
  const std::string focus =
      arguments.focus == Focus::kNone ? "" : " --focus=" + std::string(arguments.focus_name);
  std::printf("seed %lu: %s\n  replay: sim --seed=%lu%s --trace\n", seed, what.c_str(), seed,
              focus.c_str());
  std::fflush(stdout);
}

void Add(Tally* tally, const Outcome& outcome) {
  ++tally->seed_count;
  tally->failed_count += !outcome.ok;
  tally->message_count += outcome.message_count;
  tally->coverage.AddSeed(outcome.coverage);
}

void Merge(Tally* sum, const Tally& part) {
  sum->seed_count += part.seed_count;
  sum->failed_count += part.failed_count;
  sum->message_count += part.message_count;
  for (size_t i = 0; i < kEventCount; ++i) sum->coverage.events[i] += part.coverage.events[i];
  for (size_t i = 0; i < kFaultKindCount; ++i) sum->coverage.faults[i] += part.coverage.faults[i];
  for (size_t i = 0; i < kMessageKindCount; ++i) {
    sum->coverage.messages[i] += part.coverage.messages[i];
  }
}

template <size_t N, class NameOfIndex>
uint64_t PrintCounts(const char* title, const std::array<uint64_t, N>& counts,
                     const NameOfIndex& name_of) {
  uint64_t never = 0;
  std::printf("%s, and in how many seeds:", title);
  for (size_t i = 0; i < N; ++i) {
    std::printf("%s %s %lu", i % 6 == 0 ? "\n " : ";", std::string(name_of(i)).c_str(), counts[i]);
    never += counts[i] == 0;
  }
  std::printf("\n");
  return never;
}

// Whether there is nothing that these seeds never met: what is never met is not tested.
bool PrintCoverage(const Coverage& coverage) {
  uint64_t never = PrintCounts("met", coverage.events,
                               [](size_t i) { return EventName(static_cast<Event>(i)); });
  never -=
      !coverage.Has(Event::kRowGap);  // allowed, not wanted: replicas keep rows, replays remake
  never -= !coverage.Has(Event::kFlipUnnoticed);  // the same: one seed in tens of thousands
  // --focus=votes meets these.
  never -= !coverage.Has(Event::kMemoryFlip) + !coverage.Has(Event::kOutvoted);
  never += PrintCounts("faults", coverage.faults,
                       [](size_t i) { return FaultName(static_cast<FaultKind>(i)); });
  std::printf("messages never sent:");
  for (size_t i = 0; i < kMessageKindCount; ++i) {
    const bool is_of_people = i == Message(StatusRequest{}).index() ||
                              i == Message(StatusReport{}).index() ||
                              i == Message(Failure{}).index();
    const bool is_of_votes = i == Message(HashWanted{}).index() ||  // --focus=votes sends them
                             i == Message(RecordHashes{}).index();
    const bool is_of_programs =  // --focus=declared sends them
        i == Message(DeclarationWanted{}).index() || i == Message(Declaration{}).index();
    if (coverage.messages[i] > 0 || is_of_people || is_of_programs || is_of_votes) continue;
    std::printf(" %s", kMessageRows[i].name);
    ++never;
  }
  std::printf("\n");
  if (never > 0) std::printf("the simulation is blind: %lu things were never met\n", never);
  return never == 0;
}

bool WriteAll(int fd, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = write(fd, at, bytes);
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool ReadAll(int fd, void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = read(fd, at, bytes);
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

// The same seeds in a second process, whose addresses and allocations are its own.
int RunTwice(const Arguments& arguments) {
  std::array<int, 2> fds{};
  if (pipe(fds.data()) != 0) return 2;
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    for (uint64_t i = 0; i < arguments.count; ++i) {
      const uint64_t hash = RunSeed(arguments.first + i, arguments.focus).trace_hash;
      if (!WriteAll(fds[1], &hash, sizeof hash)) _exit(2);
    }
    _exit(0);
  }
  close(fds[1]);
  Tally tally;
  for (uint64_t i = 0; i < arguments.count; ++i) {
    const uint64_t seed = arguments.first + i;
    const Outcome outcome = RunSeed(seed, arguments.focus);
    Add(&tally, outcome);
    if (!outcome.ok) PrintFailed(arguments, seed, outcome.failure);
    uint64_t other = 0;
    if (ReadAll(fds[0], &other, sizeof other) && other == outcome.trace_hash) continue;
    ++tally.failed_count;
    std::printf("seed %lu: two processes differ\n", seed);
  }
  waitpid(child, nullptr, 0);
  const bool meets_all = arguments.focus != Focus::kNone || arguments.count < kSeedsThatMeetAll ||
                         PrintCoverage(tally.coverage);
  std::printf("%lu seeds, each in two processes, %lu messages: %lu failed\n", arguments.count,
              tally.message_count, tally.failed_count);
  return tally.failed_count == 0 && meets_all ? 0 : 1;
}

// One of several processes that share the seeds.
void RunShare(const Arguments& arguments, uint64_t job, int fd) {
  Tally tally;
  for (uint64_t i = job; i < arguments.count; i += arguments.jobs) {
    const uint64_t seed = arguments.first + i;
    const Outcome outcome = RunSeed(seed, arguments.focus);
    Add(&tally, outcome);
    if (arguments.prints_hashes) {
      std::printf("seed %lu: trace hash %016lx\n", seed, outcome.trace_hash);
      std::fflush(stdout);  // a line at a time: several processes print
    }
    if (!outcome.ok) PrintFailed(arguments, seed, outcome.failure);
  }
  if (!WriteAll(fd, &tally, sizeof tally)) _exit(2);
}

int RunOnce(const Arguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  std::array<int, 2> fds{};
  if (pipe(fds.data()) != 0) return 2;
  std::fflush(stdout);
  for (uint64_t job = 0; job < arguments.jobs; ++job) {
    if (fork() != 0) continue;
    RunShare(arguments, job, fds[1]);
    std::fflush(stdout);
    _exit(0);
  }
  close(fds[1]);
  Tally sum;
  Tally part;
  for (uint64_t job = 0; job < arguments.jobs; ++job) {
    if (ReadAll(fds[0], &part, sizeof part)) Merge(&sum, part);
  }
  while (wait(nullptr) > 0) {
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  const bool meets_all = PrintCoverage(sum.coverage) || arguments.focus != Focus::kNone ||
                         arguments.count < kSeedsThatMeetAll;
  const uint64_t lost_count = arguments.count - sum.seed_count;  // with a process that crashed
  std::printf("%lu seeds in %.0f s, %.1f a second, %lu messages: %lu failed", sum.seed_count,
              time.count(), static_cast<double>(sum.seed_count) / time.count(), sum.message_count,
              sum.failed_count);
  if (lost_count > 0) std::printf(", %lu not run", lost_count);
  std::printf("\n");
  return sum.failed_count == 0 && lost_count == 0 && meets_all ? 0 : 1;
}

int RunScenarios() {
  int failed_count = 0;
  for (const Scenario& scenario : Scenarios()) {
    const Outcome outcome = RunSeed(scenario.seed, scenario.focus);
    std::printf("%s: %s\n", std::string(scenario.name).c_str(),
                outcome.ok ? "ok" : outcome.failure.c_str());
    failed_count += !outcome.ok;
  }
  return failed_count == 0 ? 0 : 1;
}

#ifdef PANDO_MUTATIONS
// Whether the seed passes, in a separate process: a core may stop at one of its checks.
bool Passes(const Arguments& arguments, uint64_t seed, Mutation mutation, std::string* failure) {
  std::array<int, 2> fds{};
  if (pipe(fds.data()) != 0) return false;
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    active_mutation = mutation;
    const Outcome outcome = RunSeed(seed, arguments.focus);
    if (!outcome.ok) WriteAll(fds[1], outcome.failure.data(), outcome.failure.size());
    _exit(outcome.ok ? 0 : 1);
  }
  close(fds[1]);
  std::array<char, 400> text{};
  const ssize_t length = read(fds[0], text.data(), text.size());
  close(fds[0]);
  int status = 0;
  waitpid(child, &status, 0);
  *failure = length > 0 ? std::string(text.data(), static_cast<size_t>(length))
                        : "the core stopped at one of its checks";
  return status == 0;
}

// 0 when some seed finds the mutation, and nothing without it. The known seeds come first: they
// save the search, until a change of the cores changes what happens in each seed.
int HuntMutation(const Arguments& arguments) {
  std::vector<uint64_t> seeds = arguments.known_seeds;
  for (uint64_t i = 0; i < arguments.count; ++i) seeds.push_back(arguments.first + i);
  for (size_t i = 0; i < seeds.size(); ++i) {
    std::string failure;
    std::string unmutated;
    if (Passes(arguments, seeds[i], arguments.mutation->mutation, &failure)) continue;
    if (!Passes(arguments, seeds[i], Mutation::kNone, &unmutated)) {
      std::printf("seed %lu fails without the mutation: %s\n", seeds[i], unmutated.c_str());
      return 1;
    }
    std::printf("found by seed %lu, after %zu seeds: %s\n", seeds[i], i + 1, failure.c_str());
    return 0;
  }
  std::printf("not found within %zu seeds\n", seeds.size());
  return 1;
}
#endif

int Main(int argc, char** argv) {
  SetFloatEnvironment();
  const std::optional<Arguments> arguments = Parse(argc, argv);
  if (!arguments) return 2;
  if (arguments->mutation) {
#ifdef PANDO_MUTATIONS
    active_mutation = arguments->mutation->mutation;
    if (!arguments->is_tracing) return HuntMutation(*arguments);
#else
    std::fprintf(stderr, "sim: built without mutations; use sim_mutated\n");
    return 2;
#endif
  }
  if (arguments->runs_scenarios) return RunScenarios();
  if (arguments->jobs > 0) return RunOnce(*arguments);
  if (!arguments->is_tracing) return RunTwice(*arguments);
  const Outcome outcome = RunSeed(arguments->first, arguments->focus, true);
  std::printf("%s, trace hash %016lx\n", outcome.ok ? "ok" : outcome.failure.c_str(),
              outcome.trace_hash);
  return outcome.ok ? 0 : 1;
}

}  // namespace
}  // namespace pando::sim

int main(int argc, char** argv) { return pando::sim::Main(argc, argv); }
