// Packets: a message's frames as one packet of a Unix connection (net/shared_link.h). Sizes are in
// the host's byte order.
//
//   bytes 0-3  "Pmsg"
//   bytes 4-7  how many frames
//   then       each frame's size, of 32 bits, and zeros up to a multiple of 8 bytes
//   then       the frames, each a multiple of 8 bytes
#pragma once

#include <optional>

#include "common/blob.h"
#include "proto/codec.h"

namespace pando {

inline constexpr size_t kPacketBytesMax = 128 << 10;
inline constexpr size_t kPacketFramesMax = 64;

// Never blocks.  False: it is too long, or of other frames, or cannot go now; nothing was sent.
bool SendPacket(int fd, const Frames& frames);

// nullopt: it is no packet, or does not hold what it says.  REQUIRES: aligned to 8.
std::optional<Frames> FramesOf(const Blob& packet);

}  // namespace pando
