// SchedulerOptions has what a scheduler's process knows about its run when it starts the core.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "proto/view_seal.h"
#include "scheduler/journal.h"
#include "scheduler/scheduler_place.h"

namespace pando {

struct SchedulerOptions {
  PeerId self;
  JobId job;
  std::string job_toml;
  std::string snapshot_dir;    // sent to every node; empty: the run stores no snapshots
  std::string files_endpoint;  // sent to every node (P45)
  // All schedulers of the run, at most kSchedulersMax, which members dial. The process changes the
  // list when standbys come and go. It outlives the scheduler; null: there is only this one.
  const std::vector<SchedulerPlace>* schedulers = nullptr;
  Micros started_at{0};                 // when the job began, on the machine's steady clock
  Step next_row;                        // OnStepMetrics continues from here
  std::optional<SchedulerState> state;  // the journal's state, if there is one
  // `pando resume`: no earlier member lives. A new generation begins from a kept snapshot, or from
  // version 0 if there is none.
  bool is_resumed = false;
  Micros stop_grace = std::chrono::milliseconds(500);
  ViewSeal* seal = nullptr;  // outlives the scheduler; null: the run has no keys
};

}  // namespace pando
