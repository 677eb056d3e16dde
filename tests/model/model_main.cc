// model: the explicit-state model's command line (docs/testing.md).
//   model --list                       names of the configurations and mutations
//   model --configuration=kills        visits every state: neither a loss nor a hang may be found
//   model --mutation=no-barrier        the same without a rule: what it is there for must be found
// Exit status 0 where that is so, 1 where it is not.
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <string_view>

#include "tests/model/search.h"

namespace pando::model {
namespace {

constexpr std::string_view kConfigurationFlag = "--configuration=";
constexpr std::string_view kMutationFlag = "--mutation=";

std::string_view FindingName(Finding finding) {
  switch (finding) {
    case Finding::kNone:
      return "no loss, no hang";
    case Finding::kLoss:
      return "loss";
    case Finding::kHang:
      return "hang";
  }
  return "?";
}

SearchResult Run(std::string_view name, const Configuration& configuration, size_t states_max) {
  const auto begin = std::chrono::steady_clock::now();
  SearchResult result = Search(configuration, states_max);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  fmt::print("{}: {}, {} states{}, {} steps between them, {} views at most, {:.1f} s\n", name,
             FindingName(result.finding), result.state_count,
             result.is_complete ? "" : " (not all)", result.edge_count, result.view_count_max,
             elapsed.count());
  if (result.finding != Finding::kNone) fmt::print("  {}\n", result.what);
  int number = 0;
  for (const std::string& step : result.trace) fmt::print("  {:3} {}\n", ++number, step);
  return result;
}

int RunConfiguration(std::string_view name) {
  const Configuration* configuration = FindConfiguration(name);
  if (configuration == nullptr) {
    fmt::print(stderr, "model: no configuration '{}'; see --list\n", name);
    return 2;
  }
  const SearchResult result = Run(name, *configuration, kStatesMax);
  return result.finding == Finding::kNone && result.is_complete ? 0 : 1;
}

int RunMutation(std::string_view name) {
  const MutationCase* mutation = FindMutationCase(name);
  if (mutation == nullptr) {
    fmt::print(stderr, "model: no mutation '{}'; see --list\n", name);
    return 2;
  }
  const SearchResult result = Run(name, mutation->configuration, mutation->states_max);
  const auto trace_steps = static_cast<int>(result.trace.size());
  if (result.finding == mutation->finding && trace_steps <= mutation->trace_steps_max) return 0;
  fmt::print("model: wanted a {} within {} steps\n", FindingName(mutation->finding),
             mutation->trace_steps_max);
  return 1;
}

int List() {
  for (const Configuration& c : Configurations()) fmt::print("--configuration={}\n", c.name);
  for (const MutationCase& m : MutationCases()) fmt::print("--mutation={}\n", m.name);
  return 0;
}

int Main(int argc, char** argv) {
  const std::string_view argument = argc == 2 ? argv[1] : "";
  if (argument == "--list") return List();
  if (argument.starts_with(kConfigurationFlag))
    return RunConfiguration(argument.substr(kConfigurationFlag.size()));
  if (argument.starts_with(kMutationFlag))
    return RunMutation(argument.substr(kMutationFlag.size()));
  fmt::print(stderr, "model: wants one argument; see the head of tests/model/model_main.cc\n");
  return 2;
}

}  // namespace
}  // namespace pando::model

int main(int argc, char** argv) { return pando::model::Main(argc, argv); }
