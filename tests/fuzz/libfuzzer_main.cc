// The part of a target's program that libFuzzer's own main calls first.
//   fuzz_TARGET --seeds=FOLDER    writes FuzzSeeds() into the folder, and ends
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "common/check.h"
#include "tests/fuzz/fuzz_target.h"

namespace pando {
namespace {

void WriteSeeds(const std::string& folder) {
  size_t number = 0;
  for (const std::string& seed : FuzzSeeds()) {
    std::ofstream file(folder + "/seed-" + std::to_string(number++), std::ios::binary);
    file << seed;
    PANDO_CHECK(file.flush());
  }
}

}  // namespace
}  // namespace pando

extern "C" int LLVMFuzzerInitialize(int* count, char*** words) {
  constexpr std::string_view kFlag = "--seeds=";
  const std::string_view word = *count == 2 ? (*words)[1] : "";
  if (!word.starts_with(kFlag)) return 0;
  pando::WriteSeeds(std::string(word.substr(kFlag.size())));
  std::exit(0);
}
