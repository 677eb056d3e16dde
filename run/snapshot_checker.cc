#include "run/snapshot_checker.h"

#include <tuple>

#include "common/system.h"

namespace pando {

SnapshotChecker::~SnapshotChecker() {
  wanted_.Close();
  reader_.join();
}

std::optional<SnapshotCheck> SnapshotChecker::Check(const SnapshotManifest& manifest) {
  if (result_ && result_->first == manifest.snapshot) return result_->second;
  if (asked_ != manifest.snapshot) std::ignore = wanted_.Push(manifest);  // it is never full
  asked_ = manifest.snapshot;
  return std::nullopt;
}

void SnapshotChecker::TakeResults() {
  for (auto& result : results_.Drain()) result_ = std::move(result);
}

void SnapshotChecker::Run() {
  TakeBatchTimeSlices();
  while (const std::optional<SnapshotManifest> wanted = wanted_.Pop()) {
    if (wanted_.is_closed()) return;
    std::ignore = results_.Push({wanted->snapshot, read_(*wanted)});  // it is never full
  }
}

}  // namespace pando
