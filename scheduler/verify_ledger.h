// VerifyLedger compares what two workers of one kind make of the same micro-batch (P40, P41). Used
// by the scheduler core alone. Threads: none.
//
// Of a step that is made, each micro-batch that the job verifies is settled once two workers agree,
// or the second has none to give, or there is no second one, or nobody has spoken for a while.
// Steps are settled in order. What was said of a settled one is remembered for as long: a worker
// whose shards counted may be late with its word.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/job_plan.h"
#include "proto/outbox.h"
#include "scheduler/journal.h"

namespace pando {

class VerifyLedger {
 public:
  static constexpr size_t kEntriesMax = 1 << 16;
  // How long after a step is made a second opinion of it is waited for.
  static constexpr Micros kPatience = std::chrono::seconds(2);

  explicit VerifyLedger(const JobPlan& plan) : plan_(plan) {}  // `plan` outlives the ledger

  // What a worker made of a micro-batch.  Returns the dispute if another of its kind made something
  // else; its generation is left to the caller.
  std::optional<Dispute> OnReport(Step step, MicroBatch micro_batch, const Opinion& opinion);
  // A third worker's word of this micro-batch is waited for.
  void AwaitJudge(Step step, MicroBatch micro_batch) {
    entries_[{step, micro_batch}].is_judged = true;
  }
  // There is nothing more to say of this micro-batch. `is_agreed`: two workers made the same of it.
  void Settle(Step step, MicroBatch micro_batch, bool is_agreed);
  using WorkerCounts = std::map<uint64_t, uint32_t>;  // by probe hash
  void Advance(Micros now, Version committed, const WorkerCounts& workers);
  // Steps below are settled.
  Step settled_below() const { return below_; }
  void StartGeneration(Step first);

  // For the journal; the dispute is the caller's.
  VerificationState State() const;
  // Goes on where an earlier life was.  REQUIRES: nothing has been reported yet.
  void Resume(const VerificationState& state);

 private:
  struct Entry {
    std::vector<Opinion> opinions;  // of different workers
    bool is_judged = false;         // a judge's word alone settles it
    bool is_settled = false;
    bool is_agreed = false;
    bool is_unverified = false;  // counted as such
  };
  void Agree(Entry& entry);
  bool IsSettled(Step step, const WorkerCounts& workers) const;
  bool HasSecond(const Entry& entry, const WorkerCounts& workers) const;
  void Count(Step step);

  const JobPlan& plan_;
  std::map<std::pair<Step, MicroBatch>, Entry> entries_;  // of steps from kept_from_ on
  Step below_;
  Step kept_from_;                                  // <= below_
  std::deque<std::pair<Micros, Version>> history_;  // what was committed when, of late
  uint64_t agreed_count_ = 0;
  uint64_t unverified_count_ = 0;
  // Silence about steps below this one is no news: an earlier life may have settled them.
  Step counted_from_;
  bool has_resumed_ = false;  // and has not heard yet what is committed
};

}  // namespace pando
