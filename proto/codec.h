// The codec turns an Envelope, a plain struct, into frames of Cap'n Proto and back. net/transport
// and the simulator call it; the protocol cores never see it.
//
// Frame layout. A message is one Cap'n Proto message (pando.capnp: Envelope). Frame i is its
// segment i: little-endian, whole 8-byte words, with nothing before, between or after.
//
//   frame 0     | the root pointer, then the envelope and its structs and texts
//   frame k ≥ 1 | a payload's own bytes (Encode refers to the buffer, Decode to the frame), or more
//               | structs where frame 0 was full
//
// Payload bytes are copied in three cases only: payloads below kInlinePayloadBytes, which lie among
// the structs; payloads that are not aligned to 8 bytes or not whole words (Pando's are multiples
// of 64 bytes); and received frames that are not aligned to 8 bytes (small ones can be). Threads:
// any; the codec has no state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/blob.h"
#include "common/result.h"
#include "proto/message_limits.h"
#include "proto/messages.h"

namespace pando {

// Increment this when a program of the previous version would misread a message.
inline constexpr uint32_t kProtocolVersion = 15;
inline constexpr size_t kWordBytes = 8;
// A separate frame costs each side one or two system calls, which is more than copying this many
// bytes. ZeroMQ itself copies frames below 8 KiB into its batches. On the MNIST CNN, whose shards
// have 4 KiB, this saves half to three quarters of the calls per step.
inline constexpr size_t kInlinePayloadBytes = 16 << 10;

using Frames = std::vector<Blob>;

// Returns the frames, which keep alive everything that they refer to. REQUIRES: the message is
// within proto/message_limits.h.
Frames Encode(const Envelope& envelope);

// Checks everything: version, enums, counts, lengths, ids, payload sizes and alignment. Returns
// kCorrupt with the reason if the message is not valid. Payloads of the result are inside the
// frames and keep them alive.
Result<Envelope> Decode(const Frames& frames);

// Returns the version of Cap'n Proto with which the codec was built: "0.9.2".
std::string CapnpVersion();

}  // namespace pando
