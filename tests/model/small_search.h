// SearchStates: the search of a small model, whose states and steps fit into one file. Used by the
// models beside the one in model.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/model/configuration.h"

namespace pando::model {

template <class State>
struct Step {
  std::string name;
  State next;
  bool is_repeated;  // it happens in the end, if nothing else does
};

template <class State>
struct Reached {
  std::map<State, size_t> numbers;                   // in the order in which they are found
  std::vector<State> states;                         // by number
  std::vector<std::pair<size_t, std::string>> from;  // the state before, and the step
  std::vector<std::vector<size_t>> repeated_from;    // those that a repeated step leads here

  // Returns the state's number. `before` and `name`: how it was reached.
  size_t Add(const State& state, size_t before, const std::string& name) {
    const auto [it, is_new] = numbers.try_emplace(state, states.size());
    if (is_new) {
      states.push_back(state);
      from.emplace_back(before, name);
      repeated_from.emplace_back();
    }
    return it->second;
  }

  void PrintTrace(size_t at, const std::string& last) const {
    std::vector<std::string> names{last};
    for (; at != 0; at = from[at].first) names.push_back(from[at].second);
    std::reverse(names.begin(), names.end());
    for (const std::string& name : names) std::printf("  %s\n", name.c_str());
  }
};

// True if a step breaks an invariant; prints the steps to it.
template <class Model, class State = typename Model::State>
bool FindBroken(const Model& model, Reached<State>& reached) {
  reached.Add(State(), 0, "");
  for (size_t i = 0; i < reached.states.size(); ++i) {
    const State state = reached.states[i];
    for (const Step<State>& step : model.Steps(state)) {
      if (Model::IsBroken(state, step.next)) {
        reached.PrintTrace(i, step.name);
        return true;
      }
      const size_t next = reached.Add(step.next, i, step.name);
      if (step.is_repeated) reached.repeated_from[next].push_back(i);
    }
  }
  return false;
}

// True if repeated steps alone do not lead from each state to a done one; prints the steps to it.
template <class Model, class State = typename Model::State>
bool FindHang(const Reached<State>& reached) {
  std::vector<bool> is_safe(reached.states.size());
  std::vector<size_t> queue;
  const auto add = [&](size_t at) {
    if (!is_safe[at]) queue.push_back(at);
    is_safe[at] = true;
  };
  for (size_t i = 0; i < reached.states.size(); ++i) {
    if (Model::IsDone(reached.states[i])) add(i);
  }
  while (!queue.empty()) {
    const size_t at = queue.back();
    queue.pop_back();
    for (const size_t before : reached.repeated_from[at]) add(before);
  }
  const auto hang = std::ranges::find(is_safe, false);
  if (hang == is_safe.end()) return false;
  reached.PrintTrace(static_cast<size_t>(hang - is_safe.begin()), "... for ever");
  return true;
}

// Visits each state that the model can reach, breadth first. Prints what it finds, with a shortest
// trace. Model has State, Steps(), and statically IsBroken(before, after) and IsDone().
template <class Model>
Finding SearchStates(const Model& model, const char* broken, const char* hung) {
  Reached<typename Model::State> reached;
  const bool is_broken = FindBroken(model, reached);
  const bool is_hung = !is_broken && FindHang<Model>(reached);
  std::printf("%zu states\n", reached.states.size());
  if (is_broken || is_hung) std::printf("%s\n", is_broken ? broken : hung);
  return is_broken ? Finding::kLoss : is_hung ? Finding::kHang : Finding::kNone;
}

// A rule that --mutation=NAME leaves out, and what that causes.
template <class Rule>
struct NamedMutation {
  std::string_view name;
  Rule left_out;
  Finding finding;
};

// The main function of a model: searches it with all rules, or without the one of --mutation=NAME.
// Returns 0 if it finds what it should. Model(left_out); Rule::kAll: none.
template <class Model, class Rule, size_t kCount>
int SearchAsAsked(int argc, char** argv, const std::array<NamedMutation<Rule>, kCount>& mutations,
                  const char* broken, const char* hung) {
  const std::string_view argument = argc > 1 ? argv[1] : "";
  const auto mutation = std::ranges::find_if(mutations, [&](const NamedMutation<Rule>& m) {
    return argument == "--mutation=" + std::string(m.name);
  });
  const bool is_mutated = mutation != mutations.end();
  if (!argument.empty() && !is_mutated) {
    std::fprintf(stderr, "%s: unknown argument %s\n", argv[0], argv[1]);
    return 2;
  }
  const Finding finding =
      SearchStates(Model(is_mutated ? mutation->left_out : Rule::kAll), broken, hung);
  return finding == (is_mutated ? mutation->finding : Finding::kNone) ? 0 : 1;
}

}  // namespace pando::model
