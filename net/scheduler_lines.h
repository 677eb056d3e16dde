// SchedulerLines chooses which schedulers a transport dials: those that it was given, and those
// that this process has learned of since (P47). Transport owns one. Threads: the transport's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/status.h"
#include "net/zmq/known_schedulers.h"

namespace pando {

class Transport;

class SchedulerLines {
 public:
  // `known` names endpoints to which `port_offset` is added. Both outlive this object.
  SchedulerLines(Transport& transport, const KnownSchedulers& known, uint16_t port_offset)
      : transport_(transport), known_(known), port_offset_(port_offset) {}

  // Dials `endpoints`, which SplitEndpoints splits, and those that are known. Each scheduler gets a
  // lane below kStandbyLane, and keeps it. Hangs up on others.
  Status Dial(const std::string& endpoints, const std::string& public_key);
  bool is_dialed() const { return !lanes_.empty(); }
  // Dials the schedulers that have become known since.
  void Follow();
  // The transport has closed all its lines.
  void Clear() { lanes_.clear(); }

 private:
  Status DialAll();

  Transport& transport_;
  const KnownSchedulers& known_;
  const uint16_t port_offset_;
  std::vector<std::string> given_;
  std::string public_key_;
  std::map<std::string, uint16_t> lanes_;  // by endpoint
  uint64_t known_version_ = 0;             // of known_, when it was last read
};

}  // namespace pando
