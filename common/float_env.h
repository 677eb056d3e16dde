// The floating-point environment of every thread of every process (P35).
#pragma once

namespace pando {

// Flushes denormals to zero, on input and output. Each thread that computes calls this first.
void SetFloatEnvironment();

}  // namespace pando
