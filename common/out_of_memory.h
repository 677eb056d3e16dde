// Functions that end a process that gets no more memory, and print why. Computing threads cannot go
// on without their buffers, and an error that passes through them would itself need memory.
#pragma once

#include <cstddef>

namespace pando {

// Prints how many bytes were wanted for what, how much memory the process has and may have, and the
// advice below. Then ends the process with kExitOutOfMemory. Allocates nothing. `bytes` is 0 if it
// is not known. Threads: any.
[[noreturn]] void EndOutOfMemory(size_t bytes, const char* what);

// Sets the advice, a literal, on how to use less memory. main calls it, since it knows the command.
void SetMemoryAdvice(const char* advice);

// After this call a failed `new` or FloatBuffer ends the process, on every thread. main calls it.
void EndWhenOutOfMemory();

// The function that FloatBuffer calls if it gets no memory. Without one, the process ends as on a
// bug. It is defined beside FloatBuffer because protocol cores use FloatBuffer and never ask the
// system. Set it before any thread starts.
using OnNoMemory = void (*)(size_t bytes, const char* what);
void SetOnNoMemory(OnNoMemory handler);

}  // namespace pando
