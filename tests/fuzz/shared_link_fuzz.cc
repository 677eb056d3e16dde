// Packets on the Unix connection of two processes that share memory. An input is any number of
// packets: a byte whose lowest bit says whether a segment's descriptor comes with it, the size in
// words of 8 bytes, and the bytes; the size of the last packet may be more than what is left.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "common/check.h"
#include "common/hash.h"
#include "net/shm/shared_link.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_file.h"

namespace pando {
namespace {

constexpr size_t kSegmentDataBytes = 1 << 16;
constexpr uint64_t kSequence = 5;
constexpr size_t kReader = 3;

std::string Words(std::initializer_list<uint64_t> words) {
  std::string bytes;
  for (const uint64_t word : words)
    bytes.append(reinterpret_cast<const char*>(&word), sizeof(word));
  return bytes;
}

std::string Packet(bool has_descriptor, const std::string& bytes) {
  return std::string{static_cast<char>(has_descriptor),
                     static_cast<char>(bytes.size() / kWordBytes)} +
         bytes;
}

// A control message of net/shm/shared_link.cc.
std::string Control(uint32_t kind, uint64_t first, uint64_t second, uint64_t third,
                    uint64_t token = 0) {
  constexpr uint64_t kMagic = 0x6d68'7350;
  return Words({kMagic | uint64_t{kind} << 32, first, second, third, 0, 0, token, token});
}

// A message of one word.
std::string PlainMessage() {
  return Words({0x6773'6d50 | uint64_t{1} << 32, kWordBytes, 0x0123456789abcdef});
}
// One that names a payload in the segment.
std::string NamingMessage() {
  constexpr uint64_t kTableWords = 6;
  return Words({0x6773'6d50 | uint64_t{2} << 32, kTableWords * kWordBytes | kWordBytes << 32,
                0x656d'616e'6d68'7303, 1, 0, kSequence, kSharedWordsBytes, 4096,
                0x0123456789abcdef});
}

// The process that shares memory with its peers.
struct Listener {
  std::shared_ptr<SharedPool> pool = *SharedPool::Create({.segment_bytes = 1 << 20});
  UniqueFd fd = *SharedLink::Listen({Incarnation(static_cast<uint64_t>(getpid())), 0});
  BufferPool buffers{1 << 14, pool->source()};
  SharedBuffer shared = buffers.Take();  // so that the pool has a segment
  sockaddr_un address{};
  socklen_t address_bytes = sizeof(address);
  Listener() {
    PANDO_CHECK(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &address_bytes) == 0);
  }

  UniqueFd Connect() const {
    UniqueFd peer(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    PANDO_CHECK(connect(peer.get(), reinterpret_cast<const sockaddr*>(&address), address_bytes) ==
                0);
    return peer;
  }
};

// The peer's segment. All slots are offered to all readers.
const SharedSegment& OfferedSegment() {
  static const SharedSegment segment = *SharedSegment::Create(kSegmentDataBytes);
  for (size_t slot : {0, 1}) segment.word(slot, kReader) = OfferedWord(kSequence);
  return segment;
}

void Send(int fd, std::string_view bytes, bool has_descriptor) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{.msg_iov = &part, .msg_iovlen = 1};
  if (has_descriptor) {
    message.msg_control = space;
    message.msg_controllen = sizeof(space);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int descriptor = OfferedSegment().fd();
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  (void)sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Reads all bytes of the messages, too.
void ReceiveAll(SharedLink& link) {
  link.Receive();
  for (Frames message; link.Take(&message);) {
    if (NamesSharedMemory(message) && link.Restore(&message) != SharedLink::Restored::kWhole)
      continue;
    for (const Blob& frame : message)
      (void)std::vector<std::byte>(frame.bytes().begin(), frame.bytes().end());
    (void)Decode(message);
  }
}

// The packets of an input.
void SendAll(std::string_view rest, int peer, SharedLink& link) {
  while (rest.size() > 2) {
    const bool has_descriptor = (rest[0] & 1) != 0;
    const std::string_view packet =
        rest.substr(2, size_t{static_cast<uint8_t>(rest[1])} * kWordBytes);
    rest.remove_prefix(2 + packet.size());
    if (packet.empty()) continue;
    Send(peer, packet, has_descriptor);
    ReceiveAll(link);
  }
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  // Not the offered one: a child that is forked later does not have its pages.
  const uint64_t segment_bytes = SharedSegment::Create(kSegmentDataBytes)->size_bytes();
  const std::string hello =
      Packet(false, Control(1, 9, 0, 3)) + Packet(false, Control(5, 0, 0, 0, 0x7878787878787878));
  const std::string segment = Packet(true, Control(2, 0, segment_bytes, kReader));
  const std::string mapped = Packet(false, Control(3, 0, 0, 0));
  const std::string retired = Packet(false, Control(4, 0, 0, 0));
  return {hello + segment + mapped + Packet(false, PlainMessage()) +
              Packet(false, NamingMessage()) + retired,
          hello + segment + Packet(false, NamingMessage()) + Packet(false, NamingMessage()),
          hello + Packet(false, PlainMessage()), segment};
}

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pando;
  static const Listener listener;
  (void)OfferedSegment();
  // With keys, of a process that the peer is not.
  const auto sign = [](Incarnation, const std::string& text) {
    return std::optional(HexText(Hash64(text)));
  };
  for (const bool has_keys : {false, true}) {
    UniqueFd peer = listener.Connect();
    SharedLink::End end{.pool = listener.pool};
    if (has_keys) end.sign = sign;
    const auto accepted = SharedLink::Accept(listener.fd.get(), end);
    PANDO_CHECK(accepted.ok() && *accepted != nullptr);
    SendAll(TextIn(data, size), peer.get(), **accepted);
    PANDO_CHECK(!has_keys || !(*accepted)->is_usable());
    peer = UniqueFd();
    while (!(*accepted)->is_closed()) (*accepted)->Receive();
  }
  return 0;
}
