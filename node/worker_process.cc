// `pando worker`: computing threads behind a mailbox, one protocol thread in the loop, heartbeats.
#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "common/system.h"
#include "job/batch_check.h"
#include "job/device_choice.h"
#include "net/zmq/isolation_signal.h"
#include "node/gpu_monitor.h"
#include "node/group_worker.h"
#include "node/log.h"
#include "node/node_join.h"
#include "node/processes.h"
#include "node/remote_files.h"
#include "node/run_model.h"
#include "node/session_worker.h"
#include "node/timeline/member_timeline.h"
#include "train/bit_flip.h"
#include "train/probe.h"
#include "train/trainer.h"

namespace pando {
namespace {

template <class AnySession>  // a Session or a GroupSession
Heartbeat HeartbeatContent(const AnySession& session, const Trainer& trainer, const GpuState& gpu,
                           Micros now) {
  Heartbeat content = session.CurrentActivity(now);
  content.micro_batch_us = trainer.micro_batch_us();
  content.data_stall_us = trainer.data_stall_us();
  content.samples_wait_ms = trainer.samples_wait_ms();
  content.exposed_sync_us = trainer.exposed_sync_us();
  content.gpu_memory_bytes = gpu.memory_used_bytes;
  content.gpu_percent = gpu.utilisation_percent;
  return content;
}

// `gpu_free_bytes`: free GPU memory at the end, while the worker still has its part.
Result<MembershipEnd> RunWithServers(const WorkerParts& parts, SumLines& sum_lines,
                                     const auto& tell, uint64_t* gpu_free_bytes) {
  ComputeNewsBox news;
  Trainer trainer(parts.trainer, parts.thread_count, news.sink(),
                  parts.trainer.plan.job.parameter_residency);
  SessionWorker worker({.transport = parts.transport,
                        .shutdown = parts.shutdown,
                        .heartbeat = parts.heartbeat,
                        .membership = parts.membership,
                        .plan = parts.trainer.plan,
                        .computer = trainer,
                        .news = news,
                        .sum_lines = sum_lines,
                        .buffers = parts.trainer.buffers,
                        .ready = parts.ready,
                        .timeline = parts.trainer.timeline,
                        .protocol = parts.trainer.protocol});
  Result<MembershipEnd> end =
      worker.Run([&](const Session& session, Micros now) { tell(session, trainer, now); });
  trainer.Stop();
  *gpu_free_bytes = trainer.gpu_free_bytes();
  return end;
}

class WorkerProcess {
 public:
  explicit WorkerProcess(const WorkerArgs& args) : args_(args) {}
  Result<int> Run();

 private:
  struct Prepared {  // what the job's work needs on this machine
    OpenedDevice device;
    std::unique_ptr<DataSet> data;
    Model model;
    JobPlan plan;
    uint64_t probe_hash = 0;
    uint64_t gpu_free_bytes = 0;  // at its opening; 0 on a CPU
  };
  Result<MembershipEnd> Work(Membership& membership);
  Status PrepareFor(const Membership& membership);
  Result<Prepared> Open(const Membership& membership);
  Result<MembershipEnd> Train(const Membership& membership, HeartbeatSender& heartbeat);
  Status CheckData(const Membership& membership, const DataSet& data) const;
  OnMapped OnMappedForGpu() const;
  void LogGpuMemory(uint64_t free_bytes) const;

  const WorkerArgs& args_;
  ShutdownSignal shutdown_;
  ZmqContext context_{args_.keys, LogWarning};
  IsolationSignal isolation_{context_};
  Transport transport_{
      context_, {kUnknownNode, {}, 0}, {.insecure = args_.insecure, .on_warning = LogWarning}};
  SumLines sum_lines_{transport_};
  std::string prepared_for_;            // the job's text
  std::unique_ptr<Prepared> prepared_;  // kept for the next membership
};

Result<int> WorkerProcess::Run() {
  SetFloatEnvironment();
  TakeShortTimeSlices();  // this thread, ZeroMQ's, and those that send
  KeepFreedMemory();
  JoiningProcess process{.transports = {&transport_},
                         .registration = DescribeProcess(Role::kWorker, args_.wanted_rank),
                         .scheduler_endpoint = args_.join,
                         .timeout_ms = args_.start_timeout_ms,
                         .shutdown = shutdown_,
                         .is_verbose = args_.is_verbose};
  PANDO_ASSIGN_OR_RETURN(const Labels labels, ParseLabels(args_.labels));
  PANDO_RETURN_IF_ERROR(sum_lines_.ListenForRack(labels.rack, args_.bind, &process));
  return RunMember(
      process, [this](Membership& membership) { return Work(membership); },
      [this] { sum_lines_.Close(); });
}

// Failures here are reported to the scheduler, so that it knows the cause.
Result<MembershipEnd> WorkerProcess::Work(Membership& membership) {
  ArmBitFlip(membership.rank);
  HeartbeatSender heartbeat(context_, HeartbeatOptions(membership),
                            {.job = membership.job_id, .scheduler = membership.scheduler});
  PANDO_RETURN_IF_ERROR(heartbeat.Start());
  if (!args_.data_path.empty()) membership.job.data_path = args_.data_path;
  if (!args_.data_cache.empty()) membership.job.data_cache = args_.data_cache;
  if (args_.threads != 0) membership.job.threads = args_.threads;
  const Status status = PrepareFor(membership);
  if (status.ok()) return Train(membership, heartbeat);
  if (status.code() != StatusCode::kInterrupted) TellScheduler(transport_, membership, 0, status);
  return status;
}

Status WorkerProcess::PrepareFor(const Membership& membership) {
  if (prepared_ && prepared_for_ == membership.job_toml) return Status();
  prepared_.reset();
  PANDO_ASSIGN_OR_RETURN(Prepared prepared, Open(membership));
  const Device device = prepared.device.device();
  PANDO_ASSIGN_OR_RETURN(prepared.probe_hash,
                         ProbeHash(prepared.plan, prepared.model, *prepared.data, device));
  // This comes after the probe, which makes NVIDIA's libraries load their kernels.
  prepared.gpu_free_bytes = prepared.device.gpu ? ReadRoom(device).free_bytes : 0;
  spdlog::info("computes on {}", prepared.device.kind);
  prepared_ = std::make_unique<Prepared>(std::move(prepared));
  prepared_for_ = membership.job_toml;
  return Status();
}

Result<WorkerProcess::Prepared> WorkerProcess::Open(const Membership& membership) {
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<DataSet> data, OpenDataSet(membership.job, LogWarning));
  PANDO_RETURN_IF_ERROR(CheckData(membership, *data));
  PANDO_ASSIGN_OR_RETURN(Model model, CreateModel(membership));
  JobPlan plan(membership.job, membership.data, model.layout());
  if (plan.job.strategy == Strategy::kAllreduce)  // its rank 0 serves
    PANDO_RETURN_IF_ERROR(ReadRunStart(context_, membership, shutdown_.fd(),
                                       std::chrono::milliseconds(args_.start_timeout_ms), &plan));
  PANDO_ASSIGN_OR_RETURN(OpenedDevice device, OpenDevice(args_.device, membership.job, LogEngine));
  PANDO_RETURN_IF_ERROR(CheckDeviceMemory(device.device(), plan, model));
  return Prepared{.device = std::move(device),
                  .data = std::move(data),
                  .model = std::move(model),
                  .plan = std::move(plan)};
}

// P38. The scheduler checks too, but only this process can name the files.
Status WorkerProcess::CheckData(const Membership& membership, const DataSet& data) const {
  const Job& job = membership.job;
  const uint64_t here = data.sample_count(Split::kTrain);
  const char* what_to_do = "give every machine the same files";
  if (here != membership.data.train_samples || data.shape() != membership.data.shape) {
    return InvalidArgument(
        fmt::format("{} at {} has {} training samples here and {} at the scheduler; {}",
                    job.dataset, job.data_path, here, membership.data.train_samples, what_to_do));
  }
  if (data.fingerprint() == membership.data.fingerprint) return Status();
  return InvalidArgument(fmt::format("{} at {} holds other data than the scheduler reads; {}",
                                     job.dataset, job.data_path, what_to_do));
}

Result<MembershipEnd> WorkerProcess::Train(const Membership& membership,
                                           HeartbeatSender& heartbeat) {
  const JobPlan& plan = prepared_->plan;
  const bool has_servers = plan.job.strategy != Strategy::kAllreduce;
  Result<BufferSource> buffers = has_servers ? PrepareLines(plan.job, transport_, OnMappedForGpu())
                                             : Result<BufferSource>(BufferSource());
  if (!buffers.ok()) {
    TellScheduler(transport_, membership, 0, buffers.status());
    return buffers.status();
  }
  const MemberTimeline timeline(context_, membership, Role::kWorker);
  const WorkerParts parts{.context = context_,
                          .transport = transport_,
                          .shutdown = shutdown_,
                          .heartbeat = heartbeat,
                          .membership = membership,
                          .start_timeout_ms = args_.start_timeout_ms,
                          .trainer = {.plan = plan,
                                      .model = prepared_->model,
                                      .data = *prepared_->data,
                                      .device = prepared_->device.device(),
                                      .timeline = timeline.get(),
                                      .protocol = timeline.OpenTrack("protocol"),
                                      .buffers = *buffers},
                          .thread_count = prepared_->device.threads(membership.job),
                          .ready = {.kind = prepared_->device.kind,
                                    .probe_hash = prepared_->probe_hash,
                                    .data_fingerprint = prepared_->data->fingerprint()}};
  const std::optional<OpenedGpu>& gpu = prepared_->device.gpu;
  GpuMonitor gpu_monitor(gpu ? gpu->bus_id() : "");
  Version known;  // known to be committed
  const auto tell = [&](const auto& session, const Trainer& trainer, Micros now) {
    heartbeat.Update(MakeHeartbeat(membership.job_id, session,
                                   HeartbeatContent(session, trainer, gpu_monitor.Read(), now),
                                   transport_, now));
    if (session.known_everywhere() == known) return;
    known = session.known_everywhere();
    // While no scheduler writes metrics, only this line shows the steps (pando bench recovery).
    spdlog::debug("version {} committed, at {} us", known.value(), now.count());
  };
  if (!has_servers) {
    Result<MembershipEnd> end = GroupWorker(parts).Run(tell);
    timeline.Close(shutdown_.fd());
    return end;
  }
  uint64_t gpu_free_bytes = 0;
  Result<MembershipEnd> end = RunWithServers(parts, sum_lines_, tell, &gpu_free_bytes);
  timeline.Close(shutdown_.fd());
  if (gpu) LogGpuMemory(gpu_free_bytes);
  return end;
}

// Lets the GPU read parameters where the servers of its host have put them.
OnMapped WorkerProcess::OnMappedForGpu() const {
  if (!prepared_->device.gpu) return {};
  return [this](std::span<const std::byte> memory) {
    return prepared_ ? PinHost(prepared_->device.device(), memory, HostPin::kReadOnly) : nullptr;
  };
}

// Kernels that NVIDIA's libraries load late, and other processes, count as ours.
void WorkerProcess::LogGpuMemory(uint64_t free_bytes) const {
  const Device device = prepared_->device.device();
  const GpuMemoryPlan planned = PlanGpuMemory(device, prepared_->plan, prepared_->model,
                                              prepared_->plan.steps.micro_batch_samples_max());
  spdlog::info("GPU memory: planned {} bytes, took {}", planned.total(),
               prepared_->gpu_free_bytes - std::min(free_bytes, prepared_->gpu_free_bytes));
}

}  // namespace

int RunWorker(const WorkerArgs& args) { return ExitWith(WorkerProcess(args).Run()); }

}  // namespace pando
