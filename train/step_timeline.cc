#include "train/step_timeline.h"

namespace pando {
namespace {

constexpr const char* kNumber = "micro_batch";

// Each span's name and category, by What.
constexpr std::array<std::array<const char*, 2>, 11> kNames{
    {{"wait for work", "wait"},
     {StepTimeline::kAwaitParametersName, "wait"},
     {"wait for samples", "wait"},
     {"take samples in", "compute"},
     {"score", "compute"},
     {"sum gradients", "push"},
     {"forward", "compute"},
     {"backward", "compute"},
     {"wait for the GPU", "wait"},
     {"evaluate", "evaluation"},
     {"finish", "compute"}}};

}  // namespace

StepTimeline::StepTimeline(Timeline* timeline, const std::string& track)
    : timeline_(timeline), track_(timeline, track) {
  static_assert(kNames.size() == kWhatCount);
  if (timeline == nullptr) return;
  for (size_t i = 0; i < kWhatCount; ++i)
    names_[i] = timeline->Name({kNames[i][0], kNames[i][1], kNumber});
}

void StepTimeline::NameLayers(const Network& network) {
  if (timeline_ == nullptr) return;
  for (uint32_t layer = 0; layer < network.layer_count(); ++layer) {
    const std::string& names = network.LayerNames(layer);
    forward_.push_back(timeline_->Name({names + " forward", "compute", kNumber}));
    backward_.push_back(timeline_->Name({names + " backward", "compute", kNumber}));
  }
}

}  // namespace pando
