// What a process does that gets no more memory: it prints why, and ends. Computing threads cannot go on
// without their buffers, and an error that passes through them would need memory itself.
#pragma once

#include <cstddef>

namespace pando {

// Says how many bytes were wanted for what, what the process has and may have, and what takes less;
// ends the process with kExitOutOfMemory. Allocates nothing. `bytes` 0: not known.
// Threads: any.
[[noreturn]] void EndOutOfMemory(size_t bytes, const char* what);

// From now on `new` ends the process so, on every thread.
void EndWhenOutOfMemory();

}  // namespace pando
