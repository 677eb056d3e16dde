#include "kernels/cpu/cpu_ops.h"

#include "common/cpu/cpu_level.h"

namespace pando::cpu {

const char* InstructionSet() {
#if defined(__AVX512F__) && defined(__AVX512VL__)
  return "x86-64-v4";
#elif defined(__AVX2__) && defined(__FMA__)
  return "x86-64-v3";
#elif defined(__SSE4_2__)
  return "x86-64-v2";
#else
  return "generic";
#endif
}

PANDO_AT_EACH_CPU_LEVEL(Operations, ChosenOperations)

}  // namespace pando::cpu
