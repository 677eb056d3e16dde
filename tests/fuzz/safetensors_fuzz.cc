// Files of weights.
#include <filesystem>

#include "common/check.h"
#include "plan/tensor_layout.h"
#include "run/safetensors_file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_file.h"

namespace pando {
namespace {

const TensorLayout& Layout() {
  static const TensorLayout kLayout(
      {{.name = "a", .shape = {2, 3}}, {.name = "b", .shape = {1}}, MetricTensorSpec()});
  return kLayout;
}

// Reads all tensors of a type that Read knows. Their sizes are those of the file.
void ReadAll(const SafetensorsFile& file, size_t file_bytes) {
  for (const auto& [name, tensor] : file.tensors()) {
    PANDO_CHECK(tensor.byte_count <= file_bytes);
    if (tensor.dtype != "F32" && tensor.dtype != "F16" && tensor.dtype != "BF16") continue;
    PANDO_CHECK(tensor.float_count <= file_bytes);
    std::vector<float> values(tensor.float_count);
    PANDO_CHECK(file.Read(tensor, values).ok());
  }
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const InputFolder folder;
  const std::vector<float> flat(Layout().float_count(), 0.5f);
  PANDO_CHECK(WriteWeights(folder.path() + "/weights", Layout(), flat).ok());
  std::string of_floats = folder.Read("weights");
  // Tensors of another type: the header's text and the bytes are half as long.
  std::string of_halves = R"({"a":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]},)"
                          R"("b":{"dtype":"BF16","shape":[1],"data_offsets":[12,14]}})";
  of_halves.resize((of_halves.size() + 7) / 8 * 8, ' ');
  const uint64_t header_bytes = of_halves.size();
  of_halves.insert(0, reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
  of_halves += std::string(14, '\x3c');
  return {of_floats, of_halves};
}

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pando;
  static InputFile input;
  input.Write(TextIn(data, size));
  for (const auto types : {SafetensorsFile::Types::kFp32, SafetensorsFile::Types::kAll}) {
    const Result<SafetensorsFile> file = SafetensorsFile::Open(input.path(), types);
    if (file.ok()) ReadAll(*file, size);
  }
  (void)ReadWeights(input.path(), Layout());
  return 0;
}
