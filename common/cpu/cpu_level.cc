#include "common/cpu/cpu_level.h"

#include <fmt/core.h>

#include <atomic>
#include <optional>

namespace pando {
namespace {

constexpr int kNotChosen = -1;
std::atomic<int> chosen_level = kNotChosen;

}  // namespace

CpuLevel BestCpuLevel() {
#ifdef PANDO_HAS_CPU_LEVELS
  if (__builtin_cpu_supports("x86-64-v4")) return CpuLevel::kV4;
  if (__builtin_cpu_supports("x86-64-v3")) return CpuLevel::kV3;
#endif
  return CpuLevel::kV2;
}

CpuLevel ChosenCpuLevel() {
  int level = chosen_level.load(std::memory_order_relaxed);
  if (level == kNotChosen) {
    level = static_cast<int>(BestCpuLevel());
    chosen_level.store(level, std::memory_order_relaxed);
  }
  return static_cast<CpuLevel>(level);
}

Status ChooseCpuLevel(const std::string& name) {
  const std::optional<CpuLevel> level = ParseEnum<CpuLevel>(name);
  if (!level) return InvalidArgument(fmt::format("CPU level '{}': expected v2, v3 or v4", name));
  if (!kHasCpuLevels)
    return InvalidArgument(
        fmt::format("CPU level {}: this program was built for one instruction set (-Dcpu_arch); "
                    "build it with -Dcpu_arch=levels",
                    name));
  if (*level > BestCpuLevel())
    return InvalidArgument(fmt::format("CPU level {}: this processor has x86-64-{} at most", name,
                                       EnumName(BestCpuLevel())));
  chosen_level.store(static_cast<int>(*level), std::memory_order_relaxed);
  return Status();
}

}  // namespace pando
