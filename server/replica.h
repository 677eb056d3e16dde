// Replica: one shard on this lane and its place among the shard's replicas, as the lane's view says
// it. The lane owns them and acts on them.
//
// clang-format off
//   role     | in the view                 | becomes it                    | what is kept
//   ---------+-----------------------------+-------------------------------+-----------------------
//   primary  | primary                     | restored, or promoted: its    | backups, waiting
//            |                             | uncommitted version is resent | workers
//   backup   | in_sync_backups             | restored, in sync, demoted    |
//   syncing  | syncing_backups             | empty; a new pair (primary,   | the incoming image, as
//            |                             | since) starts over (P24)      | long as the pair lasts
//   (none)   | not named, or of an older   |                               | nothing
//            | generation (P21)            |                               |
//
//   a primary's backup | acks required | what it is sent
//   -------------------+---------------+------------------------------------------------------------
//   in sync            | yes           | every root; after a new view what is uncommitted (P22)
//   syncing, image not | no            | the image, once the newest version is committed; meanwhile
//   over               |               | at most two versions are made (I6)
//   syncing, behind    | no            | the roots since the image; as before
//   syncing, has all   | yes           | every root; the scheduler is told (P24)
//   versions made      |               |
// clang-format on
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "proto/outbox.h"
#include "server/shard.h"
#include "server/transfer.h"

namespace pando {

enum class ReplicaRole : uint8_t { kPrimary, kBackup, kSyncing };

// What a primary knows of one backup of one shard.
struct Backup {
  PeerId peer;
  std::optional<ViewId> pair;                // SyncingBackup::since; none: in sync
  bool is_required = true;                   // versions commit with its acknowledgement only
  Version acked;                             // newest version that it has, by hash or by image
  std::optional<OutgoingTransfer> transfer;  // syncing, once the image is frozen
  std::optional<Micros> owing_since;         // it has not answered all that it was sent
  Micros repeat_at = kNever;
  Micros repeat_interval{0};

  bool TakesRoots() const { return !pair || (transfer && transfer->is_complete()); }
};

struct Replica {
  struct Waiting {  // P6: at most one reply in flight per (peer, shard, form)
    PeerId peer;
    Version version;
  };

  Replica(ShardId id, const JobPlan& plan, const Optimizer& optimizer, const BufferSource& buffers)
      : shard(id, plan, optimizer, buffers) {}

  ReplicaRole role = ReplicaRole::kSyncing;
  Shard shard;
  PeerId primary;           // whose roots and chunks count
  bool is_loading = false;  // asked of the SnapshotPort
  uint32_t stores_in_flight = 0;
  // Primary.
  std::vector<Backup> backups;  // in the view's order
  std::map<std::pair<Incarnation, ParamsForm>, Waiting> waiting;
  // Syncing.
  std::optional<ViewId> pair;
  std::optional<IncomingTransfer> incoming;

  bool is_primary() const { return role == ReplicaRole::kPrimary; }
};

}  // namespace pando
