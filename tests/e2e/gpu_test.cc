// Workers on a GPU: the weights are the same bits on any worker and after any kill, and errors of
// devices say what to do. Runs on a GPU, and on the host in its place
// (tests/cuda_on_host). Exits with 77 where PANDO_NEEDS_GPU is set and there is no GPU.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/device.h"
#include "tests/e2e/fault_run.h"

namespace pando {
namespace {

constexpr uint64_t kStepsOfGpuJob = 40;

Args GpuJob(const Args& more = {}) {
  return LongJob(kStepsOfGpuJob, Args{"--device", "cuda", "--global-batch", "32", "--micro-batches",
                                      "2", "--set", "run.lease_ms=20000"} +
                                     more);
}

Summary Train(const Args& args) {
  TempFolder temp;
  const std::string run_dir = temp.path() + "/run";
  Process train(temp.path(), "train", Args{"train", "--run-dir", run_dir} + args);
  train.Await();
  REQUIRE_MESSAGE(train.exit_code() == kExitCompleted, train.err());
  return SummaryIn(run_dir);
}

std::string FailureText(const Args& args) {
  TempFolder temp;
  Process train(temp.path(), "train", Args{"train", "--run-dir", temp.path() + "/run"} + args);
  train.Await();
  CHECK(train.exit_code() != kExitCompleted);
  return train.err();
}

// The number that follows the first `text` of a log.
uint64_t NumberAfter(const std::string& log, const std::string& text) {
  const size_t at = log.find(text);
  REQUIRE_MESSAGE(at != std::string::npos, text);
  return std::strtoull(log.c_str() + at + text.size(), nullptr, 10);
}

TEST_CASE("one worker, two workers on one GPU and no server at all make the same weights (I5)" *
          doctest::test_suite("thorough 1")) {
  const Args overflowing{"--precision", "fp16",
                         "--set",       "fp16.initial_scale_power=18",
                         "--set",       "fp16.hysteresis=1"};  // the first steps are skipped
  for (const Args& precision :
       {Args{}, Args{"--precision", "tf32"}, Args{"--precision", "bf16"}, overflowing}) {
    CAPTURE(precision.empty() ? "fp32" : precision[1]);
    const Args job = GpuJob(precision);
    const Summary serial = Train(Args{"--serial"} + job);
    CHECK(*serial.train_loss < 2.25);  // it learns
    for (const char* workers : {"1", "2"}) {
      const Summary run = Train(job + Args{"--workers", workers, "--servers", "2"});
      CHECK(run.weights_hash == serial.weights_hash);
      CHECK(run.test_accuracy == serial.test_accuracy);
    }
  }
}

TEST_CASE("a worker that is killed on its GPU leaves no trace in the weights" *
          doctest::test_suite("thorough 1")) {
  const Args job = GpuJob({"--steps", "120"});
  const Summary serial = Train(Args{"--serial"} + job);
  const Summary run = Train(
      job + Args{"--workers", "2", "--servers", "1", "--chaos",
                 "kill worker 0 at step 20; kill worker 1 at step 60; kill worker at step 90"});
  CHECK(run.weights_hash == serial.weights_hash);
  CHECK(run.faults.size() >= 3);
}

#ifdef PANDO_HAS_GLOO
// They share the GPU, or are in processes that know of each other by gloo alone, so gloo sums.
TEST_CASE("workers on a GPU that sum without servers make the same weights" *
          doctest::test_suite("thorough 1")) {
  const Args job = GpuJob();
  const Summary serial = Train(Args{"--serial"} + job);
  const Summary run = Train(job + Args{"--workers", "2", "--strategy", "allreduce"});
  CHECK(run.weights_hash == serial.weights_hash);
}
#endif

TEST_CASE("a GPU that is not there and precisions that are not a CPU's are errors that name them") {
  CHECK(Contains(FailureText(GpuJob({"--device", "cuda:97", "--serial"})), "there is no GPU 97"));
  CHECK(Contains(FailureText(GpuJob({"--device", "gpu"})), "expected auto, cpu, cuda, or cuda:N"));
  CHECK(Contains(FailureText(GpuJob({"--device", "cpu", "--precision", "bf16", "--serial"})),
                 "train.precision is bf16, which only GPUs support"));
}

TEST_CASE("a job that the GPU has no room for says what it takes and what would fit") {
  const std::string error = FailureText(GpuJob(  // some 200 GB of activations
      {"--global-batch", "1923", "--micro-batches", "1", "--model", "resnet50", "--set",
       "data.resize=224", "--serial"}));
  CAPTURE(error);
  CHECK(Contains(error, "of the GPU's memory with micro-batches of"));
  CHECK(Contains(error, "samples would fit: set train.micro_batches to"));
}

// The servers of its host read its gradients in place, and it their parameters, with or without the
// driver's help for memory that is only readable.
TEST_CASE("a worker on a GPU copies nothing through ZeroMQ to servers of its host" *
          doctest::test_suite("thorough 2")) {
  const Args job = GpuJob({"--model", "mlp", "--set", "model.hidden=384"});
  const Summary serial = Train(Args{"--serial"} + job);
  for (const char* read_only : {"1", "0"}) {
    setenv("CUDA_ON_HOST_READ_ONLY", read_only, 1);
    TempFolder temp;
    const std::string run_dir = temp.path() + "/run";
    Process train(temp.path(), "train",
                  Args{"train", "--run-dir", run_dir, "--transport", "shm"} + job +
                      Args{"--workers", "1", "--servers", "2"});
    train.Await();
    REQUIRE_MESSAGE(train.exit_code() == kExitCompleted, train.err());
    CHECK(SummaryIn(run_dir).weights_hash == serial.weights_hash);
    const std::string log = ReadBytes(run_dir + "/logs/worker-0.log");
    CAPTURE(log);
    // A server that has not mapped this worker's memory yet sends the first parameters as bytes.
    CHECK(NumberAfter(log, "copied by ZeroMQ on this host: ") <=
          NumberAfter(log, "pulled ") / kStepsOfGpuJob);
  }
  unsetenv("CUDA_ON_HOST_READ_ONLY");
}

// With layer residency parameters are decoded by the CPU.
TEST_CASE(
    "reading threads, GPUs of a host and where codecs run leave no trace in the weights (I5)" *
    doctest::test_suite("thorough 2")) {
  const Args job =
      GpuJob({"--steps", "12", "--codec", "bf16", "--pull-codec", "fp16", "--micro-batches", "4"});
  const Summary serial = Train(Args{"--serial"} + job);
  const auto check = [&](const Args& more) {
    const Summary run = Train(job + Args{"--servers", "2"} + more);
    CHECK(run.weights_hash == serial.weights_hash);
  };
  for (const char* readers : {"1", "2", "4"})
    check({"--workers", "1", "--reader-threads", readers});
  check({"--workers", "2", "--set", "worker.parameter_residency=layer"});
  for (const char* gpus : {"4", "1"}) {
    setenv("CUDA_ON_HOST_GPUS", gpus, 1);
    check({"--workers", "4"});
  }
  setenv("CUDA_ON_HOST_GPUS", "2", 1);  // tests/e2e/meson.build
}

TEST_CASE("a worker takes of its GPU what was planned" * doctest::test_suite("thorough 2")) {
  TempFolder temp;
  const std::string run_dir = temp.path() + "/run";
  Process train(temp.path(), "train",
                Args{"train", "--run-dir", run_dir, "-v"} +
                    GpuJob({"--steps", "2", "--global-batch", "4096", "--micro-batches", "1",
                            "--workers", "1", "--servers", "1"}));
  train.Await();
  REQUIRE_MESSAGE(train.exit_code() == kExitCompleted, train.err());
  const std::string log = ReadBytes(run_dir + "/logs/worker-0.log");
  const uint64_t planned = NumberAfter(log, "GPU memory: planned ");
  const uint64_t took = NumberAfter(log, " bytes, took ");
  MESSAGE("planned " << planned << " bytes, took " << took);
  CHECK(static_cast<double>(took) > 0.95 * static_cast<double>(planned));
  // On a GPU kernels are loaded when they are first used.
  const double loaded_late = std::getenv("PANDO_NEEDS_GPU") == nullptr ? 0 : 256e6;
  CHECK(static_cast<double>(took) < 1.05 * static_cast<double>(planned) + loaded_late);
}

std::string ModelOn(const Args& args) {
  TempFolder temp;
  Process model(temp.path(), "model", Args{"model", "mobilenet-v2", "--batch", "8"} + args);
  model.Await();
  CHECK(model.exit_code() == kExitCompleted);
  return model.out();
}

TEST_CASE("pando model shows what a worker takes of a GPU, where one is asked for") {
  const std::string fp32 = ModelOn({"--device", "cuda"});
  const std::string bf16 = ModelOn({"--device", "cuda", "--precision", "bf16"});
  CAPTURE(bf16);
  CHECK(Contains(bf16, "bytes of the GPU's memory"));
  CHECK(Contains(bf16, "  a worker "));
  // Activations of two bytes, and everything else as it was.
  const auto line = [](const std::string& text, const char* name) {
    const size_t first = text.find(name, text.find("of the GPU's memory"));
    return text.substr(first, text.find('\n', first) - first);
  };
  CHECK(line(fp32, "  parameters") == line(bf16, "  parameters"));
  CHECK(line(fp32, "  network") != line(bf16, "  network"));
  CHECK_FALSE(Contains(ModelOn({}), "GPU"));
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) {
  if (std::getenv("PANDO_NEEDS_GPU") != nullptr && pando::GpuCount() == 0) {
    std::printf("skipped: there is no GPU here\n");
    return pando::kSkipped;
  }
  return doctest::Context(argc, argv).run();
}
