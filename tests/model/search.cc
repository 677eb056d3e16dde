#include "tests/model/search.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "common/check.h"
#include "common/hash.h"
#include "tests/model/model.h"

namespace pando::model {
namespace {

constexpr uint32_t kNoState = 0xffffffffu;

// The states found, each once, by index in the order of finding.
class StateSet {
 public:
  StateSet() : slots_(1 << 16, kNoState) {}

  uint32_t size() const { return static_cast<uint32_t>(states_.size()); }
  const State& operator[](uint32_t index) const { return states_[index]; }

  uint32_t Insert(const State& state) {
    if (states_.size() * 2 > slots_.size()) Grow();
    uint32_t& slot = SlotFor(state);
    if (slot == kNoState) {
      slot = size();
      states_.push_back(state);
    }
    return slot;
  }

 private:
  uint32_t& SlotFor(const State& state) {
    size_t i = Hash64(std::as_bytes(std::span(&state, 1))) & (slots_.size() - 1);
    while (slots_[i] != kNoState && std::memcmp(&states_[slots_[i]], &state, sizeof state) != 0)
      i = (i + 1) & (slots_.size() - 1);
    return slots_[i];
  }

  void Grow() {
    slots_.assign(slots_.size() * 2, kNoState);
    for (uint32_t index = 0; index < size(); ++index) SlotFor(states_[index]) = index;
  }

  std::vector<State> states_;
  std::vector<uint32_t> slots_;  // open addressing, a power of two of them
};

class BreadthFirst {
 public:
  BreadthFirst(const Configuration& configuration, size_t states_max)
      : configuration_(configuration), model_(configuration), states_max_(states_max) {}

  SearchResult Run() {
    Visit(model_.Initial(), kNoState);
    result_.is_complete = Expand();
    if (result_.finding == Finding::kNone) FindHang();
    result_.state_count = states_.size();
    return std::move(result_);
  }

 private:
  uint32_t Visit(const State& state, uint32_t parent) {
    const uint32_t index = states_.Insert(state);
    if (index == parents_.size()) parents_.push_back(parent);
    return index;
  }

  // False where it stopped before every state was expanded.
  bool Expand() {
    Steps steps;
    for (uint32_t i = 0; i < states_.size(); ++i) {
      const State state = states_[i];
      result_.view_count_max = std::max<int>(result_.view_count_max, state.view_count);
      if (const auto violation = model_.Violation(state)) {
        result_.finding = Finding::kLoss;
        result_.what = *violation;
        result_.trace = TraceTo(i);
        return false;
      }
      model_.Successors(state, &steps);
      first_edge_.push_back(repeated_.size());
      result_.edge_count += steps.all().size();
      for (const Step& step : steps.all()) {
        const uint32_t next = Visit(step.next, i);
        if (step.edge == Edge::kRepeated && next != i) repeated_.push_back(next);
      }
      if (states_.size() > states_max_) return false;
    }
    return true;
  }

  // I7, backwards from the finished states along repeated edges. Sweeps from the newest state to
  // the oldest, since most edges lead to newer ones. States that were not expanded count as good.
  void FindHang() {
    const auto expanded = static_cast<uint32_t>(first_edge_.size());
    first_edge_.push_back(repeated_.size());
    std::vector<bool> reaches_end(states_.size(), true);
    for (uint32_t i = 0; i < expanded; ++i) reaches_end[i] = model_.IsFinished(states_[i]);
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (uint32_t i = expanded; i-- > 0;) {
        if (reaches_end[i] || !LeadsTo(reaches_end, i)) continue;
        reaches_end[i] = true;
        has_changed = true;
      }
    }
    const auto hang = std::find(reaches_end.begin(), reaches_end.end(), false);
    if (hang == reaches_end.end()) return;
    result_.finding = Finding::kHang;
    result_.what = "I7: the last step cannot be reached from here";
    result_.trace = TraceTo(static_cast<uint32_t>(hang - reaches_end.begin()));
  }

  bool LeadsTo(const std::vector<bool>& wanted, uint32_t index) const {
    for (size_t edge = first_edge_[index]; edge < first_edge_[index + 1]; ++edge)
      if (wanted[repeated_[edge]]) return true;
    return false;
  }

  std::vector<std::string> TraceTo(uint32_t index) {
    std::vector<std::string> trace;
    Steps steps(/*is_describing=*/true);
    for (; parents_[index] != kNoState; index = parents_[index]) {
      model_.Successors(states_[parents_[index]], &steps);
      const auto taken =
          std::find_if(steps.all().begin(), steps.all().end(), [&](const Step& step) {
            return std::memcmp(&step.next, &states_[index], sizeof(State)) == 0;
          });
      PANDO_CHECK(taken != steps.all().end());
      trace.push_back(taken->text + (taken->edge == Edge::kOnce ? "   [once]" : ""));
    }
    std::reverse(trace.begin(), trace.end());
    return trace;
  }

  const Configuration& configuration_;
  Model model_;
  const size_t states_max_;
  StateSet states_;
  std::vector<uint32_t> parents_;   // by state: the one it was first reached from
  std::vector<uint32_t> repeated_;  // edges, the states that they lead to
  std::vector<size_t> first_edge_;  // by expanded state: where its edges begin
  SearchResult result_;
};

}  // namespace

SearchResult Search(const Configuration& configuration, size_t states_max) {
  return BreadthFirst(configuration, states_max).Run();
}

}  // namespace pando::model
