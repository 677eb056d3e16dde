// How long a thread may keep a processor that others wait for.
//
// Protocol and I/O threads need a processor for microseconds, and a step waits for them; computing
// threads need it for seconds. Linux (6.12 and later, EEVDF) lets a thread that asks for a short
// time slice in as soon as it wakes, at the same share of the processor: nobody is starved, and no
// privilege is needed. Older kernels take no notice.
#pragma once

namespace pando {

// Of the calling thread, and of threads that it starts from now on.
void TakeShortTimeSlices();
// The system's usual slices, as a batch thread (SCHED_BATCH): when it wakes it waits for a
// processor rather than take one from a thread that is in the middle of a message.
void TakeBatchTimeSlices();

}  // namespace pando
