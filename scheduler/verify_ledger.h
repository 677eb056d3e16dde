// VerifyLedger compares what two workers make of the same micro-batch (P41). Used by the scheduler
// core alone. Threads: none.
//
// Of a step that is made, each micro-batch that the job verifies is settled once two workers agree,
// or the second has none to give, or nobody has spoken for a while. Steps are settled in order. What
// was said of a settled one is remembered for as long: a worker whose shards counted may be late with
// its word.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/job_plan.h"
#include "proto/outbox.h"

namespace pando {

class VerifyLedger {
 public:
  static constexpr size_t kEntriesMax = 1 << 16;
  // How long after a step is made a second opinion of it is waited for.
  static constexpr Micros kPatience = std::chrono::seconds(2);

  explicit VerifyLedger(const JobPlan& plan) : plan_(plan) {}  // `plan` outlives the ledger

  struct Opinion {
    NodeId worker;
    std::string name;  // "worker 1 (process 123 on host)": known when the worker has left, too
    uint64_t hash = 0;
  };
  struct Dispute {
    Step step;
    MicroBatch micro_batch;
    Opinion first;
    Opinion second;
  };
  // What a worker made of a micro-batch.  Returns the dispute if another made something else.
  std::optional<Dispute> OnReport(Step step, MicroBatch micro_batch, const Opinion& opinion);
  // There is nothing more to say of this micro-batch.
  void Settle(Step step, MicroBatch micro_batch);
  // `has_second`: there are two workers.
  void Advance(Micros now, Version committed, bool has_second);
  // Steps below are settled.
  Step settled_below() const { return below_; }
  void StartGeneration(Step first);

 private:
  struct Entry {
    std::vector<Opinion> opinions;  // of different workers
    bool is_settled = false;
  };
  bool IsSettled(Step step) const;

  const JobPlan& plan_;
  std::map<std::pair<Step, MicroBatch>, Entry> entries_;  // of steps from kept_from_ on
  Step below_;
  Step kept_from_;  // <= below_
  std::deque<std::pair<Micros, Version>> history_;  // what was committed when, of late
};

}  // namespace pando
