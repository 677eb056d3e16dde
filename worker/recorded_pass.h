// PassRecordings keeps what a small network's passes launch as recordings (LaunchGraph): its
// kernels are so short that launching them one by one takes longer than running them. Used by
// TrainStep. Threads: as Device. Owns: the recordings, kPassesMax at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "kernels/device.h"

namespace pando {

class PassRecordings {
 public:
  // `part_count`: into so many parts a pass is cut, between which the host has something to do.
  PassRecordings(Device device, size_t part_count) : device_(device), part_count_(part_count) {}

  // A pass over so many samples that writes its gradients there. The first whole one of so many
  // samples is launched as it is: libraries make their plans then. The first after it into these
  // gradients is recorded, those that follow are launched from the recording.
  void Begin(uint32_t sample_count, const float* gradients);
  // The pass's next part, whose launches `launches` makes, alike in every pass.
  void Launch(const std::function<void()>& launches);

 private:
  static constexpr size_t kPassesMax = 64;
  using Name = std::pair<uint32_t, const float*>;
  using Parts = std::vector<LaunchGraph>;

  const Device device_;
  const size_t part_count_;
  std::set<uint32_t> known_counts_;  // of samples: a whole pass has been launched
  std::map<Name, Parts> passes_;
  Parts* pass_ = nullptr;  // the one at hand; null: launched as it is
  bool is_recording_ = false;
  uint32_t sample_count_ = 0;
  size_t next_part_ = 0;
};

}  // namespace pando
