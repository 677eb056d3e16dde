#include "net/shm/packet.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/unique_fd.h"

namespace pando {
namespace {

Blob MakeBlob(const std::string& bytes) {
  auto owner = std::make_shared<std::vector<uint64_t>>((bytes.size() + 7) / 8);
  std::ranges::copy(bytes, reinterpret_cast<char*>(owner->data()));
  return Blob(std::as_bytes(std::span(*owner)).first(bytes.size()), owner);
}

std::string Text(const Blob& blob) {
  return {reinterpret_cast<const char*>(blob.bytes().data()), blob.size_bytes()};
}

// Two ends of a Unix connection.
struct Connection {
  Connection() {
    std::array<int, 2> fds{};
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds.data()) == 0);
    from = UniqueFd(fds[0]);
    to = UniqueFd(fds[1]);
  }
  std::string Receive() const {
    std::string bytes(2 * kPacketBytesMax, '\0');
    const ssize_t size = recv(to.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(size < 0 ? 0 : static_cast<size_t>(size));
    return bytes;
  }
  UniqueFd from, to;
};

TEST_CASE("a message's frames are one packet, and each lies at a multiple of 8 bytes") {
  const Connection connection;
  const std::vector<std::string> texts = {"16 bytes of text", "", "12345678",
                                          std::string(60'000, 'x')};
  Frames frames;
  for (const std::string& text : texts) frames.push_back(MakeBlob(text));
  REQUIRE(SendPacket(connection.from.get(), frames));
  const Blob packet = MakeBlob(connection.Receive());
  const std::optional<Frames> received = ParsePacket(packet);
  REQUIRE(received.has_value());
  REQUIRE(received->size() == texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    CHECK(Text((*received)[i]) == texts[i]);
    const auto address = reinterpret_cast<uintptr_t>((*received)[i].bytes().data());
    CHECK(address % kWordBytes == 0);
  }
}

TEST_CASE("what is too long for a packet, or finds no room, is not sent") {
  const Connection connection;
  const int fd = connection.from.get();
  CHECK_FALSE(SendPacket(fd, {MakeBlob(std::string(kPacketBytesMax, 'x'))}));
  CHECK_FALSE(SendPacket(fd, Frames(kPacketFramesMax + 1, MakeBlob("12345678"))));
  CHECK_FALSE(SendPacket(fd, {MakeBlob("no word")}));
  CHECK(connection.Receive().empty());
  const Frames frames = {MakeBlob(std::string(kPacketBytesMax / 2, 'x'))};
  int sent_count = 0;
  while (SendPacket(fd, frames)) REQUIRE(++sent_count < 10'000);
  CHECK(sent_count > 0);
  for (int i = 0; i < sent_count; ++i)
    CHECK(ParsePacket(MakeBlob(connection.Receive())).has_value());
  CHECK(SendPacket(fd, frames));
}

TEST_CASE("a packet that lies about its frames is none") {
  const Connection connection;
  REQUIRE(SendPacket(connection.from.get(), {MakeBlob("12345678"), MakeBlob("16 bytes of text")}));
  const std::string valid = connection.Receive();
  REQUIRE(ParsePacket(MakeBlob(valid)).has_value());
  for (size_t size = 8; size < valid.size(); size += 8)
    CHECK_FALSE(ParsePacket(MakeBlob(valid.substr(0, size))).has_value());
  CHECK_FALSE(ParsePacket(MakeBlob(valid + std::string(8, '\0'))).has_value());
  CHECK_FALSE(ParsePacket(MakeBlob("")).has_value());
  CHECK_FALSE(ParsePacket(MakeBlob("garbage!")).has_value());
  std::mt19937 random(1);
  for (int i = 0; i < 10'000; ++i) {  // the sanitizers see a read beyond it
    std::string mutated = valid;
    for (int flips = 0; flips < 3; ++flips)
      mutated[4 + random() % (mutated.size() - 4)] ^= static_cast<char>(1 << random() % 8);
    const Blob packet = MakeBlob(mutated);
    const std::optional<Frames> frames = ParsePacket(packet);
    if (!frames) continue;
    for (const Blob& frame : *frames) CHECK(Text(frame).size() <= mutated.size());
  }
}

}  // namespace
}  // namespace pando
