#include "job/device_choice.h"

#include <fmt/core.h>

#include <utility>

#include "common/system.h"
#include "job/batch_check.h"

namespace pando {
namespace {

using Kind = DeviceChoice::Kind;

ElementType ElementFor(Precision precision) {
  if (precision == Precision::kBf16) return ElementType::kBfloat16;
  return precision == Precision::kFp16 ? ElementType::kFloat16 : ElementType::kFloat32;
}

Status CheckCpuPrecision(const Job& job) {
  if (job.precision == Precision::kFp32 || job.precision == Precision::kTf32) return Status();
  return InvalidArgument(fmt::format(
      "train.precision is {}, which only GPUs support, and this worker is on a CPU; give it a GPU "
      "(--device cuda; `pando doctor` lists the GPUs), or train with --precision fp32",
      EnumName(job.precision)));
}

Result<OpenedDevice> OpenCpu(const Job& job) {
  PANDO_RETURN_IF_ERROR(CheckCpuPrecision(job));
  return OpenedDevice{.gpu = std::nullopt,
                      .kind = fmt::format("cpu, {}, pando {}", InstructionSet(), PandoVersion())};
}

}  // namespace

Result<DeviceChoice> ParseDevice(const std::string& flag, const std::string& text) {
  if (text == "auto") return DeviceChoice{Kind::kAuto};
  if (text == "cpu") return DeviceChoice{Kind::kCpu};
  if (text == "cuda") return DeviceChoice{Kind::kAnyGpu};
  const std::string number = text.starts_with("cuda:") ? text.substr(5) : "";
  const bool is_number = !number.empty() && number.size() <= 3 &&
                         number.find_first_not_of("0123456789") == std::string::npos;
  if (is_number) return DeviceChoice{Kind::kGpu, static_cast<uint32_t>(std::stoul(number))};
  return InvalidArgument(
      fmt::format("{} {}: expected auto, cpu, cuda, or cuda:N with N from 0", flag, text));
}

uint32_t CountGpus(const DeviceChoice& choice, uint32_t (*count)()) {
  return choice.kind == Kind::kCpu ? 0 : count();
}

uint32_t GpusFor(const DeviceChoice& choice, uint32_t gpu_count) {
  if (!IsGpuMeant(choice, gpu_count)) return 0;
  return choice.kind == Kind::kGpu ? 1 : gpu_count;
}

bool IsGpuMeant(const DeviceChoice& choice, uint32_t gpu_count) {
  return choice.kind == Kind::kAuto ? gpu_count > 0 : choice.kind != Kind::kCpu;
}

std::string DeviceOfWorker(const DeviceChoice& choice, uint32_t gpu_count, uint32_t index) {
  if (choice.kind == Kind::kGpu) return fmt::format("cuda:{}", choice.gpu);
  if (choice.kind == Kind::kCpu) return "cpu";
  if (gpu_count > 0) return fmt::format("cuda:{}", index % gpu_count);
  return choice.kind == Kind::kAuto ? "auto" : "cuda";
}

Status CheckMachine(const Job& job, const Model& model, const StepPlan& steps) {
  PANDO_ASSIGN_OR_RETURN(DeviceChoice choice, ParseDevice("--device", job.device));
  const uint32_t gpu_count = CountGpus(choice);
  if (!IsGpuMeant(choice, gpu_count)) {
    PANDO_RETURN_IF_ERROR(CheckCpuPrecision(job));
    return CheckMemory(job, model, steps, MachineMemoryBytes());
  }
  if (choice.gpu < gpu_count) return Status();
  return OpenCuda({.index = static_cast<int>(choice.gpu)}).status();  // its error says why not
}

Result<OpenedDevice> OpenDevice(const DeviceChoice& choice, const Job& job,
                                const OnEngineNote& on_engine) {
  if (!IsGpuMeant(choice, CountGpus(choice))) return OpenCpu(job);
  if (job.local_steps > 1)
    return InvalidArgument(
        "train.local_steps computes on CPUs alone; give this worker --device cpu");
  Result<OpenedGpu> gpu = OpenCuda({.index = static_cast<int>(choice.gpu),
                                    .element = ElementFor(job.precision),
                                    .allow_tf32 = job.precision == Precision::kTf32,
                                    .allow_nondeterministic = job.allow_nondeterministic,
                                    .on_engine = on_engine});
  if (!gpu.ok()) return gpu.status();
  std::string kind =
      fmt::format("cuda, {}, {}{}, pando {}", gpu->description(), EnumName(job.precision),
                  job.allow_nondeterministic ? ", non-deterministic" : "", PandoVersion());
  return OpenedDevice{.gpu = *std::move(gpu), .kind = std::move(kind)};
}

Result<OpenedDevice> OpenDevice(const std::string& device, const Job& job,
                                const OnEngineNote& on_engine) {
  Result<DeviceChoice> choice = ParseDevice("--device", device);
  return choice.ok() ? OpenDevice(*choice, job, on_engine) : choice.status();
}

}  // namespace pando
