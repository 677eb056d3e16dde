// Chaos means the faults that `pando train --chaos` injects into the processes of its run. Its text
// has entries between semicolons:
//
//   entry    = action target [duration] ("at step" N | "every" duration)
//            | "random" [":" SEED [":" duration]]     every 2 s on average, or so often; the seed
//                                                     is drawn if none is given
//   action   = "kill" | "stop" | "partition"          the last two need a duration
//   target   = ("worker" | "server") [N] | "scheduler" | "workers" | "servers" | "all"
//   duration = "2s", "250ms", "1.5s", "3m"
//
// ParseChaos reads it, ChaosSchedule says when a fault is due, node/fleet/local_run injects it.
#pragma once

#include <array>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/philox.h"
#include "common/result.h"
#include "common/text.h"
#include "proto/outbox.h"

namespace pando {

// The same for --help.
inline constexpr const char* kChaosHelp =
    "--chaos takes entries between semicolons:\n"
    "  kill TARGET WHEN | stop TARGET DURATION WHEN | partition TARGET DURATION WHEN\n"
    "  random | random:SEED | random:SEED:DURATION    a fault every 2 s, or DURATION, on average;\n"
    "            without a seed one is drawn and printed\n"
    "  TARGET    worker | worker N | server | server N | scheduler | workers | servers | all\n"
    "  WHEN      at step N | every DURATION\n"
    "  DURATION  250ms, 1.5s, 3m; at most an hour\n";

enum class ChaosAction : uint8_t { kKill, kStop, kPartition };
template <>
inline constexpr auto kEnumNames<ChaosAction> = std::to_array({"kill", "stop", "partition"});

enum class ChaosTarget : uint8_t { kWorker, kServer, kScheduler, kWorkers, kServers, kAll };
template <>
inline constexpr auto kEnumNames<ChaosTarget> = std::to_array({"worker", "server", "scheduler",
                                                               "workers", "servers", "all"});

struct ChaosEntry {
  std::string text;  // as typed, for people
  ChaosAction action = ChaosAction::kKill;
  ChaosTarget target = ChaosTarget::kWorker;
  std::optional<uint32_t> index;  // for kWorker and kServer; none: each in turn
  Micros duration{0};             // for kStop and kPartition
  std::optional<Step> step;       // due once, when it is the lowest incomplete step
  Micros interval{0};             // otherwise due each time this has passed
};
struct RandomChaos {
  uint64_t seed = 0;
  Micros mean_interval = std::chrono::seconds(2);
};
// The run into which the faults are injected.
struct ChaosField {
  uint32_t worker_count = 0;
  uint32_t server_count = 0;
  uint64_t step_count = 0;
  uint64_t first_step = 0;  // the first step of a resumed run
};
struct ChaosPlan {
  std::vector<ChaosEntry> entries;
  std::optional<RandomChaos> random;
  ChaosField field;
  bool is_empty() const { return entries.empty() && !random; }
};
// Errors name the entry and its fault: an unknown word, a target that the run does not have, a step
// past its end or before its beginning.
Result<ChaosPlan> ParseChaos(std::string_view text, const ChaosField& field);

// One fault to inject into one process.
struct ChaosAct {
  ChaosAction action = ChaosAction::kKill;
  std::string process;  // "worker-1", "scheduler"
  Micros duration{0};
};

// Threads: none.
class ChaosSchedule {
 public:
  explicit ChaosSchedule(ChaosPlan plan);

  // Returns the faults that are due. `now`: since the job began; `step`: the lowest incomplete one;
  // `running`: names of running processes. An entry whose target is being restarted waits for it.
  std::vector<ChaosAct> Due(Micros now, Step step, const std::set<std::string>& running);
  // Returns when a fault is due by time; kNever if all wait for steps.
  Micros NextDeadline() const;
  // Returns the entries that have never come due, as typed.
  std::vector<std::string> Unmet() const;

 private:
  struct Pending {
    ChaosEntry entry;
    Micros due_at{0};  // for entries that are due by time
    bool has_come = false;
  };
  using Names = std::vector<std::string>;

  bool IsDue(const Pending& pending, Micros now, Step step) const;
  Names FindTargets(const ChaosEntry& entry, const std::set<std::string>& running);
  Names InTurn(std::string_view prefix, uint32_t count, uint32_t* turn,
               const std::set<std::string>& running) const;
  void DrawGap();
  std::optional<ChaosAct> Draw(const std::set<std::string>& running);
  double NextUniform();  // in [0, 1)

  const ChaosField field_;
  std::vector<Pending> pending_;
  uint32_t worker_turn_ = 0;  // the next index for entries without one
  uint32_t server_turn_ = 0;
  std::optional<RandomChaos> random_;
  Micros random_at_{0};
  PhiloxKey key_{};
  uint32_t drawn_ = 0;  // random numbers drawn so far
};

}  // namespace pando
