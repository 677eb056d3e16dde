// The scheduler's file store over real sockets, and what a node reaches through it.
#include "node/file_service.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/hash.h"
#include "common/system.h"
#include "job/job_file.h"
#include "net/zmq/zmq_context.h"
#include "node/remote_files.h"
#include "run/snapshot_store.h"
#include "tests/contains.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

// A run folder with a store, and one member.
struct StoreFixture {
  static Job MakeJob(const std::string& run_dir) {
    Job job;
    job.run_dir = run_dir;
    return job;
  }
  TempFolder temp;
  Job job = MakeJob(temp.path() + "/run");
  RunFolder folder = *RunFolder::Create(job, false);
  ZmqContext context;
  Membership membership{{}, {NodeId(2), NewIncarnation(), 0}, {}, JobId(7), job};
  JobPlan plan{job,
               {.train_samples = 1000},
               TensorLayout({{.name = "a", .shape = {30}}, MetricTensorSpec()})};
  std::unique_ptr<FileService> service = Start("tcp://127.0.0.1:0", true);

  std::unique_ptr<FileService> Start(const std::string& bound, bool is_fresh) {
    Result<std::unique_ptr<FileService>> started =
        FileService::Start({.context = context,
                            .scheduler = NewIncarnation(),
                            .job = JobId(7),
                            .folder = folder,
                            .bound = bound,
                            .plan = plan,
                            .is_fresh = is_fresh});
    REQUIRE_MESSAGE(started.ok(), started.status().message());
    membership.files_endpoint = (*started)->endpoint();
    (*started)->Admit(membership.self.incarnation, Role::kServer, "");
    return *std::move(started);
  }
  std::unique_ptr<RunFiles> Reach(const std::string& scheduler, int stop_fd = -1) {
    Result<std::unique_ptr<RunFiles>> files = ReachRunFolder({.context = context,
                                                              .membership = membership,
                                                              .scheduler_endpoint = scheduler,
                                                              .lane = FilesLane::kSnapshots,
                                                              .folder = "snapshots",
                                                              .stop_fd = stop_fd});
    REQUIRE_MESSAGE(files.ok(), files.status().message());
    return *std::move(files);
  }
  std::string NameFor(int number) const {
    return fmt::format("g000-v000000005-{}-{}.safetensors",
                       HexText(membership.self.incarnation.value()), number);
  }
};

std::vector<std::byte> CountingBytes(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 31 % 253);
  return bytes;
}

TEST_CASE("a node stores and reads files at the scheduler, larger than what is under way at once") {
  StoreFixture f;
  const auto files = f.Reach("tcp://localhost:1");  // the host counts, the port is the store's own
  const std::vector<std::byte> bytes = CountingBytes(9'000'001);
  REQUIRE(files->Store(f.NameFor(0), {bytes}).ok());
  CHECK(fs::file_size(f.folder.SnapshotsPath() + "/" + f.NameFor(0)) == bytes.size());
  CHECK(*files->List("g000-") == std::vector{f.NameFor(0)});
  const auto file = files->Open(f.NameFor(0));
  REQUIRE(file.ok());
  CHECK((*file)->size() == bytes.size());
  std::vector<std::byte> back(bytes.size() - 17);
  REQUIRE((*file)->Read(17, back).ok());
  CHECK(std::ranges::equal(back, std::span(bytes).subspan(17)));
  CHECK(files->Open("g000-v000000006-1-0.safetensors").status().code() == StatusCode::kNotFound);
  CHECK(Contains(files->Store("g000-v000000005-1-0.safetensors", {bytes}).message(),
                 "takes no file snapshots/g000-v000000005-1-0.safetensors"));
}

TEST_CASE("a store that comes back at its endpoint finds what nodes were about") {
  StoreFixture f;
  const auto files = f.Reach("tcp://127.0.0.1:1");
  const std::string endpoint = f.service->endpoint();
  f.service.reset();
  const std::vector<std::byte> bytes = CountingBytes(3'000'000);
  std::thread storing([&] { CHECK(files->Store(f.NameFor(1), {bytes}).ok()); });
  f.service = f.Start("tcp://127.0.0.1:1", false);
  CHECK(f.service->endpoint() == endpoint);
  storing.join();
  CHECK(fs::file_size(f.folder.SnapshotsPath() + "/" + f.NameFor(1)) == bytes.size());
}

TEST_CASE("a node that is asked to stop does not wait for a store that is away") {
  StoreFixture f;
  f.service.reset();
  const auto files = f.Reach("tcp://127.0.0.1:1");
  std::thread stopping([&] { files->Interrupt(); });
  CHECK(files->List("g000-").status().code() == StatusCode::kInterrupted);
  stopping.join();
  EventFd signal;
  signal.Raise();
  const auto others = f.Reach("tcp://127.0.0.1:1", signal.fd());
  CHECK(others->Open("g000").status().code() == StatusCode::kInterrupted);
}

TEST_CASE("the store listens at the port after the scheduler's, or says where else") {
  StoreFixture f;
  Transport scheduler(f.context, {kSchedulerNode, NewIncarnation(), 0}, {});
  const Result<std::string> bound = scheduler.Bind("tcp://127.0.0.1:0");
  REQUIRE(bound.ok());
  const auto first = f.Start(*bound, true);
  const auto second = f.Start(*bound, true);
  const Endpoint at = *ParseEndpoint(*bound);
  CHECK(ParseEndpoint(first->endpoint())->port == at.port + 1);
  CHECK(first->endpoint() != second->endpoint());
  CHECK(*f.folder.ReadFilesEndpoint() == FilesEndpoint{second->endpoint(), JobId(7)});
}

TEST_CASE("with snapshot.store = folder a node reaches the folder itself") {
  StoreFixture f;
  f.membership.files_endpoint = "";
  f.membership.snapshot_dir = f.folder.SnapshotsPath();
  const auto files = f.Reach("tcp://127.0.0.1:1");
  CHECK(files->location() == f.folder.SnapshotsPath());
}

}  // namespace
}  // namespace pando
