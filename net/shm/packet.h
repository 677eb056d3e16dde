// A packet of a Unix connection holds all frames of a message (net/shm/shared_link.h). Sizes are in
// the host's byte order.
//
//   bytes 0-3  "Pmsg"
//   bytes 4-7  the number of frames
//   then       each frame's size, of 32 bits, and zeros up to a multiple of 8 bytes
//   then       the frames, each a multiple of 8 bytes
#pragma once

#include <optional>

#include "common/blob.h"
#include "proto/codec.h"

namespace pando {

inline constexpr size_t kPacketBytesMax = 128 << 10;
inline constexpr size_t kPacketFramesMax = 64;

// Sends the frames as one packet. Never blocks. Returns false and sends nothing if the message is
// too long, has unaligned frames, or cannot be sent now.
bool SendPacket(int fd, const Frames& frames);

// Returns nullopt if it is no packet or its sizes do not match. REQUIRES: it is aligned to 8 bytes.
std::optional<Frames> ParsePacket(const Blob& packet);

}  // namespace pando
