// How a process that receives large messages keeps their memory. Server and worker processes call
// this first, like SetFloatEnvironment.
#pragma once

namespace pando {

// ZeroMQ allocates each received frame. malloc would map it and give it back each time, and the
// kernel would zero and fault in every page: 80,000 faults per second with shards of 1 MiB over
// TCP, a fifth to a third of all processor time. After this call freed memory is kept for the next
// frame, up to the peak in use.
void KeepFreedMemory();

}  // namespace pando
