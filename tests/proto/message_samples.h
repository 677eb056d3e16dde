// Messages to test the codec and the network with: one of every kind, with edge values or drawn
// from a seed, and a rendering of every field to compare them by.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/codec.h"

namespace pando {

// A payload of this many floats 0, 1, 2, ... in an aligned buffer.
Blob CountingPayload(size_t float_count);

// One envelope of every kind. Edge values: empty and full lists, largest ids, empty and long texts.
std::vector<Envelope> SampleEnvelopes();

// Every field of the envelope, payload bytes as a hash.
std::string Render(const Envelope& envelope);

// The frames as a peer would receive them: in separate memory, `shift` bytes off alignment.
Frames CopyFrames(const Frames& frames, size_t shift = 0);

}  // namespace pando
