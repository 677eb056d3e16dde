// LinkSimulation simulates links in virtual time. A link is a resource that serves one task at a
// time: a direction of a network link, or a server's update. step_time calls it. Threads: none.
// Owns: the waiting tasks. Equal inputs give equal times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "common/check.h"

namespace pando {

class LinkSimulation {
 public:
  using Action = std::function<void()>;
  explicit LinkSimulation(size_t link_count) : links_(link_count) {}

  double now_ms() const { return now_ms_; }
  // REQUIRES: ms >= now_ms().
  void At(double ms, Action action) {
    PANDO_CHECK(ms >= now_ms_);
    events_.emplace(ms, std::move(action));
  }

  struct Task {
    size_t link = 0;
    double service_ms = 0;
    uint32_t rank = 0;  // the waiting task with the lowest is first; equal ones in order
  };
  // Calls `on_start` when the link starts the task, which then occupies it for service_ms.
  void Use(const Task& task, Action on_start) {
    Link& link = links_[task.link];
    if (!link.is_busy) return Begin(task.link, task.service_ms, on_start);
    link.waiting.emplace(task.rank, Waiting{task.service_ms, std::move(on_start)});
  }

  // Transfer is bytes that leave by one link and arrive by another at the same time.
  struct Transfer {
    Task out;
    Task in;
    double latency_ms = 0;
  };
  // Calls `on_arrival` when the last byte has arrived.
  void Send(const Transfer& transfer, Action on_arrival) {
    Use(transfer.out, [this, transfer, on_arrival = std::move(on_arrival)] {
      const double sent_ms = now_ms_ + transfer.out.service_ms + transfer.latency_ms;
      At(now_ms_ + transfer.latency_ms, [this, in = transfer.in, sent_ms, on_arrival] {
        Use(in, [this, in_ms = in.service_ms, sent_ms, on_arrival] {
          At(std::max(sent_ms, now_ms_ + in_ms), on_arrival);
        });
      });
    });
  }

  // Runs until no event is left.
  void Run() {
    while (!events_.empty()) {
      const auto event = events_.extract(events_.begin());
      now_ms_ = event.key();
      event.mapped()();
    }
  }

 private:
  // Entries with equal keys stay in order.
  struct Waiting {
    double service_ms = 0;
    Action on_start;
  };
  struct Link {
    bool is_busy = false;
    std::multimap<uint32_t, Waiting> waiting;  // by rank
  };

  void Begin(size_t link, double service_ms, const Action& on_start) {
    links_[link].is_busy = true;
    At(now_ms_ + service_ms, [this, link] { OnFree(link); });
    on_start();
  }

  void OnFree(size_t link) {
    auto& waiting = links_[link].waiting;
    links_[link].is_busy = false;
    if (waiting.empty()) return;
    const Waiting next = std::move(waiting.extract(waiting.begin()).mapped());
    Begin(link, next.service_ms, next.on_start);
  }

  double now_ms_ = 0;
  std::multimap<double, Action> events_;  // by time
  std::vector<Link> links_;
};

}  // namespace pando
