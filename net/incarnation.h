// Incarnations: the random id of one process life (P19).
#pragma once

#include "common/ids.h"

namespace pando {

// From the operating system's random generator; never 0.
Incarnation NewIncarnation();

}  // namespace pando
