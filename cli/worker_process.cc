// `pando worker`: computing threads behind a mailbox, one protocol thread in the loop, heartbeats.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "cli/batch_check.h"
#include "cli/clock_probe.h"
#include "cli/device_choice.h"
#include "cli/exit_codes.h"
#include "cli/gpu_monitor.h"
#include "cli/group_worker.h"
#include "cli/host_lines.h"
#include "cli/log.h"
#include "cli/node_join.h"
#include "cli/process_timeline.h"
#include "cli/processes.h"
#include "cli/shared_memory.h"
#include "common/allocation.h"
#include "common/float_env.h"
#include "common/mailbox.h"
#include "common/time_slice.h"
#include "net/incarnation.h"
#include "net/isolation.h"
#include "worker/bit_flip.h"
#include "worker/probe.h"
#include "worker/session.h"
#include "worker/trainer.h"

namespace pando {
namespace {

struct ComputeNews {
  ComputeTicket ticket;
  ComputeEvent event;
};

// From the computing threads to the protocol thread. Gradients wake it only once they are worth a
// message; the end of a call always does, so none of them waits for ever: StepComputed follows a
// call's gradients.
class ComputeNewsBox {
 public:
  void Push(ComputeNews news) {  // any thread
    const auto* gradient = std::get_if<GradientReady>(&news.event);
    const size_t bytes = gradient == nullptr ? 0 : gradient->payload.size_bytes();
    const bool is_little = gradient != nullptr && (unseen_bytes_ += bytes) < Session::kFlushBytes;
    if (!is_little) unseen_bytes_ = 0;
    std::ignore = mailbox_.Push(std::move(news), is_little ? Wake::kLater : Wake::kNow);
  }
  Mailbox<ComputeNews>& mailbox() { return mailbox_; }

 private:
  std::atomic<size_t> unseen_bytes_ = 0;
  Mailbox<ComputeNews> mailbox_;
};

// Says when this worker learns of a commit: what is known of steps while no scheduler writes
// metrics (pando bench recovery).
class CommitLog {
 public:
  void Tell(Version known, Micros now) {
    if (known == known_) return;
    known_ = known;
    spdlog::debug("version {} committed, at {} us", known.value(), now.count());
  }

 private:
  Version known_;
};

template <class AnySession>  // a session, or a group's
HeartbeatState HeartbeatOf(JobId job, const AnySession& session, const Trainer& trainer,
                           const GpuState& gpu, const Transport& transport, Micros now) {
  const Heartbeat activity = session.CurrentActivity(now);
  const Micros waited = std::chrono::milliseconds(activity.waiting_ms);
  return {.job = job,
          .scheduler = session.scheduler(),
          .generation = session.view().generation,
          .view = session.view().id,
          .activity = activity.activity,
          .step = activity.step,
          .waiting_for = activity.waiting_for,
          .waiting_since = now - waited,
          .micro_batch_us = trainer.micro_batch_us(),
          .data_stall_us = trainer.data_stall_us(),
          .exposed_sync_us = trainer.exposed_sync_us(),
          .gpu_memory_bytes = gpu.memory_used_bytes,
          .gpu_percent = gpu.utilisation_percent,
          .lines = transport.CountLines()};
}

std::unique_ptr<Timeline> TimelineOf(const Membership& membership) {
  return OpenTimeline(membership.job, TimelineFolderOf(membership.snapshot_dir),
                      fmt::format("worker {}", membership.rank),
                      membership.self.incarnation.value());
}

class WorkerProcess {
 public:
  explicit WorkerProcess(const WorkerArgs& args) : args_(args), wanted_rank_(args.wanted_rank) {}
  Status Run();

 private:
  struct Prepared {  // what the job's work takes on this machine
    OpenedDevice device;
    std::unique_ptr<DataSet> data;
    Model model;
    JobPlan plan;
    uint64_t probe_hash;
    uint64_t gpu_free_bytes;  // when it was opened; 0 on a CPU
  };
  Result<MembershipEnd> Live();
  Result<MembershipEnd> Work(Membership& membership);
  Status PrepareFor(const Membership& membership);
  Result<Prepared> Prepare(const Membership& membership) const;
  Result<MembershipEnd> Train(const Membership& membership, HeartbeatSender& heartbeat);
  Result<MembershipEnd> TrainInGroup(const Membership& membership, HeartbeatSender& heartbeat);
  Ready ReadyFor() const;
  Status CheckData(const Membership& membership, const DataSet& data) const;
  void LogGpuMemory() const;

  const WorkerArgs& args_;
  ShutdownSignal shutdown_;
  ZmqContext context_;
  IsolationSignal isolation_{context_};
  Incarnation incarnation_ = NewIncarnation();
  uint32_t wanted_rank_;
  Transport transport_{context_,
                       {kUnknownNode, incarnation_, 0},
                       {.on_warning = [](const std::string& text) { spdlog::warn("{}", text); }}};
  HostLines host_lines_{transport_};
  std::string prepared_for_;            // the job's text
  std::unique_ptr<Prepared> prepared_;  // kept when the process joins again
};

Status WorkerProcess::Run() {
  SetFloatEnvironment();
  TakeShortTimeSlices();  // this thread, ZeroMQ's and those that speak
  KeepFreedMemory();
  while (true) {
    Result<MembershipEnd> end = Live();
    if (!end.ok()) return end.status();
    if (*end == MembershipEnd::kStopped) return Status();
    incarnation_ = NewIncarnation();
    host_lines_.Close();
    transport_.SpeakAs({kUnknownNode, incarnation_, 0});
  }
}

// From the registration of one incarnation to its end.
Result<MembershipEnd> WorkerProcess::Live() {
  if (Status s = transport_.Dial({kSchedulerNode, {}, 0}, args_.join); !s.ok()) return s;
  Result<JoinOutcome> joined =
      JoinRun(transport_, incarnation_, DescribeProcess(Role::kWorker, wanted_rank_), args_.join,
              args_.start_timeout_ms, shutdown_);
  if (!joined.ok()) return joined.status();
  if (const auto* end = std::get_if<MembershipEnd>(&*joined)) return *end;
  auto& membership = std::get<Membership>(*joined);
  wanted_rank_ = membership.rank;  // to keep the name in another life
  SetUpLog({.process = fmt::format("worker {}", membership.rank), .is_verbose = args_.is_verbose});
  ArmBitFlip(membership.rank);
  return Work(membership);
}

// What goes wrong here is told to the scheduler, so that it knows this cause.
Result<MembershipEnd> WorkerProcess::Work(Membership& membership) {
  HeartbeatSender heartbeat(context_,
                            {.self = membership.self,
                             .scheduler_endpoint = args_.join,
                             .interval = std::chrono::milliseconds(membership.job.heartbeat_ms)},
                            {.job = membership.job_id, .scheduler = membership.scheduler});
  if (Status s = heartbeat.Start(); !s.ok()) return s;
  if (!args_.data_path.empty()) membership.job.data_path = args_.data_path;
  if (!args_.data_cache.empty()) membership.job.data_cache = args_.data_cache;
  if (args_.threads != 0) membership.job.threads = args_.threads;
  const Status prepared = PrepareFor(membership);
  const bool has_servers = membership.job.strategy != Strategy::kAllreduce;
  if (prepared.ok())
    return has_servers ? Train(membership, heartbeat) : TrainInGroup(membership, heartbeat);
  TellScheduler(transport_, membership, 0, prepared);
  return prepared;
}

Status WorkerProcess::PrepareFor(const Membership& membership) {
  if (prepared_ && prepared_for_ == membership.job_toml) return Status();
  Result<Prepared> prepared = Prepare(membership);
  if (!prepared.ok()) return prepared.status();
  prepared_ = std::make_unique<Prepared>(*std::move(prepared));
  prepared_for_ = membership.job_toml;
  return Status();
}

Result<WorkerProcess::Prepared> WorkerProcess::Prepare(const Membership& membership) const {
  Result<std::unique_ptr<DataSet>> data =
      OpenDataSet(membership.job, [](const std::string& text) { spdlog::warn("{}", text); });
  if (!data.ok()) return data.status();
  if (Status s = CheckData(membership, **data); !s.ok()) return s;
  Result<Model> model = ModelOf(membership);
  if (!model.ok()) return model.status();
  JobPlan plan(membership.job, membership.data, model->layout());
  Result<DeviceChoice> choice = ParseDevice("--device", args_.device);
  if (!choice.ok()) return choice.status();
  Result<OpenedDevice> device = OpenDevice(*choice, membership.job);
  if (!device.ok()) return device.status();
  const uint64_t gpu_free_bytes = device->gpu ? RoomOf(device->device()).free_bytes : 0;
  const Status has_room = CheckMemoryOf(device->device(), plan, *model);
  if (!has_room.ok()) return has_room;
  Result<uint64_t> probe = ProbeHash(plan, *model, **data, device->device());
  if (!probe.ok()) return probe.status();
  spdlog::info("computes on {}", device->kind);
  return Prepared{*std::move(device), *std::move(data), *std::move(model),
                  std::move(plan),    *probe,           gpu_free_bytes};
}

// P38. The scheduler looks too; here the files can be named.
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

Ready WorkerProcess::ReadyFor() const {
  return {.kind = prepared_->device.kind,
          .probe_hash = prepared_->probe_hash,
          .data_fingerprint = prepared_->data->fingerprint()};
}

Result<MembershipEnd> WorkerProcess::TrainInGroup(const Membership& membership,
                                                  HeartbeatSender& heartbeat) {
  const std::unique_ptr<Timeline> timeline = TimelineOf(membership);
  const ClockProbe clock(context_, args_.join, timeline.get());
  const Trainer::Parts parts{.plan = prepared_->plan,
                             .model = prepared_->model,
                             .data = *prepared_->data,
                             .device = prepared_->device.device(),
                             .timeline = timeline.get(),
                             .protocol = timeline ? &timeline->OpenTrack("protocol") : nullptr};
  GroupWorker worker({.context = context_,
                      .transport = transport_,
                      .shutdown = shutdown_,
                      .heartbeat = heartbeat,
                      .membership = membership,
                      .scheduler_endpoint = args_.join,
                      .start_timeout_ms = args_.start_timeout_ms,
                      .trainer = parts,
                      .thread_count = prepared_->device.threads(membership.job),
                      .ready = ReadyFor()});
  const std::optional<OpenedGpu>& gpu = prepared_->device.gpu;
  GpuMonitor gpu_monitor(gpu ? gpu->bus_id() : "");
  CommitLog commits;
  Result<MembershipEnd> end =
      worker.Run([&](const GroupSession& session, const Trainer& trainer, Micros now) {
        heartbeat.Update(
            HeartbeatOf(membership.job_id, session, trainer, gpu_monitor.Read(), transport_, now));
        commits.Tell(session.known_everywhere(), now);
      });
  WarnOfLost(timeline.get());
  return end;
}

Result<MembershipEnd> WorkerProcess::Train(const Membership& membership,
                                           HeartbeatSender& heartbeat) {
  const JobPlan& plan = prepared_->plan;
  Result<BufferSource> buffers = ShareMemory(plan.job, transport_);
  if (!buffers.ok()) {
    TellScheduler(transport_, membership, 0, buffers.status());
    return buffers.status();
  }
  if (plan.may_sum_on_host()) host_lines_.Open(membership.self);
  ComputeNewsBox news;
  const std::unique_ptr<Timeline> timeline = TimelineOf(membership);
  const ClockProbe clock(context_, args_.join, timeline.get());
  TimelineTrack* protocol = timeline ? &timeline->OpenTrack("protocol") : nullptr;
  Trainer trainer(
      {plan, prepared_->model, *prepared_->data, prepared_->device.device(), timeline.get(),
       protocol, *buffers},
      prepared_->device.threads(membership.job),
      [&](ComputeTicket ticket, ComputeEvent event) {
        news.Push({ticket, std::move(event)});
      },
      plan.job.parameter_residency);
  TransportOutbox transport_outbox(transport_);
  TimelineOutbox outbox(transport_outbox, timeline.get(), protocol);
  Session session({.identity = {membership.self, membership.scheduler, membership.job_id},
                   .ready = ReadyFor(),
                   .sum_buffers = *buffers},
                  plan, trainer, outbox);
  NodeWatch watch(shutdown_, heartbeat, membership, [&](Micros now) { session.Leave(now); });
  const auto take_news = [&](Micros now) {
    for (ComputeNews& item : news.mailbox().Drain()) {
      if (trainer.IsCurrent(item.ticket, item.event))
        session.OnComputeEvent(now, std::move(item.event));
    }
  };
  const std::optional<OpenedGpu>& gpu = prepared_->device.gpu;
  GpuMonitor gpu_monitor(gpu ? gpu->bus_id() : "");
  CommitLog commits;
  Status dialed;  // a lane that cannot be dialed gets no gradient, and the job would hang
  const auto tell = [&](Micros now) {
    heartbeat.Update(
        HeartbeatOf(membership.job_id, session, trainer, gpu_monitor.Read(), transport_, now));
    if (dialed.ok() && !transport_.sharing_failure().ok()) {
      dialed = transport_.sharing_failure();
      TellScheduler(transport_, membership, session.view().generation, dialed);
    }
    commits.Tell(session.known_everywhere(), now);
    host_lines_.Tell(session.has_given_up_relay());
  };
  const auto dial = [&](const View& view) {
    if (!dialed.ok()) return;
    const HostGroup group = HostGroupOf(view, membership.self, plan);
    const std::set<PeerId> relays = host_lines_.Connect(group, membership.self);
    dialed = DialView(transport_, Role::kWorker, membership.self, view, PrimariesTalk::kNo, relays);
    if (!dialed.ok()) TellScheduler(transport_, membership, view.generation, dialed);
  };
  const auto is_over = [&] { return session.finished() || !dialed.ok() || !watch.verdict().ok(); };
  RunLoop(session, transport_,
          {.local = {watch.Source(), {news.mailbox().fd(), take_news}, {-1, tell}},
           .enters = [&](const Envelope& envelope) { return session.WillEnter(envelope); },
           .on_view = dial,
           .is_finished = is_over});
  news.mailbox().Close();
  WarnOfLost(timeline.get());
  const auto [early, all] = session.pushed_bytes();
  spdlog::info(
      "pushed {} bytes, {} of them while backward was going on; pulled {} bytes; held at most {} "
      "bytes of parameters at a time",
      all, early, session.pulled_bytes(), trainer.parameter_bytes_peak());
  if (session.given_bytes() > 0)
    spdlog::info("gave {} bytes to be summed on this host", session.given_bytes());
  if (gpu) LogGpuMemory();
  if (!dialed.ok()) return dialed;
  if (!watch.verdict().ok()) return watch.verdict();
  // It would fail again at once: whoever started this process may do so again, after a pause.
  if (session.refusal() && session.failure()) return Internal(session.failure()->text);
  return EndOf(session.stop(), session.refusal(), watch.is_leaving());
}

// What NVIDIA's libraries take beside their handles, and other processes, count as ours.
void WorkerProcess::LogGpuMemory() const {
  const Device device = prepared_->device.device();
  const GpuMemoryPlan planned = PlanGpuMemory(device, prepared_->plan, prepared_->model,
                                              prepared_->plan.steps.micro_batch_samples_max());
  const uint64_t free_bytes = RoomOf(device).free_bytes;
  spdlog::info("GPU memory: planned {} bytes, took {}", planned.total(),
               prepared_->gpu_free_bytes - std::min(free_bytes, prepared_->gpu_free_bytes));
}

}  // namespace

int RunWorker(const WorkerArgs& args) {
  const Status status = WorkerProcess(args).Run();
  if (status.ok()) return kExitCompleted;
  spdlog::error("{}", status.message());
  return ExitCodeOf(status);
}

}  // namespace pando
