// How a process that receives large messages keeps their memory. Called first by server and worker
// processes, as SetFloatEnvironment is.
#pragma once

namespace pando {

// ZeroMQ allocates each received frame. malloc would map it anew and give it back each time, and
// the kernel zero and fault in every page of it: 80,000 faults a second with shards of 1 MiB over
// TCP, a fifth to a third of all processor time. From here on freed memory is kept for the next
// frame, up to what has been in use at once.
void KeepFreedMemory();

}  // namespace pando
