// gpu_bench [float|bfloat16|half [NETWORK]]: measures our kernels on this machine's GPU. Prints
// its copy bandwidth and matrix rate, each kernel's and layer's share of one of them, and images/s
// of whole networks, one micro-batch at a time, computing alone; or of one network only. Exits
// with 77 if there is no GPU. bench/python/pytorch_gpu.py prints PyTorch's images/s for the same
// networks.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/float_buffer.h"
#include "common/philox.h"
#include "kernels/opened_gpu.h"
#include "kernels/ops.h"
#include "models/network.h"
#include "plan/tensor_init.h"

namespace pando {
namespace {

constexpr int kSkipped = 77;
constexpr size_t kArrayBytes = size_t{256} << 20;  // each array of the bandwidth rows

// Measures a call as the least of several rounds, each of which is long enough for the clock.
double MeasureSeconds(Device device, const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  constexpr double kRoundSeconds = 0.05;
  constexpr int kRounds = 5;
  const auto time_calls = [&](int count) {
    Synchronize(device);
    const auto start = Clock::now();
    for (int i = 0; i < count; ++i) call();
    Synchronize(device);
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  time_calls(3);  // prepares plans, caches and clocks
  const double once = time_calls(1);
  const int count = 1 + static_cast<int>(kRoundSeconds / once);
  double least = once;
  for (int round = 0; round < kRounds; ++round) {
    least = std::min(least, time_calls(count) / count);
  }
  return least;
}

uint32_t Draw(size_t i) { return Philox4x32({static_cast<uint32_t>(i), 0, 0, 0}, {1, 2})[0]; }

// Makes numbers from -1 to 1, with all bits of their mantissas drawn.
std::vector<std::byte> RandomElements(ElementType type) {
  constexpr size_t kCount = size_t{4} << 20;
  const size_t size = ElementBytes(type);
  std::vector<std::byte> bytes(kCount * size);
  for (uint32_t i = 0; i < kCount; ++i) {
    const uint32_t drawn = Draw(i);
    const float value = 2 * UniformFloat(drawn) - 1;
    uint32_t bits = std::bit_cast<uint32_t>(value);
    if (type == ElementType::kBfloat16) bits >>= 16;
    if (type == ElementType::kFloat16) bits = (drawn & 0x83ff) | 0x3800;  // 0.5 to 1, any sign
    std::memcpy(&bytes[i * size], &bits, size);
  }
  return bytes;
}

class GpuBench {
 public:
  // Measures only `network`, one of those in RunNetworks; empty: all networks and kernels.
  explicit GpuBench(OpenedGpu& gpu, std::string network)
      : gpu_(gpu), network_(std::move(network)) {}
  void Run() {
    if (!network_.empty()) return RunNetworks();
    MeasureLimits();
    RunImport();
    RunElementwise();
    RunBatchNorm();
    RunPools();
    RunConvolutions();
    RunNetworks();
  }

 private:
  // Makes random data: a GPU moves and multiplies zeros with less power, and so with higher clocks.
  void* Array(size_t count) {
    const size_t bytes = (count + kSlackElements) * ElementBytes(device_.element);
    DeviceMemory& memory = arrays_.emplace_back(device_, bytes);
    Fill(memory, device_.element);
    return memory.data();
  }
  float* Floats(size_t count) {
    DeviceMemory& memory = arrays_.emplace_back(device_, count * sizeof(float));
    Fill(memory, ElementType::kFloat32);
    return reinterpret_cast<float*>(memory.data());
  }
  void Fill(const DeviceMemory& memory, ElementType type) {
    const std::vector<std::byte> pattern = RandomElements(type);
    for (size_t at = 0; at < memory.size_bytes(); at += pattern.size()) {
      const size_t count = std::min(pattern.size(), memory.size_bytes() - at);
      Upload(device_, std::span(pattern).first(count), memory.data() + at);
    }
  }
  std::span<std::byte> Scratch(size_t size_bytes) {
    DeviceMemory& memory = arrays_.emplace_back(device_, size_bytes);
    return {memory.data(), size_bytes};
  }

  double Bytes(size_t elements) const {
    return static_cast<double>(elements * ElementBytes(device_.element));
  }

  // Prints the rate of a call that reads and writes `bytes`.
  void Bandwidth(const std::string& name, double bytes, const std::function<void()>& call) {
    const double rate = bytes / MeasureSeconds(device_, call);
    std::printf("%-34s %8.0f GB/s   %5.2f of copy\n", name.c_str(), rate / 1e9, rate / copy_rate_);
  }

  void MeasureLimits() {
    const size_t count = kArrayBytes / ElementBytes(device_.element);
    void *x = Array(count), *y = Array(count);
    copy_rate_ = 2.0 * kArrayBytes / MeasureSeconds(device_, [&] { Copy(device_, count, x, y); });
    std::printf("%-34s %8.0f GB/s\n", "copy", copy_rate_ / 1e9);
    constexpr uint32_t kSide = 8192;
    const LinearSpec spec{kSide, kSide};
    float* weight = Floats(size_t{kSide} * kSide);
    const auto scratch = Scratch(LinearScratchBytes(device_, spec, kSide));
    const double seconds = MeasureSeconds(device_, [&] {
      LinearForward(device_, spec, {kSide, x, weight, nullptr, y}, scratch);
    });
    matrix_rate_ = 2.0 * kSide * kSide * kSide / seconds;
    std::printf("%-34s %8.1f TFLOP/s, weights' conversion included\n", "matrix product 8192",
                matrix_rate_ / 1e12);
    arrays_.clear();
  }

  void RunImport() {
    constexpr uint32_t kSamples = 512;
    const SampleShape shape{224, 224, 3};
    const size_t count = kSamples * shape.size();
    const auto bytes = Scratch(count), labels = Scratch(2 * kSamples * sizeof(int32_t));
    const DeviceBatch there{.shape = shape,
                            .sample_count = kSamples,
                            .labels = reinterpret_cast<int32_t*>(labels.data()),
                            .byte_values = Floats(size_t{256} * shape.channels),
                            .bytes = reinterpret_cast<uint8_t*>(bytes.data())};
    const uint32_t stored = StoredChannels(device_, shape.channels);
    const size_t stored_count = count / shape.channels * stored;
    void* x = Array(stored_count);
    const std::vector<PictureMove> drawn(kSamples, {.down = 3, .right = -5, .is_flipped = true});
    const auto moves = Scratch(kSamples * sizeof(PictureMove));
    Upload(device_, std::as_bytes(std::span(drawn)), moves.data());
    DeviceBatch moved = there;
    moved.moves = reinterpret_cast<PictureMove*>(moves.data());
    auto* labels_out = reinterpret_cast<int32_t*>(labels.data()) + kSamples;
    const double array = static_cast<double>(count) + Bytes(stored_count);
    Bandwidth("pictures, normalised", array,
              [&] { ImportBatch(device_, there, shape.channels, x, labels_out, stored); });
    Bandwidth("pictures, moved and normalised", array,
              [&] { ImportBatch(device_, moved, shape.channels, x, labels_out, stored); });
    arrays_.clear();
  }

  void RunElementwise() {
    const size_t count = kArrayBytes / ElementBytes(device_.element);
    void *x = Array(count), *y = Array(count), *z = Array(count);
    const double array = kArrayBytes;
    Bandwidth("relu", 2 * array,
              [&] { ActivationForward(device_, count, x, Activation::kRelu, y); });
    Bandwidth("relu, backward", 3 * array,
              [&] { ActivationBackward(device_, count, x, Activation::kRelu, y, z); });
    Bandwidth("add + relu", 3 * array,
              [&] { AddForward(device_, count, x, y, Activation::kRelu, z); });
    float* factors = Floats(count);
    Bandwidth("dropout: factors", 4.0 * static_cast<double>(count), [&] {
      DropoutFactors(device_, {1, 2}, reinterpret_cast<PassNumbers*>(x), 0.5f, count, factors);
    });
    Bandwidth("dropout: product", 2 * array + 4.0 * static_cast<double>(count),
              [&] { Multiply(device_, count, x, factors, y); });
    arrays_.clear();
  }

  void RunBatchNorm() {
    for (const SampleShape shape : {SampleShape{56, 56, 256}, {112, 112, 32}, {14, 14, 576}}) {
      const auto n =
          static_cast<uint32_t>(kArrayBytes / ElementBytes(device_.element) / shape.size());
      const BatchNormSpec spec{shape, 1e-5f, Activation::kRelu, /*has_residual=*/true};
      const size_t count = shape.size() * n;
      const double array = Bytes(count);
      void *x = Array(count), *y = Array(count), *dy = Array(count), *r = Array(count);
      float *w = Floats(shape.channels), *b = Floats(shape.channels), *m = Floats(shape.channels),
            *s = Floats(shape.channels), *v = Floats(shape.channels), *dw = Floats(shape.channels),
            *db = Floats(shape.channels);
      const auto scratch = Scratch(BatchNormScratchBytes(device_, spec));
      const std::string name = "batch norm, " + std::to_string(shape.channels) + " channels";
      Bandwidth(name + " + residual", 4 * array, [&] {
        BatchNormForward(device_, spec, {n, x, w, b, r, y, m, s, v}, scratch);
      });
      Bandwidth(name + ", backward", 8 * array, [&] {
        BatchNormBackward(device_, spec, {n, x, w, b, m, s, y, dy, dy, r, dw, db}, scratch);
      });
      arrays_.clear();
    }
  }

  void RunPools() {
    constexpr uint32_t kSamples = 128;
    const Pool2dSpec spec{{112, 112, 64}, 3, 2, 1};
    const size_t in = spec.input.size() * kSamples, out = spec.output().size() * kSamples;
    void *x = Array(in), *y = Array(out);
    const auto argmax = Scratch(out * sizeof(int32_t));
    auto* where = reinterpret_cast<int32_t*>(argmax.data());
    const double bytes = Bytes(in + out) + static_cast<double>(argmax.size());
    Bandwidth("max pool 3x3 / 2", bytes,
              [&] { MaxPoolForward(device_, spec, kSamples, x, y, where); });
    Bandwidth("max pool 3x3 / 2, backward", bytes,
              [&] { MaxPoolBackward(device_, spec, kSamples, where, y, x); });
    arrays_.clear();
    RunGlobalAverage();
  }

  void RunGlobalAverage() {
    constexpr uint32_t kSamples = 1024;
    const SampleShape shape{7, 7, 2048};
    const size_t in = shape.size() * kSamples, out = size_t{shape.channels} * kSamples;
    void *x = Array(in), *y = Array(out);
    const double bytes = Bytes(in + out);
    Bandwidth("global average pool", bytes,
              [&] { AdaptiveAveragePoolForward(device_, {.input = shape}, kSamples, x, y); });
    Bandwidth("global average pool, backward", bytes,
              [&] { AdaptiveAveragePoolBackward(device_, {.input = shape}, kSamples, y, x); });
    arrays_.clear();
  }

  void RunConvolutions() {
    RunConvolution("conv 3x3, 64 at 56", {{56, 56, 64}, 64, 3, 1, 1}, 256);
    RunConvolution("conv 1x1, 256 to 64 at 56", {{56, 56, 256}, 64, 1}, 256);
    RunConvolution("conv 3x3, 512 at 7", {{7, 7, 512}, 512, 3, 1, 1}, 256);
    RunConvolution("conv 7x7 / 2, 3 to 64 at 224", {{224, 224, 3}, 64, 7, 2, 3}, 128);
    Conv2dSpec depthwise{{112, 112, 32}, 32, 3, 1, 1};
    depthwise.groups = 32;
    RunConvolution("depthwise 3x3, 32 at 112", depthwise, 256);
    depthwise = {{56, 56, 144}, 144, 3, 2, 1};
    depthwise.groups = 144;
    RunConvolution("depthwise 3x3 / 2, 144 at 56", depthwise, 256);
  }

  // Measures a convolution. One with groups is bound by memory.
  void RunConvolution(const std::string& name, const Conv2dSpec& spec, uint32_t n) {
    const size_t in = spec.input.size() * n, out = spec.output().size() * n;
    void *x = Array(in), *y = Array(out), *dx = Array(in);
    float *w = Floats(spec.weight_size()), *dw = Floats(spec.weight_size());
    const auto scratch = Scratch(Conv2dScratchBytes(device_, spec, n));
    const auto forward = [&] {
      Conv2dForward(device_, spec, {n, x, w, nullptr, nullptr, y, nullptr}, scratch);
    };
    const auto backward = [&] {
      Conv2dBackward(device_, spec, {n, x, w, nullptr, y, nullptr, y, dx, dw, nullptr}, scratch);
    };
    if (spec.groups > 1) {
      Bandwidth(name, Bytes(in + out), forward);
      Bandwidth(name + ", backward", Bytes(2 * in + 2 * out), backward);
    } else {
      const double flops =
          2.0 * static_cast<double>(out) * spec.input.channels * spec.kernel * spec.kernel;
      Rate(name, flops, forward);
      Rate(name + ", backward", 2 * flops, backward);
    }
    arrays_.clear();
  }

  void Rate(const std::string& name, double flops, const std::function<void()>& call) {
    const double rate = flops / MeasureSeconds(device_, call);
    std::printf("%-34s %8.1f TFLOP/s %5.2f of the product's\n", name.c_str(), rate / 1e12,
                rate / matrix_rate_);
  }

  void RunNetworks() {
    RunNetwork("resnet50", {224, 224, 3}, 1000, 256);
    RunNetwork("vgg16", {224, 224, 3}, 1000, 128);
    RunNetwork("mobilenet-v2", {224, 224, 3}, 1000, 256);
    RunNetwork("resnet101", {224, 224, 3}, 1000, 64);
    RunNetwork("mnist-cnn", {28, 28, 1}, 10, 128);
  }

  void RunNetwork(const std::string& name, SampleShape shape, uint32_t classes, uint32_t n) {
    if (!network_.empty() && network_ != name) return;
    Job job;
    job.model = name;
    Result<Model> model = Model::Create(job, shape, classes);
    if (!model.ok()) {
      std::printf("%-34s %s\n", name.c_str(), model.status().message().c_str());
      return;
    }
    const size_t size = model->layout().float_count();
    FloatBuffer initial(size);
    InitRange(model->layout(), 1, {0, size}, initial.span());
    float *parameters = Floats(size), *gradients = Floats(size);
    Upload(device_, std::as_bytes(std::as_const(initial).span()), parameters);
    Network network(*model, SampleCounts{n, 1}, device_);
    Batch batch{.shape = shape,
                .bytes = std::vector<uint8_t>(shape.size() * n),
                .values = {},
                .labels = std::vector<int32_t>(n)};
    for (size_t i = 0; i < batch.bytes.size(); ++i) batch.bytes[i] = static_cast<uint8_t>(Draw(i));
    for (uint32_t i = 0; i < n; ++i) batch.labels[i] = static_cast<int32_t>(Draw(i) % classes);
    const auto step = [&] {
      network.SetBatch(batch, {}, Mode::kTrain);
      for (uint32_t i = 0; i < network.layer_count(); ++i) network.Forward(i, parameters);
      for (uint32_t i = network.layer_count(); i-- > 0;) network.Backward(i, parameters, gradients);
    };
    const double seconds = MeasureSeconds(device_, step);
    std::printf("%-34s %8.0f images/s, %u a micro-batch\n", name.c_str(), n / seconds, n);
    arrays_.clear();
  }

  OpenedGpu& gpu_;
  const std::string network_;
  Device device_ = gpu_.device();
  double copy_rate_ = 1;
  double matrix_rate_ = 1;
  std::vector<DeviceMemory> arrays_;
};

ElementType ParseElement(const char* name) {
  if (std::strcmp(name, "float") == 0) return ElementType::kFloat32;
  return std::strcmp(name, "half") == 0 ? ElementType::kFloat16 : ElementType::kBfloat16;
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) {
  const char* element = argc > 1 ? argv[1] : "bfloat16";
  pando::Result<pando::OpenedGpu> gpu =
      pando::OpenCuda({.element = pando::ParseElement(element), .allow_tf32 = true});
  if (!gpu.ok()) {
    std::printf("skipped: %s\n", gpu.status().message().c_str());
    return pando::kSkipped;
  }
  std::printf("elements: %s\n", element);
  pando::GpuBench(*gpu, argc > 2 ? argv[2] : "").Run();
}
