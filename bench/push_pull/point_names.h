// What the points of push-pull are called, for who makes them and who looks them up.
#pragma once

#include <fmt/format.h>

#include <string>

#include "bench/harness/result.h"
#include "bench/harness/units.h"

namespace pando::bench {

inline constexpr uint64_t kReferenceBytes = 1 << 20;  // of the raw ZeroMQ that shares are of
inline constexpr const char* kThroughput = "throughput";
inline constexpr const char* kMemcpy = "memcpy";
inline constexpr const char* kAdd = "a += b";
inline constexpr const char* kRawTcp = "raw TCP";
inline constexpr const char* kSum = "sum";

inline std::string RawZmqName(const std::string& transport) { return "raw ZeroMQ " + transport; }

inline Point PointOf(const std::string& kind, uint64_t bytes) {
  return {.name = fmt::format("{}, {}", kind, BytesText(bytes)),
          .parameters = {{"kind", kind}, {"bytes", fmt::format("{}", bytes)}},
          .is_oversubscribed = false,
          .measurements = {}};
}

// "2x1": servers x workers.
inline Point PandoPoint(uint64_t bytes, const std::string& transport, uint32_t servers,
                        uint32_t workers, const std::string& optimizer) {
  Point point =
      PointOf(fmt::format("Pando {} {}x{} {}", transport, servers, workers, optimizer), bytes);
  point.parameters.insert(point.parameters.end(), {{"transport", transport},
                                                   {"servers", fmt::format("{}", servers)},
                                                   {"workers", fmt::format("{}", workers)},
                                                   {"optimizer", optimizer}});
  return point;
}

}  // namespace pando::bench
