// A user's mistake ends with one clear line on standard error, which names the mistake, its place
// and the expected value, and with the exit code that common/exit_codes.h documents.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "common/exit_codes.h"
#include "tests/data/idx_files.h"
#include "tests/e2e/run_files.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

using Parts = std::vector<std::string>;

bool ContainsAll(const std::string& text, const Parts& parts) {
  return std::ranges::all_of(parts, [&](const auto& part) { return Contains(text, part); });
}

// The command fails with this exit code, and all it says is one line that holds each of the parts.
void CheckOneLine(const Args& args, int exit_code, const Parts& parts) {
  TempFolder temp;
  Process process(temp.path(), "pando", args);
  process.Await();
  INFO(process.err());
  CHECK(process.exit_code() == exit_code);
  CHECK(process.out().empty());
  const std::vector<std::string> lines = process.err_lines();
  REQUIRE(lines.size() == 1);
  for (const std::string& part : parts) CHECK_MESSAGE(Contains(lines[0], part), part);
}

// A data set in MNIST's form: `count` pictures, and labels for them or for another number.
void WriteMnist(const TempFolder& folder, uint32_t count, uint32_t label_count, uint8_t label = 0) {
  for (const char* split : {"train", "t10k"}) {
    folder.Write(std::string(split) + "-images-idx3-ubyte", PicturesFile(count, 28, 28));
    folder.Write(std::string(split) + "-labels-idx1-ubyte", LabelsFile(Bytes(label_count, label)));
  }
}

Args MnistJob(const std::string& data, const std::string& run_dir) {
  return {"--model", "mnist-cnn", "--dataset", "mnist",          "--data",
          data,      "--run-dir", run_dir,     "--global-batch", "16"};
}

void CheckBadData(const TempFolder& data, const Parts& parts) {
  const Args job = MnistJob(data.path(), data.File("run"));
  CheckOneLine(Args{"train"} + job, kExitUsage, parts);
  CheckOneLine(Args{"train", "--serial"} + job, kExitUsage, parts);
  CHECK_FALSE(std::filesystem::exists(data.File("run")));
}

TEST_CASE("a truncated .gz is named with its file") {
  TempFolder data;
  WriteMnist(data, 40, 40);
  Bytes packed = Gzip(PicturesFile(40, 28, 28));
  packed.resize(packed.size() / 2);
  std::filesystem::remove(data.File("train-images-idx3-ubyte"));
  const std::string path = data.Write("train-images-idx3-ubyte.gz", packed);
  CheckBadData(data, {path, "truncated"});
}

TEST_CASE("a wrong magic number is named with the one expected") {
  TempFolder data;
  WriteMnist(data, 40, 40);
  const std::string path = data.Write("train-labels-idx1-ubyte", PicturesFile(40, 28, 28));
  CheckBadData(data, {path, "found 00000803", "expected 00000801"});
}

TEST_CASE("counts of pictures and labels that differ are both named") {
  TempFolder data;
  WriteMnist(data, 40, 39);
  CheckBadData(data, {"train-labels-idx1-ubyte", "39", "40"});
}

// The same of other data sets: one line, and no run folder is begun.
void CheckBadDataSet(const std::string& name, const std::string& path, const Parts& parts) {
  TempFolder temp;
  const Args job{"--model",        "mlp", "--dataset", name,
                 "--data",         path,  "--run-dir", temp.File("run"),
                 "--global-batch", "16"};
  CheckOneLine(Args{"train"} + job, kExitUsage, parts);
  CheckOneLine(Args{"train", "--serial"} + job, kExitUsage, parts);
  CHECK_FALSE(std::filesystem::exists(temp.File("run")));
}

TEST_CASE("a CIFAR file that is cut is named with the byte") {
  TempFolder data;
  for (const char* batch : {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4",
                            "data_batch_5", "test_batch"}) {
    data.Write(std::string(batch) + ".bin", Bytes(2 * 3073));
  }
  const std::string path = data.Write("data_batch_2.bin", Bytes(4000));
  CheckBadDataSet("cifar10", data.path(), {path, "cut off", "byte 4000"});
}

Bytes Text(const std::string& text) { return Bytes(text.begin(), text.end()); }

TEST_CASE("a table without a column is named with those that it has") {
  TempFolder data;
  const std::string path = data.Write("stars.csv", Text("u,g,r,i,z,class\n1,2,3,4,5,STAR\n"));
  CheckBadDataSet("sdss", path, {path, "'redshift'", "u, g, r, i, z, class"});
}

TEST_CASE("a class that only the test split has is named") {
  TempFolder data;
  const std::string head = "u,g,r,i,z,redshift,class\n";
  data.Write("train.csv", Text(head + "1,2,3,4,5,6,STAR\n1,2,3,4,5,6,GALAXY\n"));
  const std::string path = data.Write("test.csv", Text(head + "1,2,3,4,5,6,QSO\n"));
  CheckBadDataSet("sdss", data.path(), {path, "line 2", "unknown class 'QSO'", "GALAXY, STAR"});
}

// Folders train and val of these classes, each with one file of a picture's name.
void WriteFolders(const TempFolder& data, const std::vector<std::string>& classes,
                  const Bytes& file) {
  for (const char* split : {"train", "val"}) {
    for (const std::string& name : classes) {
      std::filesystem::create_directories(data.File(split) + "/" + name);
      data.Write(std::string(split) + "/" + name + "/1.jpg", file);
    }
  }
}

TEST_CASE("a text file named .jpg is named with its first bytes") {
  TempFolder data;
  WriteFolders(data, {"ants", "bees"}, Text("hello"));
  CheckBadDataSet("imagefolder", data.path(), {data.path(), "train/ants/1.jpg", "68 65 6c 6c"});
}

TEST_CASE("a folder with one class is named") {
  TempFolder data;
  WriteFolders(data, {"ants"}, Text("hello"));
  CheckBadDataSet("imagefolder", data.path(),
                  {data.File("train"), "1 class folder", "two or more"});
}

TEST_CASE("a missing data folder is named") {
  TempFolder temp;
  CheckOneLine(Args{"train"} + MnistJob(temp.File("none"), temp.File("run")), kExitUsage,
               {temp.File("none")});
}

TEST_CASE("a typo in the job file is named by line, with the right key") {
  TempFolder temp;
  std::ofstream(temp.File("job.toml"))
      << "[model]\nname = \"mnist-cnn\"\n[optimizer]\nmomentm = 0.9\n";
  for (const char* command : {"train", "scheduler"}) {
    CheckOneLine({command, temp.File("job.toml"), "--run-dir", temp.File("run")}, kExitUsage,
                 {temp.File("job.toml"), "4", "momentm", "optimizer.momentum"});
  }
}

TEST_CASE("micro-batches that do not fit the batch are named with both numbers") {
  TempFolder temp;
  CheckOneLine(Args{"train", "--run-dir", temp.File("run")} + TinyJob({"--micro-batches", "200"}),
               kExitUsage, {"micro_batches = 200", "global_batch = 128"});
}

TEST_CASE("a run folder that cannot be made, or that holds a run, is named") {
  TempFolder temp;
  std::ofstream(temp.File("file")) << "not a folder\n";
  CheckOneLine(Args{"train", "--run-dir", temp.File("file/run")} + TinyJob(), kExitUsage,
               {temp.File("file/run"), "Not a directory"});
  std::filesystem::create_directory(temp.File("run"));
  std::ofstream(temp.File("run/job.toml")) << "\n";
  for (const char* command : {"train", "scheduler"}) {
    CheckOneLine(Args{command, "--run-dir", temp.File("run")} + TinyJob(), kExitUsage,
                 {temp.File("run"), "--force"});
  }
}

// A port that is in use.
class TakenPort {
 public:
  TakenPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    REQUIRE(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(listen(fd_.get(), 1) == 0);
    REQUIRE(getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    endpoint = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  std::string endpoint;

 private:
  UniqueFd fd_;
};

TEST_CASE("a port in use is named") {
  TempFolder temp;
  const TakenPort taken;
  const Parts parts{taken.endpoint, "in use", "another"};
  CheckOneLine(
      Args{"scheduler", "--bind", taken.endpoint, "--run-dir", temp.File("run")} + TinyJob(),
      kExitUsage, parts);
  CHECK_FALSE(std::filesystem::exists(temp.File("run")));
  CheckOneLine({"server", "--join", "tcp://127.0.0.1:1", "--bind", taken.endpoint}, kExitUsage,
               parts);
}

TEST_CASE("joining without a scheduler waits visibly and gives up after the start timeout") {
  for (const char* role : {"server", "worker"}) {
    TempFolder temp;
    // Port 1 is no scheduler's: joining it never succeeds.
    Process node(temp.path(), "node",
                 {role, "--join", "tcp://127.0.0.1:1", "--start-timeout", "1.5"});
    CHECK(Becomes(
        [&] { return Contains(node.err(), "waiting for the scheduler at tcp://127.0.0.1:1"); }));
    CHECK(node.is_running());
    node.Await();
    CHECK(node.exit_code() == kExitUnreached);
    CHECK(node.lifetime().count() >= 1.5);
    CHECK(ContainsAll(node.err_lines().back(), {"tcp://127.0.0.1:1", "within 1.5 s", "--join"}));
  }
  CheckOneLine({"status", "--join", "tcp://127.0.0.1:1", "--start-timeout", "0.3"}, kExitUnreached,
               {"no scheduler answered at tcp://127.0.0.1:1"});
}

TEST_CASE("a scheduler without members names what is missing and gives up") {
  TempFolder temp;
  Process scheduler(temp.path(), "scheduler",
                    Args{"scheduler", "--bind", "tcp://127.0.0.1:0", "--run-dir", temp.File("run"),
                         "--set", "run.start_timeout_ms=1000"} +
                        TinyJob());
  scheduler.Await();
  CHECK(scheduler.exit_code() == kExitUnreached);
  CHECK(ContainsAll(scheduler.err(),
                    {"0 of 2 servers, 0 of 2 workers", "within 1 s", "start_timeout_ms"}));
  CHECK(SummaryIn(temp.File("run")).status == kStatusFailed);
}

TEST_CASE("a loss that is not a number ends the run and names step and micro-batch") {
  for (const Args& form : {Args{}, Args{"--serial"}}) {
    TempFolder temp;
    const std::string run_dir = temp.File("run");
    const Args job{
        "train", "--dataset", "synthetic-digits", "--set", "data.synthetic_train_samples=500",
        "--lr",  "1e30",      "--run-dir",        run_dir};
    Process train(temp.path(), "train", job + form);
    train.Await();
    INFO(train.err());
    CHECK(train.exit_code() == kExitFailed);
    const Summary summary = SummaryIn(run_dir);
    CHECK(summary.status == kStatusFailed);
    CHECK(summary.weights_hash.empty());
    const Parts parts{"not a finite number", "step 1, micro-batch ", "learning rate"};
    CHECK(ContainsAll(summary.failure, parts));
    CHECK(std::ranges::any_of(train.err_lines(), [&](const std::string& line) {
      return line.starts_with("pando: failed") && ContainsAll(line, parts);
    }));
    CHECK_FALSE(std::filesystem::exists(run_dir + "/final.safetensors"));
  }
}

TEST_CASE("a process that gets no memory says how much it wanted for what, and is not restarted") {
  for (const Args& form : {Args{}, Args{"--serial"}}) {
    TempFolder temp;
    Process train(temp.path(), "train",
                  Args{"train", "--model", "mlp", "--set", "model.hidden=[9000,9000]", "--dataset",
                       "synthetic-digits", "--set", "data.synthetic_train_samples=64", "--set",
                       "data.synthetic_test_samples=10", "--global-batch", "8", "--steps", "2",
                       "--run-dir", temp.File("run")} +
                      form,
                  {"prlimit", "--as=700000000"});
    train.Await(2 * kEventDeadline);
    INFO(train.err());
    CHECK(train.exit_code() != kExitCompleted);
    CHECK(Contains(train.err(), "out of memory: no "));
    CHECK(Contains(train.err(), "of the 700.0 MB that ulimit -v allows"));
    CHECK(Contains(train.err(), "Less is taken with more --micro-batches"));
    CHECK_FALSE(Contains(train.err(), "internal error"));
    CHECK_FALSE(Contains(train.err(), "restart"));
  }
}

// Folders of runs whose processes are all gone.
Args RunFolders(const TempFolder& temp, int count) {
  Args folders;
  for (int i = 0; i < count; ++i) {
    folders.push_back(temp.File("run-" + std::to_string(i)));
    std::filesystem::create_directory(folders.back());
    std::ofstream(folders.back() + "/job.toml") << "[model]\nname = \"mlp\"\n";
  }
  return folders;
}

TEST_CASE("a viewer shows 150 runs, and an error names how many it shows at most") {
  TempFolder temp;
  const Args folders = RunFolders(temp, 150);
  Process view(temp.path(), "view", Args{"view", "--http", "127.0.0.1:0"} + folders);
  REQUIRE(Becomes([&] { return Contains(view.out(), "/#token=") || !view.is_running(); }));
  INFO(view.err());
  CHECK(view.is_running());
  view.Signal(SIGTERM);
  view.Await();
  CHECK(view.exit_code() == kExitCompleted);

  Args many{"view"};
  for (int i = 0; i < 1'001; ++i) many.push_back(folders[0]);
  Process refused(temp.path(), "refused", many);
  refused.Await();
  CHECK(refused.exit_code() == kExitUsage);
  CHECK(Contains(refused.err(), "1001 runs are given, and a viewer shows up to 1000"));
}

TEST_CASE("a viewer that gets no memory does not speak of micro-batches") {
  TempFolder temp;
  Process view(temp.path(), "view", Args{"view", "--http", "127.0.0.1:0"} + RunFolders(temp, 60),
               {"prlimit", "--data=20000000"});
  view.Await();
  INFO(view.err());
  CHECK(view.exit_code() == kExitOutOfMemory);
  CHECK(Contains(view.err(), "out of memory: no "));
  CHECK(Contains(view.err(), "Fewer runs take less"));
}

// A scheduler that waits for a server and a worker, and where it listens.
struct WaitingScheduler {
  explicit WaitingScheduler(const Args& job)
      : process(temp.path(), "scheduler",
                Args{"scheduler", "--bind", "tcp://127.0.0.1:0", "--endpoint-file",
                     temp.File("endpoint"), "--run-dir", temp.File("run"), "--servers", "1",
                     "--workers", "1"} +
                    job) {
    REQUIRE(Becomes([&] { return ReadBytes(temp.File("endpoint")).ends_with('\n'); }));
    endpoint = ReadBytes(temp.File("endpoint"));
    endpoint.pop_back();
  }
  TempFolder temp;
  Process process;
  std::string endpoint;
};

// The worker reads other data than the scheduler; both report it and end.
void CheckOtherData(const std::string& data, const Parts& parts) {
  TempFolder right;
  WriteMnist(right, 40, 40);
  WaitingScheduler scheduler(Args{"--model", "mnist-cnn", "--dataset", "mnist", "--data",
                                  right.path(), "--global-batch", "16"});
  Process worker(scheduler.temp.path(), "worker",
                 {"worker", "--join", scheduler.endpoint, "--data", data});
  worker.Await();
  scheduler.process.Await();
  INFO(worker.err());
  INFO(scheduler.process.err());
  CHECK(worker.exit_code() == kExitUsage);
  REQUIRE(worker.err_lines().size() == 1);
  CHECK(ContainsAll(worker.err_lines()[0], parts));
  CHECK(scheduler.process.exit_code() == kExitFailed);
  const Summary summary = SummaryIn(scheduler.temp.File("run"));
  CHECK(summary.status == kStatusFailed);
  CHECK(Contains(summary.failure, "worker 0 on "));
  CHECK(ContainsAll(summary.failure, parts));
}

TEST_CASE("a worker with other data than the scheduler ends the run and is named") {
  TempFolder fewer, other;
  WriteMnist(fewer, 39, 39);
  CheckOtherData(fewer.path(), {fewer.path(), "39 training samples here and 40 at the scheduler"});
  WriteMnist(other, 40, 40, /*label=*/7);
  CheckOtherData(other.path(), {other.path(), "other data than the scheduler"});
}

TEST_CASE("a worker without the data ends the run and is named") {
  TempFolder temp;
  CheckOtherData(temp.File("none"), {temp.File("none")});
}

TEST_CASE("a server whose lanes' ports would exceed the last one is an error") {
  CheckOneLine(
      {"server", "--join", "tcp://127.0.0.1:1", "--bind", "tcp://127.0.0.1:65535", "--lanes", "2"},
      kExitUsage, {"lane 1", "65536", "--bind"});
}

TEST_CASE("a model too large is refused with its size before anything is started") {
  CheckOneLine({"train", "--dataset", "synthetic-digits", "--model", "mlp", "--set",
                "model.hidden=1048576,1048576"},
               kExitUsage, {"model mlp", "layer 'fc2'", "1048576 x 1048576", "bytes"});
}

TEST_CASE("chaos that cannot come over the run is refused before anything is started") {
  const auto refused = [](const std::string& chaos, const std::vector<std::string>& parts) {
    CheckOneLine(Args{"train", "--chaos", chaos} + TinyJob(), kExitUsage, parts);
  };
  refused("kil worker at step 1", {"unknown action 'kil'", "did you mean 'kill'?"});
  refused("kill worker 7 at step 1", {"there is no worker 7"});
  refused("kill worker at step 16", {"the job ends with step 16"});
}

TEST_CASE("chaos that never came due is an error, and the run is what it is") {
  TempFolder temp;
  const std::string run_dir = temp.path() + "/run";
  Process train(
      temp.path(), "train",
      Args{"train", "--chaos", "kill worker every 50m", "--run-dir", run_dir} + TinyJob());
  train.Await();
  CHECK(train.exit_code() == kExitFailed);
  CHECK(Contains(train.err(), "--chaos 'kill worker every 50m' never came due"));
  CHECK(SummaryIn(run_dir).status == kStatusCompleted);
}

TEST_CASE("what holds no run cannot be resumed") {
  CheckOneLine({"resume", "/nowhere/at/all"}, kExitUsage, {"/nowhere/at/all holds no run"});
}

TEST_CASE("commands to an absent scheduler are errors") {
  for (const char* command : {"drain", "snapshot", "stop"}) {
    Args args{command, "--join", "tcp://127.0.0.1:1", "--timeout", "0.3"};
    if (command == std::string("drain")) args.push_back("worker-0");
    CheckOneLine(args, kExitUnreached, {"no scheduler answered at tcp://127.0.0.1:1 within 0.3 s"});
  }
}

}  // namespace
}  // namespace pando
