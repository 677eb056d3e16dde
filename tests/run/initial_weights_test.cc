#include "run/initial_weights.h"

#include <doctest/doctest.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "plan/tensor_init.h"
#include "tests/data/check_message.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

TensorLayout SmallLayout() {
  return TensorLayout({{.name = "conv.weight", .shape = {2, 2}},
                       {.name = "fc.weight", .shape = {3}, .init = InitKind::kNormal},
                       {.name = "fc.bias", .shape = {1}, .init = InitKind::kOne},
                       MetricTensorSpec()});
}

// A file as other programs write it.
class ForeignFile {
 public:
  template <class T>
  void Add(const std::string& name, const char* dtype, const std::vector<uint64_t>& shape,
           const std::vector<T>& values) {
    const size_t first = bytes_.size();
    bytes_.resize(first + values.size() * sizeof(T));
    std::memcpy(&bytes_[first], values.data(), values.size() * sizeof(T));
    header_[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {first, bytes_.size()}}};
  }
  void Write(const std::string& path) const {
    const std::string header = header_.dump();
    const uint64_t size = header.size();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), sizeof size) << header;
    file.write(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
  }

 private:
  nlohmann::json header_;
  std::string bytes_;
};

struct Start {
  TempFolder temp;
  TensorLayout layout = SmallLayout();
  Job job;
  Start() {
    job.init = temp.path() + "/weights.safetensors";
    job.model = "mlp";
  }
  std::vector<float> Values(const InitialWeights& weights, const std::string& name) const {
    const size_t i = layout.Find(name);
    const auto values = weights.flat.span().subspan(layout.offset(i), layout.specs()[i].size());
    return {values.begin(), values.end()};
  }
};

TEST_CASE("weights of other programs come as floats, halves or bfloats, by PyTorch's names") {
  Start start;
  ForeignFile file;
  file.Add<uint16_t>("conv.weight", "F16", {2, 2}, {0x3c00, 0xc100, 0x0001, 0x7bff});
  file.Add<uint16_t>("fc.weight", "BF16", {3}, {0x3f80, 0xc020, 0x0000});
  file.Add<float>("fc.bias", "F32", {1}, {0.1f});
  file.Add<int64_t>("bn.num_batches_tracked", "I64", {}, {7});
  file.Write(start.job.init);
  const Result<InitialWeights> weights = LoadInitialWeights(start.job, start.layout);
  REQUIRE_MESSAGE(weights.ok(), weights.status().message());
  CHECK(weights->drawn.empty());
  CHECK(start.Values(*weights, "conv.weight") ==
        std::vector<float>{1.0f, -2.5f, 0x1p-24f, 65504.0f});
  CHECK(start.Values(*weights, "fc.weight") == std::vector<float>{1.0f, -2.5f, 0.0f});
  CHECK(start.Values(*weights, "fc.bias") == std::vector<float>{0.1f});
}

TEST_CASE("unused tensors may be of any type, also of one that Pando does not know") {
  Start start;
  start.job.init_partial = true;
  ForeignFile file;
  file.Add<float>("conv.weight", "F32", {2, 2}, {1, 2, 3, 4});
  file.Add<uint8_t>("scales", "F8_E8M0", {3}, {1, 2, 3});
  file.Add<uint8_t>("packed", "F4", {6}, {1, 2, 3});  // two elements in a byte
  file.Add<float>("pairs", "C64", {1}, {1, 2});
  file.Write(start.job.init);
  const Result<InitialWeights> weights = LoadInitialWeights(start.job, start.layout);
  REQUIRE_MESSAGE(weights.ok(), weights.status().message());
  CHECK(start.Values(*weights, "conv.weight") == std::vector<float>{1, 2, 3, 4});
  CHECK(weights->unused == std::vector<std::string>{"packed", "pairs", "scales"});
  ForeignFile used;
  used.Add<uint8_t>("conv.weight", "F8_E8M0", {2, 2}, {1, 2, 3, 4});
  used.Write(start.job.init);
  CheckMessage(LoadInitialWeights(start.job, start.layout).status(), StatusCode::kInvalidArgument,
               {"F8_E8M0", "F32, F16 or BF16"});
}

TEST_CASE("tensors that do not fit are named, and drawn only if that is wanted") {
  Start start;
  ForeignFile file;
  file.Add<float>("conv.weight", "F32", {2, 2}, {1, 2, 3, 4});
  file.Add<float>("fc.weight", "F32", {2}, {1, 2});
  file.Add<float>("head.bias", "F32", {1}, {1});
  file.Write(start.job.init);
  CheckMessage(LoadInitialWeights(start.job, start.layout).status(), StatusCode::kInvalidArgument,
               {start.job.init, "fc.weight ([2] in the file, [3] in the model)",
                "fc.bias (not in the file)", "the model has no head.bias", "--init-partial"});
  start.job.init_partial = true;
  const Result<InitialWeights> weights = LoadInitialWeights(start.job, start.layout);
  REQUIRE(weights.ok());
  CHECK(weights->drawn.size() == 2);
  CHECK(weights->unused == std::vector<std::string>{"head.bias"});
  CHECK(start.Values(*weights, "conv.weight") == std::vector<float>{1, 2, 3, 4});
  std::vector<float> drawn(start.layout.float_count());
  InitRange(start.layout, start.job.seed, {0, drawn.size()}, drawn);
  CHECK(start.Values(*weights, "fc.weight")[0] ==
        drawn[start.layout.offset(start.layout.Find("fc.weight"))]);
  CHECK(start.Values(*weights, "fc.bias")[0] == 1);
}

TEST_CASE("the error about weights that were saved in a wrapper names the wrapper") {
  Start start;
  ForeignFile file;
  file.Add<float>("module.conv.weight", "F32", {2, 2}, {1, 2, 3, 4});
  file.Add<float>("module.fc.bias", "F32", {1}, {1});
  file.Write(start.job.init);
  CheckMessage(LoadInitialWeights(start.job, start.layout).status(), StatusCode::kInvalidArgument,
               {"without 'module.' before them they fit", "model.module.state_dict()"});
}

TEST_CASE("weights that are useless are refused") {
  Start start;
  start.job.init_partial = true;
  ForeignFile other;
  other.Add<float>("a", "F32", {1}, {1});
  other.Write(start.job.init);
  CheckMessage(LoadInitialWeights(start.job, start.layout).status(), StatusCode::kInvalidArgument,
               {"does not fit mlp"});
  ForeignFile broken;
  broken.Add<float>("fc.bias", "F32", {1}, {NAN});
  broken.Write(start.job.init);
  CheckMessage(LoadInitialWeights(start.job, start.layout).status(), StatusCode::kInvalidArgument,
               {"'fc.bias'", "not finite"});
  ForeignFile numbers;
  numbers.Add<int32_t>("fc.bias", "I32", {1}, {1});
  numbers.Write(start.job.init);
  CheckMessage(LoadInitialWeights(start.job, start.layout).status(), StatusCode::kInvalidArgument,
               {"I32", "F32, F16 or BF16"});
  start.job.init += "x";
  CHECK(LoadInitialWeights(start.job, start.layout).status().code() == StatusCode::kNotFound);
}

TEST_CASE("the run's folder keeps what the run starts from, and nothing else passes for it") {
  Start start;
  start.job.init_partial = true;
  start.job.run_dir = start.temp.path() + "/run";
  ForeignFile file;
  file.Add<float>("conv.weight", "F32", {2, 2}, {1, 2, 3, 4});
  file.Write(start.job.init);
  const Result<InitialWeights> weights = LoadInitialWeights(start.job, start.layout);
  REQUIRE(weights.ok());
  const RunFolder folder = *RunFolder::Create(start.job, false);
  CHECK(*ReadInitialWeights(folder.path(), start.job, start.layout) == nullptr);
  start.job.init_hash = weights->hash;
  const JobPlan plan(start.job, {}, start.layout);
  REQUIRE(KeepInitialWeights(*weights, folder, plan).ok());
  const auto kept = ReadInitialWeights(folder.path(), start.job, start.layout);
  REQUIRE_MESSAGE(kept.ok(), kept.status().message());
  CHECK(std::ranges::equal((*kept)->span(), weights->flat.span()));
  start.job.init_hash[0] ^= 1;
  CheckMessage(ReadInitialWeights(folder.path(), start.job, start.layout).status(),
               StatusCode::kCorrupt, {"init.safetensors", start.job.init_hash});
}

}  // namespace
}  // namespace pando
