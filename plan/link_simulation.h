// LinkSimulation: resources that serve one task at a time (a direction of a network link, a
// server's update) in virtual time. Called by step_time. Threads: none. Owns: the waiting tasks.
// Equal inputs give equal times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <vector>

namespace pando {

class LinkSimulation {
 public:
  using Action = std::function<void()>;
  explicit LinkSimulation(size_t link_count) : links_(link_count) {}

  double now_ms() const { return now_ms_; }
  // REQUIRES: ms >= now_ms().
  void At(double ms, Action action);

  struct Task {
    size_t link = 0;
    double service_ms = 0;
    uint32_t rank = 0;  // waiting tasks: the lowest goes first, equal ones in order
  };
  // Calls `on_start` when the link starts the task, which then occupies it for service_ms.
  void Use(const Task& task, Action on_start);

  // Bytes that leave by one link and arrive by another at the same time, without storage in
  // between.
  struct Transfer {
    Task out;
    Task in;
    double latency_ms = 0;
  };
  // Calls `on_arrival` when the last byte has arrived.
  void Send(const Transfer& transfer, Action on_arrival);

  // Until there is nothing left to do.
  void Run();

 private:
  // The first has the lowest rank or time; equal ones stay in order.
  template <class Key>
  struct Entry {
    Key key;
    uint64_t number = 0;
    double service_ms = 0;
    Action action;
    bool operator>(const Entry& other) const {
      return std::tie(key, number) > std::tie(other.key, other.number);
    }
  };
  template <class Key>
  using Heap = std::vector<Entry<Key>>;
  struct Link {
    bool is_busy = false;
    Heap<uint32_t> waiting;  // key: rank
  };

  template <class Key>
  static void Put(Heap<Key>& heap, Entry<Key> entry);
  template <class Key>
  static Entry<Key> Take(Heap<Key>& heap);
  void Begin(size_t link, double service_ms, const Action& on_start);
  void OnFree(size_t link);

  double now_ms_ = 0;
  uint64_t entry_count_ = 0;
  Heap<double> events_;  // key: time
  std::vector<Link> links_;
};

}  // namespace pando
