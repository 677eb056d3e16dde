// FindPando: the program that the benchmarks of training start, as users do.
#pragma once

#include <string>

#include "common/status.h"

namespace pando::bench {

// `given` where that is not empty; else beside this program, in the build folder, or where it is
// installed. kNotFound says where it was looked for.
Result<std::string> FindPando(const std::string& given);

}  // namespace pando::bench
