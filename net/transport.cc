#include "net/transport.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <tuple>
#include <utility>

#include <fmt/core.h>

#include "common/clock.h"
#include "common/unique_fd.h"
#include "net/socket_address.h"
#include "net/zmq/checked_curve.h"

namespace pando {
namespace {

// The most messages taken from one peer before the next peer's turn.
constexpr unsigned kBurstMax = 16;
// After this many dropped messages Receive returns, so that a flood of them cannot block the loop.
constexpr int kDropsPerReceiveMax = 64;
// The most peers that cause a warning, and how often one may, so that the log cannot fill up.
constexpr size_t kWarnedPeersMax = 64;
constexpr Micros kWarningInterval = std::chrono::minutes(1);
// The time for which a closed socket may keep its address.
constexpr Micros kBindAgainMax = std::chrono::seconds(5);
constexpr Micros kWaitMax = std::chrono::hours(1);
// The time for which Dial waits for a name's first address, so that the first message is not lost.
constexpr Micros kFirstLookUp = std::chrono::milliseconds(200);
// How often a transport that waits looks for schedulers that have become known.
constexpr Micros kFollowInterval = std::chrono::seconds(1);
// After this time without a message the address of a peer's name is looked up again.
constexpr Micros kSilentFor = std::chrono::seconds(2);

size_t MessageBytes(const Frames& frames) {
  size_t bytes = 0;
  for (const Blob& frame : frames) bytes += frame.size_bytes();
  return bytes;
}

// Returns the bytes of the payloads that peers of one host may share.
uint64_t ShareableBytes(const Frames& frames) {
  uint64_t bytes = 0;
  for (const Blob& frame : frames) {
    if (frame.size_bytes() >= SharedPool::kSlotBytesMin) bytes += frame.size_bytes();
  }
  return bytes;
}

// Returns whether a process listens at the path. ZeroMQ would silently take the path away from it.
bool IsTaken(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return fd.is_open() &&
         connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

// Names the connection that `peer` opened for messages of this kind.
Dialer DialerFor(const PeerId& peer, const Message& message) {
  return {RowFor(message).channel, peer.incarnation, peer.lane};
}

// Returns whether `sender` may send on the connection dialed to `peer`. Only the process that is
// dialed as the scheduler may send as the scheduler.
bool IsDialed(const PeerId& peer, const PeerId& sender) {
  if ((peer.node == kSchedulerNode) != (sender.node == kSchedulerNode)) return false;
  return peer.incarnation == Incarnation() || peer.incarnation == sender.incarnation;
}

// Returns the first bytes of a routing id in hex. They name the dialer, if the id is one of ours. A
// foreign id may have 255 bytes.
std::string Hex(const std::string& bytes) {
  constexpr size_t kShownBytesMax = 11;
  std::string text;
  for (const char c : bytes.substr(0, kShownBytesMax)) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return bytes.size() > kShownBytesMax ? text + "..." : text;
}

bool HasName(const Endpoint& endpoint) {
  return endpoint.kind == Endpoint::Kind::kTcp && !IsAddress(endpoint.host);
}

// Returns the range of dialed lines on which a message goes. Of several lines to schedulers it is
// the one that answered last, or all of them if none has answered within `silence`.
template <class Lines>
std::pair<typename Lines::iterator, typename Lines::iterator> LinesTo(Lines& lines,
                                                                      const PeerId& receiver,
                                                                      Micros silence) {
  if (receiver.node != kSchedulerNode || receiver.lane >= kStandbyLane)
    return lines.equal_range(receiver);
  const auto first = lines.lower_bound(PeerId{kSchedulerNode, Incarnation(), 0});
  auto last = first, newest = first;
  for (; last != lines.end() && last->first->node == kSchedulerNode; ++last) {
    if (last->second.answered_at > newest->second.answered_at) newest = last;
  }
  const bool is_choice = first != last && std::next(first) != last;
  if (is_choice && SteadyNow() - newest->second.answered_at < silence)
    return {newest, std::next(newest)};
  return {first, last};
}

// Returns whether a message to the scheduler may go on the line to this peer.
bool IsToScheduler(const std::optional<PeerId>& peer) {
  return peer && peer->node == kSchedulerNode && peer->lane < kStandbyLane;
}

// Returns whether another line to a scheduler has this address. Two lines of one transport have the
// same routing id, so that they would take the scheduler's answers from each other.
bool IsSchedulerAt(const auto& lines, const std::optional<PeerId>& own,
                   const std::string& address) {
  return std::ranges::any_of(lines, [&](const auto& entry) {
    const auto& [peer, line] = entry;
    return peer != own && IsToScheduler(peer) && line.connected == address;
  });
}

}  // namespace

void PeerWarnings::Warn(const std::string& endpoint, const std::string& routing_id,
                        const std::string& address, const std::string& why) {
  if (!on_warning_) return;
  std::string peer = endpoint.empty() ? Hex(routing_id) : endpoint;
  if (!address.empty()) peer += " at " + address;
  const Micros now = SteadyNow();
  const std::string& warned = address.empty() ? peer : address;
  const auto at = warned_at_.find(warned);
  if (at == warned_at_.end() && warned_at_.size() >= kWarnedPeersMax) return;
  if (at != warned_at_.end() && now - at->second < kWarningInterval) return;
  warned_at_.insert_or_assign(warned, now);
  on_warning_(fmt::format("dropped a message of {}: {}", peer, why));
}

Transport::Transport(ZmqContext& context, PeerId self, Options options)
    : context_(context),
      self_(self),
      options_(std::move(options)),
      watch_({options_.on_disconnect, options_.on_warning}),
      names_(options_.look_up, options_.on_warning),
      warnings_(options_.on_warning),
      guard_(context, self.node == kSchedulerNode),
      schedulers_(*this, context.schedulers(), options_.scheduler_port_offset) {}

Result<std::string> Transport::Bind(const std::string& endpoint) {
  PANDO_CHECK(!lines_.contains(std::nullopt));
  PANDO_ASSIGN_OR_RETURN(Endpoint parsed, ParseEndpoint(endpoint));
  if (!guard_.has_keys()) PANDO_RETURN_IF_ERROR(CheckExposure(parsed, options_.insecure));
  const LineSecurity security = guard_.SecurityToBind(parsed);
  if (security.is_server()) PANDO_RETURN_IF_ERROR(context_.StartLettingIn());
  if (parsed.kind == Endpoint::Kind::kIpc && IsTaken(parsed.path)) {
    return Unavailable(
        fmt::format("cannot bind {}: another process uses it; stop that one, or "
                    "choose another path",
                    endpoint));
  }
  if (parsed.kind == Endpoint::Kind::kTcp && !parsed.is_wildcard()) {
    Result<std::string> address = ResolveHost(parsed.host);  // ZeroMQ binds addresses, not names
    if (!address.ok()) return address.status();
    parsed.host = *std::move(address);
  }
  PANDO_ASSIGN_OR_RETURN(ZmqSocket socket,
                         ZmqSocket::Create(context_, {.kind = ZmqSocket::Kind::kRouter,
                                                      .linger_ms = options_.linger_ms,
                                                      .queued_bytes_max = options_.queued_bytes_max,
                                                      .security = security}));
  PANDO_RETURN_IF_ERROR(watch_.Start(context_, socket, security.kind));
  Result<std::string> bound = socket.Bind(parsed.ToString());
  watch_.Look();  // no connection exists yet; the watch's descriptor reports from now on
  if (!bound.ok()) watch_.Stop();
  if (!bound.ok()) return bound;
  lines_.emplace(std::nullopt, Line{.socket = std::move(socket),
                                    .peer = std::nullopt,
                                    .endpoint = *bound,
                                    .is_secured = security.is_server()});
  if (links_ != nullptr) {
    if (Status s = links_->Listen(MakeLinkPeer(self_)); !s.ok()) {
      Unbind();
      return s;
    }
  }
  return bound;
}

void Transport::Unbind() {
  watch_.Stop();  // the watch uses the socket
  PANDO_CHECK(lines_.erase(std::nullopt) == 1);
  if (links_ == nullptr) return;
  links_->HangUpAccepted();
  links_->StopListening();
}

// ZeroMQ releases an address only after its socket is closed, so Bind may fail for a moment.
Status Transport::SpeakInClear() {
  const auto router = lines_.find(std::nullopt);
  if (!guard_.SpeakInClear() || router == lines_.end() || !router->second.is_secured)
    return Status();
  const std::string endpoint = router->second.endpoint;
  Unbind();
  const Micros deadline = SteadyNow() + kBindAgainMax;
  Result<std::string> bound = Bind(endpoint);
  while (!bound.ok() && SteadyNow() < deadline) {
    Wait(SteadyNow() + std::chrono::milliseconds(5));
    bound = Bind(endpoint);
  }
  return bound.ok() ? Status() : bound.status();
}

Status Transport::Dial(PeerId peer, const std::string& endpoint, const std::string& public_key) {
  if (peer.node == kSchedulerNode && peer.lane == 0) return schedulers_.Dial(endpoint, public_key);
  if (const auto it = lines_.find(peer); it != lines_.end()) {
    if (it->second.endpoint == endpoint) return Status();
    HangUp(peer);
  }
  const Result<Endpoint> parsed = ParsePeerEndpoint(endpoint);
  if (!parsed.ok()) return parsed.status();
  PANDO_ASSIGN_OR_RETURN(const LineSecurity security,
                         guard_.SecurityToDial(*parsed, peer, public_key));
  if (peer.incarnation != Incarnation()) guard_.Trust(peer.incarnation, public_key);
  const std::string routing_id = RoutingId({options_.channel, self_.incarnation, self_.lane}, peer);
  Result<ZmqSocket> socket =
      ZmqSocket::Create(context_, {.kind = ZmqSocket::Kind::kDealer,
                                   .routing_id = guard_.Sign(routing_id, security),
                                   .linger_ms = options_.linger_ms,
                                   .queued_messages_max = options_.queued_messages_max,
                                   .queued_bytes_max = options_.queued_bytes_max,
                                   .security = security});
  if (!socket.ok()) return socket.status();
  Line line{.socket = *std::move(socket),
            .peer = peer,
            .endpoint = endpoint,
            .parsed = *parsed,
            .heard_at = SteadyNow()};
  std::string address = parsed->host;
  if (HasName(*parsed)) {
    has_names_ = true;
    names_.Ask(line.heard_at, *parsed);
    names_.WaitFor(*parsed, line.heard_at + kFirstLookUp);
    address = names_.Find(*parsed);
  }
  if (parsed->kind == Endpoint::Kind::kIpc || !address.empty())
    PANDO_RETURN_IF_ERROR(line.ConnectTo(address, lines_));
  Link(lines_.emplace(peer, std::move(line)).first->second);
  return Status();
}

Status Transport::Line::ConnectTo(const std::string& address, const auto& lines) {
  Endpoint target = parsed;
  target.host = address;
  const std::string text = target.ToString();
  if (text == connected) return Status();
  if (!connected.empty()) socket.Disconnect(connected);
  connected.clear();
  if (IsToScheduler(peer) && IsSchedulerAt(lines, peer, text)) return Status();
  PANDO_RETURN_IF_ERROR(socket.Connect(text));
  connected = text;
  is_local = target.kind == Endpoint::Kind::kIpc || IsLoopbackAddress(address);
  return Status();
}

void Transport::HangUp(PeerId peer) {
  lines_.erase(peer);
  if (links_ != nullptr) links_->HangUp(MakeLinkPeer(peer));
}

void Transport::SpeakAs(PeerId self) {
  self_ = self;
  std::erase_if(lines_, [](const auto& entry) { return entry.first.has_value(); });
  schedulers_.Clear();
  if (links_ == nullptr) return;
  links_->HangUpAll();
  links_->StopListening();
  if (lines_.contains(std::nullopt)) std::ignore = links_->Listen(MakeLinkPeer(self_));
}

std::vector<PeerId> Transport::dialed() const {
  std::vector<PeerId> peers;
  for (const auto& [peer, line] : lines_) {
    if (peer) peers.push_back(*peer);
  }
  return peers;
}

void Transport::Send(Envelope envelope) {
  if (context_.is_isolated()) {
    ++counters_.isolated;
    return;
  }
  const PeerId& receiver = envelope.receiver;
  const auto send_on = [&](Line& line, const std::string& routing_id) {
    Frames frames = Encode(envelope);
    const size_t bytes = MessageBytes(frames);
    SharedLink* link = FindLink(links_, {MakeLinkPeer(receiver), line.peer.has_value()});
    if (link != nullptr) {
      link->Share(&frames);
      if (link->Send(frames)) {
        ++counters_.sent;
        ++counters_.sent_by_link;
        context_.traffic().OnSent(LineKind::kShm, bytes);
        return;
      }
    }
    line.is_drained = false;
    const ZmqSocket::Sent sent = line.socket.Send(routing_id, frames);
    if (sent == ZmqSocket::Sent::kYes) {
      ++counters_.sent;
      context_.traffic().OnSent(link != nullptr ? LineKind::kShm : line.kind(), bytes);
      if (line.is_local || link != nullptr)
        counters_.copied_on_host_bytes += ShareableBytes(frames);
    }
    if (sent == ZmqSocket::Sent::kUnroutable) ++counters_.unroutable;
    if (sent == ZmqSocket::Sent::kQueueFull) ++counters_.queue_full;
  };
  const auto [first, last] = LinesTo(lines_, receiver, kSchedulerSilence);
  if (first != last) {
    for (auto it = first; it != last; ++it) send_on(it->second, "");
    return;
  }
  const auto router = lines_.find(std::nullopt);
  if (router == lines_.end()) {
    ++counters_.unroutable;
    return;
  }
  std::string routing_id = RoutingId(DialerFor(receiver, envelope.message), self_);
  if (router->second.is_secured) routing_id = guard_.Complete(routing_id, receiver.incarnation);
  send_on(router->second, routing_id);
}

// Links and ZeroMQ lines take turns.
bool Transport::Receive(Envelope* envelope) {
  const bool is_lines_turn = link_burst_ >= kBurstMax;
  link_burst_ = is_lines_turn ? 0 : link_burst_ + 1;
  const bool has_message = is_lines_turn ? ReceiveByLine(envelope) || ReceiveByLink(envelope)
                                         : ReceiveByLink(envelope) || ReceiveByLine(envelope);
  // A connection's last messages come before its end: they are no sign of life after it.
  if (!has_message && watch_.is_started() && !HasMessage()) watch_.Look();
  return has_message;
}

bool Transport::ReceiveByLine(Envelope* envelope) {
  if (lines_.empty()) return false;
  auto it = lines_.lower_bound(reading_);
  if (it == lines_.end()) it = lines_.begin();
  for (size_t tried = 0; tried <= lines_.size(); ++tried) {
    if (reading_ != it->first) burst_ = 0;
    reading_ = it->first;
    if (burst_ < kBurstMax && !it->second.is_drained && ReceiveFrom(it->second, envelope)) {
      ++burst_;
      return true;
    }
    burst_ = 0;
    if (++it == lines_.end()) it = lines_.begin();
    reading_ = it->first;
  }
  return false;
}

bool Transport::ReceiveFrom(Line& line, Envelope* envelope) {
  ZmqSocket::Received received;
  for (int drops = 0; drops < kDropsPerReceiveMax; ++drops) {
    line.is_drained = !line.socket.Receive(&received);
    if (line.is_drained) return false;
    if (context_.is_isolated()) {
      ++counters_.isolated;
      continue;
    }
    if (line.is_local) counters_.copied_on_host_bytes += ShareableBytes(received.frames);
    if (Accept(line, received, envelope)) return true;
  }
  return false;
}

bool Transport::Accept(Line& line, ZmqSocket::Received& received, Envelope* envelope) {
  const bool is_shared = NamesSharedMemory(received.frames);
  if (is_shared && !Restore(line, &received)) return false;
  const bool is_guarded = line.is_secured && !received.is_of_user;
  Result<Envelope> decoded = Decode(received.frames);
  if (!decoded.ok()) {
    ++counters_.undecodable;
    warnings_.Warn(line.DialedEndpoint(), received.routing_id, received.address,
                   decoded.status().message());
    if (!is_guarded || !options_.on_nonsense) return false;
    if (const auto peer = guard_.ProvenSender(received.routing_id))
      options_.on_nonsense(*peer, decoded.status().message());
    return false;
  }
  const PeerId& sender = decoded->sender;
  const bool is_sender =
      line.peer ? IsDialed(*line.peer, sender)
                : sender.node != kSchedulerNode &&
                      ParseRoutingId(received.routing_id) == DialerFor(sender, decoded->message);
  if (!is_sender) {
    ++counters_.misattributed;
    const bool is_own = sender.incarnation == self_.incarnation && sender.lane == self_.lane;
    if (line.peer && is_own && EndSelfConnections()) return false;
    warnings_.Warn(line.DialedEndpoint(), received.routing_id, received.address,
                   fmt::format("it claims to be node {}, incarnation {:016x}", sender.node.value(),
                               sender.incarnation.value()));
    return false;
  }
  if (is_guarded && !guard_.IsPermitted(received, *decoded)) {
    ++counters_.misattributed;
    warnings_.Warn("", received.routing_id, received.address,
                   fmt::format("the {} key does not permit {} of node {}", received.user_id,
                               RowFor(decoded->message).name, sender.node.value()));
    return false;
  }
  if (HoldsAny<Register>(decoded->message)) {
    const std::string address = PeerAddress(received.connection_fd);
    if (!registrations_.Admit(SteadyNow(), address, sender.incarnation)) {
      ++counters_.rate_limited;
      warnings_.Warn("", received.routing_id, address, "too many processes register from there");
      return false;
    }
  }
  if (received.connection_fd >= 0) watch_.Note(received.connection_fd, sender.incarnation);
  if (has_names_) line.heard_at = SteadyNow();
  if (line.peer && line.peer->node == kSchedulerNode) line.answered_at = SteadyNow();
  if (!line.unshared.empty()) JudgeSharing(line);
  ++counters_.received;
  context_.traffic().OnReceived(is_shared || received.is_of_user ? LineKind::kShm : line.kind(),
                                MessageBytes(received.frames));
  *envelope = *std::move(decoded);
  return true;
}

void Transport::Wait(Micros deadline, std::span<const int> fds) {
  if (watch_.is_started()) watch_.OnWait();
  schedulers_.Follow();
  std::vector<pollfd> polled;
  const auto poll_for = [&](int fd) { polled.push_back({fd, POLLIN, 0}); };
  for (const auto& [peer, line] : lines_) poll_for(line.socket.fd());
  if (watch_.is_started()) poll_for(watch_.fd());
  if (has_names_) poll_for(names_.fd());
  for (const int fd : fds) poll_for(fd);
  const size_t first_link = polled.size();
  if (links_ != nullptr) links_->Prove();
  if (links_ != nullptr) links_->AppendFds(&polled);
  // poll counts in milliseconds; rounding up keeps a loop from spinning just before the deadline.
  if (has_names_) deadline = std::min(deadline, SteadyNow() + HostNames::kInterval);
  const Micros wait_max = schedulers_.is_dialed() ? kFollowInterval : kWaitMax;
  const Micros left = deadline == kNever ? wait_max : std::min(deadline - SteadyNow(), wait_max);
  auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(std::max(left, Micros(0)));
  if (HasMessage()) left_ms = left_ms.zero();
  const int ready_count = poll(polled.data(), polled.size(), static_cast<int>(left_ms.count()));
  PANDO_CHECK(ready_count >= 0 || errno == EINTR);
  if (ready_count > 0) ReceiveEvents(polled, std::span(polled).subspan(first_link));
  if (options_.on_warning && TakeForgedHandshake())
    warnings_.Warn("a process that is dialed", "", "", "its handshake is forged");
  counters_.turned_away = watch_.turned_away();
  if (links_ != nullptr) LinkAgain();
  RedialNamed();
}

// Connects to hosts whose addresses are new, and looks up the hosts of silent peers: a process may
// have been started again on another machine of the same name. A scheduler's line that is not
// connected waits until another line has left its address.
void Transport::RedialNamed() {
  if (!has_names_) return;
  names_.Take();
  const Micros now = SteadyNow();
  for (auto& [peer, line] : lines_) {
    if (!peer) continue;
    const bool has_name = HasName(line.parsed);
    const bool is_silent = has_name && now - line.heard_at > kSilentFor;
    if (!is_silent && !line.connected.empty()) continue;
    const std::string address = has_name ? names_.Find(line.parsed) : line.parsed.host;
    if (!address.empty()) std::ignore = line.ConnectTo(address, lines_);
    if (has_name) names_.Ask(now, line.parsed);
  }
}

bool Transport::HasMessage() {
  bool has_message = links_ != nullptr && links_->has_message();
  for (auto& [peer, line] : lines_) {
    if (line.is_drained) continue;
    line.is_drained = !line.socket.has_message();
    has_message |= !line.is_drained;
  }
  return has_message;
}

// `polled` has the lines first, then other descriptors.
void Transport::ReceiveEvents(std::span<const pollfd> polled,
                              std::span<const pollfd> links_polled) {
  size_t next = 0;
  for (auto& [peer, line] : lines_) {
    if (polled[next++].revents != 0) line.is_drained = false;
  }
  if (links_ != nullptr && links_->Receive(links_polled)) NoteSharing();
}

}  // namespace pando
