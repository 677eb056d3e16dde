// SnapshotPort stores and restores a lane's records, off the data path (P29). run/snapshot_store
// implements it with a thread and files, the simulator with a virtual disk. The lane makes requests
// here and gets each outcome as an event.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "common/float_buffer.h"
#include "common/ids.h"
#include "common/status.h"
#include "proto/messages.h"

namespace pando {

// ---- events, to Lane::OnSnapshotEvent -----------------------------------------------------------

struct RecordStored {
  SnapshotRef snapshot;
  ShardId shard;
  uint64_t hash = 0;  // the record's hash, copied from the request
  std::string file;   // within the snapshot folder
  Status status;
};
struct RecordLoaded {
  SnapshotRef snapshot;
  ShardId shard;
  Status status;  // an error's text names the file and its fault
  SharedBuffer parameters;
  SharedBuffer state;
};
using SnapshotEvent = std::variant<RecordStored, RecordLoaded>;

// ---- requests ----------------------------------------------------------------------------------

struct StoreRequest {
  SnapshotRef snapshot;
  ShardId shard;
  uint64_t hash = 0;        // the record's hash
  SharedBuffer parameters;  // immutable; held until the event
  SharedBuffer state;
};
struct LoadRequest {
  SnapshotRef snapshot;
  ShardId shard;
  size_t parameter_floats = 0;
  size_t state_floats = 0;
};

// Threads: the lane's; calls never block. One event answers each request, in any order.
class SnapshotPort {
 public:
  virtual ~SnapshotPort() = default;
  virtual void Store(StoreRequest request) = 0;
  virtual void Load(LoadRequest request) = 0;
};

}  // namespace pando
