#include "kernels/cuda/cuda_device.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <tuple>
#include <vector>

#include "kernels/copy_queue.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/event.h"
#include "kernels/launch_graph.h"
#include "kernels/runtime_library.h"

#ifndef PANDO_GPU_ARCH_MIN  // the oldest compute capability that kernels were compiled for: 75
                            // is 7.5
#define PANDO_GPU_ARCH_MIN 0
#endif

namespace pando {

namespace cuda {

void CudaFailed(const char* call, const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: the GPU failed: %s: %s\n", file, line, call, what);
  std::abort();
}

namespace {

// Ends the process: there was room when the job was checked, but another process has taken it.
[[noreturn]] void NoRoom(CudaDevice& gpu, size_t size_bytes) {
  const DeviceRoom room = ReadRoom(gpu);
  const std::string text = fmt::format(
      "{} bytes more are needed of GPU {}, and {} of {} are free: another process uses it, perhaps "
      "another worker of this job. Start fewer there, or raise train.micro_batches",
      size_bytes, gpu.index(), room.free_bytes, room.total_bytes);
  CudaFailed("cudaMalloc", text.c_str(), __FILE__, __LINE__);
}

// Makes a deleter that any thread may call.
std::function<void(float*)> MakeDeleter(CudaDevice& gpu, cudaError_t (*free)(void*)) {
  return [free, index = gpu.index()](float* memory) {
    PANDO_CUDA_CHECK(cudaSetDevice(index));
    PANDO_CUDA_CHECK(free(memory));
  };
}

uint32_t MultiprocessorCount(int index) {
  int count = 0;
  PANDO_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, index));
  return static_cast<uint32_t>(count);
}

}  // namespace

std::byte* Allocate(CudaDevice& gpu, size_t size_bytes) {
  UseOnThisThread(gpu);
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, size_bytes);
  if (status == cudaErrorMemoryAllocation) NoRoom(gpu, size_bytes);
  PANDO_CUDA_CHECK(status);
  return static_cast<std::byte*>(memory);
}

void Free(CudaDevice&, std::byte* memory) { PANDO_CUDA_CHECK(cudaFree(memory)); }

void Upload(CudaDevice& gpu, std::span<const std::byte> host, void* to) {
  gpu.staging().Upload(host, to);
}

void Download(CudaDevice& gpu, const void* from, std::span<std::byte> host) {
  PANDO_CUDA_CHECK(
      cudaMemcpyAsync(host.data(), from, host.size(), cudaMemcpyDeviceToHost, gpu.stream()));
  Synchronize(gpu);
}

void Synchronize(CudaDevice& gpu) { PANDO_CUDA_CHECK(cudaStreamSynchronize(gpu.stream())); }

void UseOnThisThread(CudaDevice& gpu) { PANDO_CUDA_CHECK(cudaSetDevice(gpu.index())); }

DeviceRoom ReadRoom(CudaDevice& gpu) {
  UseOnThisThread(gpu);
  size_t free_bytes = 0, total_bytes = 0;
  PANDO_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  return {free_bytes, total_bytes};
}

FloatBuffer::Memory AllocateFloats(CudaDevice& gpu, size_t float_count) {
  auto* floats = reinterpret_cast<float*>(Allocate(gpu, float_count * sizeof(float)));
  PANDO_CUDA_CHECK(cudaMemsetAsync(floats, 0, float_count * sizeof(float), gpu.stream()));
  Synchronize(gpu);
  return {floats, MakeDeleter(gpu, cudaFree)};
}

FloatBuffer::Memory AllocatePinnedFloats(CudaDevice& gpu, size_t float_count) {
  UseOnThisThread(gpu);
  void* floats = nullptr;
  PANDO_CUDA_CHECK(cudaMallocHost(&floats, float_count * sizeof(float)));
  return {static_cast<float*>(floats), MakeDeleter(gpu, cudaFreeHost)};
}

// Clears the error of a refusal, so that later calls do not return it.
std::shared_ptr<const void> PinHost(CudaDevice& gpu, std::span<const std::byte> memory,
                                    HostPin how) {
  UseOnThisThread(gpu);
  const unsigned flags =
      cudaHostRegisterPortable | (how == HostPin::kReadOnly ? cudaHostRegisterReadOnly : 0u);
  auto* floats = reinterpret_cast<float*>(const_cast<std::byte*>(memory.data()));
  if (cudaHostRegister(floats, memory.size(), flags) != cudaSuccess) {
    std::ignore = cudaGetLastError();
    return nullptr;
  }
  return std::shared_ptr<float>(floats, MakeDeleter(gpu, cudaHostUnregister));
}

// Registered memory is one range, so both ends represent all of it.
bool IsPinned(CudaDevice& gpu, std::span<const std::byte> memory) {
  if (memory.empty()) return false;
  UseOnThisThread(gpu);
  const auto is_pinned = [](const std::byte& at) {
    cudaPointerAttributes attributes{};
    const cudaError_t asked = cudaPointerGetAttributes(&attributes, &at);
    if (asked != cudaSuccess) std::ignore = cudaGetLastError();
    return asked == cudaSuccess && attributes.type == cudaMemoryTypeHost;
  };
  return is_pinned(memory.front()) && is_pinned(memory.back());
}

// ---- copies of the host's arrays ----------------------------------------------------------------

Staging::Staging(cudaStream_t stream) : stream_(stream) {}

Staging::~Staging() {
  for (Slot& slot : slots_) {
    slot.is_free.Await();
    if (slot.pinned != nullptr) PANDO_CUDA_CHECK(cudaFreeHost(slot.pinned));
  }
  for (Array& array : arrays_) PANDO_CUDA_CHECK(cudaFree(array.data));
}

Staging::Slot& Staging::NextSlot(size_t size_bytes) {
  Slot& slot = slots_[next_slot_];
  next_slot_ = (next_slot_ + 1) % kSlots;
  slot.is_free.Await();
  if (slot.size_bytes < size_bytes) {
    if (slot.pinned != nullptr) PANDO_CUDA_CHECK(cudaFreeHost(slot.pinned));
    PANDO_CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&slot.pinned), size_bytes));
    slot.size_bytes = size_bytes;
  }
  return slot;
}

void Staging::Upload(std::span<const std::byte> host, void* to) {
  for (auto* out = static_cast<std::byte*>(to); !host.empty();) {
    const std::span<const std::byte> piece = host.first(std::min(host.size(), kPieceBytes));
    Slot& slot = NextSlot(piece.size());
    std::memcpy(slot.pinned, piece.data(), piece.size());
    PANDO_CUDA_CHECK(
        cudaMemcpyAsync(out, slot.pinned, piece.size(), cudaMemcpyHostToDevice, stream_));
    slot.is_free.Record(stream_);
    host = host.subspan(piece.size());
    out += piece.size();
  }
}

// The array is written in the stream's order, after its earlier readers.
const void* Staging::Upload(std::span<const std::byte> host) {
  Array& array = arrays_[next_array_];
  next_array_ = (next_array_ + 1) % kArrays;
  if (array.size_bytes < host.size()) {
    PANDO_CUDA_CHECK(cudaFree(array.data));
    PANDO_CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&array.data), host.size()));
    array.size_bytes = host.size();
  }
  Upload(host, array.data);
  return array.data;
}

}  // namespace cuda

CudaDevice::CudaDevice(const CudaOptions& options, Parts parts)
    : options_(options),
      parts_(std::move(parts)),
      multiprocessor_count_(cuda::MultiprocessorCount(options.index)),
      staging_(stream()) {}

std::string CudaDevice::description() const {
  cudaDeviceProp properties{};
  PANDO_CUDA_CHECK(cudaGetDeviceProperties(&properties, options_.index));
  return fmt::format("{}, compute capability {}.{}, cuDNN {} with {} MiB, cuBLASLt {}",
                     properties.name, properties.major, properties.minor,
                     Dotted(parts_.convolutions->version()),
                     cuda::ConvWorkspaceBytes(properties.totalGlobalMem) >> 20,
                     Dotted(parts_.matrices->version()));
}

bool HasCuda() { return true; }

uint32_t GpuCount() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return 0;
  const bool can_compute = cuda::HasConvPlanner() && cuda::MatrixLibrary::IsThere();
  return can_compute ? static_cast<uint32_t>(count) : 0;
}

Result<OpenedGpu> OpenCuda(const CudaOptions& options) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    return NotFound(fmt::format(
        "no GPU can be used: {}. Check the GPU and its driver (nvidia-smi), or use --device cpu",
        status == cudaSuccess ? "there is none" : cudaGetErrorString(status)));
  }
  if (options.index < 0 || options.index >= count) {
    return NotFound(fmt::format("there is no GPU {}: this machine has {}, counted from 0",
                                options.index, count));
  }
  PANDO_CUDA_CHECK(cudaSetDevice(options.index));
  cudaDeviceProp properties{};
  PANDO_CUDA_CHECK(cudaGetDeviceProperties(&properties, options.index));
  if (10 * properties.major + properties.minor < PANDO_GPU_ARCH_MIN) {
    return NotFound(
        fmt::format("GPU {} ({}) is of compute capability {}.{}, and this pando was built for {} "
                    "and newer: run "
                    "meson setup with -Dgpu_archs={}{} first in its list, or use --device cpu",
                    options.index, properties.name, properties.major, properties.minor,
                    PANDO_GPU_ARCH_MIN, properties.major, properties.minor));
  }
  if (options.element == ElementType::kBfloat16 && properties.major < 8) {
    return InvalidArgument(fmt::format(
        "GPU {} ({}) is of compute capability {}.{}, and bf16 needs 8.0: use --precision "
        "fp16",
        options.index, properties.name, properties.major, properties.minor));
  }
  cuda::Stream stream;
  PANDO_ASSIGN_OR_RETURN(auto matrices, cuda::MatrixLibrary::Open(options, stream.get()));
  const cuda::ConvSetting setting{
      .workspace_bytes = cuda::ConvWorkspaceBytes(properties.totalGlobalMem),
      .cublas_major = matrices->version() / 10000};
  PANDO_ASSIGN_OR_RETURN(auto convolutions,
                         cuda::ConvLibrary::Open(options, setting, stream.get()));
  return OpenedGpu(std::make_unique<CudaDevice>(
      options, CudaDevice::Parts{std::move(stream), std::move(convolutions), std::move(matrices)}));
}

OpenedGpu::OpenedGpu(std::unique_ptr<CudaDevice> gpu) : gpu_(std::move(gpu)) {}
OpenedGpu::~OpenedGpu() = default;
OpenedGpu::OpenedGpu(OpenedGpu&&) noexcept = default;
Device OpenedGpu::device() const { return gpu_->device(); }
std::string OpenedGpu::description() const { return gpu_->description(); }

std::string OpenedGpu::bus_id() const {
  std::array<char, 32> text{};
  PANDO_CUDA_CHECK(
      cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), gpu_->index()));
  return text.data();
}

// ---- launches recorded as a CUDA graph ----------------------------------------------------------

// Programming guide, 3.2.8.7.3, "Creating a graph using stream capture".
struct LaunchGraph::Recording {
  cudaStream_t stream = nullptr;
  cudaGraphExec_t graph = nullptr;

  ~Recording() { PANDO_CUDA_CHECK(cudaGraphExecDestroy(graph)); }
};

LaunchGraph::LaunchGraph(Device device, const std::function<void()>& launches)
    : recording_(std::make_unique<Recording>()) {
  recording_->stream = device.cuda->stream();
  // Other threads continue to free and allocate.
  PANDO_CUDA_CHECK(cudaStreamBeginCapture(recording_->stream, cudaStreamCaptureModeThreadLocal));
  launches();
  cudaGraph_t graph = nullptr;
  PANDO_CUDA_CHECK(cudaStreamEndCapture(recording_->stream, &graph));
  PANDO_CUDA_CHECK(cudaGraphInstantiate(&recording_->graph, graph, 0));
  PANDO_CUDA_CHECK(cudaGraphDestroy(graph));
}

LaunchGraph::~LaunchGraph() = default;
LaunchGraph::LaunchGraph(LaunchGraph&&) noexcept = default;

void LaunchGraph::Launch() const {
  PANDO_CUDA_CHECK(cudaGraphLaunch(recording_->graph, recording_->stream));
}

struct CopyQueue::Impl {
  explicit Impl(CudaDevice& device) : gpu(device) {}

  CudaDevice& gpu;
  cuda::Stream stream;
  cuda::Event launched;
  cuda::Event copied;
  Ticket last_ticket = 0;
  Ticket done_ticket = 0;
  std::deque<cuda::Event> marks;  // for the tickets above done_ticket, in order
  std::vector<cuda::Event> free_events;
};

CopyQueue::CopyQueue(Device device) : impl_(std::make_unique<Impl>(*device.cuda)) {}
CopyQueue::~CopyQueue() {
  if (impl_ != nullptr) PANDO_CUDA_CHECK(cudaStreamSynchronize(impl_->stream.get()));
}
CopyQueue::CopyQueue(CopyQueue&&) noexcept = default;

void CopyQueue::ToDevice(std::span<const std::byte> host, void* to) {
  PANDO_CUDA_CHECK(
      cudaMemcpyAsync(to, host.data(), host.size(), cudaMemcpyHostToDevice, impl_->stream.get()));
}

void CopyQueue::ToHost(const void* from, std::span<std::byte> host) {
  PANDO_CUDA_CHECK(
      cudaMemcpyAsync(host.data(), from, host.size(), cudaMemcpyDeviceToHost, impl_->stream.get()));
}

void CopyQueue::AwaitLaunched() {
  impl_->launched.Record(impl_->gpu.stream());
  impl_->launched.HoldBack(impl_->stream.get());
}

void CopyQueue::HoldLaunches() {
  impl_->copied.Record(impl_->stream.get());
  impl_->copied.HoldBack(impl_->gpu.stream());
}

CopyQueue::Ticket CopyQueue::Mark() {
  Impl& queue = *impl_;
  if (queue.free_events.empty()) queue.free_events.emplace_back();
  queue.marks.push_back(std::move(queue.free_events.back()));
  queue.free_events.pop_back();
  queue.marks.back().Record(queue.stream.get());
  return ++queue.last_ticket;
}

bool CopyQueue::IsDone(Ticket ticket) {
  Impl& queue = *impl_;
  while (queue.done_ticket < ticket && queue.marks.front().IsPast()) {
    queue.free_events.push_back(std::move(queue.marks.front()));
    queue.marks.pop_front();
    ++queue.done_ticket;
  }
  return queue.done_ticket >= ticket;
}

void CopyQueue::Await(Ticket ticket) {
  if (IsDone(ticket)) return;
  impl_->marks[ticket - impl_->done_ticket - 1].Await();
  PANDO_CHECK(IsDone(ticket));
}

}  // namespace pando
