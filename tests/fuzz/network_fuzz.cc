// Networks that users write.
#include "common/check.h"
#include "models/graph.h"
#include "models/zoo.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_file.h"

namespace pando {

std::vector<std::string> FuzzSeeds() { return {}; }

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pando;
  constexpr uint32_t kClassCount = 10;
  constexpr SampleShape kInput{28, 28, 1};
  const auto network = ParseNetworkFile(TextIn(data, size), "network.toml", kClassCount);
  if (!network.ok()) {
    PANDO_CHECK(!network.status().message().empty());
    return 0;
  }
  const auto graph = Graph::Build("network.toml", network->layers, kInput, kClassCount);
  if (graph.ok()) (void)CountCost(*graph);
  return 0;
}
