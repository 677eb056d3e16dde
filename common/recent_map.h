// RecentMap keeps a bounded number of values by key. A new key replaces the one that was touched
// longest ago. It is for tables that any number of peers could fill. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace pando {

template <class Key, class Value>
class RecentMap {
 public:
  explicit RecentMap(size_t size_max) : size_max_(size_max) {}

  // Returns the value of this key; inserts one if there is none.
  Value& Touch(const Key& key) {
    const auto [at, is_new] = entries_.try_emplace(key);
    if (!is_new) keys_.erase(at->second.touched);
    at->second.touched = ++touch_count_;
    keys_.emplace(touch_count_, key);
    if (entries_.size() > size_max_) {
      entries_.erase(keys_.begin()->second);
      keys_.erase(keys_.begin());
    }
    return at->second.value;
  }
  // Returns null if there is no such key.
  const Value* Find(const Key& key) const {
    const auto at = entries_.find(key);
    return at == entries_.end() ? nullptr : &at->second.value;
  }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Value value{};
    uint64_t touched = 0;
  };
  const size_t size_max_;
  uint64_t touch_count_ = 0;
  std::map<Key, Entry> entries_;
  std::map<uint64_t, Key> keys_;  // by the time of their last touch
};

}  // namespace pando
