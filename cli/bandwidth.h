// How fast a network is, as people write it: "25Gbit", "100Mbit/s", "3GB/s".
#pragma once

#include <string>

#include "common/status.h"

namespace pando {

// Bytes a second, above 0. k, M, G and T are powers of 1000, and m, g, t are the same (tc writes
// mbit); bits are "bit", "bit/s" or "bps", bytes "B" or "B/s". kInvalidArgument: names the flag,
// the text and what was expected.
Result<double> ParseBandwidth(const std::string& flag, const std::string& text);

// "25 Gbit/s".
std::string BandwidthText(double bytes_per_second);

}  // namespace pando
