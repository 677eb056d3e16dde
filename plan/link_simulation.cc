#include "plan/link_simulation.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace pando {

void LinkSimulation::At(double ms, Action action) {
  PANDO_CHECK(ms >= now_ms_);
  Put(events_, {.key = ms, .number = entry_count_++, .action = std::move(action)});
}

void LinkSimulation::Use(const Task& task, Action on_start) {
  Link& link = links_[task.link];
  if (!link.is_busy) return Begin(task.link, task.service_ms, on_start);
  Put(link.waiting, {.key = task.rank,
                     .number = entry_count_++,
                     .service_ms = task.service_ms,
                     .action = std::move(on_start)});
}

void LinkSimulation::Begin(size_t link, double service_ms, const Action& on_start) {
  links_[link].is_busy = true;
  At(now_ms_ + service_ms, [this, link] { OnFree(link); });
  on_start();
}

void LinkSimulation::OnFree(size_t link) {
  links_[link].is_busy = false;
  if (links_[link].waiting.empty()) return;
  const Entry<uint32_t> next = Take(links_[link].waiting);
  Begin(link, next.service_ms, next.action);
}

void LinkSimulation::Send(const Transfer& transfer, Action on_arrival) {
  Use(transfer.out, [this, transfer, on_arrival = std::move(on_arrival)] {
    const double sent_ms = now_ms_ + transfer.out.service_ms + transfer.latency_ms;
    At(now_ms_ + transfer.latency_ms, [this, in = transfer.in, sent_ms, on_arrival] {
      Use(in, [this, in_ms = in.service_ms, sent_ms, on_arrival] {
        At(std::max(sent_ms, now_ms_ + in_ms), on_arrival);
      });
    });
  });
}

template <class Key>
void LinkSimulation::Put(Heap<Key>& heap, Entry<Key> entry) {
  heap.push_back(std::move(entry));
  std::ranges::push_heap(heap, std::greater<>());
}

template <class Key>
LinkSimulation::Entry<Key> LinkSimulation::Take(Heap<Key>& heap) {
  std::ranges::pop_heap(heap, std::greater<>());
  Entry<Key> first = std::move(heap.back());
  heap.pop_back();
  return first;
}

void LinkSimulation::Run() {
  while (!events_.empty()) {
    const Entry<double> event = Take(events_);
    now_ms_ = event.key;
    event.action();
  }
}

}  // namespace pando
