// WorkerCore is the common base of Session and GroupSession. Evaluation is a part of both.
// Lifecycle and GradientReports repeat messages until the scheduler reacts. Threads: none.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "plan/job_plan.h"
#include "proto/protocol_core.h"
#include "proto/view_member.h"
#include "train/compute_port.h"

namespace pando {

// Lifecycle brings a worker into a run and out of it. It repeats Ready, Failure and Leave, and
// keeps the scheduler's Stop or Refused.
class Lifecycle {
 public:
  static constexpr Micros kRepeatInterval = std::chrono::milliseconds(200);

  // `compute` and `member` outlive it.
  Lifecycle(const Ready& ready, ComputePort& compute, ViewMember& member)
      : ready_(ready), compute_(compute), member_(member) {}

  // Acknowledges every Stop. The first one ends all work.
  void OnStop(const PeerId& from, const Stop& stop) {
    member_.Send(from, Bye{});
    if (!finished()) End(stop);
  }
  void OnRefused(const Refused& refused) {
    if (finished()) return;
    End({StopReason::kFailed, refused.reason});
    refusal_ = refused.kind;
  }
  void OnComputeFailed(const ComputeFailed& failed) {
    const StatusCode code = failed.status.code();
    const bool is_of_all = code == StatusCode::kInternal || code == StatusCode::kCorrupt;
    Fail({failed.status.message(), is_of_all ? FailureKind::kTraining : FailureKind::kMachine});
  }

  // Whether the view has this worker. Ready is repeated while it does not.
  void SetMember(bool is_member) { is_member_ = is_member; }
  // The worker cannot go on.
  void Fail(Failure failure) { failure_ = std::move(failure); }
  // The failure belongs to a generation that is over (P21).
  void ForgetFailure() { failure_.reset(); }
  // This process was asked to leave. It continues to work until the scheduler stops it.
  void Leave(Micros now) {
    is_leaving_ = true;
    report_at_ = now;
  }
  // The next report leaves at this time.
  void ReportAt(Micros at) { report_at_ = at; }

  void Tick(Micros now) {
    if (now < NextDeadline()) return;
    if (!is_member_) member_.SendToScheduler(ready_);
    if (failure_) member_.SendToScheduler(*failure_);
    if (is_leaving_) member_.SendToScheduler(pando::Leave{});
    report_at_ = now + kRepeatInterval;
  }
  Micros NextDeadline() const {
    return !is_member_ || failure_ || is_leaving_ ? report_at_ : kNever;
  }

  bool finished() const { return stop_.has_value(); }
  // How the scheduler ended the job.  REQUIRES: finished().
  const Stop& stop() const { return *stop_; }
  // How the scheduler refused this incarnation, if it did.
  const std::optional<RefusalKind>& refusal() const { return refusal_; }
  // Why the worker cannot go on, if it cannot.
  const std::optional<Failure>& failure() const { return failure_; }
  bool is_member() const { return is_member_; }
  bool is_leaving() const { return is_leaving_; }

 private:
  void End(Stop stop) {
    compute_.Abandon(Step(0));
    stop_ = std::move(stop);
  }

  const Ready ready_;
  ComputePort& compute_;
  ViewMember& member_;
  bool is_member_ = false;
  bool is_leaving_ = false;
  std::optional<Failure> failure_;
  Micros report_at_{0};
  std::optional<Stop> stop_;
  std::optional<RefusalKind> refusal_;
};

// The hashes of verified micro-batches (P41) that the scheduler does not know yet, gathered into
// messages.
class GradientReports {
 public:
  // While the scheduler is away, new hashes replace the oldest (I6).
  static constexpr size_t kReportsMax = 1 << 16;
  static constexpr size_t kReportsPerMessageMax = 4096;
  static constexpr Micros kGatherInterval = std::chrono::milliseconds(20);
  static constexpr Micros kRepeatInterval = std::chrono::milliseconds(200);

  // A hash of 0 says that none will come. It does not replace a hash.
  void Add(Micros now, const GradientHash& report) {
    const Micros due_at = now + kGatherInterval;
    due_at_ = hashes_.empty() ? due_at : std::min(due_at_, due_at);
    Report& known = hashes_[{report.step, report.micro_batch}];
    if (report.hash != 0) known = {report.hash, /*was_sent=*/false};
    if (hashes_.size() > kReportsMax) hashes_.erase(hashes_.begin());
  }
  // A step may be settled without our report. A report that was never sent is still sent.
  void Acknowledge(Step below) {
    std::erase_if(hashes_, [&](const auto& entry) {
      return entry.first.first < below && entry.second.was_sent;
    });
  }
  void Clear() { hashes_.clear(); }
  // The message that is due, if one is; it is due again after a while.
  std::optional<GradientHashes> TakeDue(Micros now) {
    if (now < NextDeadline()) return std::nullopt;
    due_at_ = now + kRepeatInterval;
    GradientHashes message;
    for (auto& [key, report] : hashes_) {
      if (message.items.size() == kReportsPerMessageMax) break;
      message.items.push_back({key.first, key.second, report.hash});
      report.was_sent = true;
    }
    return message;
  }
  Micros NextDeadline() const { return hashes_.empty() ? kNever : due_at_; }
  size_t size() const { return hashes_.size(); }

 private:
  struct Report {
    uint64_t hash = 0;
    bool was_sent = false;
  };
  std::map<std::pair<Step, MicroBatch>, Report> hashes_;
  Micros due_at_ = kNever;
};

// WorkerCore is what a worker's protocol core needs to belong to a run, with servers or without.
// Owns: its member and its Lifecycle.
class WorkerCore : public ProtocolCore {
 public:
  // This process was asked to leave. It repeats Leave until the scheduler stops it, and continues
  // to work meanwhile.
  void Leave(Micros now) { lifecycle_.Leave(now); }

  bool finished() const { return lifecycle_.finished(); }
  // How the run ended, or why it cannot go on.
  const Lifecycle& lifecycle() const { return lifecycle_; }
  // The current scheduler and view, for heartbeats.
  const PeerId& scheduler() const { return member_.scheduler(); }
  const View& view() const { return member_.view(); }
  // Whether this message brings a view that the core will enter: its members are dialed first.
  bool WillEnter(const Envelope& envelope) const {
    return member_.WillEnter(envelope) && Fits(std::get<ViewUpdate>(envelope.message).view);
  }

 protected:
  // `plan`, `compute` and `outbox` outlive the core. `ready`: repeated until a view has us.
  WorkerCore(const ViewMember::Identity& identity, const Ready& ready, const JobPlan& plan,
             ComputePort& compute, Outbox& outbox)
      : plan_(plan),
        compute_(compute),
        member_(identity, outbox),
        lifecycle_(ready, compute, member_) {}

  // Whether it is a view of this job's shards and micro-batches.
  bool Fits(const View& view) const {
    return view.shards.size() == plan_.shards.shard_count() &&
           view.owners.size() == plan_.job.micro_batches;
  }

  const JobPlan& plan_;
  ComputePort& compute_;
  ViewMember member_;
  Lifecycle lifecycle_;
};

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

// Evaluation evaluates a slice of the test set at a pinned version, for the scheduler (P31). It
// pulls the version's parameters for compute and reports the result. It has one version at a time.
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
