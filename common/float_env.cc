#include "common/float_env.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace pando {

void SetFloatEnvironment() {
#if defined(__SSE2__)
  constexpr unsigned kFlushToZero = 0x8000;       // FTZ: results
  constexpr unsigned kDenormalsAreZero = 0x0040;  // DAZ: operands
  _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
#endif
}

}  // namespace pando
