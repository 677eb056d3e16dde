// The texts that a replay prints for a message beside its name, and for the simulator's actions.
#pragma once

#include <string>

#include "proto/messages.h"

namespace pando::sim {

std::string Detail(const Message& message);
std::string ViewText(const View& view);  // one line per shard

}  // namespace pando::sim
