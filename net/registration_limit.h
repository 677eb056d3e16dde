// RegistrationLimit limits how fast new processes may register from one address (a bucket of
// tokens), because their ids, keys and journal rows cost the scheduler memory and time. The
// scheduler's Transport uses it. Threads: that transport's thread.
#pragma once

#include <algorithm>
#include <string>

#include "common/recent_map.h"
#include "proto/message_limits.h"
#include "proto/messages.h"

namespace pando {

class RegistrationLimit {
 public:
  // A whole cluster behind one address may start at once. Processes beyond the burst repeat (P10).
  static constexpr double kBurst = 2048;
  static constexpr double kPerSecond = 32;

  // Returns whether the life may register, and counts it once. `address` is empty on this machine.
  bool Admit(Micros now, const std::string& address, Incarnation life) {
    if (lives_.Find(life) != nullptr) {
      lives_.Touch(life);
      return true;
    }
    Bucket& bucket = buckets_.Touch(address);
    const double seconds = std::chrono::duration<double>(now - bucket.at).count();
    bucket.tokens = std::min(kBurst, bucket.tokens + seconds * kPerSecond);
    bucket.at = now;
    if (bucket.tokens < 1) return false;
    bucket.tokens -= 1;
    lives_.Touch(life);
    return true;
  }

 private:
  struct Bucket {
    double tokens = kBurst;
    Micros at{0};
  };
  RecentMap<std::string, Bucket> buckets_{4096};
  RecentMap<Incarnation, bool> lives_{kNodesMax};
};

}  // namespace pando
