#include "node/remote_files.h"

#include <fmt/core.h>
#include <poll.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <utility>

#include "common/clock.h"
#include "files/folder_files.h"
#include "node/log.h"
#include "run/initial_weights.h"
#include "run/run_folder.h"

namespace pando {
namespace {

// The store is on the scheduler's machine, under the name by which the process reaches that. Each
// of several schedulers has the port after its own for it.
Result<std::string> EndpointTowards(const std::string& files_endpoint,
                                    const std::string& scheduler_endpoint) {
  const std::vector<std::string> schedulers = SplitEndpoints(scheduler_endpoint);
  if (schedulers.size() > 1) {
    std::string endpoints;
    for (const std::string& scheduler : schedulers) {
      PANDO_ASSIGN_OR_RETURN(Endpoint store, ParsePeerEndpoint(scheduler));
      ++store.port;
      endpoints += (endpoints.empty() ? "" : ",") + store.ToString();
    }
    return endpoints;
  }
  PANDO_ASSIGN_OR_RETURN(Endpoint files, ParseEndpoint(files_endpoint));
  PANDO_ASSIGN_OR_RETURN(const Endpoint scheduler, ParsePeerEndpoint(scheduler_endpoint));
  if (files.kind == Endpoint::Kind::kTcp && scheduler.kind == Endpoint::Kind::kTcp)
    files.host = scheduler.host;
  if (files.kind == Endpoint::Kind::kIpc && scheduler.kind == Endpoint::Kind::kIpc)
    files.path = scheduler.path + "-files";
  return files.ToString();
}

constexpr const char* kFolderAdvice =
    "; with snapshot.store = \"folder\" every server has to reach the run folder under this path "
    "(a shared folder)";

// While the scheduler is away, no more waits than one file may have under way.
constexpr int kWaitingMessagesMax = 16;
constexpr int64_t kWaitingBytesMax = 8 << 20;
constexpr Micros kFirstNote = std::chrono::seconds(5);

PeerId WithLane(PeerId self, FilesLane lane) {
  self.lane = static_cast<uint16_t>(lane);
  return self;
}

}  // namespace

class RemoteFiles::File : public ReadableFile {
 public:
  File(RemoteFiles& files, std::string path, uint64_t size)
      : files_(files), path_(std::move(path)), size_(size) {}
  uint64_t size() const override { return size_; }
  Status Read(uint64_t first_byte, std::span<std::byte> out) const override {
    if (out.empty()) return Status();
    files_.client_.Read(path_, first_byte, out);
    return files_.Await();
  }

 private:
  RemoteFiles& files_;
  const std::string path_;
  const uint64_t size_;
};

RemoteFiles::RemoteFiles(const Options& options, std::string endpoint)
    : endpoint_(std::move(endpoint)),
      folder_(options.folder),
      stop_fd_(options.stop_fd),
      patience_(options.patience > Micros(0)
                    ? options.patience
                    : std::chrono::milliseconds(options.membership.job.scheduler_timeout_ms)),
      transport_(options.context, WithLane(options.membership.self, options.lane),
                 {.linger_ms = 0,
                  .queued_messages_max = kWaitingMessagesMax,
                  .queued_bytes_max = kWaitingBytesMax,
                  .scheduler_port_offset = 1,
                  .on_warning = LogWarning}),
      client_(WithLane(options.membership.self, options.lane), options.membership.job_id,
              transport_, {}) {}

Result<std::unique_ptr<RunFiles>> RemoteFiles::Dial(const Options& options) {
  PANDO_ASSIGN_OR_RETURN(
      std::string endpoint,
      EndpointTowards(options.membership.files_endpoint, options.membership.scheduler_endpoint));
  std::unique_ptr<RemoteFiles> files(new RemoteFiles(options, endpoint));
  PANDO_RETURN_IF_ERROR(files->transport_.Dial({kSchedulerNode, {}, 0}, endpoint));
  return std::unique_ptr<RunFiles>(std::move(files));
}

std::string RemoteFiles::location() const {
  return fmt::format("{} at the scheduler", folder_.empty() ? "the run folder" : folder_);
}

std::string RemoteFiles::PathTo(const std::string& name) const {
  return folder_.empty() ? name : folder_ + "/" + name;
}

Result<std::vector<std::string>> RemoteFiles::List(const std::string& prefix) {
  client_.List(PathTo(prefix));
  PANDO_RETURN_IF_ERROR(Await());
  std::vector<std::string> names;
  for (const std::string& path : client_.names())
    names.push_back(folder_.empty() ? path : path.substr(folder_.size() + 1));
  return names;
}

Result<std::unique_ptr<ReadableFile>> RemoteFiles::Open(const std::string& name) {
  client_.Read(PathTo(name), 0, {});
  PANDO_RETURN_IF_ERROR(Await());
  std::unique_ptr<ReadableFile> file =
      std::make_unique<File>(*this, PathTo(name), client_.file_size());
  return file;
}

Status RemoteFiles::Store(const std::string& name, const Pieces& pieces) {
  client_.Store(PathTo(name), pieces);
  return Await();
}

bool RemoteFiles::IsInterrupted() const {
  pollfd stop{stop_fd_, POLLIN, 0};
  return stop_.is_requested() || (stop_fd_ >= 0 && poll(&stop, 1, 0) > 0);
}

Status RemoteFiles::Await() {
  constexpr Micros kLookInterval = std::chrono::milliseconds(250);
  bool is_late = false, has_told = false;
  const auto is_finished = [&] {
    const Micros silence = SteadyNow() - client_.answered_at();
    if (!client_.is_done() && silence > kFirstNote && !std::exchange(has_told, true))
      spdlog::info("waiting for the scheduler's file store at {}", endpoint_);
    is_late = !client_.is_done() && silence > patience_;
    return client_.is_done() || is_late || IsInterrupted();
  };
  RunLoop(client_, transport_,
          {.stop = &stop_,
           .local = {{stop_fd_, [](Micros) {}, kLookInterval}},
           .is_finished = is_finished});
  if (client_.is_done()) return client_.status();
  client_.GiveUp();
  if (!is_late) return Interrupted("asked to stop while the scheduler's files were awaited");
  return Unavailable(
      fmt::format("the scheduler's file store at {} has not answered for {} s; can this machine "
                  "reach its port?",
                  endpoint_, patience_ / std::chrono::seconds(1)));
}

bool SharesRunFolder(const Membership& membership) {
  if (membership.files_endpoint.empty()) return true;
  const auto known = RunFolder::Open(RunDirFor(membership)).ReadFilesEndpoint();
  return known.ok() && known->job == membership.job_id;
}

Result<std::unique_ptr<RunFiles>> ReachRunFolder(const RemoteFiles::Options& options) {
  if (!options.membership.files_endpoint.empty()) return RemoteFiles::Dial(options);
  const std::filesystem::path path =
      std::filesystem::path(RunDirFor(options.membership)) / options.folder;
  return std::unique_ptr<RunFiles>(std::make_unique<FolderFiles>(path.string(), kFolderAdvice));
}

Status ReadRunStart(ZmqContext& context, const Membership& membership, int stop_fd,
                    std::chrono::milliseconds patience, JobPlan* plan) {
  const bool is_remote = !membership.files_endpoint.empty();
  if (!is_remote) PANDO_RETURN_IF_ERROR(CheckRunFolder(membership));
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<RunFiles> folder,
                         ReachRunFolder({.context = context,
                                         .membership = membership,
                                         .lane = FilesLane::kWeights,
                                         .folder = "",
                                         .stop_fd = stop_fd,
                                         .patience = patience}));
  if (is_remote) PANDO_RETURN_IF_ERROR(folder->List("init").status());
  PANDO_ASSIGN_OR_RETURN(plan->initial, ReadInitialWeights(*folder, plan->job, plan->layout));
  return Status();
}

}  // namespace pando
