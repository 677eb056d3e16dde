#include "common/float_buffer.h"

#include <cstdlib>
#include <cstring>

#include "common/check.h"
#include "common/out_of_memory.h"

namespace pando {
namespace {

OnNoMemory on_no_memory = nullptr;

}  // namespace

void SetOnNoMemory(OnNoMemory handler) { on_no_memory = handler; }

FloatBuffer::FloatBuffer(size_t float_count) : size_(float_count) {
  size_t bytes = float_count * sizeof(float);
  size_t rounded = (bytes / kAlignmentBytes + 1) * kAlignmentBytes;
  data_ = Memory(static_cast<float*>(std::aligned_alloc(kAlignmentBytes, rounded)),
                 [](float* p) { std::free(p); });
  if (data_ == nullptr) {
    if (on_no_memory != nullptr)
      on_no_memory(rounded, "a buffer of weights, gradients or activations");
    PANDO_CHECK(data_ != nullptr);
  }
  std::memset(data_.get(), 0, rounded);
}

}  // namespace pando
