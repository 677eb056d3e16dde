// Operations on elements of each type, in arrays on one device, for tests that compare devices or
// types.
#pragma once

#include "kernels/device_memory.h"
#include "kernels/opened_gpu.h"
#include "tests/kernels/support.h"

namespace pando {

// A share of the largest value. Two roundings, of the result and of its operands: bfloat16 keeps 8
// bits, half 11. Measured on the host, and as PTX: 5.5e-3 and 7.0e-4.
inline double Tolerance(ElementType element) {
  return element == ElementType::kBfloat16 ? 1.0 / 128 : 1.0 / 1024;
}

// Small multiples of 1 / 16: exact in both.
inline Doubles ExactValues(size_t count, uint32_t seed) {
  Doubles values = RandomDoubles(count, seed);
  for (double& v : values) v = std::round(v * 16) / 16;
  return values;
}

// On one device: arrays in, results out, as doubles.
class Bench {
 public:
  explicit Bench(Device device) : device_(device) {}
  Device device() const { return device_; }

  void* Elements(const Doubles& values) {
    Batch batch{.shape = {1, 1, static_cast<uint32_t>(values.size())},
                .bytes = {},
                .values = std::vector<float>(values.begin(), values.end()),
                .labels = {0}};
    void* to = Make(values.size() * ElementBytes(device_.element));
    ImportBatch(device_, batch, batch.shape.channels, to, Numbers<int32_t>(1));
    return to;
  }
  void* Elements(size_t count) { return Make(count * ElementBytes(device_.element)); }
  float* Floats(const Doubles& values) {
    const std::vector<float> floats(values.begin(), values.end());
    float* to = Numbers<float>(values.size());
    Upload(device_, std::as_bytes(std::span(floats)), to);
    return to;
  }
  // Floats that may begin at any float: each array elsewhere.
  float* Parameters(const Doubles& values) {
    Doubles moved(1 + ++parameter_count_ % 3, 0.0);
    const size_t offset = moved.size();
    moved.insert(moved.end(), values.begin(), values.end());
    return Floats(moved) + offset;
  }
  float* Parameters(size_t count) { return Parameters(Doubles(count, 0.0)); }
  template <class T>
  T* Numbers(const std::vector<T>& values) {
    T* to = Numbers<T>(values.size());
    Upload(device_, std::as_bytes(std::span(values)), to);
    return to;
  }
  template <class T>
  T* Numbers(size_t count) {
    return static_cast<T*>(Make(count * sizeof(T)));
  }
  std::span<std::byte> Scratch(size_t size_bytes) {
    return {static_cast<std::byte*>(Make(size_bytes)), size_bytes};
  }

  Doubles ReadElements(const void* from, size_t count) const {
    std::vector<float> values(count);
    ExportFloats(device_, count, from, values.data());
    return {values.begin(), values.end()};
  }
  Doubles ReadFloats(const float* from, size_t count) const {
    std::vector<float> values(count);
    Download(device_, from, std::as_writable_bytes(std::span(values)));
    return {values.begin(), values.end()};
  }

 private:
  // The CPU's kernels access whole vectors, and a GPU's nothing beyond an array.
  void* Make(size_t size_bytes) {
    constexpr size_t kSlackBytes = kSlackElements * sizeof(float);
    const size_t slack_bytes = device_.kind == DeviceKind::kCpu ? kSlackBytes : 0;
    return memory_.emplace_back(device_, size_bytes + slack_bytes).data();
  }
  Device device_;
  std::vector<DeviceMemory> memory_;
  size_t parameter_count_ = 0;
};

using Results = std::vector<Doubles>;

// f(bench) on floats and on elements of either kind.
template <class F>
void CheckElements(const F& f) {
  Bench floats(TestDevice());
  const Results expected = f(floats);
  for (ElementType element : {ElementType::kBfloat16, ElementType::kFloat16}) {
    CAPTURE(static_cast<int>(element));
    Result<OpenedGpu> gpu = OpenCuda({.element = element});
    REQUIRE(gpu.ok());
    Bench bench(gpu->device());
    const Results got = f(bench);
    for (size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      const std::vector<float> values(got[i].begin(), got[i].end());
      CHECK(RelativeError(values.data(), expected[i]) < Tolerance(element));
    }
  }
}

}  // namespace pando
