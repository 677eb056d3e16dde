// The names of runs that one viewer shows: their tabs, and their label in Prometheus' text. Used by
// `pando view`.
#pragma once

#include <string>
#include <vector>

namespace pando {

// "first" of "runs/first". Where folders have the same name, as much of their paths as makes them
// differ: "old/first", "new/first". All are UTF-8 (AsUtf8): a label that is none spoils Prometheus'
// text for all runs. REQUIRES: no path is empty.
std::vector<std::string> NamesForFolders(const std::vector<std::string>& paths);

}  // namespace pando
