// StepTimeline is one computing thread's track of the timeline. Each call adds a span for the time
// since the last call, so there are no gaps. Used by Trainer and MicroBatchPass. With a GPU the
// spans are the host's: a layer's span is its launch, not its computation. Threads: one at a time.
// Without a timeline each call costs a branch.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/timeline/gapless_track.h"
#include "models/network.h"

namespace pando {

class StepTimeline {
 public:
  // The name of a span of kAwaitParameters. All of them together are the exposed synchronisation.
  static constexpr const char* kAwaitParametersName = "wait for parameters";

  enum class What : uint8_t {
    kAwaitWork,
    kAwaitParameters,
    kAwaitSamples,
    kPrepare,  // copies the samples in
    kScore,
    kSum,  // adds gradients to the worker's sum, and emits complete sums
    kForward,
    kBackward,  // several layers that are launched together
    kAwaitDevice,
    kEvaluate,
    kFinish,
  };
  // `timeline` may be null; otherwise it outlives this.
  StepTimeline(Timeline* timeline, const std::string& track);
  // Names the spans of DidForward and DidBackward. Call it before them.
  void NameLayers(const Network& network);

  // The next spans belong to this step (of an evaluation: the step that reads its version), and to
  // this micro-batch or chunk. The wait for it began when the last work ended.
  void Begin(Step step, uint32_t number) {
    track_.Begin(step);
    number_ = number;
  }
  void Did(What what) { track_.Did(names_[static_cast<size_t>(what)], number_); }
  void DidForward(uint32_t layer) {
    if (track_.is_wanted()) track_.Did(forward_[layer], number_);
  }
  void DidBackward(uint32_t layer) {
    if (track_.is_wanted()) track_.Did(backward_[layer], number_);
  }

 private:
  static constexpr size_t kWhatCount = static_cast<size_t>(What::kFinish) + 1;

  Timeline* const timeline_;
  GaplessTrack track_;
  std::array<TimelineNameId, kWhatCount> names_;
  std::vector<TimelineNameId> forward_;  // by layer
  std::vector<TimelineNameId> backward_;
  uint32_t number_ = 0;
};

}  // namespace pando
