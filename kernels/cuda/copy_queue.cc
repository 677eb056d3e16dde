#include "kernels/copy_queue.h"

#include <deque>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_device.h"

namespace pando {

struct CopyQueue::Impl {
  explicit Impl(CudaDevice& device) : gpu(device) {}

  CudaDevice& gpu;
  cuda::Stream stream;
  cuda::Event launched;
  cuda::Event copied;
  Ticket last_ticket = 0;
  Ticket done_ticket = 0;
  std::deque<cuda::Event> marks;  // of the tickets above done_ticket, in order
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
