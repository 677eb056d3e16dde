// Operations on more than 2^32 elements, and grids near a GPU's limits, on the host: one block of
// each grid runs, the one that has the last element. The arrays are addresses whose pages take no
// memory before they are written.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "kernels/cuda/cuda_device.h"
#include "tests/kernels/support.h"

namespace pando {
namespace {

constexpr uint32_t kSamplesMax = cuda::kGridMax;

// An array full of zeros.
class Zeros {
 public:
  explicit Zeros(size_t count) : bytes_(count * sizeof(float)) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(memory_ != MAP_FAILED);
  }
  Zeros(const Zeros&) = delete;
  Zeros& operator=(const Zeros&) = delete;
  ~Zeros() { munmap(memory_, bytes_); }
  template <class T = float>
  T* data() const {
    return static_cast<T*>(memory_);
  }
  std::span<std::byte> bytes() const { return {data<std::byte>(), bytes_}; }

 private:
  size_t bytes_;
  void* memory_;
};

dim3 LastBlock(dim3 grid) { return dim3(grid.x - 1, grid.y - 1, grid.z - 1); }

// Runs f, and of each of its kernels the chosen block alone.
template <class F>
void RunBlock(std::function<dim3(dim3)> choose, F f) {
  Synchronize(TestDevice());
  cuda_on_host::choose_block = std::move(choose);
  f();
  Synchronize(TestDevice());
  cuda_on_host::choose_block = nullptr;
}

// Returns whether f fails a check, in a process that it stops.
template <class F>
bool Stops(F f) {
  Synchronize(TestDevice());
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    cuda_on_host::choose_block = LastBlock;
    f();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

TEST_CASE("a grid has the sizes that a GPU accepts") {
  CHECK(cuda::IsGridSize(dim3(1)));
  CHECK(cuda::IsGridSize(dim3(INT32_MAX, 65535, 65535)));
  CHECK_FALSE(cuda::IsGridSize(dim3(0)));
  CHECK_FALSE(cuda::IsGridSize(dim3(1, 0)));
  CHECK_FALSE(cuda::IsGridSize(dim3(1, 1, 0)));
  CHECK_FALSE(cuda::IsGridSize(dim3(uint32_t{INT32_MAX} + 1)));
  CHECK_FALSE(cuda::IsGridSize(dim3(1, 65536)));
  CHECK_FALSE(cuda::IsGridSize(dim3(1, 1, 65536)));
}

TEST_CASE("the last of more than 2^32 floats is added") {
  const size_t count = (size_t{1} << 32) + 5;
  const Zeros x(count), y(count);
  x.data()[count - 1] = 2;
  y.data()[count - 1] = 3;
  const auto block = [count](dim3 grid) { return dim3((count - 1) / 4 / 256 % grid.x); };
  RunBlock(block, [&] { AddFloats(TestDevice(), count, x.data(), y.data()); });
  CHECK(y.data()[count - 1] == 5);
}

TEST_CASE("the last of 65,535 samples of 2^33 elements is pooled") {
  const Pool2dSpec spec{{2, 2, 1 << 15}, 2, 2, 0};
  const size_t in = spec.input.size() * kSamplesMax, out = spec.output().size() * kSamplesMax;
  const Zeros x(in), y(out), dx(in), argmax(out);
  x.data()[in - 1] = 4;
  RunBlock(LastBlock, [&] {
    MaxPoolForward(TestDevice(), spec, kSamplesMax, x.data(), y.data(), argmax.data<int32_t>());
    MaxPoolBackward(TestDevice(), spec, kSamplesMax, argmax.data<int32_t>(), y.data(), dx.data());
  });
  CHECK(y.data()[out - 1] == 4);
  CHECK(argmax.data<int32_t>()[out - 1] == 3);
  CHECK(dx.data()[in - 1] == 4);
  RunBlock(LastBlock, [&] {
    AveragePoolForward(TestDevice(), spec, kSamplesMax, x.data(), y.data());
    AveragePoolBackward(TestDevice(), spec, kSamplesMax, y.data(), dx.data());
  });
  CHECK(y.data()[out - 1] == 1);
  CHECK(dx.data()[in - 1] == 0.25f);
}

TEST_CASE("the last of 65,535 samples of 2^33 elements is multiplied") {
  const SampleShape shape{2, 2, 1 << 15};
  const size_t count = shape.size() * kSamplesMax;
  const Zeros x(count), y(count), factor(size_t{shape.channels} * kSamplesMax);
  x.data()[count - 1] = 4;
  factor.data()[size_t{shape.channels} * kSamplesMax - 1] = 3;
  RunBlock(LastBlock, [&] {
    MultiplyChannels(TestDevice(), kSamplesMax, shape, x.data(), factor.data(), y.data());
  });
  CHECK(y.data()[count - 1] == 12);
}

TEST_CASE("more than 65,535 samples are transposed in turns") {
  const uint32_t samples = kSamplesMax + 10, rows = 32, columns = 4096;
  const size_t size = size_t{rows} * columns, count = size * samples;
  const Zeros x(count), y(count);
  x.data()[count - 1] = 4;
  const auto block = [](dim3 grid) { return dim3(grid.x - 1, grid.y - 1, 9); };
  RunBlock(block,
           [&] { TransposeSamples(TestDevice(), samples, rows, columns, x.data(), y.data()); });
  CHECK(y.data()[count - 1] == 4);
}

TEST_CASE("the last of 2^33 gradients is summed") {
  const BatchNormSpec spec{.shape = {1 << 14, 1 << 13, 64}};
  const size_t count = spec.shape.size();
  const Zeros x(count), dy(count), parameters(64), dweight(64), dbias(64);
  const Zeros scratch(BatchNormScratchBytes(TestDevice(), spec));
  dy.data()[count - 1] = 4;
  RunBlock(LastBlock, [&] {
    BatchNormBackward(TestDevice(), spec,
                      {.sample_count = 1,
                       .x = x.data(),
                       .weight = parameters.data(),
                       .bias = parameters.data(),
                       .mean = parameters.data(),
                       .inverse_std = parameters.data(),
                       .dy = dy.data(),
                       .dweight = dweight.data(),
                       .dbias = dbias.data()},
                      scratch.bytes());
  });
  CHECK(dbias.data()[63] == 4);
  CHECK(dbias.data()[62] == 0);
}

TEST_CASE("the last of 2^33 logits counts") {
  const uint32_t samples = 1 << 23, classes = 1 << 10;
  const size_t count = size_t{samples} * classes;
  const Zeros logits(count), dlogits(count), labels(samples), score(16);
  const Zeros scratch(CrossEntropyScratchBytes(TestDevice(), samples));
  logits.data()[count - 1] = 100;
  RunBlock(LastBlock, [&] {
    SoftmaxCrossEntropy(TestDevice(),
                        {.sample_count = samples,
                         .class_count = classes,
                         .logits = logits.data(),
                         .labels = labels.data<int32_t>(),
                         .dlogits = dlogits.data(),
                         .score = score.data<CrossEntropyScore>()},
                        scratch.bytes());
  });
  CHECK(dlogits.data()[count - 1] == 1);
  CHECK(score.data<CrossEntropyScore>()->loss_sum == doctest::Approx(100 + 3 * std::log(1024.0)));
}

TEST_CASE("the last pixel of 2^33 elements of a depthwise convolution is computed") {
  const Conv2dSpec spec{.input = {2, 64, 64}, .out_channels = 64, .kernel = 1, .groups = 64};
  const uint32_t samples = 1 << 20;
  const size_t count = spec.input.size() * samples;
  const Zeros x(count), y(count), weight(64);
  const Zeros scratch(Conv2dScratchBytes(TestDevice(), spec, 1));
  x.data()[count - 1] = 4;
  weight.data()[63] = 3;
  RunBlock(LastBlock, [&] {
    Conv2dForward(TestDevice(), spec,
                  {.sample_count = samples, .x = x.data(), .weight = weight.data(), .y = y.data()},
                  scratch.bytes());
  });
  CHECK(y.data()[count - 1] == 12);
}

TEST_CASE("sizes that kernels cannot count, or a GPU refuses, stop the process") {
  const Zeros x(1 << 20), y(1 << 20);
  const auto multiply = [&](uint32_t samples, const SampleShape& shape) {
    return Stops(
        [&] { MultiplyChannels(TestDevice(), samples, shape, x.data(), x.data(), y.data()); });
  };
  CHECK_FALSE(multiply(1, {1, 1, 8}));
  CHECK(multiply(1, {1 << 16, 1 << 14, 8}));  // 2^33 elements
  CHECK(multiply(65536, {1, 1, 8}));
  const auto pool = [&](const SampleShape& shape, uint32_t window) {
    const Pool2dSpec spec{shape, window, window, 0};
    return Stops([&] { AveragePoolForward(TestDevice(), spec, 1, x.data(), y.data()); });
  };
  CHECK_FALSE(pool({64, 64, 8}, 64));
  CHECK(pool({1 << 16, 1 << 14, 8}, 1 << 14));  // the result is small
  const auto transpose = [&](uint32_t rows) {
    return Stops([&] { TransposeSamples(TestDevice(), 1, rows, 1, x.data(), y.data()); });
  };
  CHECK_FALSE(transpose(1 << 19));
  CHECK(transpose(65535 * 32 + 1));
  CHECK(Stops([&] {
    const GroupNormSpec spec{.shape = {1, 1, 8}, .groups = 1};
    GroupNormForward(TestDevice(), spec, {.sample_count = 65536, .x = x.data(), .y = y.data()},
                     x.bytes());
  }));
}

}  // namespace
}  // namespace pando
