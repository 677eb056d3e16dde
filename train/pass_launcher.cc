#include "train/pass_launcher.h"

#include <utility>

namespace pando {
namespace {

// The host's memory is the device's.
class HostLauncher : public PassLauncher {
 public:
  explicit HostLauncher(const LauncherParts& parts)
      : network_(parts.network), timeline_(parts.timeline), results_(parts.results) {}

  Status Forward(const std::shared_ptr<const Batch>& batch, MicroBatchName name,
                 PassParameters& parameters) override {
    network_.SetBatch(*batch, name, Mode::kTrain);
    timeline_.Did(StepTimeline::What::kPrepare);
    for (uint32_t layer = 0; layer < network_.layer_count(); ++layer) {
      if (Status s = parameters.Await(layer); !s.ok()) return s;
      network_.Forward(layer, parameters.values());
      timeline_.DidForward(layer);
    }
    return {};
  }

  Status Score(float* metrics) override {
    if (Status s = results_.OnScore(network_.Score()); !s.ok()) return s;
    network_.WriteScore(metrics);
    return {};
  }

  Status Backward(const BackwardPart& part, PassParameters& parameters, float* gradients) override {
    for (uint32_t layer = part.last + 1; layer-- > part.first;) {
      if (Status s = parameters.Await(BackwardTurn(network_, layer)); !s.ok()) return s;
      network_.Backward(layer, parameters.values(), gradients);
      timeline_.DidBackward(layer);
    }
    return {};
  }

  void OnGradient(TreeNode node, ShardId shard, Blob sum) override {
    results_.OnGradient(node, shard, std::move(sum));
  }

  Status Finish(const PassParameters&, Status computed) override { return computed; }

 private:
  Network& network_;
  StepTimeline& timeline_;
  PassResults& results_;
};

}  // namespace

std::unique_ptr<PassLauncher> MakePassLauncher(const LauncherParts& parts, bool is_layered,
                                               NextBatch next_batch) {
  if (parts.device.kind == DeviceKind::kCpu) return std::make_unique<HostLauncher>(parts);
  return MakeGpuLauncher(parts, is_layered, std::move(next_batch));
}

}  // namespace pando
