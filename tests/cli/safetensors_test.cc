#include "cli/safetensors.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "tests/cli/temp_folder.h"

namespace pando {
namespace {

// Two tensors with padding after each, a metric between and one after.
TensorLayout HandMadeLayout() {
  return TensorLayout({{.name = "fc.weight", .shape = {1, 3}},
                       {.name = "step.metrics", .shape = {2}, .kind = TensorKind::kMetric},
                       {.name = "bn.running_mean", .shape = {3}, .kind = TensorKind::kStatistic},
                       MetricTensorSpec()});
}

std::vector<float> HandMadeWeights(const TensorLayout& layout, float elsewhere) {
  std::vector<float> flat(layout.float_count(), elsewhere);
  const std::vector<float> weight{1.0f, -2.5f, 3.25f};
  const std::vector<float> mean{0.5f, -0.0f, 4.0f};
  std::copy(weight.begin(), weight.end(), flat.begin() + static_cast<ptrdiff_t>(layout.offset(0)));
  std::copy(mean.begin(), mean.end(), flat.begin() + static_cast<ptrdiff_t>(layout.offset(2)));
  return flat;
}

TEST_CASE("the weights hash is that of the plain values in model order") {
  const TensorLayout layout = HandMadeLayout();
  // python3 -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("<6f", 1, -2.5, 3.25, .5,
  // -0., 4))' | xxh128sum
  const std::string expected = "36ad97771323579dfe8ab72c20514bda";
  CHECK(WeightsHash(layout, HandMadeWeights(layout, 0.0f)) == expected);
  CHECK(WeightsHash(layout, HandMadeWeights(layout, 7.0f)) == expected);
}

TEST_CASE("the weights hash of no weights is xxh3-128's of nothing") {
  // printf '' | xxh128sum
  CHECK(WeightsHash(TensorLayout({MetricTensorSpec()}), std::vector<float>(16)) ==
        "99aa06d3014798d86001c324468d497f");
}

// Reads the file as its specification says, without a library for it.
constexpr const char* kReader = R"(
import json, struct, sys
data = open(sys.argv[1], 'rb').read()
size, = struct.unpack('<Q', data[:8])
assert size % 8 == 0
header = json.loads(data[8:8 + size])
del header['__metadata__']
for name, t in header.items():
    a, b = t['data_offsets']
    values = struct.unpack('<%df' % ((b - a) // 4), data[8 + size + a:8 + size + b])
    print(name, t['dtype'], t['shape'], *values)
print(len(data) - 8 - size)
)";

std::string OutputOf(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string output;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) output += static_cast<char>(c);
  CHECK(pclose(pipe) == 0);
  return output;
}

TEST_CASE("Python reads the exported weights back") {
  if (std::system("python3 -c '' > /dev/null 2>&1") != 0) {
    MESSAGE("SKIPPED: no python3 here");
    return;
  }
  TempFolder temp;
  const std::string path = temp.path() + "/final.safetensors";
  const std::string reader = temp.path() + "/read.py";
  const TensorLayout layout = HandMadeLayout();
  REQUIRE(WriteSafetensors(path, layout, HandMadeWeights(layout, 7.0f)).ok());
  std::ofstream(reader) << kReader;
  CHECK(OutputOf("python3 " + reader + " " + path) ==
        "fc.weight F32 [1, 3] 1.0 -2.5 3.25\n"
        "bn.running_mean F32 [3] 0.5 -0.0 4.0\n"
        "24\n");
}

TEST_CASE("weights that cannot be written name the file") {
  const TensorLayout layout = HandMadeLayout();
  Status s = WriteSafetensors("no/such/folder/w.safetensors", layout, HandMadeWeights(layout, 0));
  REQUIRE_FALSE(s.ok());
  CHECK(s.message().find("no/such/folder/w.safetensors") != std::string::npos);
}

}  // namespace
}  // namespace pando
