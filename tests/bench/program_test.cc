// `pando bench` as a program: its flags, a quick run of everything, the report, Ctrl-C.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "tests/contains.h"
#include "tests/deadline.h"
#include "tests/temp_folder.h"

namespace pando::bench {
namespace {

struct Outcome {
  int exit_code;
  std::string text;  // both streams
};

Outcome Run(const std::string& arguments, const std::string& program = getenv("PANDO_PROGRAM")) {
  const std::string command = program + " bench " + arguments + " 2>&1 </dev/null";
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
}

// Processes that have this word in their environment.
size_t MarkedProcesses(const std::string& mark) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "environ", std::ios::binary);
    const std::string environ{std::istreambuf_iterator<char>(file), {}};
    count += Contains(environ, mark);
  }
  return count;
}

using Json = nlohmann::json;

Json ResultIn(const std::string& path) {
  std::ifstream file(path);
  const Json set = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  REQUIRE(set.is_object());
  return set;
}

// Null if it was not measured.
Json Measured(const Json& point, const std::string& metric) {
  for (const Json& m : point["measurements"]) {
    if (m["metric"] == metric) return m;
  }
  return {};
}

double FindMedian(const Json& point, const std::string& metric) {
  const Json m = Measured(point, metric);
  return m.is_null() ? 0.0 : m["p50"].get<double>();
}

Json PointNamed(const Json& set, const std::string& name) {
  for (const Json& point : set["points"]) {
    if (point["name"] == name) return point;
  }
  FAIL("no point is called ", name);
  return {};
}

TEST_CASE("help lists the benchmarks that there are") {
  const Outcome help = Run("--help");
  CHECK(help.exit_code == 0);
  for (const char* name : {"push-pull", "step", "recovery", "scaling", "kernels", "report"})
    CHECK(Contains(help.text, name));
  CHECK(!Contains(help.text, "\n    peer"));  // is for the benchmarks alone
  const Outcome of_one = Run("push-pull --help");
  CHECK(of_one.exit_code == 0);
  CHECK(Contains(of_one.text, "--transport"));
}

TEST_CASE("without its scripts pando bench says how to build it") {
  const TempFolder folder;
  const std::string alone = folder.path() + "/pando";
  std::filesystem::copy_file(getenv("PANDO_PROGRAM"), alone);
  const Outcome outcome = Run("--help", alone);
  CHECK(outcome.exit_code == 2);
  CHECK(Contains(outcome.text, folder.path() + "/pando_bench: No such file"));
  CHECK(Contains(outcome.text, "ninja -C BUILD_FOLDER"));
}

TEST_CASE("bad flags are one clear error and exit code 2") {
  const std::vector<std::pair<std::string, std::string>> bad{
      {"push-pull --bytes 4KB", "'4KB' is no size"},
      {"push-pull --bytes 100", "multiple of 64"},
      {"push-pull --bytes 1GiB", "too large"},
      {"push-pull --transport udp", "udp"},
      {"push-pull --workers 0", "--workers"},
      {"push-pull --optimizer adam", "adam"},
      {"step --model resnet19", "'resnet19' is none of the zoo's"},
      {"step --strategy single", "single"},
      {"step --replicas 3", "--replicas"},
      {"step --seconds 0", "--seconds"},
      {"step --program /nowhere/pando", "/nowhere/pando"},
      {"recovery --fault everybody", "everybody"},
      {"recovery --at-step 50", "--warm-up"},
      {"recovery --workers 1", "--workers"},
      {"recovery --model mnist-cnn,mlp", "one model"},
      {"scaling --scaling sideways", "sideways"},
      {"scaling --batch 2 --workers 1,4", "--batch"},
      {"kernels --model resnet19", "'resnet19' is none of the zoo's"},
      {"kernels --batch 0", "--batch"},
      {"pull-push", "pull-push"},
      {"", "pando bench"},
      {"report", "DIR"},
      {"report /nowhere/at/all", "/nowhere/at/all"}};
  for (const auto& [arguments, said] : bad) {
    CAPTURE(arguments);
    const Outcome outcome = Run(arguments);
    CHECK(outcome.exit_code == 2);
    CAPTURE(outcome.text);
    CHECK(Contains(outcome.text, said));
  }
}

TEST_CASE("a quick run measures every way, leaves its files, and makes a report" *
          doctest::test_suite("thorough 1")) {
  const TempFolder folder;
  const std::string out = folder.path() + "/out";
  const Outcome run = Run(
      "push-pull --quick --servers 1,2 --workers 2 --optimizer sum,sgd-momentum --rounds 1 --out " +
      out);
  CAPTURE(run.text);
  REQUIRE(run.exit_code == 0);
  const Json set = ResultIn(out + "/push-pull.json");
  // memcpy, a += b; raw TCP, raw ZeroMQ over both; 3 transports x 2 shapes x 2 optimizers; 2 sizes.
  CHECK(set["points"].size() == 2 * (2 + 3 + 12));
  for (const Json& point : set["points"]) {
    const std::string name = point["name"];
    CAPTURE(name);
    CHECK(FindMedian(point, "throughput") > 0.0);
    if (Measured(point, "messages").is_null()) continue;
    CHECK(FindMedian(point, "messages") > 0.0);
    CHECK(FindMedian(point, "latency p50") > 0.0);
    CHECK(FindMedian(point, "latency p99") >= FindMedian(point, "latency p50"));
    CHECK(FindMedian(point, "processor time") > 0.0);
  }
  const Outcome report = Run("report " + out);
  CHECK(report.exit_code == 0);
  for (const char* file :
       {"push-pull-tcp.svg", "push-pull-ipc.svg", "push-pull-shm.svg", "report.html"})
    CHECK(std::filesystem::exists(out + "/" + file));
}

TEST_CASE("a quick step measures every exchange beside a local update") {
  const TempFolder folder;
  const std::string out = folder.path() + "/out";
  const Outcome run =
      Run("step --quick --replicas 1,2 --transport tcp,ipc --batch 16 --out " + out);
  CAPTURE(run.text);
  REQUIRE(run.exit_code == 0);
  const Json set = ResultIn(out + "/step.json");
  CHECK(set["points"].size() == 1 + 1 + 4 + 1);
  for (const Json& point : set["points"]) {
    const std::string name = point["name"];
    CAPTURE(name);
    CHECK(FindMedian(point, "images/s") > 0.0);
    const bool is_local = name.ends_with("local update") || name.ends_with("--serial");
    CHECK((Measured(point, "exposed synchronisation").is_null()) == is_local);
  }
  CHECK(Run("report " + out).exit_code == 0);
  CHECK(std::filesystem::exists(out + "/step-mnist-cnn.svg"));
}

TEST_CASE("a quick recovery hurts each role, and a group without a worker begins again" *
          doctest::test_suite("thorough 2")) {
  const TempFolder folder;
  const std::string out = folder.path() + "/out";
  const Outcome run =
      Run("recovery --quick --fault worker,server,scheduler,stopped-worker --out " + out);
  CAPTURE(run.text);
  REQUIRE(run.exit_code == 0);
  const Json set = ResultIn(out + "/recovery.json");
  CHECK(set["points"].size() == (1 + 4) + (1 + 3));
  for (const Json& point : set["points"]) {
    const std::string name = point["name"];
    CAPTURE(name);
    CHECK(FindMedian(point, "time to the goal") > 0.0);
    if (name.ends_with("undisturbed")) continue;
    CHECK(!Measured(point, "lost").is_null());
    CHECK(FindMedian(point, "next commit") > 0.0);
    // By its lease alone, of a second, of which the last sign of life may be 250 ms old.
    if (name == "ps, worker stopped") CHECK(FindMedian(point, "noticed") > 500.0);
  }
  CHECK(Run("report " + out).exit_code == 0);
  for (const char* plot : {"recovery-next-commit.svg", "recovery-lost.svg"})
    CHECK(std::filesystem::exists(out + "/" + plot));
  // New processes, a new group, and 20 steps again.
  CHECK(FindMedian(PointNamed(set, "allreduce, worker killed"), "next commit") > 100.0);
  // By a lease of a second first.
  CHECK(FindMedian(PointNamed(set, "allreduce, worker stopped"), "next commit") > 500.0);
}

TEST_CASE("a quick scaling compares two workers with one, weak and strong" *
          doctest::test_suite("thorough 3")) {
  const TempFolder folder;
  const std::string out = folder.path() + "/out";
  const Outcome run = Run("scaling --quick --workers 2,1,2 --batch 16 --out " + out);
  CAPTURE(run.text);
  REQUIRE(run.exit_code == 0);
  const Json set = ResultIn(out + "/scaling.json");
  CHECK(set["points"].size() == 2 * 2 * 2);
  for (const Json& point : set["points"]) {
    const std::string name = point["name"];
    CAPTURE(name);
    CHECK(FindMedian(point, "images/s") > 0.0);
    CHECK(FindMedian(point, "efficiency") > 0.0);
    if (Contains(name, "1 worker")) CHECK(FindMedian(point, "efficiency") == 1.0);
  }
  CHECK(Run("report " + out).exit_code == 0);
  CHECK(std::filesystem::exists(out + "/scaling-mnist-cnn.svg"));
}

TEST_CASE("quick kernels measure the ceilings and every layer" *
          doctest::test_suite("thorough 1")) {
  const TempFolder folder;
  const std::string out = folder.path() + "/out";
  const Outcome run = Run("kernels --quick --batch 8 --out " + out);
  CAPTURE(run.text);
  REQUIRE(run.exit_code == 0);
  const Json set = ResultIn(out + "/kernels.json");
  CHECK(FindMedian(PointNamed(set, "memcpy"), "rate") > 0.0);
  CHECK(Measured(PointNamed(set, "fused multiply-adds"), "rate")["samples"].size() == 2);
  CHECK(set["points"].size() > 2 + 1 + 4);  // two convolutions and two linear layers
  CHECK(set["tables"].size() == 2);
  CHECK(Run("report " + out).exit_code == 0);
  CHECK(std::filesystem::exists(out + "/kernels-kinds.svg"));
}

// Starts `pando bench WORDS`, interrupts it once `process_count` processes are at work, and sees
// that nothing is left.
void InterruptBench(const std::vector<std::string>& words, size_t process_count) {
  const TempFolder folder;
  const std::string mark = "PANDO_BENCH_TEST=" + folder.path();
  std::vector<std::string> all{"pando", "bench"};
  all.insert(all.end(), words.begin(), words.end());
  all.insert(all.end(), {"--out", folder.path() + "/out"});
  std::vector<char*> argv;
  for (std::string& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    setenv("PANDO_BENCH_TEST", folder.path().c_str(), 1);
    setenv("TMPDIR", folder.path().c_str(), 1);
    execv(getenv("PANDO_PROGRAM"), argv.data());
    _exit(127);
  }
  REQUIRE(pid > 0);
  const auto deadline = std::chrono::steady_clock::now() + kEventDeadline;
  size_t seen = MarkedProcesses(mark);  // once: within its execve() a process shows no environment
  while (seen < process_count && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    seen = MarkedProcesses(mark);
  }
  CHECK(seen >= process_count);
  kill(pid, SIGINT);
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 130);
  CHECK(MarkedProcesses(mark) == 0);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("Ctrl-C ends it at once, and no process, file or socket is left") {
  // Behind memcpy and a += b: the benchmark, a server and a worker.
  InterruptBench(
      {"push-pull", "--seconds", "60", "--servers", "1", "--workers", "1", "--bytes", "4KiB"}, 3);
}

TEST_CASE("Ctrl-C while training ends the runs and all their processes" *
          doctest::test_suite("thorough 3")) {
  // Two local updates; then pando train, a scheduler, a server and two workers.
  for (const std::string strategy : {"ps", "allreduce"}) {
    CAPTURE(strategy);
    const size_t of_run = strategy == "ps" ? 5 : 4;
    InterruptBench({"step", "--model", "mnist-cnn", "--strategy", strategy, "--transport", "ipc",
                    "--seconds", "0.2", "--replicas", "1", "--rounds", "100"},
                   1 + of_run);
  }
}

}  // namespace
}  // namespace pando::bench
