// Memory, streams, events and graphs. A stream is a list of what has been put on it and how much of
// that has run; an event is a place in a stream.
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "common/check.h"
#include "common/philox.h"
#include "tests/cuda_on_host/cuda_runtime.h"
#include "tests/cuda_on_host/device.h"

// One at a time runs anything: kernels have globals (threadIdx).
static std::recursive_mutex mutex;  // guards everything below

struct Place {  // the first `count` entries of a stream, or nothing
  cudaStream_t stream = nullptr;
  uint64_t count = 0;
};
struct Entry {
  std::function<void()> work;  // empty: a wait for a place in another stream
  Place awaited;
};
struct CUevent_st {
  Place place;
};
struct CUgraph_st {
  std::vector<std::function<void()>> work;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> work;
};
struct CUstream_st {
  std::deque<Entry> waiting;
  uint64_t done_count = 0;
  CUgraph_st* captured = nullptr;  // while a capture is going on
  uint64_t count() const { return done_count + waiting.size(); }
};

// This thread's.
thread_local bool is_capturing = false;

namespace {

using pando::PhiloxBlock;

struct Machine {
  std::set<cudaStream_t> streams;
  std::map<const std::byte*, size_t> pinned;  // by where it begins: its bytes
  std::map<const void*, size_t> allocated;    // of the device: its bytes
  size_t allocated_bytes = 0;
  uint64_t draw_count = 0;
};

Machine& TheMachine() {
  static auto* machine = new Machine;  // outlives every user's destructor
  return *machine;
}

uint64_t ReadNumber(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// 0 to 3.
uint32_t Draw() {
  static const auto kSeed = static_cast<uint32_t>(ReadNumber("CUDA_ON_HOST_SEED", 1));
  const uint64_t n = TheMachine().draw_count++;
  const PhiloxBlock block =
      pando::Philox4x32({static_cast<uint32_t>(n), static_cast<uint32_t>(n >> 32), kSeed, 0}, {});
  return block[0] % 4;
}

void RunTo(Place place) {
  if (place.stream == nullptr || !TheMachine().streams.contains(place.stream)) return;
  CUstream_st& stream = *place.stream;
  while (stream.done_count < place.count) {
    const Entry entry = std::move(stream.waiting.front());
    stream.waiting.pop_front();
    if (entry.work) {
      entry.work();
    } else {
      RunTo(entry.awaited);
    }
    ++stream.done_count;
  }
}

void RunAll(cudaStream_t stream) { RunTo({stream, stream->count()}); }

void RunEverything() {
  for (cudaStream_t stream : TheMachine().streams) RunAll(stream);
}

bool IsPinned(const void* memory) {
  const auto* at = static_cast<const std::byte*>(memory);
  auto next = TheMachine().pinned.upper_bound(at);
  if (next == TheMachine().pinned.begin()) return false;
  --next;
  return at < next->first + next->second;
}

cudaError_t AllocateWithin(void** memory, size_t size_bytes, bool is_managed) {
  PANDO_CHECK(!is_capturing);
  std::lock_guard lock(mutex);
  size_t free_bytes = 0, total_bytes = 0;
  cudaMemGetInfo(&free_bytes, &total_bytes);
  if (size_bytes > free_bytes) return cudaErrorMemoryAllocation;
  *memory = cuda_on_host::AllocateOnDevice(size_bytes, is_managed);
  TheMachine().allocated[*memory] = size_bytes;
  TheMachine().allocated_bytes += size_bytes;
  return cudaSuccess;
}

}  // namespace

bool cuda_on_host::IsCapturing() { return is_capturing; }

void cuda_on_host::Enqueue(cudaStream_t stream, std::function<void()> work) {
  std::lock_guard lock(mutex);
  if (stream->captured != nullptr) {
    stream->captured->work.push_back(std::move(work));
    return;
  }
  stream->waiting.push_back({std::move(work), {}});
  if (Draw() == 0) RunAll(stream);
}

// ---- memory -------------------------------------------------------------------------------------

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  std::lock_guard lock(mutex);
  *total_bytes = ReadNumber("CUDA_ON_HOST_MEMORY_MB", 2048) << 20;
  *free_bytes = *total_bytes - std::min(*total_bytes, TheMachine().allocated_bytes);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  const auto capability = static_cast<int>(ReadNumber("CUDA_ON_HOST_CAPABILITY", 90));
  *properties = {"a GPU on the host", 0, capability / 10, capability % 10};
  size_t free_bytes = 0;
  return cudaMemGetInfo(&free_bytes, &properties->totalGlobalMem);
}

cudaError_t cudaMalloc(void** memory, size_t size_bytes) {
  return AllocateWithin(memory, size_bytes, /*is_managed=*/false);
}

cudaError_t cudaMallocManaged(void** memory, size_t size_bytes) {
  return AllocateWithin(memory, size_bytes, /*is_managed=*/true);
}

cudaError_t cudaFree(void* memory) {
  PANDO_CHECK(!is_capturing);
  std::lock_guard lock(mutex);
  if (memory == nullptr) return cudaSuccess;
  RunEverything();
  const auto at = TheMachine().allocated.find(memory);
  PANDO_CHECK(at != TheMachine().allocated.end());
  TheMachine().allocated_bytes -= at->second;
  TheMachine().allocated.erase(at);
  cuda_on_host::FreeOnDevice(memory);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** memory, size_t size_bytes) {
  PANDO_CHECK(!is_capturing);
  std::lock_guard lock(mutex);
  std::byte* pinned = cuda_on_host::AllocateOnHost(size_bytes);
  TheMachine().pinned[pinned] = size_bytes;
  *memory = pinned;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  PANDO_CHECK(!is_capturing);
  std::lock_guard lock(mutex);
  if (memory == nullptr) return cudaSuccess;
  RunEverything();
  PANDO_CHECK(TheMachine().pinned.erase(static_cast<std::byte*>(memory)) == 1);
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* memory, size_t size_bytes, unsigned flags) {
  PANDO_CHECK(!is_capturing);
  std::lock_guard lock(mutex);
  if ((flags & cudaHostRegisterReadOnly) != 0 && ReadNumber("CUDA_ON_HOST_READ_ONLY", 1) == 0)
    return cudaErrorNotSupported;
  PANDO_CHECK(TheMachine().pinned.emplace(static_cast<std::byte*>(memory), size_bytes).second);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* memory) {
  std::lock_guard lock(mutex);
  RunEverything();
  PANDO_CHECK(TheMachine().pinned.erase(static_cast<std::byte*>(memory)) == 1);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  std::lock_guard lock(mutex);
  attributes->type = IsPinned(memory) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size_bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  std::lock_guard lock(mutex);
  if (kind == cudaMemcpyHostToDevice && !IsPinned(from)) {
    const auto* bytes = static_cast<const std::byte*>(from);
    std::vector<std::byte> copy(bytes, bytes + size_bytes);
    cuda_on_host::Enqueue(stream, [to, kind, copy = std::move(copy)] {
      cuda_on_host::Copy(to, copy.data(), copy.size(), kind);
    });
    return cudaSuccess;
  }
  cuda_on_host::Enqueue(stream, [=] { cuda_on_host::Copy(to, from, size_bytes, kind); });
  if (kind == cudaMemcpyDeviceToHost && !IsPinned(to)) RunAll(stream);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int byte, size_t size_bytes, cudaStream_t stream) {
  cuda_on_host::Enqueue(stream, [=] { cuda_on_host::SetBytes(to, byte, size_bytes); });
  return cudaSuccess;
}

// ---- streams and events -------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(ReadNumber("CUDA_ON_HOST_GPUS", 1));
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  std::lock_guard lock(mutex);
  *stream = new CUstream_st;
  TheMachine().streams.insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::lock_guard lock(mutex);
  RunAll(stream);
  TheMachine().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  std::lock_guard lock(mutex);
  PANDO_CHECK(stream->captured == nullptr);
  RunAll(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  std::lock_guard lock(mutex);
  PANDO_CHECK(stream->captured == nullptr);
  stream->waiting.push_back({{}, event->place});
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  std::lock_guard lock(mutex);
  PANDO_CHECK(stream->captured == nullptr);
  event->place = {stream, stream->count()};
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  PANDO_CHECK(!is_capturing);
  std::lock_guard lock(mutex);
  RunTo(event->place);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  PANDO_CHECK(!is_capturing);
  std::lock_guard lock(mutex);
  const Place place = event->place;
  if (place.stream == nullptr || !TheMachine().streams.contains(place.stream)) return cudaSuccess;
  if (place.stream->done_count < place.count) RunTo({place.stream, place.stream->done_count + 1});
  return place.stream->done_count >= place.count ? cudaSuccess : cudaErrorNotReady;
}

// ---- graphs -------------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  std::lock_guard lock(mutex);
  PANDO_CHECK(stream->captured == nullptr);
  stream->captured = new CUgraph_st;
  is_capturing = true;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  std::lock_guard lock(mutex);
  *graph = std::exchange(stream->captured, nullptr);
  is_capturing = false;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  for (const auto& work : exec->work) cuda_on_host::Enqueue(stream, work);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
