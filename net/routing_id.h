// Routing ids: the name by which a ROUTER knows a connection that was dialed to it. It says who
// dials, so that an envelope's receiver can be answered without a table:
//
//   byte 0       the channel ('d' data, 'h' heartbeat): not 0, which ZeroMQ keeps for itself
//   bytes 1-8    the dialer's incarnation, little-endian
//   bytes 9-10   the dialer's lane, little-endian
//   bytes 11-18  the incarnation dialed, little-endian (the scheduler: 0)
//
// Of two connections with one routing id ZeroMQ keeps the newer and leaves the other open and
// silent. The last field keeps a line to an earlier life, which dials the endpoint for as long as
// it lingers, from doing that to the line to this one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/ids.h"
#include "proto/messages.h"

namespace pando {

enum class Channel : char { kData = 'd', kHeartbeat = 'h' };

struct Dialer {
  Channel channel = Channel::kData;
  Incarnation incarnation;
  uint16_t lane = 0;
  bool operator==(const Dialer&) const = default;
};

// The scheduler is dialed at its endpoint, in whichever life it is.
std::string RoutingId(const Dialer& dialer, const PeerId& dialed);

// nullopt: it is none of ours.
std::optional<Dialer> DialerOf(std::string_view routing_id);

}  // namespace pando
