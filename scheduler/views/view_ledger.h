// ViewLedger keeps the scheduler's newest view, the scheduler's term, and when the next view is
// due. ViewMaker makes the views; the other parts read them and request new ones.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "proto/outbox.h"
#include "scheduler/journal.h"

namespace pando {

class ViewLedger {
 public:
  // `state`: the journal's state, if there is one.
  explicit ViewLedger(const std::optional<SchedulerState>& state);

  const View& view() const { return *view_; }
  const SharedView& shared() const { return view_; }
  uint64_t term() const { return term_; }
  ViewId NextId() const { return {term_, view_->id.number + 1}; }
  uint32_t NextGeneration() const;
  void Publish(SharedView next, std::string signature = "") {
    view_ = std::move(next);
    signature_ = std::move(signature);
  }
  const std::string& signature() const { return signature_; }  // of view(), by this life
  // Returns whether this life of the scheduler has published a view.
  bool HasAnnounced() const { return view_->id.number != 0 && view_->id.term == term_; }

  // Returns whether this life made the view, or the journal had it when this life began.
  bool IsOurs(ViewId id, uint32_t generation) const;
  // Gives the next view a higher term and generation than this view, which the journal lacks.
  void OnNewsBeyond(ViewId id, uint32_t generation);
  // Returns whether the view is not too far beyond the newest known one to be real (P26).
  bool IsBelievable(ViewId id, uint32_t generation) const;

  // Requests a view. The earliest request counts.
  void RequestView(Micros at);
  void DropRequest() { due_at_.reset(); }
  Micros due_at() const { return due_at_.value_or(kNever); }

 private:
  SharedView view_;
  std::string signature_;
  uint64_t term_ = 1;
  uint64_t first_term_ = 0;       // the first term of this life; 0 if the journal was empty
  ViewId journal_view_;           // the newest view of earlier lives
  uint32_t generation_seen_ = 0;  // the highest one that the journal lacked
  std::optional<Micros> due_at_;
};

bool HasBackupOn(const ShardPlacement& placement, NodeId server);
// Returns whether the view gives the server a replica of some shard.
bool HasReplicaOn(const View& view, NodeId server);
// Returns whether the server is the primary of some shard.
bool LeadsShards(const View& view, NodeId server);
// Returns whether the worker owns a micro-batch, or must compute one until its new owner begins.
// `committed`: the version that all shards have committed.
bool HasWorkFor(const View& view, NodeId worker, Version committed);

}  // namespace pando
