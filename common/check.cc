#include "common/check.h"

#include <cstdio>
#include <cstdlib>

namespace pando {

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "pando: internal error: %s does not hold (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace pando
