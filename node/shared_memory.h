// ShareMemory: has a transport share memory with its host's other processes, as run.transport says
// (P42). Used by the server and the worker process, once the job is known.
#pragma once

#include "common/float_buffer.h"
#include "net/transport.h"
#include "plan/job.h"

namespace pando {

// Where to allocate payloads.  An error if the job requires shared memory and this host has none.
// May be called again, after the process has joined again.
Result<BufferSource> ShareMemory(const Job& job, Transport& transport);

}  // namespace pando
