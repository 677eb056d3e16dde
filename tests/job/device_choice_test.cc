#include "job/device_choice.h"

#include <doctest/doctest.h>

#include <string>

#include "job/job_file.h"

namespace pando {
namespace {

using Kind = DeviceChoice::Kind;

DeviceChoice Parsed(const std::string& text) {
  Result<DeviceChoice> choice = ParseDevice("--device", text);
  REQUIRE(choice.ok());
  return *choice;
}

TEST_CASE("a device is auto, cpu, cuda or cuda:N, and nothing else") {
  CHECK(Parsed("auto").kind == Kind::kAuto);
  CHECK(Parsed("cpu").kind == Kind::kCpu);
  CHECK(Parsed("cuda").kind == Kind::kAnyGpu);
  CHECK(Parsed("cuda:12").kind == Kind::kGpu);
  CHECK(Parsed("cuda:12").gpu == 12);
  for (const char* text : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1000", "CPU", "cuda 0"}) {
    CAPTURE(text);
    const Result<DeviceChoice> choice = ParseDevice("--device", text);
    REQUIRE_FALSE(choice.ok());
    CHECK(choice.status().message().find("--device") == 0);
  }
}

TEST_CASE("workers take a machine's GPUs in turn, and the CPU where there are none") {
  CHECK(DeviceOfWorker(Parsed("auto"), 2, 0) == "cuda:0");
  CHECK(DeviceOfWorker(Parsed("auto"), 2, 3) == "cuda:1");
  CHECK(DeviceOfWorker(Parsed("cuda"), 2, 1) == "cuda:1");
  CHECK(DeviceOfWorker(Parsed("cuda:1"), 2, 0) == "cuda:1");
  CHECK(DeviceOfWorker(Parsed("auto"), 0, 3) == "auto");
  CHECK(DeviceOfWorker(Parsed("cuda"), 0, 3) == "cuda");  // it says that there is none
  CHECK(DeviceOfWorker(Parsed("cpu"), 2, 1) == "cpu");
  CHECK(GpusFor(Parsed("auto"), 4) == 4);
  CHECK(GpusFor(Parsed("cuda:2"), 4) == 1);
  CHECK(GpusFor(Parsed("cpu"), 4) == 0);
}

int asked_count;

TEST_CASE("GPUs are not counted if the device is the CPU") {
  asked_count = 0;
  const auto count = [] { return ++asked_count, 2u; };
  CHECK(CountGpus(Parsed("cpu"), count) == 0);
  CHECK(asked_count == 0);
  for (const char* text : {"auto", "cuda", "cuda:1"}) CHECK(CountGpus(Parsed(text), count) == 2);
  CHECK(asked_count == 3);
}

TEST_CASE("bf16 and fp16 are not for a CPU, tf32 is floats there") {
  Job job;
  for (const auto& [precision, is_for_cpu] :
       {std::pair(Precision::kFp32, true), std::pair(Precision::kTf32, true),
        std::pair(Precision::kBf16, false), std::pair(Precision::kFp16, false)}) {
    job.precision = precision;
    const Result<OpenedDevice> device = OpenDevice(Parsed("cpu"), job);
    CHECK(device.ok() == is_for_cpu);
    if (device.ok()) CHECK(device->threads(job) == job.threads);
  }
}

TEST_CASE("fp16 turns loss scaling on, and nothing else does") {
  CHECK(ParseJobText("[train]\nprecision = \"fp16\"\n", "job.toml")->optimizer.loss_scale.is_on);
  CHECK_FALSE(
      ParseJobText("[train]\nprecision = \"bf16\"\n", "job.toml")->optimizer.loss_scale.is_on);
}

TEST_CASE("bits cannot be verified where they may differ") {
  const Result<Job> job =
      ParseJobText("[train]\nallow_nondeterministic = true\n[verify]\nevery = 10\n", "job.toml");
  REQUIRE_FALSE(job.ok());
  CHECK(job.status().message().find("verify.every") != std::string::npos);
}

}  // namespace
}  // namespace pando
