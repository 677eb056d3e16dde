// In place of cuDNN: it has no engine, so that kernels/cuda's own convolutions are tested. If
// CUDA_ON_HOST_ENGINES names a folder, there are two engines, which add in opposite orders and so
// make different bits. Which one is the faster differs between the processes that measure: number n
// makes the folder's file n, and finds engine n % 2 faster. CUDA_ON_HOST_MEASURERS is for how many
// processes the first one waits, so that all of them measure.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "common/check.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/map.h"

namespace pando::cuda {
namespace {

constexpr int64_t kEngineCount = 2;
constexpr std::chrono::milliseconds kSlow{
    20};  // more than a loaded machine takes from the faster one

const char* EngineFolder() { return std::getenv("CUDA_ON_HOST_ENGINES"); }

std::string FileFor(int64_t number) {
  return std::string(EngineFolder()) + "/" + std::to_string(number);
}

// The number of this process among those that measure.
int64_t TakeNumber() {
  int64_t number = 0;
  while (true) {
    const int fd = open(FileFor(number).c_str(), O_CREAT | O_EXCL | O_WRONLY, 0644);
    if (fd >= 0) {
      close(fd);
      break;
    }
    PANDO_CHECK(errno == EEXIST);
    ++number;
  }
  const char* count = std::getenv("CUDA_ON_HOST_MEASURERS");
  const int64_t last = count == nullptr ? 0 : std::atoi(count) - 1;
  for (int tries = 0; tries < 2000 && !std::filesystem::exists(FileFor(last)); ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return number;
}

// A convolution by its definition: adds the products of all samples, pixels and taps, in this order
// or in the reverse one.
template <class T>
class Direct {
 public:
  Direct(const ConvProblem& p, const ConvArrays& a, bool is_reversed)
      : pass_(p.pass),
        spec_(p.spec),
        out_(p.spec.conv_output()),
        sample_count_(p.sample_count),
        adds_(p.adds),
        x_(static_cast<T*>(a.x)),
        w_(static_cast<T*>(a.w)),
        y_(static_cast<T*>(a.y)),
        is_reversed_(is_reversed) {}

  void Run() {
    const size_t pixels = size_t{out_.height} * out_.width, taps = spec_.kernel * spec_.kernel;
    const size_t count = sample_count_ * pixels * taps;
    for (size_t i = 0; i < count; ++i) {
      const size_t at = is_reversed_ ? count - 1 - i : i;
      AddTap(at / taps, static_cast<uint32_t>(at % taps));
    }
    T* result = pass_ == ConvPass::kForward ? y_ : pass_ == ConvPass::kDataGradient ? x_ : w_;
    for (size_t i = 0; i < sums_.size(); ++i)
      result[i] = FromFloat<T>(adds_ ? ToFloat(result[i]) + sums_[i] : sums_[i]);
  }

 private:
  size_t ResultSize() const {
    if (pass_ == ConvPass::kForward) return out_.size() * sample_count_;
    if (pass_ == ConvPass::kWeightGradient) return spec_.weight_size();
    return spec_.input.size() * sample_count_;
  }

  // `pixel` of the result, counted over all samples.
  void AddTap(size_t pixel, uint32_t tap) {
    const auto in_sample = static_cast<uint32_t>(pixel % (size_t{out_.height} * out_.width));
    const size_t sample = pixel / (size_t{out_.height} * out_.width);
    const uint32_t row =  // wraps where it is outside
        in_sample / out_.width * spec_.stride + tap / spec_.kernel - spec_.padding;
    const uint32_t column =
        in_sample % out_.width * spec_.stride + tap % spec_.kernel - spec_.padding;
    if (row >= spec_.input.height || column >= spec_.input.width) return;
    const size_t from =
        ((sample * spec_.input.height + row) * spec_.input.width + column) * spec_.input.channels;
    const uint32_t ins = spec_.input.channels / spec_.groups;
    const uint32_t outs = spec_.out_channels / spec_.groups;
    for (uint32_t c = 0; c < spec_.out_channels; ++c) {
      AddProducts(from + c / outs * ins, pixel * out_.channels + c,
                  (size_t{c} * spec_.kernel * spec_.kernel + tap) * ins, ins);
    }
  }

  // Of `count` neighbours in x and w with one value of y.
  void AddProducts(size_t x, size_t y, size_t w, uint32_t count) {
    for (uint32_t k = 0; k < count; ++k) {
      if (pass_ == ConvPass::kForward) {
        sums_[y] += ToFloat(x_[x + k]) * ToFloat(w_[w + k]);
      } else if (pass_ == ConvPass::kDataGradient) {
        sums_[x + k] += ToFloat(y_[y]) * ToFloat(w_[w + k]);
      } else {
        sums_[w + k] += ToFloat(x_[x + k]) * ToFloat(y_[y]);
      }
    }
  }

  const ConvPass pass_;
  const Conv2dSpec spec_;
  const SampleShape out_;
  const size_t sample_count_;
  const bool adds_;
  T* const x_;
  T* const w_;
  T* const y_;
  const bool is_reversed_;
  std::vector<float> sums_ = std::vector<float>(ResultSize());
};

class HostPlan : public ConvPlan {
 public:
  HostPlan(const ConvProblem& problem, const ConvEngine& engine, ElementType element,
           cudaStream_t stream, bool is_slow)
      : ConvPlan(engine),
        problem_(problem),
        element_(element),
        stream_(stream),
        is_slow_(is_slow) {}

  void Run(const ConvArrays& arrays) override {
    cuda_on_host::Enqueue(stream_, [problem = problem_, element = element_, is_slow = is_slow_,
                                    is_reversed = engine().index == 1, arrays] {
      if (is_slow) std::this_thread::sleep_for(kSlow);
      WithElement(element, [&]<class T>() { Direct<T>(problem, arrays, is_reversed).Run(); });
    });
  }

 private:
  const ConvProblem problem_;
  const ElementType element_;
  const cudaStream_t stream_;
  const bool is_slow_;
};

class HostPlanner : public ConvPlanner {
 public:
  HostPlanner(ElementType element, cudaStream_t stream) : element_(element), stream_(stream) {}
  size_t version() const override { return 0; }

  std::vector<std::unique_ptr<ConvPlan>> Propose(const ConvProblem& problem,
                                                 size_t count_max) override {
    std::vector<std::unique_ptr<ConvPlan>> plans;
    if (EngineFolder() == nullptr) return plans;
    const bool measures = count_max > 1;
    if (measures && !number_) number_ = TakeNumber();
    for (int64_t i = 0; i < kEngineCount && plans.size() < count_max; ++i)
      plans.push_back(Make(problem, Engine(i), measures && *number_ % kEngineCount != i));
    return plans;
  }

  std::unique_ptr<ConvPlan> Make(const ConvProblem& problem, const ConvEngine& engine) override {
    const ConvEngine known = Engine(engine.index);
    const bool is_known = engine.index < kEngineCount && engine.knobs == known.knobs &&
                          engine.workspace_bytes == known.workspace_bytes;
    if (EngineFolder() == nullptr || !is_known) return nullptr;
    return Make(problem, known, /*is_slow=*/false);
  }

 private:
  static ConvEngine Engine(int64_t index) {
    return {.index = index, .knobs = {{7, index + 10}}, .workspace_bytes = 64};
  }
  std::unique_ptr<ConvPlan> Make(const ConvProblem& problem, const ConvEngine& engine,
                                 bool is_slow) const {
    return std::make_unique<HostPlan>(problem, engine, element_, stream_, is_slow);
  }

  const ElementType element_;
  const cudaStream_t stream_;
  std::optional<int64_t> number_;
};

}  // namespace

Result<std::unique_ptr<ConvPlanner>> OpenConvPlanner(const CudaOptions& options, const ConvSetting&,
                                                     cudaStream_t stream) {
  return std::unique_ptr<ConvPlanner>(std::make_unique<HostPlanner>(options.element, stream));
}

bool HasConvPlanner() { return true; }

}  // namespace pando::cuda
