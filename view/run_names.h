// The names of the runs that one viewer shows, for their tabs and their label in Prometheus' text.
// `pando view` uses them.
#pragma once

#include <string>
#include <vector>

namespace pando {

// Returns "first" for "runs/first". If several folders have this name, it adds as much of their
// paths as distinguishes them: "old/first", "new/first". All names are UTF-8 (AsUtf8), because any
// other label would spoil Prometheus' text for all runs. REQUIRES: no path is empty.
std::vector<std::string> NamesForFolders(const std::vector<std::string>& paths);

}  // namespace pando
