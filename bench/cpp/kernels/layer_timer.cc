#include "bench/cpp/kernels/layer_timer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/cpp/kernels/fma_peak.h"

namespace pando::bench {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kCopyBytes = 64 << 20;  // larger than every cache
constexpr int kCopies = 4;
constexpr int kPeakTurns = 20;  // turns of about 0.1 ms

double PeakGflopPerS() {
  std::vector<double> peaks;
  for (int i = 0; i < kPeakTurns; ++i) peaks.push_back(MeasurePeak());
  std::ranges::nth_element(peaks, peaks.begin() + kPeakTurns / 2);
  return 1e-9 * peaks[kPeakTurns / 2];
}

// Measures memcpy with the clock of the layers. The memcpy of push-pull uses the wall clock.
double CopyGbPerS() {
  const FloatBuffer from(kCopyBytes / sizeof(float));
  FloatBuffer to(kCopyBytes / sizeof(float));
  std::memcpy(to.data(), from.data(), kCopyBytes);  // touches all memory
  const double start = ThreadSeconds();
  for (int i = 0; i < kCopies; ++i) {
    std::memcpy(to.data(), from.data(), kCopyBytes);
    asm volatile("" ::: "memory");  // the compiler must not notice that the copy is never read
  }
  return 2e-9 * kCopies * static_cast<double>(kCopyBytes) / (ThreadSeconds() - start);
}

Json WorkJson(const LayerTimer& timer) {
  Json layers = Json::array();
  for (const LayerWork& work : timer.work()) {
    layers.push_back({{"names", work.names},
                      {"kind", work.kind},
                      {"forward_flops", work.forward_flops},
                      {"backward_flops", work.backward_flops},
                      {"forward_bytes", work.forward_bytes},
                      {"backward_bytes", work.backward_bytes}});
  }
  return {{"layers", layers}};
}

Json PassJson(LayerTimer& timer) {
  Json forward_ms = Json::array(), backward_ms = Json::array(), eigen_ms = Json::array();
  for (const LayerTime& time : timer.Pass()) {
    forward_ms.push_back(1e3 * time.forward_s);
    backward_ms.push_back(1e3 * time.backward_s);
  }
  for (const LayerWork& work : timer.work())
    eigen_ms.push_back(work.product.count == 0 ? Json() : Json(1e3 * EigenSeconds(work.product)));
  return {{"forward_ms", forward_ms}, {"backward_ms", backward_ms}, {"eigen_ms", eigen_ms}};
}

}  // namespace

Status RunLayers(const std::vector<std::string>& models, uint32_t batch) {
  std::map<std::string, LayerTimer> timers;
  for (const std::string& model : models) {
    PANDO_ASSIGN_OR_RETURN(LayerTimer timer, LayerTimer::Create(model, batch));
    timers.emplace(model, std::move(timer)).first->second.Pass();  // touches all memory
  }
  constexpr std::string_view kWork = "work ";
  for (std::string line; std::getline(std::cin, line);) {
    const bool is_work = line.starts_with(kWork);
    const auto timer = timers.find(is_work ? line.substr(kWork.size()) : line);
    Json answer;
    if (timer != timers.end()) {
      answer = is_work ? WorkJson(timer->second) : PassJson(timer->second);
    } else {
      answer = {{"rate", line == "memcpy" ? CopyGbPerS() : PeakGflopPerS()}};
    }
    std::cout << answer.dump() << std::endl;
  }
  return Status();
}

}  // namespace pando::bench
