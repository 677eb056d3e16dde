// What a process does that gets no more memory: it prints why, and ends. Computing threads cannot
// go on without their buffers, and an error that passes through them would need memory itself.
#pragma once

#include <cstddef>

namespace pando {

// Says how many bytes were wanted for what, what the process has and may have, and the advice
// below; ends the process with kExitOutOfMemory. Allocates nothing. `bytes` 0: not known. Threads:
// any.
[[noreturn]] void EndOutOfMemory(size_t bytes, const char* what);

// Sets the advice, a literal, on how to take less memory. main, which knows the command, calls it.
void SetMemoryAdvice(const char* advice);

// From now on `new` and FloatBuffer end the process so, on every thread. Called by main.
void EndWhenOutOfMemory();

// What FloatBuffer calls where it gets no memory; a bug's end without it. Defined beside
// FloatBuffer: the protocol's cores use that, and ask the system for nothing. Set it before any
// thread starts.
using OnNoMemory = void (*)(size_t bytes, const char* what);
void SetOnNoMemory(OnNoMemory handler);

}  // namespace pando
