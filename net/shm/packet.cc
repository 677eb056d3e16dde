#include "net/shm/packet.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace pando {
namespace {

constexpr uint32_t kMagic = 0x6773'6d50;  // "Pmsg"

// The magic number, the count and a 32-bit size for each frame, in whole words.
constexpr size_t HeaderBytes(size_t frame_count) {
  return ((2 + frame_count) * sizeof(uint32_t) + kWordBytes - 1) / kWordBytes * kWordBytes;
}

uint32_t NumberAt(const Blob& packet, size_t index) {
  uint32_t number = 0;
  std::memcpy(&number, packet.bytes().data() + index * sizeof(number), sizeof(number));
  return number;
}

}  // namespace

bool SendPacket(int fd, const Frames& frames) {
  if (frames.size() > kPacketFramesMax) return false;
  std::array<uint32_t, HeaderBytes(kPacketFramesMax) / sizeof(uint32_t)> header{
      kMagic, static_cast<uint32_t>(frames.size())};
  std::array<iovec, 1 + kPacketFramesMax> parts;
  parts[0] = {header.data(), HeaderBytes(frames.size())};
  size_t bytes = parts[0].iov_len;
  for (size_t i = 0; i < frames.size(); ++i) {
    const size_t size = frames[i].size_bytes();
    if (size % kWordBytes != 0 || size > kPacketBytesMax - bytes) return false;
    header[2 + i] = static_cast<uint32_t>(size);
    parts[1 + i] = {const_cast<std::byte*>(frames[i].bytes().data()), size};
    bytes += size;
  }
  const msghdr message{.msg_iov = parts.data(), .msg_iovlen = 1 + frames.size()};
  return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes);
}

std::optional<Frames> ParsePacket(const Blob& packet) {
  if (packet.size_bytes() < HeaderBytes(0) || NumberAt(packet, 0) != kMagic) return std::nullopt;
  const size_t frame_count = NumberAt(packet, 1);
  if (frame_count > kPacketFramesMax || HeaderBytes(frame_count) > packet.size_bytes())
    return std::nullopt;
  Frames frames;
  size_t begin = HeaderBytes(frame_count);
  for (size_t i = 0; i < frame_count; ++i) {
    const size_t size = NumberAt(packet, 2 + i);
    if (size % kWordBytes != 0 || size > packet.size_bytes() - begin) return std::nullopt;
    frames.emplace_back(packet.bytes().subspan(begin, size), packet.keep_alive());
    begin += size;
  }
  if (begin != packet.size_bytes()) return std::nullopt;
  return frames;
}

}  // namespace pando
