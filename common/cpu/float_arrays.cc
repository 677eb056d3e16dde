#include "common/cpu/float_arrays.h"

#include "common/cpu/cpu_level.h"

namespace pando {

struct FloatLoops {
  static void Add(float* out, std::span<const float> left, std::span<const float> right) {
    ToArray(std::span(out, left.size())) = ToArray(left) + ToArray(right);
  }
  decltype(Add)* add = Add;
};
PANDO_AT_EACH_CPU_LEVEL(FloatLoops, ChosenFloatLoops)

void AddSpans(float* out, std::span<const float> left, std::span<const float> right) {
  ChosenFloatLoops().add(out, left, right);
}

}  // namespace pando
