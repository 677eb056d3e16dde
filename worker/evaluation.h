// Evaluation evaluates a slice of the test set at a pinned version, for the scheduler (P31). It
// pulls the version's parameters for compute and reports the result. It has one version at a time.
// Threads: none.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "proto/view_member.h"
#include "train/compute_port.h"

namespace pando {

// The session, as its evaluation calls it.
class EvaluationPort {
 public:
  virtual ~EvaluationPort() = default;
  // Pulls these shards of a version. Evaluation pulls lost ones again later.
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
    Micros put_off{0};        // how long arriving parameters delay the next pull
    bool is_layered = false;  // compute asks for the parameters that it wants
  };
  // `compute`, `member` and `port` outlive it.
  Evaluation(const Options& options, ComputePort& compute, ViewMember& member, EvaluationPort& port)
      : options_(options), compute_(compute), member_(member), port_(port) {}

  void EnterView(Micros now) {
    if (!task_) return;
    task_->ask_at = now;
    task_->interval = Micros(0);
  }
  void Forget() { task_.reset(); }
  void OnEvaluate(Micros now, const Evaluate& request) {
    if (request.first_sample > request.last_sample) return;
    if (request.last_sample > options_.test_samples) return;
    if (!IsAbout(request.version)) {
      if (task_) port_.OnCalledOff(task_->version);
      // With layer residency nothing is pulled before it is wanted.
      const std::vector<bool> arrived(options_.shard_count, options_.is_layered);
      task_ = Task{.version = request.version, .arrived = arrived, .ask_at = now};
    }
    if (task_->last_result && task_->last_result->slice == request.slice) {
      Report();
    } else if (!task_->request || task_->request->slice != request.slice) {
      task_->request = request;
      compute_.EvaluateSlice(request);
    }
  }
  void OnEvaluationResult(const EvaluationResult& result) {
    if (!IsAbout(result.version)) return;
    task_->request.reset();
    task_->last_result = result;
    Report();
  }
  // Gives parameters to compute if it needs them. While some arrive, the others may be on their
  // way. REQUIRES: the item has the size of its shard's values.
  void OnParams(Micros now, const ParamsItem& item) {
    if (!IsAbout(item.version)) return;
    task_->ask_at = std::max(task_->ask_at, now + options_.put_off);
    if (item.form != ParamsForm::kExact || task_->arrived[item.shard.value()]) return;
    task_->arrived[item.shard.value()] = true;
    compute_.EvaluationParametersArrived(item.shard, item.version, item.payload);
  }
  // The parameters of this version do not arrive any more.
  void OnGone(Version version) {
    if (!IsAbout(version)) return;
    port_.OnCalledOff(version);
    task_->request.reset();
  }
  // Sends the last result, if there is one that may be reported.
  void Report() {
    if (!task_ || !task_->last_result || !port_.MayReport(*task_->last_result)) return;
    member_.SendToScheduler(*task_->last_result);
  }

  void Tick(Micros now) {
    if (now < NextDeadline()) return;
    std::vector<PullItem> missing;
    for (uint32_t s = 0; s < task_->arrived.size(); ++s) {
      if (!task_->arrived[s]) missing.push_back({ShardId(s), task_->version});
    }
    if (!missing.empty()) port_.Pull(now, missing);
    task_->interval = std::clamp(2 * task_->interval, kRetryFirst, options_.retry_max);
    task_->ask_at = missing.empty() ? kNever : now + task_->interval;
  }
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
