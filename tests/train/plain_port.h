// PlainPort stands for the call of a pass in a test. It wants its work to the end.
#pragma once

#include <functional>
#include <utility>
#include <variant>
#include <vector>

#include "train/compute_port.h"
#include "train/pass_parameters.h"

namespace pando {

class PlainPort : public PassControl {
 public:
  using OnSum = std::function<void(const GradientReady& sum)>;
  // `on_question`: called when the pass asks whether it is abandoned.
  explicit PlainPort(
      OnSum on_sum, std::function<void()> on_question = [] {})
      : sink([on_sum = std::move(on_sum)](ComputeTicket, const ComputeEvent& event) {
          on_sum(std::get<GradientReady>(event));
        }),
        on_question_(std::move(on_question)) {}

  const ComputeSink sink;

  bool IsInterrupted() const override { return false; }
  bool IsAbandoned(bool) const override {
    on_question_();
    return false;
  }
  void FetchParameters(const std::vector<ShardId>&) override {}

 private:
  const std::function<void()> on_question_;
};

}  // namespace pando
