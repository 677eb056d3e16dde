// How long a thread may keep a processor that other threads wait for.
//
// Protocol and I/O threads need a processor for microseconds, and a step waits for them. Computing
// threads need it for seconds. Linux (6.12 and later, EEVDF) runs a thread that requests a short
// time slice as soon as it wakes, at the same share of the processor. This starves no thread and
// needs no privilege. Older kernels ignore it.
#pragma once

namespace pando {

// For the calling thread, and threads that it starts from now on.
void TakeShortTimeSlices();
// The system's usual slices, as a batch thread (SCHED_BATCH): when it wakes it waits for a
// processor and does not take one from a thread that handles a message.
void TakeBatchTimeSlices();

}  // namespace pando
