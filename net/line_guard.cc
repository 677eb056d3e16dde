#include "net/line_guard.h"

#include <fmt/core.h>

#include <utility>

#include "net/zmq/zap_handler.h"

namespace pando {
namespace {

// Any user of the machine may bind the abstract Unix name of a process that has ended. A path in a
// folder can be bound only by the folder's owner.
bool NeedsKeys(const Endpoint& endpoint) {
  return endpoint.kind == Endpoint::Kind::kTcp || endpoint.path.starts_with('@');
}

// Returns the key role that a peer needs to send this message.
KeyRole RoleToSend(Sender sender) {
  if (sender == Sender::kReader) return KeyRole::kReader;
  return sender == Sender::kAdmin ? KeyRole::kAdmin : KeyRole::kMember;
}

}  // namespace

// Returns the key pair that a ROUTER of this party shows.
const KeyPair& LineGuard::Shown() const {
  return is_scheduler_ ? context_.keys().Of(KeyRole::kAdmin) : context_.own_keys();
}

bool LineGuard::SpeakInClear() { return has_keys() && !std::exchange(speaks_in_clear_, true); }

LineSecurity LineGuard::SecurityToBind(const Endpoint& endpoint) const {
  using Kind = LineSecurity::Kind;
  if (!has_keys() || !NeedsKeys(endpoint)) return {};
  return {.kind = speaks_in_clear_ ? Kind::kPlainServer : Kind::kCurveServer,
          .domain = is_scheduler_ ? kSchedulerDomain : kLaneDomain,
          .pair = Shown()};
}

Result<LineSecurity> LineGuard::SecurityToDial(const Endpoint& endpoint, const PeerId& peer,
                                               const std::string& public_key) const {
  using Kind = LineSecurity::Kind;
  const Keys& keys = context_.keys();
  if (!has_keys() || !NeedsKeys(endpoint)) return LineSecurity();
  const bool is_to_scheduler = peer.node == kSchedulerNode;
  const std::string& shown = is_to_scheduler ? keys.Of(KeyRole::kAdmin).public_key : public_key;
  if (!IsPublicKey(shown)) {
    return InvalidArgument(
        fmt::format("node {} at {} has no key, and this process has: give all processes of a run "
                    "keys, or none",
                    peer.node.value(), endpoint.ToString()));
  }
  LineSecurity security{.kind = Kind::kCurveClient, .server_key = shown};
  if (speaks_in_clear_ && !is_to_scheduler) {
    security.kind = Kind::kPlainClient;
    security.password = MemberPassword(keys, shown);
  } else {
    security.pair = keys.Of(keys.role());
  }
  return security;
}

std::string LineGuard::Sign(const std::string& routing_id, const LineSecurity& security) const {
  if (security.kind == LineSecurity::Kind::kNone) return routing_id;
  return routing_id + LineToken(context_.own_keys(), security.server_key, routing_id);
}

void LineGuard::Trust(Incarnation process, const std::string& public_key) {
  if (public_key.empty()) return;
  std::string& known = keys_.Touch(process);
  if (known.empty()) known = public_key;
}

std::optional<std::string> LineGuard::SignLink(Incarnation peer, const std::string& text) const {
  if (!has_keys()) return "";
  const std::string* key = keys_.Find(peer);
  const std::string token = key == nullptr ? "" : LineToken(context_.own_keys(), *key, text);
  return token.empty() ? std::nullopt : std::optional(token);
}

bool LineGuard::IsPermitted(const ZmqSocket::Received& received, const Envelope& envelope) {
  const std::optional<KeyRole> role = ParseEnum<KeyRole>(received.user_id);
  if (!role || *role < RoleToSend(RowFor(envelope.message).sender)) return false;
  const auto* registration = std::get_if<Register>(&envelope.message);
  if (registration != nullptr && !Proves(received.routing_id, registration->public_key))
    return false;
  return IsProven(received.routing_id, envelope.sender.incarnation);
}

// Returns true for a process without a trusted key. Notes the routing id when it is new.
bool LineGuard::IsProven(const std::string& routing_id, Incarnation sender) {
  const std::string* key = keys_.Find(sender);
  if (key == nullptr) Note(routing_id);
  if (key == nullptr) return true;
  if (const Incarnation* known = proven_.Find(routing_id)) return *known == sender;
  if (!Proves(routing_id, *key)) return false;
  Note(routing_id);
  proven_.Touch(routing_id) = sender;
  return true;
}

bool LineGuard::Proves(const std::string& routing_id, const std::string& public_key) const {
  std::string token;
  if (!ParseRoutingId(routing_id, &token) || token.empty()) return false;
  return AreEqualSecrets(token, TokenFrom(public_key, WithoutToken(routing_id)));
}

// Returns the token that the process with this key shows to us.
std::string LineGuard::TokenFrom(const std::string& public_key, const std::string& text) const {
  std::string& secret = shared_.Touch(public_key);
  if (secret.empty()) secret = SharedSecret(Shown(), public_key);
  return TokenFor(secret, text);
}

std::optional<Incarnation> LineGuard::ProvenSender(const std::string& routing_id) {
  const std::optional<Dialer> dialer = ParseRoutingId(routing_id);
  const bool is_proven = dialer && keys_.Find(dialer->incarnation) != nullptr &&
                         IsProven(routing_id, dialer->incarnation);
  return is_proven ? std::optional(dialer->incarnation) : std::nullopt;
}

void LineGuard::Note(const std::string& routing_id) {
  const std::string first = WithoutToken(routing_id);
  const std::string* known = whole_.Find(first);
  if (known == nullptr || *known != routing_id) whole_.Touch(first) = routing_id;
}

std::string LineGuard::Complete(const std::string& without_token, Incarnation peer) {
  if (const std::string* known = whole_.Find(without_token)) return *known;
  const std::string* key = keys_.Find(peer);
  if (key == nullptr) return without_token;
  const std::string routing_id = without_token + TokenFrom(*key, without_token);
  Note(routing_id);
  return routing_id;
}

}  // namespace pando
