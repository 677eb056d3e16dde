#include "tests/ptx/machine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "common/check.h"
#include "tests/ptx/kernel_parser.h"

namespace pando::ptx {
namespace {

constexpr uint64_t kSharedBytesMax = 48 << 10;  // of arrays whose sizes are known when compiling
constexpr uint64_t kHardwareRegisters = 65536;  // per multiprocessor
constexpr uint64_t kGridMax = 65535;            // along y and z
constexpr uint64_t kGridMaxX = 2147483647;

const char* Variable(const char* name, const char* otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : text;
}

MachineOptions ReadOptions(const std::filesystem::path& ptx) {
  MachineOptions options{.folder = ptx.parent_path(), .arch = ptx.filename()};
  options.seed = std::strtoull(Variable("CUDA_ON_HOST_SEED", "1"), nullptr, 10);
  const std::string order = Variable("CUDA_ON_HOST_LANES", "lowest");
  PANDO_CHECK(order == "lowest" || order == "highest" || order == "random");
  if (order == "highest") options.lane_order = LaneOrder::kHighestFirst;
  if (order == "random") options.lane_order = LaneOrder::kRandom;
  options.notes_path = Variable("CUDA_ON_HOST_NOTES", "");
  return options;
}

}  // namespace

Machine::Machine(MachineOptions options) : options_(std::move(options)), random_(options_.seed) {
  TheFindings();  // the process's end looks at them
  const std::string ending = "." + options_.arch + ".ptx";
  for (const auto& file : std::filesystem::directory_iterator(options_.folder)) {
    const std::string path = file.path();
    if (!path.ends_with(ending)) continue;
    modules_.emplace_back(path, path.substr(0, path.size() - 3) + "txt");
    for (const auto& [name, entry] : modules_.back().entries()) Note("kernel", name);
  }
  if (modules_.empty()) {
    std::fprintf(stderr, "PTX: no *%s in %s\n", ending.c_str(), options_.folder.c_str());
    std::abort();
  }
}

void Machine::Launch(const void* function, Size3 grid, Size3 block,
                     std::span<const Argument> arguments) {
  const Kernel& kernel = FindKernel(function);
  if (!IsWithinLimits(kernel, grid, block)) return;
  LaunchSetting setting{.kernel = kernel,
                        .memory = memory_,
                        .grid = grid,
                        .block = block,
                        .parameters = PackArguments(kernel, arguments),
                        .lane_order = options_.lane_order};
  RunBlocks(setting);
}

const Kernel& Machine::FindKernel(const void* function) {
  std::unique_ptr<Kernel>& kernel = kernels_[function];
  if (kernel != nullptr) return *kernel;
  const std::string& name = symbols_.Find(function);
  for (const Module& module : modules_) {
    if (!module.entries().contains(name)) continue;
    kernel = std::make_unique<Kernel>(KernelParser(module).Parse(name));
    Note("ran", name);
    return *kernel;
  }
  std::fprintf(stderr, "PTX: no kernel is named %s\n", name.c_str());
  std::abort();
}

// A GPU refuses a launch beyond its limits.
bool Machine::IsWithinLimits(const Kernel& kernel, Size3 grid, Size3 block) const {
  const auto refuse = [&kernel](const std::string& what, uint64_t value) {
    TheFindings().Add("a launch beyond the GPU's limits", kernel.name, kernel.lines.at(1),
                      what + ": " + std::to_string(value));
    return false;
  };
  const uint64_t threads = block.count();
  if (threads == 0 || threads > kernel.threads_max) return refuse("threads", threads);
  if (block.x > 1024 || block.y > 1024 || block.z > 64) return refuse("threads along z", block.z);
  if (grid.count() == 0 || grid.x > kGridMaxX) return refuse("blocks along x", grid.x);
  if (grid.y > kGridMax) return refuse("blocks along y", grid.y);
  if (grid.z > kGridMax) return refuse("blocks along z", grid.z);
  if (kernel.shared_variable_bytes > kSharedBytesMax)
    return refuse("bytes of shared memory", kernel.shared_variable_bytes);
  const uint64_t per_thread = (kernel.hardware_registers + 7) / 8 * 8;
  const uint64_t warps = (threads + kWarpLanes - 1) / kWarpLanes;
  if (warps * kWarpLanes * per_thread > kHardwareRegisters)
    return refuse("registers of a block", warps * kWarpLanes * per_thread);
  return true;
}

// They lie as in a struct. nvcc and g++ must agree on the sizes.
std::vector<std::byte> Machine::PackArguments(const Kernel& kernel,
                                              std::span<const Argument> arguments) const {
  std::vector<std::byte> packed(kernel.parameter_bytes);
  PANDO_CHECK(arguments.size() == kernel.parameters.size());
  size_t offset = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& [value, size_bytes, alignment] = arguments[i];
    offset = (offset + alignment - 1) / alignment * alignment;
    PANDO_CHECK(kernel.parameters[i].offset == offset);
    PANDO_CHECK(kernel.parameters[i].size_bytes == size_bytes);
    std::memcpy(packed.data() + offset, value, size_bytes);
    offset += size_bytes;
  }
  return packed;
}

void Machine::RunBlocks(LaunchSetting& setting) {
  const uint64_t count = setting.grid.count();
  setting.first_stamp = memory_.TakeStamps(count);
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random_.Below(i)]);
  Block block(setting, random_);
  for (const uint32_t i : order) {
    const Size3 position{i % setting.grid.x, i / setting.grid.x % setting.grid.y,
                         i / setting.grid.x / setting.grid.y};
    block.Run(position, setting.first_stamp + 1 + i);
  }
}

void Machine::Note(const char* what, const std::string& kernel) const {
  if (options_.notes_path.empty()) return;
  std::ofstream(options_.notes_path, std::ios::app) << what << ' ' << kernel << '\n';
}

Machine* TheMachine() {
  static Machine* machine = [] {
    const char* ptx = std::getenv("CUDA_ON_HOST_PTX");
    return ptx == nullptr ? nullptr : new Machine(ReadOptions(ptx));
  }();
  return machine;
}

}  // namespace pando::ptx
