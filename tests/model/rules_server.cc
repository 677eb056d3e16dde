// The servers' actions: roots and commits (P7, P8, P13, P22), partial values (P16), transfers to
// new backups (P20, P24), snapshots (P29), views (P17, P21, P22).
#include <fmt/core.h>

#include <algorithm>

#include "tests/model/model.h"

namespace pando::model {
namespace {

// I6: a primary stops committing when a newcomer lacks this many roots.
constexpr int kUnackedRootsMax = 2;

// One shard at its primary: what most rules of this file look at.
struct Primary {
  Model& model;
  const State& state;
  int server;
  int shard;

  const Server& self() const { return state.servers[server]; }
  const Replica& replica() const { return self().replicas[shard]; }
  const View& view() const { return model.ViewFor(state, self()); }
  const ShardPlace& place() const { return view().shards[shard]; }
  const Replica& ReplicaAt(int other) const { return state.servers[other].replicas[shard]; }
  bool Mutated(Mutation m) const { return model.configuration().Mutated(m); }
  // P13: replication asks for equal views.
  bool MayReplicateTo(int other) const {
    const Server& peer = state.servers[other];
    return peer.is_alive && (peer.view == self().view || Mutated(Mutation::kRootsAcrossViews));
  }
  // Whether the newcomer receives, or has received, the copy that this primary has frozen.
  bool IsTransferFor(const Replica& newcomer) const {
    return newcomer.data != kNoData && static_cast<int>(newcomer.source) == server &&
           newcomer.source_newest == replica().frozen_newest;
  }
};

// A root that its receiver lacks is sent until it is acked, to in-sync backups and behind a
// transfer (P8, P20, P22). The receiver makes the same record of it.
void AddRoots(const Primary& p, Steps& steps) {
  const Replica& own = p.replica();
  for (int named = 0; named < kServerLivesMax; ++named) {
    const bool is_backup = Has(p.place().in_sync, named);
    const bool is_newcomer = named == p.place().syncing && own.is_frozen;
    if (named == p.server || (!is_backup && !is_newcomer)) continue;
    const int to = p.model.Reached(p.state, named);
    const Replica& other = p.ReplicaAt(to);
    if (!p.MayReplicateTo(to) || other.data != kComplete || other.newest >= own.newest) continue;
    const ShardPlace& place_there = p.model.ViewFor(p.state, p.state.servers[to]).shards[p.shard];
    if (place_there.primary == to) continue;
    if (p.Mutated(Mutation::kForgetRoot) && !own.was_made_here) continue;
    if (!is_backup && (!p.IsTransferFor(other) || place_there.syncing != named)) continue;
    State next = p.state;
    Replica& changed = next.servers[to].replicas[p.shard];
    AddVersion(p.model.configuration(), &changed);
    steps.Add(next, Edge::kRepeated, [&] {
      return fmt::format("Root of shard {} for version {}: server {} to {}", p.shard,
                         static_cast<int>(changed.newest), p.server, to);
    });
  }
}

// P22: a promoted primary asks its in-sync backups before it makes a version. One that has made the
// next version gives its root, and the primary makes the same record of it.
void AddAnswers(const Primary& p, Steps& steps) {
  const Configuration& c = p.model.configuration();
  const Replica& own = p.replica();
  if (own.awaits_answers == 0) return;
  int ahead = kNobody;
  for (int named = 0; named < kServerLivesMax; ++named) {
    if (named == p.server || !Has(p.place().in_sync, named)) continue;
    const Replica& backup = p.ReplicaAt(named);
    if (!p.MayReplicateTo(named) || backup.data != kComplete) return;
    if (backup.newest > own.newest) ahead = named;
  }
  State next = p.state;
  Replica& changed = next.servers[p.server].replicas[p.shard];
  if (ahead != kNobody) {
    changed.committed = changed.newest;
    p.model.MarkSeen(&next, p.shard, static_cast<int>(changed.committed), p.view().generation);
    MakeVersion(c, &changed);
    changed.was_made_here = 0;
    return steps.Add(next, Edge::kRepeated, [&] {
      return fmt::format("Root of shard {} for version {}: backup {} to promoted server {}",
                         p.shard, static_cast<int>(changed.newest), ahead, p.server);
    });
  }
  changed.awaits_answers = 0;
  if (!c.has_partials && RootIsComplete(changed)) MakeVersion(c, &changed);
  steps.Add(next, Edge::kRepeated, [&] {
    return fmt::format("promoted server {} has the answers for shard {}", p.server, p.shard);
  });
}

// P16: every other shard's partial value of the step can be had, from its complete root or from
// the record that was made of it.
bool PartialsAreThere(const Primary& p) {
  const int step = static_cast<int>(p.replica().newest);
  for (int shard = 0; shard < p.model.configuration().shards; ++shard) {
    if (shard == p.shard) continue;
    const int peer = p.view().shards[shard].primary;
    if (!p.model.Serves(p.state, peer, shard)) return false;
    const Replica& other = p.state.servers[peer].replicas[shard];
    const int newest = static_cast<int>(other.newest);
    const bool root_is_complete =
        RootIsComplete(other) && newest == step && !p.Mutated(Mutation::kPartialsFromRecordsOnly);
    const bool record_has_it = newest >= step + 1 && static_cast<int>(other.oldest) <= step + 1 &&
                               (other.was_made_here || !p.Mutated(Mutation::kPartialsNotInBackups));
    if (!root_is_complete && !record_has_it) return false;
  }
  return true;
}

void AddCombine(const Primary& p, Steps& steps) {
  const Replica& own = p.replica();
  if (!p.model.configuration().has_partials || !RootIsComplete(own) || !PartialsAreThere(p)) return;
  State next = p.state;
  Replica& changed = next.servers[p.server].replicas[p.shard];
  MakeVersion(p.model.configuration(), &changed);
  steps.Add(next, Edge::kRepeated, [&] {
    return fmt::format("partial values are there: server {} makes version {} of shard {}", p.server,
                       static_cast<int>(changed.newest), p.shard);
  });
}

// P8: every in-sync backup has the version and acks it, in the same view. Asking that the backup
// still lives and still is in that view is what folds the ack into the commit: an ack that arrives
// later commits nothing that this does not.
bool BackupsHaveAcked(const Primary& p) {
  if (p.Mutated(Mutation::kCommitBeforeAck)) return true;
  for (int named = 0; named < kServerLivesMax; ++named) {
    if (named == p.server || !Has(p.place().in_sync, named)) continue;
    const bool is_mixed_up = p.Mutated(Mutation::kNoIncarnations);
    const int peer = is_mixed_up ? p.model.Reached(p.state, named) : named;
    const Replica& backup = p.ReplicaAt(peer);
    if (!p.MayReplicateTo(peer) || backup.data != kComplete || backup.newest < p.replica().newest)
      return false;
  }
  return true;
}

// P24: from the end of the transfer on the newcomer's acks are required; before, it may lack one
// root and not two (I6).
bool NewcomerAllowsCommit(const Primary& p) {
  const Replica& own = p.replica();
  if (p.place().syncing == kNobody || !own.is_frozen) return true;
  const bool is_mixed_up = p.Mutated(Mutation::kNoIncarnations);
  const int peer = is_mixed_up ? p.model.Reached(p.state, p.place().syncing) : p.place().syncing;
  const Server& server = p.state.servers[peer];
  const Replica& newcomer = p.ReplicaAt(peer);
  const bool has_copy = server.is_alive && newcomer.data == kComplete &&
                        p.model.ViewFor(p.state, server).shards[p.shard].primary != peer;
  if (own.needs_newcomer)
    return has_copy && p.MayReplicateTo(peer) && newcomer.newest >= own.newest;
  int acked = static_cast<int>(own.frozen_newest);
  if (has_copy && p.IsTransferFor(newcomer))
    acked = std::max(acked, static_cast<int>(newcomer.newest));
  return static_cast<int>(own.newest) - acked < kUnackedRootsMax;
}

void AddCommit(const Primary& p, Steps& steps) {
  const Replica& own = p.replica();
  if (own.newest == own.committed || !BackupsHaveAcked(p) || !NewcomerAllowsCommit(p)) return;
  State next = p.state;
  Replica& changed = next.servers[p.server].replicas[p.shard];
  changed.committed = changed.newest;
  const int version = static_cast<int>(changed.committed);
  const Configuration& c = p.model.configuration();
  if (c.has_snapshots) changed.to_store |= (1u << (version - 1)) & 15u;
  p.model.MarkSeen(&next, p.shard, version, p.view().generation);
  if (!c.has_partials && RootIsComplete(changed)) MakeVersion(c, &changed);
  steps.Add(next, Edge::kRepeated, [&] {
    return fmt::format("server {} commits version {} of shard {}", p.server, version, p.shard);
  });
}

// P20: the newcomer starts over where the copy is not the one that it has begun to receive.
void AddChunks(const Primary& p, int to, Steps& steps) {
  const Replica& own = p.replica();
  const Replica& newcomer = p.ReplicaAt(to);
  const bool is_current = p.IsTransferFor(newcomer) && newcomer.source_oldest == own.frozen_oldest;
  if (is_current && newcomer.data == kComplete) return;
  const int versions = static_cast<int>(own.frozen_newest - own.frozen_oldest) + 1;
  const int all_chunks = (1 << versions) - 1;
  for (int chunk = 0; chunk < versions; ++chunk) {
    if (is_current && Has(static_cast<int>(newcomer.chunks), chunk)) continue;
    State next = p.state;
    Replica& changed = next.servers[to].replicas[p.shard];
    if (!is_current) {
      changed = Replica{.data = kReceiving};
      changed.source = static_cast<uint32_t>(p.server) & 7u;
      changed.source_newest = own.frozen_newest;
      changed.source_oldest = own.frozen_oldest;
    }
    const bool singly = p.model.configuration().delivers_chunks_singly;
    changed.chunks |= static_cast<uint32_t>(singly ? 1 << chunk : all_chunks) & 15u;
    if (static_cast<int>(changed.chunks) == all_chunks) {
      changed.data = kComplete;
      changed.newest = own.frozen_newest;
      changed.oldest = own.frozen_oldest;
      changed.chunks = 0;
    }
    steps.Add(next, Edge::kRepeated, [&] {
      return fmt::format("Chunk of shard {}, version {}{}: server {} to {}", p.shard,
                         static_cast<int>(own.frozen_oldest) + chunk, singly ? "" : " and all",
                         p.server, to);
    });
    if (!singly) return;
  }
}

// P24: the newcomer is reported when it has acked every version made, and its acks are required
// from here on.
void AddEndOfTransfer(const Primary& p, int to, Steps& steps) {
  const Replica& own = p.replica();
  const Replica& newcomer = p.ReplicaAt(to);
  const bool is_current = p.IsTransferFor(newcomer) && newcomer.source_oldest == own.frozen_oldest;
  if (!is_current || newcomer.data != kComplete) return;
  const bool counts_committed =
      p.Mutated(Mutation::kReportAtCommitted) || p.Mutated(Mutation::kPromotedCommitsAlone);
  const uint32_t wanted = counts_committed ? own.committed : own.newest;
  if (newcomer.newest < wanted && !p.Mutated(Mutation::kReportAfterChunks)) return;
  if (to != p.place().syncing && !p.Mutated(Mutation::kNoIncarnations)) return;
  if (own.needs_newcomer && p.Mutated(Mutation::kReportOnce)) return;
  const Report report{.is_there = 1,
                      .newcomer = static_cast<uint8_t>(p.place().syncing & 7),
                      .pair = static_cast<uint8_t>(p.place().pair & 15)};
  State next = p.state;
  const bool requires_acks = !p.Mutated(Mutation::kReportWithoutAcks);
  next.servers[p.server].replicas[p.shard].needs_newcomer = requires_acks;
  next.reports[p.shard] = report;
  if (next.reports[p.shard] == p.state.reports[p.shard] && own.needs_newcomer == requires_acks)
    return;
  steps.Add(next, Edge::kRepeated, [&] {
    return fmt::format("Synced for shard {}: server {} reports {}{}", p.shard, p.server,
                       static_cast<int>(report.newcomer),
                       requires_acks ? ", whose acks are required now" : "");
  });
}

void AddTransfer(const Primary& p, Steps& steps) {
  if (p.place().syncing == kNobody || !p.replica().is_frozen) return;
  const int to = p.model.Reached(p.state, p.place().syncing);
  const Server& newcomer = p.state.servers[to];
  if (!newcomer.is_alive) return;
  const View& view_there = p.model.ViewFor(p.state, newcomer);
  if (!p.model.SameGeneration(view_there.generation, p.view().generation) ||
      !p.model.SamePair(view_there.shards[p.shard], p.place()))
    return;
  AddChunks(p, to, steps);
  AddEndOfTransfer(p, to, steps);
}

// P29: a due version is stored off the data path, and reported until its manifest is persisted.
void AddStore(const Primary& p, Steps& steps) {
  const bool is_latest = p.view().generation == p.model.Latest(p.state).generation;
  if (!is_latest && !p.Mutated(Mutation::kOldGenerationStores)) return;
  for (int version = 1; version <= p.model.configuration().steps; ++version) {
    const int bit = version - 1;
    if (!Has(static_cast<int>(p.replica().to_store), bit)) continue;
    State next = p.state;
    next.stored[p.shard] = With(next.stored[p.shard], 1 << bit);
    if (p.Mutated(Mutation::kAckStoreBeforeManifest))
      next.servers[p.server].replicas[p.shard].to_store &= ~(1u << bit) & 15u;
    if (next.stored[p.shard] == p.state.stored[p.shard]) continue;
    steps.Add(next, Edge::kRepeated, [&] {
      return fmt::format("server {} stores version {} of shard {} and reports it", p.server,
                         version, p.shard);
    });
  }
}

// P21: the file is there while its manifest is the newest; version 0 comes from the seed.
void AddRestore(const Model& model, const State& state, int server, int shard, Steps& steps) {
  const Server& self = state.servers[server];
  const View& view = model.ViewFor(state, self);
  if (self.replicas[shard].data != kRestoring) return;
  if (view.base != 0 && view.base != state.manifest) return;
  State next = state;
  Replica& changed = next.servers[server].replicas[shard];
  changed.data = kComplete;
  // P29: the record has the parameters of the earlier versions, too, which the next step reads.
  const Configuration& c = model.configuration();
  const int oldest =
      c.Mutated(Mutation::kSnapshotOneVersion) ? view.base : c.VersionReadBy(view.base);
  changed.newest = view.base & kVersionBits;
  changed.oldest = static_cast<uint32_t>(oldest) & kVersionBits;
  if (view.shards[shard].primary == server) changed.committed = changed.newest;
  steps.Add(next, Edge::kRepeated, [&] {
    return fmt::format("server {} restores shard {} at version {}", server, shard,
                       static_cast<int>(view.base));
  });
}

// P22: a promoted replica treats its newest version as made and not yet committed, unless the
// generation began with it.
Replica Promoted(const Model& model, const State& state, const Replica& replica, int base) {
  Replica promoted{.data = replica.data, .newest = replica.newest, .oldest = replica.oldest};
  const bool is_known =
      replica.oldest == replica.newest || static_cast<int>(replica.newest) == base;
  promoted.committed = is_known ? replica.newest : (replica.newest - 1) & kVersionBits;
  // P29: a due version that it knows to be committed is stored again, as the dead primary may not
  // have come to it.
  if (model.configuration().has_snapshots && promoted.committed > state.manifest)
    promoted.to_store = (1u << (promoted.committed - 1)) & 15u;
  return promoted;
}

void EnterView(const Model& model, State* state, int server, int number, int shard) {
  const Server& self = state->servers[server];
  const View& before = model.ViewFor(*state, self);
  const View& now = model.ViewAt(*state, number);
  const ShardPlace& old_place = before.shards[shard];
  const ShardPlace& place = now.shards[shard];
  Replica& replica = state->servers[server].replicas[shard];
  const bool is_named = Has(place.in_sync, server);
  if (now.generation != before.generation &&
      !model.configuration().Mutated(Mutation::kKeepStateAtRollback)) {
    replica = Replica{.data = is_named ? kRestoring : kNoData};
  } else if (place.primary == server) {
    if (old_place.primary != server) {
      replica = Promoted(model, *state, replica, now.base);
      replica.awaits_answers = Count(place.in_sync) > 1 && replica.data == kComplete &&
                               static_cast<int>(replica.newest) < model.configuration().steps;
      const bool is_alone = place.in_sync == 1 << server && replica.data == kComplete;
      if (is_alone && model.configuration().Mutated(Mutation::kPromotedCommitsAlone)) {
        replica.committed = replica.newest;
        model.MarkSeen(state, shard, static_cast<int>(replica.committed), now.generation);
      }
    } else if (place.syncing == kNobody || !model.SamePair(old_place, place)) {
      replica.is_frozen = replica.needs_newcomer = 0;
      replica.frozen_newest = replica.frozen_oldest = 0;
    }
  } else if (is_named) {
    replica = Replica{.data = replica.data, .newest = replica.newest, .oldest = replica.oldest};
  } else if (place.syncing != server || !model.SamePair(old_place, place)) {
    replica = Replica{};
  }
}

void AddServerViews(const Model& model, const State& state, int server, Steps& steps) {
  const int newest = state.view_count - 1;
  const bool skips = model.configuration().skips_superseded_views;
  for (int number = state.servers[server].view + 1; number <= newest; ++number) {
    if (skips && number != newest) continue;
    State next = state;
    for (int shard = 0; shard < model.configuration().shards; ++shard)
      EnterView(model, &next, server, number, shard);
    next.servers[server].view = static_cast<uint8_t>(number);
    steps.Add(next, number == newest ? Edge::kRepeated : Edge::kOnce,
              [&] { return fmt::format("view {} reaches server {}", number, server); });
  }
}

}  // namespace

void AddServerSteps(Model& model, const State& state, Steps& steps) {
  for (int server = 0; server < kServerLivesMax; ++server) {
    if (!state.servers[server].is_alive) continue;
    for (int shard = 0; shard < model.configuration().shards; ++shard) {
      AddRestore(model, state, server, shard, steps);
      if (!model.Serves(state, server, shard)) continue;
      const Primary primary{model, state, server, shard};
      AddRoots(primary, steps);
      AddAnswers(primary, steps);
      AddCombine(primary, steps);
      AddCommit(primary, steps);
      AddTransfer(primary, steps);
      AddStore(primary, steps);
    }
    AddServerViews(model, state, server, steps);
  }
}

}  // namespace pando::model
