// Runs `pando server`: one process with lanes, each a thread with its own sockets and shards.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "common/clock.h"
#include "common/exit_codes.h"
#include "common/system.h"
#include "net/address.h"
#include "net/view_guard.h"
#include "net/zmq/isolation_signal.h"
#include "node/log.h"
#include "node/node_join.h"
#include "node/node_watch.h"
#include "node/processes.h"
#include "node/remote_files.h"
#include "node/run_model.h"
#include "node/timeline/member_timeline.h"
#include "node/timeline/timeline_lane_probe.h"
#include "node/timeline/timeline_send_probe.h"
#include "run/snapshot_store.h"
#include "run/update_threads.h"
#include "server/lane.h"

namespace pando {
namespace {

// The time for the other lanes to get the Stop that one lane has received.
constexpr auto kLaneEndMax = std::chrono::seconds(1);

// How often heartbeats look up the answers that backups owe.
constexpr Micros kLookInterval = std::chrono::milliseconds(200);

uint32_t ChooseLaneCount(const ServerArgs& args) {
  return args.lanes != 0 ? args.lanes : UpdateThreadCount();
}

// Returns where this lane listens: each lane has its own port or path.
Result<std::string> LaneEndpoint(const std::string& bind, uint32_t lane) {
  PANDO_ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(bind));
  if (endpoint.kind == Endpoint::Kind::kIpc) endpoint.path += fmt::format("-{}", lane);
  if (endpoint.port + lane > UINT16_MAX) {
    return InvalidArgument(fmt::format(
        "--bind {}: lane {} would listen on port {}, and the last port is {}; bind a lower "
        "port, or port 0 for any free ones",
        bind, lane, endpoint.port + lane, UINT16_MAX));
  }
  if (endpoint.port != 0) endpoint.port = static_cast<uint16_t>(endpoint.port + lane);
  return endpoint.ToString();
}

// `owed` is the oldest answer that a backup owes the lane.
HeartbeatState MakeHeartbeat(JobId job, const Lane& lane, const Transport& transport,
                             const std::optional<Replication::Owed>& owed) {
  return {.job = job,
          .scheduler = lane.scheduler(),
          .generation = lane.view().generation,
          .view = lane.view().id,
          .content = {.activity = Activity::kServing,
                      .step = lane.is_primary_of_any() ? StepUpdating(lane.committed()) : Step(0),
                      .waiting_for = owed ? owed->backup : PeerId()},
          .waiting_since = owed ? std::optional(owed->since) : std::nullopt,
          .lines = transport.CountLines()};
}

// Seat has one lane, and the objects through which it sends and stores.
struct Seat {
  // `timeline` may be null.
  Seat(const Lane::Options& options, const JobPlan& plan, SnapshotStore& store,
       Transport& lane_transport, const std::string& view_key, Timeline* timeline)
      : transport(lane_transport),
        views(lane_transport, {.public_key = view_key, .secret_key = ""}),
        track(timeline ? &timeline->OpenTrack(LaneTrack(options)) : nullptr),
        send_probe(timeline, track),
        snapshots(store),
        lane(Complete(options, timeline), plan, snapshots, lane_transport) {}
  static std::string LaneTrack(const Lane::Options& options) {
    return fmt::format("lane {}", options.identity.self.lane);
  }
  Lane::Options Complete(Lane::Options options, Timeline* timeline) {
    options.identity.seal = views.seal();
    options.identity.probe = send_probe.get();
    if (timeline == nullptr) return options;
    options.probe =
        &probe.emplace(*timeline, *track, timeline->OpenTrack(LaneTrack(options) + " replicates"));
    return options;
  }

  Transport& transport;
  ViewGuard views;
  TimelineTrack* track;
  std::optional<TimelineLaneProbe> probe;
  TimelineSendProbe send_probe;
  SnapshotStore::Port snapshots;
  Lane lane;
  Status dialed;  // a backup that cannot be dialed never acknowledges; the job would hang
};

// Returns the name of this machine, all containers of which fail with its kernel. Without a boot
// id, host name and address tell machines apart.
std::string OwnMachine(const std::string& endpoint) {
  if (std::string id = BootId(); !id.empty()) return id;
  const Result<Endpoint> parsed = ParseEndpoint(endpoint);
  return fmt::format("{} {}", HostName(), parsed.ok() ? parsed->host : "");
}

// ServerProcess runs the lanes. Owns: their transports and threads.
class ServerProcess {
 public:
  explicit ServerProcess(const ServerArgs& args) : args_(args) {}
  Result<int> Run();

 private:
  using Seats = std::vector<std::unique_ptr<Seat>>;
  Status BindLanes(JoiningProcess* process);
  Result<MembershipEnd> Serve(const Membership& membership);
  Result<std::unique_ptr<RunFiles>> ReachSnapshots(const Membership& membership, JobPlan* plan);
  Result<MembershipEnd> RunLanes(const Membership& membership, HeartbeatSender& heartbeat,
                                 const Seats& seats);
  LoopOptions MakeOptions(const Membership& membership, Seat& seat, StopFlag& broken) const;

  const ServerArgs& args_;
  ShutdownSignal shutdown_;
  ZmqContext context_{args_.keys, LogWarning};
  IsolationSignal isolation_{context_};
  std::vector<std::unique_ptr<Transport>> transports_;  // by lane
  std::vector<std::string> endpoints_;                  // by lane, as told to others
};

Status ServerProcess::BindLanes(JoiningProcess* process) {
  PANDO_ASSIGN_OR_RETURN(Endpoint scheduler, ParsePeerEndpoint(SplitEndpoints(args_.join).front()));
  std::string bind = args_.bind;
  if (bind.empty()) {
    PANDO_ASSIGN_OR_RETURN(bind, DefaultBind(*process));
  }
  const uint32_t lane_count = ChooseLaneCount(args_);
  // The last lane has the highest port. If it is too high, this shows before anything is bound.
  Result<std::string> highest = LaneEndpoint(bind, lane_count - 1);
  if (!highest.ok()) return BadBind(highest.status());
  for (uint32_t i = 0; i < lane_count; ++i) {
    const PeerId self{kUnknownNode, {}, static_cast<uint16_t>(i)};
    transports_.push_back(std::make_unique<Transport>(
        context_, self, Transport::Options{.insecure = args_.insecure, .on_warning = LogWarning}));
    PANDO_ASSIGN_OR_RETURN(std::string wanted, LaneEndpoint(bind, i));
    Result<std::string> bound = transports_[i]->Bind(wanted);
    if (!bound.ok()) return BadBind(bound.status());
    PANDO_ASSIGN_OR_RETURN(std::string advertised, AdvertisedEndpoint(*bound, scheduler));
    endpoints_.push_back(advertised);
    process->transports.push_back(transports_.back().get());
  }
  return Status();
}

Result<int> ServerProcess::Run() {
  SetFloatEnvironment();
  TakeShortTimeSlices();  // this thread, ZeroMQ's, and those that send
  KeepFreedMemory();
  PANDO_ASSIGN_OR_RETURN(const Labels labels, ParseLabels(args_.labels));
  JoiningProcess process{.registration = DescribeProcess(Role::kServer, args_.wanted_rank),
                         .scheduler_endpoint = args_.join,
                         .timeout_ms = args_.start_timeout_ms,
                         .shutdown = shutdown_,
                         .is_verbose = args_.is_verbose};
  PANDO_RETURN_IF_ERROR(BindLanes(&process));
  Register& registration = process.registration;
  registration.lane_endpoints = endpoints_;
  registration.machine = labels.host.empty() ? OwnMachine(endpoints_.front()) : labels.host;
  registration.rack = labels.rack;
  return RunMember(process, [this](const Membership& member) { return Serve(member); });
}

// Reads the run's start values, and returns the files of its snapshots.
Result<std::unique_ptr<RunFiles>> ServerProcess::ReachSnapshots(const Membership& membership,
                                                                JobPlan* plan) {
  PANDO_RETURN_IF_ERROR(ReadRunStart(context_, membership, shutdown_.fd(),
                                     std::chrono::milliseconds(args_.start_timeout_ms), plan));
  return ReachRunFolder({.context = context_,
                         .membership = membership,
                         .lane = FilesLane::kSnapshots,
                         .folder = "snapshots"});
}

Result<MembershipEnd> ServerProcess::Serve(const Membership& membership) {
  HeartbeatSender heartbeat(context_, HeartbeatOptions(membership),
                            {.job = membership.job_id,
                             .scheduler = membership.scheduler,
                             .content = {.activity = Activity::kServing}});
  PANDO_RETURN_IF_ERROR(heartbeat.Start());
  PANDO_ASSIGN_OR_RETURN(JobPlan plan, MakeJobPlan(membership));
  Result<std::unique_ptr<RunFiles>> files = ReachSnapshots(membership, &plan);
  if (!files.ok()) {
    // A request to stop is not a failure of the run.
    if (files.status().code() != StatusCode::kInterrupted)
      TellScheduler(*transports_[0], membership, 0, files.status());
    return files.status();
  }
  SnapshotStore store({.files = *std::move(files),
                       .process = membership.self.incarnation,
                       .job = membership.job_id});
  const MemberTimeline timeline(context_, membership, Role::kServer);
  Seats seats;
  for (uint16_t i = 0; i < transports_.size(); ++i) {
    PeerId self = membership.self;
    self.lane = i;
    Result<BufferSource> buffers = PrepareLines(membership.job, *transports_[i]);
    if (!buffers.ok()) {
      TellScheduler(*transports_[0], membership, 0, buffers.status());
      return buffers.status();
    }
    const Lane::Options options{.identity = {self, membership.scheduler, membership.job_id},
                                .kind = "server",
                                .lease = std::chrono::milliseconds(membership.job.lease_ms),
                                .buffers = *std::move(buffers)};
    seats.push_back(std::make_unique<Seat>(options, plan, store, *transports_[i],
                                           membership.view_key, timeline.get()));
  }
  spdlog::info("serving on {}", fmt::join(endpoints_, ", "));
  Result<MembershipEnd> end = RunLanes(membership, heartbeat, seats);
  timeline.Close(shutdown_.fd());
  return end;
}

// Returns the loop options of every lane; lane 0 adds more.
LoopOptions ServerProcess::MakeOptions(const Membership& membership, Seat& seat,
                                       StopFlag& broken) const {
  const bool has_partials = HasPartials(membership.job.optimizer);
  const auto primaries_talk = has_partials ? PrimariesTalk::kYes : PrimariesTalk::kNo;
  const auto judge = [&membership, &seat, &broken](const Status& dialed, uint32_t generation) {
    if (dialed.ok() || !seat.dialed.ok()) return;
    seat.dialed = dialed;
    seat.transport.Send({.job = membership.job_id,
                         .generation = generation,
                         .sender = seat.lane.self(),
                         .receiver = seat.lane.scheduler(),
                         .message = Failure{dialed.message(), FailureKind::kMachine}});
    broken.Request();
  };
  const auto dial = [&seat, primaries_talk, judge](const View& view) {
    if (!seat.dialed.ok()) return;
    judge(DialView(seat.transport, Role::kServer, seat.lane.self(), view, primaries_talk),
          view.generation);
  };
  const auto judge_sharing = [&seat, judge](Micros) {
    judge(seat.transport.sharing_failure(), seat.lane.view().generation);
  };
  const auto take_events = [&seat](Micros now) {
    for (SnapshotEvent& event : seat.snapshots.TakeEvents()) {
      seat.lane.OnSnapshotEvent(now, std::move(event));
    }
  };
  return {.local = {{seat.snapshots.fd(), take_events}, {-1, judge_sharing}},
          .next_view = [&seat](const Envelope& envelope) { return seat.lane.NextView(envelope); },
          .on_view = dial,
          .is_finished = [&seat] { return seat.lane.finished(); }};
}

// Runs lane 0 on this thread, which also watches the process. Each other lane has a thread and runs
// until its Stop. It answers Stop, so that the scheduler need not wait for a timeout.
Result<MembershipEnd> ServerProcess::RunLanes(const Membership& membership,
                                              HeartbeatSender& heartbeat, const Seats& seats) {
  StopFlag stop;    // for lanes that get no Stop
  StopFlag broken;  // for lane 0, when another lane fails
  std::vector<std::future<void>> others;
  for (size_t i = 1; i < seats.size(); ++i) {
    LoopOptions options = MakeOptions(membership, *seats[i], broken);
    options.stop = &stop;
    others.push_back(std::async(std::launch::async, [options, &seat = *seats[i]] {
      SetFloatEnvironment();
      RunLoop(seat.lane, seat.transport, options);
    }));
  }
  Lane& first = seats[0]->lane;
  std::optional<Replication::Owed> owed;
  Micros looked_at{0};  // last look at owed answers; it is rare, since it visits all shards
  const auto tell = [&](Micros now) {
    if (now - looked_at >= kLookInterval) {
      looked_at = now;
      owed = first.OldestOwed();
    }
    heartbeat.Update(MakeHeartbeat(membership.job_id, first, seats[0]->transport, owed));
  };
  // A scheduler that dies while it ends the run may have told only one lane.
  std::optional<Micros> ended_at;
  const auto look_at_lanes = [&](Micros now) {
    const auto has_ended = [](const std::future<void>& other) {
      return other.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    };
    if (!ended_at && std::ranges::any_of(others, has_ended)) ended_at = now;
  };
  NodeWatch watch(shutdown_, heartbeat, membership, [&](Micros now) { first.StartLeaving(now); });
  LoopOptions options = MakeOptions(membership, *seats[0], broken);
  options.stop = &broken;
  options.local.push_back(watch.Source());
  options.local.push_back({-1, tell, kLookInterval});
  options.local.push_back({-1, look_at_lanes});
  options.is_finished = [&] {
    return first.finished() || watch.verdict() ||
           (ended_at && SteadyNow() - *ended_at >= kLaneEndMax);
  };
  RunLoop(first, seats[0]->transport, options);
  const auto deadline = std::chrono::steady_clock::now() + kLaneEndMax;
  for (const std::future<void>& other : others) {
    const bool may_end_itself = first.finished() && !broken.is_requested();
    if (!may_end_itself || other.wait_until(deadline) != std::future_status::ready) stop.Request();
  }
  others.clear();  // waits for the threads
  for (const auto& seat : seats) {
    if (!seat->dialed.ok()) return seat->dialed;
  }
  // A process that has ended with the run is no member any more, and may hear that, too.
  const auto ended = std::ranges::find_if(
      seats, [](const std::unique_ptr<Seat>& seat) { return seat->lane.finished(); });
  if (watch.verdict() && ended == seats.end()) return *watch.verdict();
  const Lane& lane = (*ended)->lane;
  return ConcludeMembership(lane.stop(), lane.refusal(), watch.is_leaving());
}

}  // namespace

constexpr size_t kLabelBytesMax = 200;

Result<Labels> ParseLabels(const std::vector<std::string>& labels) {
  Labels parsed;
  for (const std::string& label : labels) {
    const bool is_rack = label.starts_with("rack="), is_host = label.starts_with("host=");
    const std::string value = label.substr(label.find('=') + 1);
    if ((!is_rack && !is_host) || value.empty()) {
      return InvalidArgument(fmt::format(
          "--label {}: expected rack=NAME or host=NAME, which say what fails together", label));
    }
    std::string& part = is_rack ? parsed.rack : parsed.host;
    if (!part.empty() || value.size() > kLabelBytesMax) {
      return InvalidArgument(fmt::format("--label {}: expected one {} of at most {} bytes", label,
                                         is_rack ? "rack" : "host", kLabelBytesMax));
    }
    part = value;
  }
  return parsed;
}

int RunServer(const ServerArgs& args) { return ExitWith(ServerProcess(args).Run()); }

}  // namespace pando
