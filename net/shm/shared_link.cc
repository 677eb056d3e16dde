#include "net/shm/shared_link.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include <fmt/core.h>

#include "net/shm/packet.h"

namespace pando {
namespace {

constexpr uint32_t kMagic = 0x6d68'7350;  // "Pshm"
constexpr uint64_t kLayoutVersion = 3;    // add one when segments, references or packets change
constexpr int kBacklog = 256;             // a whole job may dial at once
constexpr size_t kPacketsReadMax = 16;    // at a time, before the other links' turn

// The first word of a message that names shared memory. Its low bits are those of a capability,
// with which no Cap'n Proto message begins.
constexpr uint64_t kTableMagic = 0x656d'616e'6d68'7303;
constexpr size_t kReferenceWords = 5;  // frame, segment << 32 | slot, sequence, offset, size

// Shuts down our half of a connection when no reader needs it any more.
struct ReadingEnds {
  std::shared_ptr<UniqueFd> fd;
  explicit ReadingEnds(std::shared_ptr<UniqueFd> connection) : fd(std::move(connection)) {}
  ~ReadingEnds() { shutdown(fd->get(), SHUT_WR); }
  ReadingEnds(const ReadingEnds&) = delete;
  ReadingEnds& operator=(const ReadingEnds&) = delete;
};

struct UnixAddress {
  sockaddr_un address{};
  socklen_t size = 0;
};

UnixAddress LinkAddress(const LinkPeer& peer) {
  UnixAddress result;
  const std::string name =
      fmt::format("pando/{:016x}/{}", peer.first.value(), peer.second);  // after a zero: abstract
  result.address.sun_family = AF_UNIX;
  name.copy(result.address.sun_path + 1, sizeof(result.address.sun_path) - 1);
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

UniqueFd UnixSocket() {
  return UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// Any process may bind the name, so the user must be checked.
bool IsOfOurUser(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

uint64_t WordAt(const Blob& frame, size_t index) {
  uint64_t word = 0;
  std::memcpy(&word, frame.bytes().data() + index * sizeof(word), sizeof(word));
  return word;
}

void Append(uint64_t frame, const SharedReference& r, std::vector<uint64_t>* table) {
  table->insert(table->end(), {frame, uint64_t{r.segment} << 32 | r.slot, r.sequence,
                               r.offset_bytes, r.size_bytes});
}

SharedReference ReferenceAt(const Blob& table, size_t word) {
  const uint64_t place = WordAt(table, word + 1);
  return {.segment = static_cast<uint32_t>(place >> 32),
          .slot = static_cast<uint32_t>(place),
          .sequence = WordAt(table, word + 2),
          .offset_bytes = WordAt(table, word + 3),
          .size_bytes = WordAt(table, word + 4)};
}

}  // namespace

struct SharedLink::Control {
  enum class Kind : uint32_t { kHello = 1, kSegment = 2, kMapped = 3, kRetired = 4, kProof = 5 };
  uint32_t magic = kMagic;
  Kind kind = Kind::kHello;
  uint64_t first = 0;         // hello: incarnation; else the segment
  uint64_t second = 0;        // hello: lane; segment: bytes
  uint64_t third = 0;         // hello: layout version; segment: reader
  LinkProof::Bytes number{};  // hello, proof
  LinkProof::Bytes token{};   // proof
};

// ---- connecting ---------------------------------------------------------------------------------

SharedLink::SharedLink(UniqueFd fd, const End& end, std::optional<LinkPeer> peer)
    : fd_(std::make_shared<UniqueFd>(std::move(fd))),
      pool_(end.pool),
      peer_(peer),
      proof_(end.sign, peer ? std::optional(peer->first) : std::nullopt),
      reader_(std::make_unique<SharedReader>(std::make_shared<ReadingEnds>(fd_), end.on_mapped)) {}

// A peer that has not closed the link may still read. Its reader index is then not used again.
SharedLink::~SharedLink() {
  if (our_reader_ && is_closed_) pool_->RemoveReader(*our_reader_);
}

Result<UniqueFd> SharedLink::Listen(const LinkPeer& self) {
  UniqueFd fd = UnixSocket();
  const UnixAddress name = LinkAddress(self);
  const bool listens =
      fd.is_open() &&
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&name.address), name.size) == 0 &&
      listen(fd.get(), kBacklog) == 0;
  if (listens) return fd;
  return Unavailable(fmt::format("no Unix socket for shared memory: {}", std::strerror(errno)));
}

Result<std::unique_ptr<SharedLink>> SharedLink::Connect(const LinkPeer& self, const LinkPeer& peer,
                                                        const End& end) {
  UniqueFd fd = UnixSocket();
  const UnixAddress name = LinkAddress(peer);
  if (!fd.is_open() ||
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&name.address), name.size) != 0) {
    const bool is_passing = errno == EAGAIN || errno == EMFILE || errno == ENFILE ||
                            errno == ENOBUFS || errno == ENOMEM;
    if (is_passing) return Interrupted(std::strerror(errno));
    return Unavailable(
        errno == ECONNREFUSED
            ? "it lives on another host or in another network namespace, has ended, or "
              "has no free descriptor"
            : std::strerror(errno));
  }
  if (!IsOfOurUser(fd.get())) return Unavailable("it belongs to another user");
  std::unique_ptr<SharedLink> link(new SharedLink(std::move(fd), end, peer));
  link->SendControl({.first = self.first.value(),
                     .second = self.second,
                     .third = kLayoutVersion,
                     .number = link->proof_.number()});
  return link;
}

Result<std::unique_ptr<SharedLink>> SharedLink::Accept(int listening_fd, const End& end) {
  UniqueFd fd(accept4(listening_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const bool is_over = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
  if (!fd.is_open() && is_over) return Unavailable(std::strerror(errno));
  if (!fd.is_open() || !IsOfOurUser(fd.get())) return std::unique_ptr<SharedLink>();
  return std::unique_ptr<SharedLink>(new SharedLink(std::move(fd), end));
}

// ---- control messages ---------------------------------------------------------------------------

bool SharedLink::SendControl(const Control& control, int descriptor) {
  iovec bytes{const_cast<Control*>(&control), sizeof(control)};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{.msg_iov = &bytes, .msg_iovlen = 1};
  if (descriptor >= 0) {
    message.msg_control = space;
    message.msg_controllen = sizeof(space);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  return sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(control);
}

void SharedLink::Receive() {
  for (size_t i = 0; i < kPacketsReadMax && !is_closed_; ++i) {
    if (messages_.size() >= kPacketsReadMax || !ReceiveOne()) break;
  }
  // A message that had no room before may have room now. A peer that gets no notification keeps
  // sending, which wakes this thread.
  if (reader_ != nullptr)
    TellMapped();
  else
    TellRetired();
}

// Returns false if no more messages are available.
bool SharedLink::ReceiveOne() {
  const ssize_t size = recv(fd(), nullptr, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
  // The peer ended before it had read everything. Its earlier messages are still readable.
  if (size < 0 && (errno == EINTR || errno == ECONNRESET)) return true;
  if (size < 0 && errno == EAGAIN) return false;
  if (size <= 0) {
    is_closed_ = true;
    return false;
  }
  const size_t room = std::min(static_cast<size_t>(size), kPacketBytesMax);
  const auto words = std::make_shared_for_overwrite<uint64_t[]>((room + 7) / sizeof(uint64_t));
  iovec bytes{words.get(), room};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{.msg_iov = &bytes,
                 .msg_iovlen = 1,
                 .msg_control = space,
                 .msg_controllen = CMSG_LEN(sizeof(int))};  // sizeof(space) has room for two
  if (recvmsg(fd(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(room))
    return true;
  UniqueFd descriptor;
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message);
      header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    int received = -1;
    std::memcpy(&received, CMSG_DATA(header), sizeof(int));
    descriptor = UniqueFd(received);
  }
  if (reader_ != nullptr)
    OnPacket(Blob(std::as_bytes(std::span(words.get(), room / sizeof(uint64_t))), words),
             std::move(descriptor));
  return true;
}

void SharedLink::OnPacket(const Blob& packet, UniqueFd descriptor) {
  Control control;
  if (packet.size_bytes() == sizeof(control)) {
    std::memcpy(&control, packet.bytes().data(), sizeof(control));
    if (control.magic == kMagic) return OnControl(control, std::move(descriptor));
  }
  std::optional<Frames> message;
  if (proof_.is_proven()) message = ParsePacket(packet);
  if (!message) return Break("it sent an invalid message");
  messages_.push_back(*std::move(message));
}

void SharedLink::OnControl(const Control& control, UniqueFd descriptor) {
  using Kind = Control::Kind;
  const bool is_of_handshake = control.kind == Kind::kHello || control.kind == Kind::kProof;
  if (is_of_handshake == proof_.is_proven() && control.kind != Kind::kRetired)
    return Break("it sent a message at a wrong time");
  switch (control.kind) {
    case Kind::kHello:
      if (peer_) return Break("it sent a message at a wrong time");
      if (control.third != kLayoutVersion || control.second > UINT16_MAX)
        return Break("it is another release of pando");
      peer_ = {Incarnation(control.first), static_cast<uint16_t>(control.second)};
      proof_.OnHello(peer_->first, control.number);
      return Prove();
    case Kind::kProof:
      if (!proof_.OnProof(control.number, control.token))
        return Break("it does not prove that it has the key of its process");
      Prove();
      return AnnounceSegments();
    case Kind::kSegment:
      return OnSegment(control, std::move(descriptor));
    case Kind::kMapped:
      if (control.first != mapped_count_ || mapped_count_ >= announced_count_)
        return Break("it mapped a segment that it was not given");
      ++mapped_count_;
      return;
    case Kind::kRetired:
      return Break("it has closed the link");
  }
  Break("it sent an invalid message");
}

void SharedLink::Prove() {
  if (is_over()) return;
  if (const std::optional<LinkProof::Bytes> token = proof_.TakeToken())
    SendControl({.kind = Control::Kind::kProof, .number = proof_.number(), .token = *token});
}

void SharedLink::OnSegment(const Control& control, UniqueFd descriptor) {
  if (!descriptor.is_open()) return Break("this process has no free descriptor");
  const Status mapped =
      reader_->Map(static_cast<uint32_t>(control.first), std::move(descriptor), control.second,
                   static_cast<uint32_t>(std::min<uint64_t>(control.third, UINT32_MAX)));
  // The peer may use the segment only after this end has reported that it is mapped.
  if (!mapped.ok()) return Break(mapped.message());
  TellMapped();
}

void SharedLink::TellMapped() {
  while (told_count_ < reader_->segment_count() &&
         SendControl({.kind = Control::Kind::kMapped, .first = told_count_}))
    ++told_count_;
}

void SharedLink::TellRetired() {
  if (!has_told_retired_) has_told_retired_ = SendControl({.kind = Control::Kind::kRetired});
}

void SharedLink::Retire() {
  reader_.reset();
  messages_.clear();
  TellRetired();
}

// Stops using a link. It is kept until the other end has closed it.
void SharedLink::Break(std::string complaint) {
  if (complaint_.empty()) complaint_ = std::move(complaint);
  Retire();
}

void SharedLink::AnnounceSegments() {
  if (pool_ == nullptr || !proof_.is_proven()) return;
  const uint32_t count = pool_->segment_count();
  if (announced_count_ == count) return;
  if (!our_reader_) our_reader_ = pool_->AddReader();
  if (!our_reader_) return Break("the limit of peers that read this process's memory is reached");
  for (; announced_count_ < count; ++announced_count_) {
    const SharedPool::Facts facts = pool_->segment(announced_count_);
    const Control control{.kind = Control::Kind::kSegment,
                          .first = announced_count_,
                          .second = facts.size_bytes,
                          .third = *our_reader_};
    if (!SendControl(control, facts.fd)) return;  // retried with the next message
  }
}

// ---- messages -----------------------------------------------------------------------------------

bool SharedLink::Send(const Frames& message) {
  if (!is_usable() || !shares()) return false;
  TellMapped();
  return SendPacket(fd(), message);
}

bool SharedLink::Take(Frames* message) {
  if (messages_.empty()) return false;
  *message = std::move(messages_.front());
  messages_.pop_front();
  return true;
}

std::optional<SharedReference> SharedLink::Name(const Blob& frame) {
  if (frame.size_bytes() < SharedPool::kSlotBytesMin) return std::nullopt;
  std::optional<SharedReference> reference = pool_->Find(frame.bytes());
  if (!reference) return std::nullopt;
  if (reference->segment >= announced_count_) AnnounceSegments();
  if (reference->segment >= mapped_count_) return std::nullopt;
  return pool_->Offer(*reference, *our_reader_) ? reference : std::nullopt;
}

void SharedLink::Share(Frames* frames) {
  if (pool_ == nullptr || !is_usable()) return;
  auto table = std::make_shared<std::vector<uint64_t>>(1, kTableMagic);
  Frames others(1);
  for (size_t i = 0; i < frames->size(); ++i) {
    const std::optional<SharedReference> reference = Name((*frames)[i]);
    if (reference)
      Append(i, *reference, table.get());
    else
      others.push_back((*frames)[i]);
  }
  if (table->size() == 1) return;
  others.front() = Blob(std::as_bytes(std::span(*table)), table);
  *frames = std::move(others);
}

bool NamesSharedMemory(const Frames& frames) {
  return !frames.empty() && frames.front().size_bytes() >= sizeof(uint64_t) &&
         WordAt(frames.front(), 0) == kTableMagic;
}

SharedLink::Restored SharedLink::Restore(Frames* frames) {
  if (reader_ == nullptr) return Restored::kOvertaken;
  const Blob table = frames->front();
  const size_t words = table.size_bytes() / sizeof(uint64_t);
  if (table.size_bytes() % sizeof(uint64_t) != 0 || (words - 1) % kReferenceWords != 0)
    return Restored::kCorrupt;
  const size_t reference_count = (words - 1) / kReferenceWords;
  const size_t frame_count = frames->size() - 1 + reference_count;
  if (frame_count > kFramesPerMessageMax) return Restored::kCorrupt;
  Frames whole;
  size_t next = 1;  // index into the received frames
  for (size_t word = 1; word < words; word += kReferenceWords) {
    const uint64_t at = WordAt(table, word);
    // Frame 0 must not be shared: decoding reads it repeatedly, and its sender could change it.
    if (at == 0 || at < whole.size() || at >= frame_count) return Restored::kCorrupt;
    while (whole.size() < at && next < frames->size()) whole.push_back((*frames)[next++]);
    if (whole.size() < at) return Restored::kCorrupt;
    Result<Blob> payload = reader_->Open(ReferenceAt(table, word));
    if (!payload.ok()) {
      const bool is_late = payload.status().code() == StatusCode::kUnavailable;
      return is_late ? Restored::kOvertaken : Restored::kCorrupt;
    }
    whole.push_back(*std::move(payload));
  }
  whole.insert(whole.end(), frames->begin() + static_cast<std::ptrdiff_t>(next), frames->end());
  *frames = std::move(whole);
  return Restored::kWhole;
}

}  // namespace pando
