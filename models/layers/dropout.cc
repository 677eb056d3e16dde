// Dropout of single elements, and of whole channels.
#include "models/layers/support.h"
#include "models/stage_builder.h"

namespace pando {
namespace {

constexpr LayerKey kKeys[] = {{"p", &LayerSpec::probability}};

class DropoutStage : public Stage {
 public:
  DropoutStage(const LayerSpec& spec, SampleShape shape)
      : shape_(shape),
        per_channel_(spec.kind == LayerKind::kDropout2d),
        dropout_(spec, per_channel_ ? shape.channels : shape.size()) {}
  StageTraits traits() const override { return {}; }
  void Forward(const Pass& pass, const StageForward& a) const override {
    dropout_.Draw(pass, Floats(a.kept));
    Scale(pass, a.x[0], Floats(a.kept), a.y);
  }
  void Backward(const Pass& pass, const StageBackward& a) const override {
    if (a.dx[0] != nullptr) Scale(pass, a.dy, Floats(a.kept), a.dx[0]);
  }
  size_t kept_bytes(uint32_t sample_count) const override { return dropout_.bytes(sample_count); }

 private:
  void Scale(const Pass& pass, const void* x, const float* factors, void* y) const {
    const size_t count = shape_.size() * pass.sample_count;
    if (!dropout_.IsActive(pass)) {
      Copy(pass.device, count, x, y);
    } else if (per_channel_) {
      MultiplyChannels(pass.device, pass.sample_count, shape_, x, factors, y);
    } else {
      Multiply(pass.device, count, x, factors, y);
    }
  }
  SampleShape shape_;
  bool per_channel_;
  DropoutMask dropout_;
};

std::unique_ptr<Stage> MakeDropout(StageBuilder&, const Layer& layer) {
  return std::make_unique<DropoutStage>(layer.spec, layer.in);
}

}  // namespace

const LayerRules kDropoutRules{
    .name = "Dropout", .keys = kKeys, .file_probability = 0.5f, .make_stage = MakeDropout};
const LayerRules kDropout2dRules{
    .name = "Dropout2d", .keys = kKeys, .file_probability = 0.5f, .make_stage = MakeDropout};

}  // namespace pando
