// SnapshotFolder is the scheduler's side of RUN_DIR/snapshots. Servers store the files: they send
// them to the scheduler's file store (P45), or write here with snapshot.store = "folder". When a
// snapshot is complete, the scheduler writes a manifest beside them, for people and for commands
// that read a run's files. It removes files that are not needed any more. The scheduler process
// uses it. Threads: none.
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
#include "common/result.h"
#include "plan/job_plan.h"
#include "scheduler/journaled_outbox.h"

namespace pando {

class SnapshotFolder {
 public:
  // `complete` has the snapshots of earlier lives of the scheduler.
  SnapshotFolder(std::string path, std::span<const SnapshotManifest> complete);

  const std::string& path() const { return path_; }
  bool IsComplete(const SnapshotRef& snapshot) const { return complete_.contains(snapshot); }
  Status OnComplete(const SnapshotManifest& manifest);
  // Gives up a snapshot that cannot be read. Its files stay as they are, for people; its manifest
  // is renamed to gGGG-vVVVVVVVVV.unreadable.
  void OnForgotten(const SnapshotRef& snapshot);
  // Removes the files that the manifest names, the manifest if the snapshot was complete, and files
  // that dead processes left of snapshots older than all complete ones. A second copy of a complete
  // snapshot's shard goes only with that shard's file.
  void OnDropped(const SnapshotManifest& dropped);
  // Removes all files that no complete snapshot names, because no process writes any more.
  void OnEnd();
  // Writes manifests that are missing after a full disk or a crash.
  Status WriteMissingManifests() const;

 private:
  std::string ManifestPath(const SnapshotRef& snapshot) const;
  Status WriteManifest(const SnapshotManifest& manifest) const;
  void Leave(const SnapshotManifest& manifest);
  std::set<std::string> WantedNames() const;
  // Removes files that no complete snapshot names.
  void RemoveUnwanted(
      const std::function<bool(const std::string& name, const SnapshotRef& snapshot)>& may_go);

  std::string path_;
  std::map<SnapshotRef, SnapshotManifest> complete_;
  std::set<std::string> left_;  // files of forgotten snapshots, also of earlier lives
};

// Reads all manifests in the folder, ascending.
Result<std::vector<SnapshotManifest>> ReadManifests(const std::string& folder);

// The content of a snapshot's files, each checked against the manifest.
struct SnapshotImage {
  FloatBuffer parameters;  // the flat vector
  // By shard, as VersionMaker makes it.
  std::vector<SharedBuffer> states;
};
Result<SnapshotImage> ReadSnapshot(const std::string& folder, const SnapshotManifest& manifest,
                                   const JobPlan& plan);
// Returns which shard of the flat vector differs from the snapshot in a bit, as a text; empty if
// none does. An error means that a file cannot be read. Holds one record at a time.
Result<std::string> FindDifference(const std::string& folder, const SnapshotManifest& manifest,
                                   const JobPlan& plan, std::span<const float> flat);

// Checks that a restore would find these records in the files that the servers reported.
SnapshotCheck CheckSnapshot(const std::string& folder, const SnapshotManifest& manifest, JobId job,
                            const JobPlan& plan);

}  // namespace pando
