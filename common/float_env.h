// The floating-point environment of every thread of every process (P35).
#pragma once

namespace pando {

// Flushes denormals to zero, on input and output. Call first thing on each thread that computes.
void SetFloatEnvironment();

}  // namespace pando
