// MemoryJournal: the scheduler's journal on a disk that outlives its schedulers, in memory.
#pragma once

#include <optional>

#include "scheduler/journal.h"

namespace pando::sim {

class MemoryJournal : public Journal {
 public:
  bool Commit(const SchedulerState& state) override {
    if (state_ && state_->term > state.term) return false;
    state_ = state;
    return true;
  }
  const std::optional<SchedulerState>& state() const { return state_; }

 private:
  std::optional<SchedulerState> state_;
};

}  // namespace pando::sim
