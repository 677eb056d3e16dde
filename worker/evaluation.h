// Evaluation: a slice of the test set at a pinned version, for the scheduler (P31). Pulls the
// version's parameters for compute and reports the result. One version at a time. Used by Session
// and GroupSession. Threads: none.
#pragma once

#include <optional>
#include <vector>

#include "proto/view_member.h"
#include "train/compute_port.h"

namespace pando {

// What a session does for its evaluation.
class EvaluationPort {
 public:
  virtual ~EvaluationPort() = default;
  // Pulls these shards of a version; what is lost is pulled again later.
  virtual void Pull(Micros now, const std::vector<PullItem>& items) = 0;
  // Another version is evaluated, or this one's parameters are gone.
  virtual void OnCalledOff(Version version) = 0;
  virtual bool MayReport(const EvaluationResult& result) const = 0;
};

class Evaluation {
 public:
  static constexpr Micros kRetryFirst = std::chrono::milliseconds(500);

  struct Options {
    uint64_t test_samples = 0;
    size_t shard_count = 0;
    Micros retry_max = kRetryFirst;
    Micros put_off{0};        // a pull, while parameters come
    bool is_layered = false;  // compute says itself which parameters it wants
  };
  // `compute`, `member` and `port` outlive it.
  Evaluation(const Options& options, ComputePort& compute, ViewMember& member, EvaluationPort& port)
      : options_(options), compute_(compute), member_(member), port_(port) {}

  void EnterView(Micros now);
  void Forget() { task_.reset(); }
  void OnEvaluate(Micros now, const Evaluate& request);
  void OnEvaluationResult(const EvaluationResult& result);
  // Parameters that compute needs are handed to it. While some come, the others may be on their
  // way. REQUIRES: the item has the size of its shard's values.
  void OnParams(Micros now, const ParamsItem& item);
  // The parameters of this version do not arrive any more.
  void OnGone(Version version);
  // Sends the last result, if there is one that may be reported.
  void Report();

  void Tick(Micros now);
  Micros NextDeadline() const { return is_running() ? task_->ask_at : kNever; }

  bool IsAbout(Version version) const { return task_ && task_->version == version; }
  bool is_running() const { return task_ && task_->request; }

 private:
  struct Task {
    Version version;
    std::vector<bool> arrived;  // by shard
    std::optional<Evaluate> request;
    std::optional<EvaluationResult> last_result;
    Micros ask_at{0};
    Micros interval{0};
  };

  const Options options_;
  ComputePort& compute_;
  ViewMember& member_;
  EvaluationPort& port_;
  std::optional<Task> task_;
};

}  // namespace pando
