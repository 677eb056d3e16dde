// ResultSet as JSON and back: the one form that is read again.
#pragma once

#include <string>

#include "bench/harness/result.h"
#include "common/status.h"

namespace pando::bench {

std::string ToJson(const ResultSet& set);  // ends with a newline

// `place` names the text in errors: its path.  kCorrupt where it is no result of ours.
Result<ResultSet> FromJson(const std::string& text, const std::string& place);

}  // namespace pando::bench
