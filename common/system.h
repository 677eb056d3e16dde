// Requests to the operating system by processes and threads: memory, floating-point mode, time
// slices, random ids, and the machine's name.
#pragma once

#include <string>

#include "common/ids.h"
#include "common/status.h"

namespace pando {

// Server and worker processes call this first. ZeroMQ allocates each received frame. malloc would
// map it and give it back each time, and the kernel would zero and fault in every page: 80,000
// faults per second with shards of 1 MiB over TCP, a fifth to a third of all processor time. After
// this call freed memory is kept for the next frame, up to the peak in use.
void KeepFreedMemory();

// Flushes denormals to zero, on input and output (P35). Each thread that computes calls this first.
void SetFloatEnvironment();

// Time slices: how long a thread may keep a processor for which other threads wait.
//
// Protocol and I/O threads need a processor for microseconds, and a step waits for them. Computing
// threads need it for seconds. Linux (6.12 and later, EEVDF) runs a thread that requests a short
// time slice as soon as it wakes, at the same share of the processor. This starves no thread and
// needs no privilege. Older kernels ignore it.
// Sets short slices for the calling thread and for threads that it starts later.
void TakeShortTimeSlices();
// Sets the usual slices and makes the caller a batch thread (SCHED_BATCH): when it wakes, it waits
// for a processor and does not take one from a thread that handles a message.
void TakeBatchTimeSlices();

// The random id of a process life (P19), from the operating system's generator; never 0.
Incarnation NewIncarnation();

// Distinguishes this process from others with its host name and process id, as in containers. It is
// drawn once, or comes from the supervisor in kProcessKeyVariable, as HexText writes it. Never 0.
inline constexpr const char* kProcessKeyVariable = "PANDO_PROCESS_KEY";
uint64_t ProcessKey();

// A parent that cannot run code between fork and exec sets this variable to its process id. Then
// the kernel kills this process when the parent's thread that started it ends. Call it first in
// main; child processes do not inherit the variable.
inline constexpr const char* kEndsWithVariable = "PANDO_ENDS_WITH";
void EndWithParent();

// Raises this process's limit of open files to the most that the system allows.
void RaiseFileLimit();
// Returns an error if this process may open fewer than `needed` files, sockets included. `whose` is
// for example "a scheduler of 28 workers".
Status CheckFileLimit(uint64_t needed, const std::string& whose);

std::string HostName();  // "unknown" where the system does not say
// The kernel's boot id, new at each start of the machine; empty where the system does not say.
std::string BootId();

const char* PandoVersion();

}  // namespace pando
