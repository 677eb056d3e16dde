// engines.json: with which engines each kind of GPU computes convolutions in a run (P39). The text
// of one kind's engines also travels to the scheduler and back, and is in its journal.
//
//   {"cuda, NVIDIA H200, ...": {"forward of 32 x ...": {"engine": 38, "knobs": {"24": 2},
//                               "workspace_bytes": 0, "reason": "measured 0.123 ms, ..."}, ...}}
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "job/device_choice.h"
#include "kernels/engines.h"
#include "run/run_folder.h"
#include "scheduler/journal.h"

namespace pando {

// One kind's.  kInvalidArgument: more than a message holds (kEnginesBytesMax).
Result<std::string> EnginesText(const EngineChoice& choice);
// kInvalidArgument says what is wrong; `where` names the source.
Result<EngineChoice> ParseEngines(std::string_view text, const std::string& where);

// kNotFound: there is no such file. kInvalidArgument names what is wrong in it.
Result<std::vector<KindEngines>> ReadEnginesFile(const std::string& path);
// Replaces the file at once. kInvalidArgument: a kind's text cannot be parsed.
Status WriteEnginesFile(const std::string& path, const std::vector<KindEngines>& engines);

// What the file that job.engines names has; nothing if it names none.
Result<std::vector<KindEngines>> ReadGivenEngines(const Job& job);
// What the folder has; nothing if it has no such file.
Result<std::vector<KindEngines>> ReadKeptEngines(const RunFolder& folder);
// Adds a kind to the folder's.
Status KeepEngines(const RunFolder& folder, KindEngines engines);
// What the folder has for this kind; empty: nothing.
Result<std::string> FindKeptEngines(const RunFolder& folder, const std::string& kind);
// The device computes as the run in the folder did, if that has decided engines for its kind.
// kNotFound: it has not, and it `must`.
Status UseKeptEngines(const RunFolder& folder, OpenedDevice& device, bool must);

}  // namespace pando
