// LinkSimulation simulates links in virtual time. A link is a resource that serves one task at a
// time: a direction of a network link, a process's messages, or a server's update. step_time calls
// it. Threads: none. Owns: the waiting tasks. Equal inputs give equal times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/check.h"

namespace pando {

class LinkSimulation {
 public:
  using Action = std::function<void()>;
  explicit LinkSimulation(size_t link_count) : links_(link_count) {}

  double now_ms() const { return now_ms_; }
  // Returns the time for which the link has served.
  double busy_ms(size_t link) const { return links_[link].busy_ms; }
  // REQUIRES: ms >= now_ms().
  void At(double ms, Action action) {
    PANDO_CHECK(ms >= now_ms_);
    events_.emplace(ms, std::move(action));
  }

  struct Task {
    size_t link = 0;
    double service_ms = 0;
    uint32_t rank = 0;    // the waiting task with the lowest is first; equal ones in order
    uint32_t pieces = 1;  // between equal pieces of it the link serves tasks of lower rank
  };
  // Calls `on_start` when the link starts the task, and `on_end` when it has served all of it.
  void Use(const Task& task, Action on_start, Action on_end = nullptr) {
    Queued queued{task, std::move(on_start), std::move(on_end)};
    if (!links_[task.link].serving) return Begin(std::move(queued));
    links_[task.link].waiting.emplace(task.rank, std::move(queued));
  }

  // Leg is a link on the way of some bytes. The next leg begins `first_ms` after this one, when its
  // first part is through. A leg ends at least `last_ms` after the one before.
  struct Leg {
    Task task;
    double first_ms = 0;
    double last_ms = 0;
  };
  // Calls `on_arrival` when the last byte has passed all legs.
  void Pass(std::vector<Leg> legs, Action on_arrival) {
    if (legs.empty()) return on_arrival();
    const size_t leg_count = legs.size();
    const auto way = std::make_shared<Way>(Way{std::move(legs), std::move(on_arrival)});
    way->ends_ms.resize(leg_count);
    Walk(way, 0);
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
  struct Queued {
    Task task;  // what is left of it
    Action on_start;
    Action on_end;
  };
  struct Link {
    double busy_ms = 0;
    std::optional<Queued> serving;
    std::multimap<uint32_t, Queued> waiting;  // by rank; entries with equal keys stay in order
  };
  struct Way {
    std::vector<Leg> legs;
    Action on_arrival;
    std::vector<double> ends_ms = {};  // of each leg
    size_t ended_count = 0;
  };

  void Walk(const std::shared_ptr<Way>& way, size_t index) {
    const auto on_start = [this, way, index] {
      if (index + 1 < way->legs.size())
        At(now_ms_ + way->legs[index].first_ms, [this, way, index] { Walk(way, index + 1); });
    };
    Use(way->legs[index].task, on_start, [this, way, index] { OnLegEnd(*way, index); });
  }

  void OnLegEnd(Way& way, size_t index) {
    way.ends_ms[index] = now_ms_;
    if (++way.ended_count < way.legs.size()) return;
    double end_ms = 0;
    for (size_t i = 0; i < way.legs.size(); ++i)
      end_ms = std::max(end_ms + way.legs[i].last_ms, way.ends_ms[i]);
    At(end_ms, way.on_arrival);
  }

  void Begin(Queued queued) {
    const size_t index = queued.task.link;
    const Action on_start = std::exchange(queued.on_start, nullptr);
    const double piece_ms = queued.task.service_ms / queued.task.pieces--;
    queued.task.service_ms -= piece_ms;
    links_[index].busy_ms += piece_ms;
    links_[index].serving = std::move(queued);
    At(now_ms_ + piece_ms, [this, index] { OnPieceEnd(index); });
    if (on_start) on_start();
  }

  void OnPieceEnd(size_t index) {
    auto& waiting = links_[index].waiting;
    Queued served = std::move(*std::exchange(links_[index].serving, std::nullopt));
    const uint32_t rank = served.task.rank;
    const bool has_ended = served.task.pieces == 0;
    const Action on_end = has_ended ? std::move(served.on_end) : nullptr;
    if (!has_ended)  // before equal ones
      waiting.emplace_hint(waiting.lower_bound(rank), rank, std::move(served));
    if (!waiting.empty()) Begin(std::move(waiting.extract(waiting.begin()).mapped()));
    if (on_end) on_end();
  }

  double now_ms_ = 0;
  std::multimap<double, Action> events_;  // by time
  std::vector<Link> links_;
};

}  // namespace pando
