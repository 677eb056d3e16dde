#include "net/zmq/routing_id.h"

namespace pando {
namespace {

constexpr size_t kIncarnationAt = 1;
constexpr size_t kLaneAt = kIncarnationAt + sizeof(uint64_t);
constexpr size_t kDialedAt = kLaneAt + sizeof(uint16_t);
constexpr size_t kSize = kDialedAt + sizeof(uint64_t);

template <typename T>
void Append(T value, std::string* bytes) {
  for (size_t i = 0; i < sizeof(T); ++i) *bytes += static_cast<char>(value >> (8 * i) & 0xff);
}

template <typename T>
T ValueAt(size_t begin, std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[begin + i])} << (8 * i);
  }
  return static_cast<T>(value);
}

}  // namespace

std::string RoutingId(const Dialer& dialer, const PeerId& dialed) {
  std::string id(1, static_cast<char>(dialer.channel));
  Append(dialer.incarnation.value(), &id);
  Append(dialer.lane, &id);
  Append(dialed.node == kSchedulerNode ? 0 : dialed.incarnation.value(), &id);
  return id;
}

std::optional<Dialer> ParseRoutingId(std::string_view routing_id) {
  if (routing_id.size() != kSize) return std::nullopt;
  return Dialer{static_cast<Channel>(routing_id[0]),
                Incarnation(ValueAt<uint64_t>(kIncarnationAt, routing_id)),
                ValueAt<uint16_t>(kLaneAt, routing_id)};
}

}  // namespace pando
