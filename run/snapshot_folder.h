// SnapshotFolder: the scheduler's side of RUN_DIR/snapshots. Servers write the files
// (run/snapshot_store); the scheduler writes a manifest beside them when a snapshot is complete,
// for people and for the commands that read what a run left, and removes what is not wanted any
// more. Used by the scheduler process. Threads: none.
//
// Manifest, gGGG-vVVVVVVVVV.json:
//   {"generation": 0, "step": 500, "shards": [{"hash": "16 hex digits", "file": "g000-..."}, ...]}
#pragma once

#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/float_buffer.h"
#include "common/status.h"
#include "optim/optimizer.h"
#include "plan/job_plan.h"
#include "scheduler/journaled_outbox.h"

namespace pando {

class SnapshotFolder {
 public:
  // `complete`: of earlier lives of the scheduler.
  SnapshotFolder(std::string path, std::span<const SnapshotManifest> complete);

  const std::string& path() const { return path_; }
  bool IsComplete(const SnapshotRef& snapshot) const { return complete_.contains(snapshot); }
  Status OnComplete(const SnapshotManifest& manifest);
  // It cannot be read. Its files are left as they are, for people; its manifest is renamed to
  // gGGG-vVVVVVVVVV.unreadable.
  void OnForgotten(const SnapshotRef& snapshot);
  // Removes the files it names, its manifest if it was complete, and what dead processes left of
  // snapshots older than all complete ones. A second copy of a complete one's shard comes with that
  // shard's file alone.
  void OnDropped(const SnapshotManifest& dropped);
  // No process writes any more: removes all that no complete snapshot names.
  void OnEnd();
  // Manifests that a full disk kept from being written, or a crash.
  Status WriteMissingManifests() const;

 private:
  std::string ManifestPath(const SnapshotRef& snapshot) const;
  Status WriteManifest(const SnapshotManifest& manifest) const;
  void Leave(const SnapshotManifest& manifest);
  std::set<std::string> WantedNames() const;
  // Of files that no complete snapshot names.
  void RemoveUnwanted(
      const std::function<bool(const std::string& name, const SnapshotRef& snapshot)>& may_go);

  std::string path_;
  std::map<SnapshotRef, SnapshotManifest> complete_;
  std::set<std::string> left_;  // files of those that were forgotten, in earlier lives too
};

// All manifests in the folder, ascending.
Result<std::vector<SnapshotManifest>> ReadManifests(const std::string& folder);

// A snapshot put together from its files, each checked against the manifest.
struct SnapshotImage {
  FloatBuffer parameters;  // the flat vector
  // By shard; empty without an optimizer state.
  std::vector<SharedBuffer> states;
};
// `optimizer` says how much state belongs to a shard.
Result<SnapshotImage> ReadSnapshot(const std::string& folder, const SnapshotManifest& manifest,
                                   const JobPlan& plan, const Optimizer& optimizer);
// Which shard of the flat vector has other bits than the snapshot; empty if none has. An error: a
// file cannot be read. Holds one record at a time.
Result<std::string> FindDifference(const std::string& folder, const SnapshotManifest& manifest,
                                   const JobPlan& plan, const Optimizer& optimizer,
                                   std::span<const float> flat);

// Whether a restore would find these records in the files that the servers have reported.
SnapshotCheck CheckSnapshot(const std::string& folder, const SnapshotManifest& manifest, JobId job,
                            const JobPlan& plan);

}  // namespace pando
