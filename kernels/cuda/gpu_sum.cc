#include "kernels/gpu_sum.h"

#include <fmt/core.h>
#include <nccl.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/event.h"
#include "kernels/device_memory.h"
#include "kernels/runtime_library.h"

namespace pando {
namespace {

struct NcclApi : RuntimeLibrary {
  decltype(ncclGetUniqueId)* GetUniqueId = Find("ncclGetUniqueId");
  decltype(ncclCommInitRankConfig)* CommInitRankConfig = Find("ncclCommInitRankConfig");
  decltype(ncclCommGetAsyncError)* CommGetAsyncError = Find("ncclCommGetAsyncError");
  decltype(ncclCommAbort)* CommAbort = Find("ncclCommAbort");
  decltype(ncclAllReduce)* AllReduce = Find("ncclAllReduce");
  decltype(ncclGetErrorString)* GetErrorString = Find("ncclGetErrorString");
  decltype(ncclGetLastError)* GetLastError = Find("ncclGetLastError");
};

Result<NcclApi> LoadNccl() { return LoadFunctions<NcclApi>({"libnccl.so.2"}); }

// The interval of polling: NCCL cannot wake a waiting thread, and a bucket takes milliseconds.
constexpr std::chrono::microseconds kPoll{50};
using Clock = std::chrono::steady_clock;

static_assert(sizeof(ncclUniqueId) == sizeof(GpuSum::GroupName));

}  // namespace

struct GpuSum::Impl {
  Impl(const NcclApi& api, Device of) : nccl(api), device(of) {}
  ~Impl() { Abort(); }

  // Ends NCCL's work on the GPU, even if peers are gone. Freeing any of the GPU's memory would wait
  // for that work.
  void Abort() {
    if (group != nullptr) nccl.CommAbort(std::exchange(group, nullptr));
  }

  Status Failed(const char* what, ncclResult_t result) const {
    const char* more = nccl.GetLastError(group);
    return Unavailable(fmt::format("NCCL: {}: {}{}{}", what, nccl.GetErrorString(result),
                                   more == nullptr || *more == 0 ? "" : ": ",
                                   more == nullptr ? "" : more));
  }
  ncclResult_t AskState() const {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = nccl.CommGetAsyncError(group, &state);
    return asked == ncclSuccess ? state : asked;
  }
  // Waits until NCCL has finished its operation.
  Status AwaitGroup(const char* what, ncclResult_t result, const std::atomic<bool>& is_cancelled,
                    Clock::time_point deadline = Clock::time_point::max()) {
    while (result == ncclInProgress) {
      if (is_cancelled) return Unavailable("NCCL: called off");
      if (Clock::now() >= deadline) return Unavailable("NCCL: not all workers have joined in time");
      std::this_thread::sleep_for(kPoll);
      result = AskState();
    }
    return result == ncclSuccess ? Status() : Failed(what, result);
  }
  // Waits until the stream is done. A peer that is gone would keep it busy.
  Status AwaitStream(const std::atomic<bool>& is_cancelled) {
    done.Record(stream.get());
    while (!done.IsPast()) {
      if (is_cancelled) return Unavailable("NCCL: called off");
      const ncclResult_t state = AskState();
      if (state != ncclSuccess && state != ncclInProgress)
        return Failed("summing gradients failed", state);
      std::this_thread::sleep_for(kPoll);
    }
    return Status();
  }

  // Sums the values that `bring` copies to the GPU, on the stream.
  Status Sum(std::span<float> sums, const std::atomic<bool>& is_cancelled,
             const std::function<void(float* there)>& bring) {
    if (sums.empty()) return Status();
    if (group == nullptr) return Unavailable("NCCL: the group has ended");
    if (memory.size_bytes() < sums.size_bytes()) memory = DeviceMemory(device, sums.size_bytes());
    auto* there = reinterpret_cast<float*>(memory.data());
    bring(there);
    const ncclResult_t begun =
        nccl.AllReduce(there, there, sums.size(), ncclFloat32, ncclSum, group, stream.get());
    Status summed = AwaitGroup("summing gradients failed", begun, is_cancelled);
    if (summed.ok()) summed = AwaitStream(is_cancelled);
    if (!summed.ok()) {
      Abort();
      return summed;
    }
    PANDO_CUDA_CHECK(cudaMemcpyAsync(sums.data(), there, sums.size_bytes(), cudaMemcpyDeviceToHost,
                                     stream.get()));
    PANDO_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
    return Status();
  }

  const NcclApi nccl;
  const Device device;
  ncclComm_t group = nullptr;
  cuda::Stream stream;
  cuda::Event done;
  DeviceMemory memory;  // for the array that is summed
};

Status GpuSum::Check() { return LoadNccl().status(); }

Result<GpuSum::GroupName> GpuSum::NewName() {
  PANDO_ASSIGN_OR_RETURN(const NcclApi nccl, LoadNccl());
  ncclUniqueId id;
  const ncclResult_t made = nccl.GetUniqueId(&id);
  if (made != ncclSuccess)
    return Unavailable(fmt::format("NCCL: no name for the group: {}", nccl.GetErrorString(made)));
  GroupName name;
  std::memcpy(name.data(), &id, sizeof(id));
  return name;
}

Result<std::unique_ptr<GpuSum>> GpuSum::Join(const Member& member,
                                             const std::atomic<bool>& is_cancelled) {
  const Result<NcclApi> nccl = LoadNccl();
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
  return impl_->Sum(values, is_closed_, [&](float* there) {
    PANDO_CUDA_CHECK(cudaMemcpyAsync(there, values.data(), values.size_bytes(),
                                     cudaMemcpyHostToDevice, impl_->stream.get()));
  });
}

Status GpuSum::Sum(Pieces pieces, std::span<float> sums) {
  return impl_->Sum(sums, is_closed_, [&](float* there) {
    size_t brought = 0;
    for (const std::span<const float> piece : pieces) {
      PANDO_CUDA_CHECK(cudaMemcpyAsync(there, piece.data(), piece.size_bytes(),
                                       cudaMemcpyDeviceToDevice, impl_->stream.get()));
      brought += piece.size();
      PANDO_CHECK(brought <= sums.size());
      there += piece.size();
    }
    PANDO_CHECK(brought == sums.size());
  });
}

}  // namespace pando
