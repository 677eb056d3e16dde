// The files of results: what a benchmark leaves in its folder, and the page made of such a folder.
#pragma once

#include <string>

#include "bench/harness/result.h"
#include "common/status.h"

namespace pando::bench {

inline constexpr const char* kReportFile = "report.html";

// BENCHMARK.json, BENCHMARK.md and an SVG per plot in `folder`, which is made where it is not
// there. A result of the same benchmark is replaced.
Status WriteResults(const ResultSet& set, const std::string& folder);

// Makes FOLDER/report.html of every *.json in the folder, in the order of their names; returns its
// path. A file that is no result is an error that names it: a report says what was measured, all
// of it.
Result<std::string> WriteReport(const std::string& folder);

}  // namespace pando::bench
