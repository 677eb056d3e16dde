// RegistrationLimit: limits how fast new processes may register from one address (a bucket of
// tokens), because their ids, keys and journal rows cost the scheduler memory and time. The
// scheduler's Transport uses it. Threads: none.
#pragma once

#include <algorithm>
#include <string>

#include "common/recent_map.h"
#include "proto/message_limits.h"
#include "proto/messages.h"

namespace pando {

class RegistrationLimit {
 public:
  // A cluster behind one address starts all at once; processes beyond the burst repeat (P10).
  static constexpr double kBurst = 512;
  static constexpr double kPerSecond = 32;

  // `address` is empty for this machine. A process life counts once.
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
