#include "common/cpu/cpu_level.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "common/cpu/float_arrays.h"
#include "tests/contains.h"
#include "tests/cpu_levels.h"

namespace pando {
namespace {

TEST_CASE("a CPU level is chosen by its name, and the best one without a choice") {
  CHECK(ChosenCpuLevel() == BestCpuLevel());
  for (const char* name : {"", "v1", "v5", "avx512", "x86-64-v3", "V3"}) {
    CAPTURE(name);
    CHECK(Contains(ChooseCpuLevel(name).message(), "expected v2, v3 or v4"));
  }
  AtEachCpuLevel([] {});
  CHECK(ChosenCpuLevel() == BestCpuLevel());
}

TEST_CASE("a level that the processor has not got is named with the one that it has") {
  if (!kHasCpuLevels) {
    CHECK(Contains(ChooseCpuLevel("v2").message(), "-Dcpu_arch=levels"));
  } else if (BestCpuLevel() != CpuLevel::kV4) {
    const std::string error = ChooseCpuLevel("v4").message();
    const std::string best = EnumName(BestCpuLevel());
    CHECK(Contains(error, "CPU level v4: this processor has x86-64-" + best));
  }
  CHECK(ChosenCpuLevel() == BestCpuLevel());
}

TEST_CASE("sums have the same bits at every CPU level for any length") {
  for (const size_t size : {0, 1, 7, 16, 33, 1000}) {
    CAPTURE(size);
    std::vector<float> left(size), right(size);
    for (size_t i = 0; i < size; ++i) {
      left[i] = 1.0f / static_cast<float>(i + 3);
      right[i] = -0.7f * static_cast<float>(i);
    }
    AtEachCpuLevel([&] {
      std::vector<float> sums(size + 1, 5.0f);
      AddSpans(sums.data(), left, right);
      for (size_t i = 0; i < size; ++i) CHECK(sums[i] == left[i] + right[i]);
      CHECK(sums[size] == 5.0f);
    });
  }
}

}  // namespace
}  // namespace pando
