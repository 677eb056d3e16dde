// These functions say which files of a run folder a standby gets, and how they change (P47). The
// leader's Mirror and the standby's MirrorReceiver use them.
#pragma once

#include <string_view>

namespace pando {

// A file with this ending is not complete (common/atomic_file).
inline constexpr std::string_view kDraftEnding = ".tmp";

// Returns whether a file of this name below a run folder travels to standbys. Returns false for
// locks, keys, the journal, endpoints, drafts, and each name that could lead out of the folder.
bool IsMirrored(std::string_view name);
// Returns whether the file grows at its end and never changes otherwise.
bool IsGrowing(std::string_view name);
// Returns whether the file is a timeline, which a running process changes in place.
inline bool IsRecording(std::string_view name) { return name.starts_with("timeline/"); }
// Returns whether a folder ("" or "logs") may have growing files.
inline bool MayHaveGrowing(std::string_view folder) {
  return folder.empty() || folder == "logs" || folder.starts_with("logs/");
}

}  // namespace pando
