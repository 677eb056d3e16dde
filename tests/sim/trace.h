// What a replay prints of a message beside its name, and of the simulator's own doings.
#pragma once

#include <string>

#include "proto/messages.h"

namespace pando::sim {

std::string Detail(const Message& message);
std::string ViewText(const View& view);  // one line per shard

}  // namespace pando::sim
