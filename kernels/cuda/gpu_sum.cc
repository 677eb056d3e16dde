#include "kernels/gpu_sum.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <initializer_list>
#include <thread>
#include <utility>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/event.h"
#include "kernels/cuda/nccl_api.h"
#include "kernels/cuda/stream.h"
#include "kernels/runtime_library.h"

namespace pando {
namespace cuda {

Result<NcclApi> LoadNccl() {
  const Result<RuntimeLibrary> library = RuntimeLibrary::Load({"libnccl.so.2"});
  if (!library.ok()) return library.status();
  NcclApi api;
  for (const Status& found : {library->Find("ncclGetUniqueId", &api.GetUniqueId),
                              library->Find("ncclCommInitRankConfig", &api.CommInitRankConfig),
                              library->Find("ncclCommGetAsyncError", &api.CommGetAsyncError),
                              library->Find("ncclCommAbort", &api.CommAbort),
                              library->Find("ncclAllReduce", &api.AllReduce),
                              library->Find("ncclGetErrorString", &api.GetErrorString),
                              library->Find("ncclGetLastError", &api.GetLastError)}) {
    if (!found.ok()) return found;
  }
  return api;
}

}  // namespace cuda

namespace {

// NCCL cannot wake a waiting thread; a bucket takes milliseconds.
constexpr std::chrono::microseconds kPoll{50};
using Clock = std::chrono::steady_clock;

static_assert(sizeof(ncclUniqueId) == sizeof(GpuSum::GroupName));

}  // namespace

struct GpuSum::Impl {
  Impl(const cuda::NcclApi& api, Device of) : nccl(api), device(of) {}
  ~Impl() {
    if (group != nullptr) nccl.CommAbort(group);  // peers may be gone: it does not wait for them
  }

  Status Failed(const char* what, ncclResult_t result) const {
    const char* more = nccl.GetLastError(group);
    return Unavailable(fmt::format("NCCL: {}: {}{}{}", what, nccl.GetErrorString(result),
                                   more == nullptr || *more == 0 ? "" : ": ",
                                   more == nullptr ? "" : more));
  }
  // Waits until NCCL has finished its operation.
  Status AwaitGroup(const char* what, ncclResult_t result, const std::atomic<bool>& is_cancelled,
                    Clock::time_point deadline = Clock::time_point::max()) {
    while (result == ncclInProgress) {
      if (is_cancelled) return Unavailable("NCCL: called off");
      if (Clock::now() >= deadline) return Unavailable("NCCL: not all workers have joined in time");
      std::this_thread::sleep_for(kPoll);
      const ncclResult_t asked = nccl.CommGetAsyncError(group, &result);
      if (asked != ncclSuccess) result = asked;
    }
    return result == ncclSuccess ? Status() : Failed(what, result);
  }
  // Waits until the stream is done. A peer that is gone would keep it busy.
  Status AwaitStream(const std::atomic<bool>& is_cancelled) {
    done.Record(stream.get());
    while (!done.IsPast()) {
      if (is_cancelled) return Unavailable("NCCL: called off");
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = nccl.CommGetAsyncError(group, &state);
      if (asked != ncclSuccess) return Failed("summing gradients failed", asked);
      if (state != ncclSuccess && state != ncclInProgress)
        return Failed("summing gradients failed", state);
      std::this_thread::sleep_for(kPoll);
    }
    return Status();
  }

  const cuda::NcclApi nccl;
  const Device device;
  ncclComm_t group = nullptr;
  cuda::Stream stream;
  cuda::Event done;
  DeviceMemory memory;  // for the array that is summed
};

Status GpuSum::Check() { return cuda::LoadNccl().status(); }

Result<GpuSum::GroupName> GpuSum::NewName() {
  const Result<cuda::NcclApi> nccl = cuda::LoadNccl();
  if (!nccl.ok()) return nccl.status();
  ncclUniqueId id;
  const ncclResult_t made = nccl->GetUniqueId(&id);
  if (made != ncclSuccess)
    return Unavailable(fmt::format("NCCL: no name for the group: {}", nccl->GetErrorString(made)));
  GroupName name;
  std::memcpy(name.data(), &id, sizeof(id));
  return name;
}

Result<std::unique_ptr<GpuSum>> GpuSum::Join(const Member& member,
                                             const std::atomic<bool>& is_cancelled) {
  const Result<cuda::NcclApi> nccl = cuda::LoadNccl();
  if (!nccl.ok()) return nccl.status();
  UseOnThisThread(member.device);
  auto impl = std::make_unique<Impl>(*nccl, member.device);
  ncclUniqueId id;
  std::memcpy(&id, member.group.data(), sizeof(id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t begun = nccl->CommInitRankConfig(&impl->group, static_cast<int>(member.size),
                                                      id, static_cast<int>(member.rank), &config);
  Status joined = impl->AwaitGroup("the workers' GPUs could not connect", begun, is_cancelled,
                                   Clock::now() + member.timeout);
  if (!joined.ok()) return joined;
  return std::unique_ptr<GpuSum>(new GpuSum(std::move(impl)));
}

GpuSum::GpuSum(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GpuSum::~GpuSum() = default;

Status GpuSum::Sum(std::span<float> values) {
  if (values.empty()) return Status();
  Impl& sum = *impl_;
  if (sum.memory.size_bytes() < values.size_bytes())
    sum.memory = DeviceMemory(sum.device, values.size_bytes());
  auto* there = reinterpret_cast<float*>(sum.memory.data());
  PANDO_CUDA_CHECK(cudaMemcpyAsync(there, values.data(), values.size_bytes(),
                                   cudaMemcpyHostToDevice, sum.stream.get()));
  const ncclResult_t begun = sum.nccl.AllReduce(there, there, values.size(), ncclFloat32, ncclSum,
                                                sum.group, sum.stream.get());
  Status summed = sum.AwaitGroup("summing gradients failed", begun, is_closed_);
  if (summed.ok()) summed = sum.AwaitStream(is_closed_);
  if (!summed.ok()) return summed;
  PANDO_CUDA_CHECK(cudaMemcpyAsync(values.data(), there, values.size_bytes(),
                                   cudaMemcpyDeviceToHost, sum.stream.get()));
  PANDO_CUDA_CHECK(cudaStreamSynchronize(sum.stream.get()));
  return Status();
}

}  // namespace pando
