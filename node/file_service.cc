#include "node/file_service.h"

#include <fmt/core.h>
#include <poll.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <tuple>

#include "common/atomic_file.h"
#include "common/clock.h"
#include "common/system.h"
#include "files/file_client.h"
#include "net/address.h"
#include "net/event_loop.h"
#include "node/log.h"
#include "optim/version_maker.h"

namespace pando {
namespace {

// Returns the most bytes of a process life at the file store: its timeline, and all shards (it may
// be the last server) in the snapshots that are kept, being made, completed or dropped.
uint64_t StoredBytesMax(const JobPlan& plan) {
  constexpr uint64_t kSnapshotsBesideKept = 8;
  constexpr uint64_t kHeadBytesPerShard = 1024;
  constexpr uint64_t kTimelineBytes = uint64_t{512} << 20;
  const VersionMaker maker(plan);
  uint64_t record_bytes = 0;
  for (uint32_t s = 0; s < plan.shards.shard_count(); ++s) {
    const size_t floats = plan.shards.range(ShardId(s)).size() + maker.state_floats(ShardId(s));
    record_bytes += sizeof(float) * floats + kHeadBytesPerShard;
  }
  return record_bytes * (plan.job.snapshot_keep + kSnapshotsBesideKept) + kTimelineBytes;
}

// The bound for a member that does not read its answers.
constexpr int64_t kQueuedAnswersBytesMax = 8 << 20;
constexpr int kBindTries = 20;
constexpr std::chrono::milliseconds kBindInterval(250);

}  // namespace

Result<Endpoint> EndpointNextTo(const std::string& scheduler) {
  PANDO_ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(scheduler));
  if (endpoint.kind == Endpoint::Kind::kIpc) endpoint.path += "-files";
  endpoint.port = endpoint.port == UINT16_MAX || endpoint.port == 0
                      ? 0
                      : static_cast<uint16_t>(endpoint.port + 1);
  return endpoint;
}

FileService::FileService(const Options& options)
    : disk_(options.folder.path()),
      transport_(options.context, {kSchedulerNode, options.scheduler, kFilesLane},
                 {.insecure = options.insecure,
                  .queued_bytes_max = kQueuedAnswersBytesMax,
                  .on_warning = LogWarning}),
      store_({kSchedulerNode, options.scheduler, kFilesLane}, options.job, disk_, transport_,
             StoredBytesMax(options.plan)) {}

FileService::~FileService() {
  stop_.Request();
  if (thread_.joinable()) thread_.join();
}

Result<std::unique_ptr<FileService>> FileService::Start(const Options& options) {
  std::unique_ptr<FileService> service(new FileService(options));
  PANDO_RETURN_IF_ERROR(service->Bind(options));
  const std::string path = options.folder.FilesEndpointPath();
  const Result<FilesEndpoint> known = options.folder.ReadFilesEndpoint();
  const FilesEndpoint now{service->endpoint_, options.job};
  if (!known.ok() || *known != now) {
    const Status kept = WriteFileAtomically(path, now.ToText(), FileAccess::kAsFolder);
    if (!kept.ok())
      spdlog::warn("{}; if the scheduler restarts, servers may not find where to store snapshots",
                   kept.message());
  }
  service->thread_ = std::thread([&service = *service] { service.Run(); });
  return service;
}

// Members that knew an earlier life dial the port that it had.
Status FileService::Bind(const Options& options) {
  PANDO_ASSIGN_OR_RETURN(Endpoint wanted, EndpointNextTo(options.bound));
  const Result<FilesEndpoint> known = options.folder.ReadFilesEndpoint();
  if (known.ok() && !options.is_fresh) {
    PANDO_ASSIGN_OR_RETURN(const Endpoint before, ParseEndpoint(known->endpoint));
    wanted.port = before.port;
  }
  Result<std::string> bound = transport_.Bind(wanted.ToString());
  for (int tries = 0; !bound.ok() && !options.is_fresh && tries < kBindTries; ++tries) {
    std::this_thread::sleep_for(kBindInterval);
    bound = transport_.Bind(wanted.ToString());
  }
  if (!bound.ok() && wanted.kind == Endpoint::Kind::kTcp) {
    const std::string problem = bound.status().message();
    wanted.port = 0;
    bound = transport_.Bind(wanted.ToString());
    if (bound.ok())
      spdlog::warn("{}; files go through {}, which other machines must reach{}", problem, *bound,
                   options.is_fresh ? "" : "; servers of before the restart store no snapshots");
  }
  if (!bound.ok()) return bound.status();
  endpoint_ = *bound;
  return Status();
}

void FileService::Admit(Incarnation member, Role role, const std::string& public_key) {
  std::ignore = admissions_.Push({member, role, public_key});  // it is never full
}

// Waits longer than a member waits before it repeats a lost request.
void FileService::AwaitQuiet(int stop_fd) const {
  constexpr Micros kQuiet = 4 * FileClient::kRepeatInterval;
  constexpr int kLookMs = 50;
  const Micros start = SteadyNow();
  pollfd stop{stop_fd, POLLIN, 0};
  while (SteadyNow() - std::max(start, store_.asked_at()) < kQuiet)
    if (poll(&stop, 1, kLookMs) > 0) return;
}

void FileService::Run() {
  TakeBatchTimeSlices();
  const auto take = [this](Micros) {
    for (const Admission& admission : admissions_.Drain()) {
      transport_.guard().Trust(admission.member, admission.public_key);
      store_.Admit(admission.member, admission.role);
    }
  };
  RunLoop(
      store_, transport_,
      {.stop = &stop_, .local = {{admissions_.fd(), take}}, .is_finished = [] { return false; }});
}

}  // namespace pando
