// ShareMemory: has a transport share memory with its host's other processes, as run.transport says
// (P42). Used by the server and the worker process, once the job is known.
#pragma once

#include "common/float_buffer.h"
#include "common/job.h"
#include "net/transport.h"

namespace pando {

// Where to make what travels.  An error if memory must be shared, and cannot be with anybody. May
// be called again, in another life of the process.
Result<BufferSource> ShareMemory(const Job& job, Transport& transport);

}  // namespace pando
