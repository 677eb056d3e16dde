// Routing ids: the name under which a ROUTER knows a connection that was dialed to it. It names the
// dialer, so that the ROUTER can answer an envelope's sender without a table:
//
//   byte 0       the channel ('d' data, 'h' heartbeat): not 0, which ZeroMQ keeps for itself
//   bytes 1-8    the dialer's incarnation, little-endian
//   bytes 9-10   the dialer's lane, little-endian
//   bytes 11-18  the incarnation dialed, little-endian (the scheduler: 0)
//
// Of two connections with one routing id ZeroMQ keeps the newer and leaves the other open and
// silent. A connection to an earlier incarnation lingers and dials the endpoint again. The last
// field keeps it from replacing the connection to this incarnation.
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

// The scheduler is dialed at its endpoint, in any incarnation.
std::string RoutingId(const Dialer& dialer, const PeerId& dialed);

// nullopt: it is not one of ours.
std::optional<Dialer> ParseRoutingId(std::string_view routing_id);

}  // namespace pando
