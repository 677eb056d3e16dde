// This header has the types that pando.capnp's annotations name, and constants of single messages.
// message_structs.h, generated from pando.capnp, includes it; all others include messages.h.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "common/blob.h"
#include "common/ids.h"
#include "common/text.h"
#include "plan/job_plan.h"
#include "proto/shared.h"

namespace pando {

inline constexpr NodeId kSchedulerNode{0};
inline constexpr NodeId kUnknownNode{UINT32_MAX};  // a node that has no Welcome yet
// The file store's lane: it has a thread and an endpoint beside the scheduler's.
inline constexpr uint16_t kFilesLane = 1;
// A leading scheduler dials its standbys as schedulers with lanes from here on (P47). Such a lane
// names one of them. Lower ones stand for the scheduler, which may be any of several.
inline constexpr uint16_t kStandbyLane = 64;
inline constexpr uint32_t kAnyRank = UINT32_MAX;  // Register::wanted_rank
inline constexpr uint64_t kScalarsPerBlock = 4096;

// ListOf is a message that is a list of equal parts.
template <class Item>
struct ListOf {
  std::vector<Item> items;
};

// ---- the facts that a message's type decides, in one MessageRow per type -----------------------

// The cores that handle a message; others ignore it. dispatch.h checks them at compile time.
enum class Core : uint16_t {
  kNone = 0,
  kScheduler = 1,
  kLane = 2,
  kWorker = 4,
  kGroup = 8,         // a worker with allreduce
  kJoiner = 16,       // a process without a view: JoinCore
  kClient = 32,       // SchedulerClient: a command of the user, a supervisor
  kIntake = 64,       // a scheduler whose run is not declared yet: DeclarationIntake
  kFiles = 128,       // the scheduler's FileStore (P45)
  kFileClient = 256,  // a node's client of the FileStore
  kStandby = 512,     // a standby scheduler's MirrorReceiver (P47)
  kMirror = 1024,     // the leading scheduler's Mirror
};
constexpr Core operator|(Core a, Core b) {
  return static_cast<Core>(static_cast<uint16_t>(a) | static_cast<uint16_t>(b));
}
constexpr bool HasCore(Core cores, Core core) {
  return (static_cast<uint16_t>(cores) & static_cast<uint16_t>(core)) != 0;
}

// The senders from which a message is accepted. Senders of the first three kinds need not be
// members. If the run has keys, they need a key of that role or a stronger one (P44). Only the
// scheduler accepts their messages. kServers, kWorkers and kNodes (both) are members of the view in
// that role, and the scheduler.
enum class Sender : uint8_t {
  kReader,
  kNewcomer,
  kAdmin,
  kServers,
  kWorkers,
  kNodes,
  kOnlyScheduler
};
constexpr bool MayBeStranger(Sender sender) { return sender <= Sender::kAdmin; }

// kOne: the message is about versions, which another generation makes again. So it is dropped in
// any other generation (P21).
enum class Generation : uint8_t { kAny, kOne };

// About says what a message is about. A member may report only about its own things (P46). The
// scheduler, lanes and workers drop other reports (proto/ownership.h, scheduler/ownership.h).
enum class About : uint8_t {
  kItself,      // the sender, a request, or a thing that the handler checks against the sender
  kPrimary,     // shards of which the view names it primary; for workers, also their relay
  kReplica,     // shards of which the view gives it a replica
  kHolder,      // shards of which a view of the generation gave it a replica
  kSlice,       // the slice of the test set that it was given
  kMicroBatch,  // micro-batches that it owns or verifies, or did lately (checked by item)
};

// The limit of a message's bytes in all its frames. A longer message is not decoded. Lists have up
// to 65,536 items, and texts up to 64 KiB.
enum class Size : uint32_t {
  kSmall = 512 << 10,
  kList = 32 << 20,
  kDocument = 17 << 20,  // job files, status reports
  kPayloads = 97 << 20,  // 1 MiB, then one more payload, and each item's fields
};

// The connection from a node to the scheduler that carries a message.
enum class Channel : char { kData = 'd', kHeartbeat = 'h' };

struct MessageRow {
  const char* name;
  Core handlers;
  Sender sender;
  Generation generation;
  About about;
  Size size;
  Channel channel = Channel::kData;
};

}  // namespace pando
