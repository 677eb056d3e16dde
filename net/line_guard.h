// LineGuard decides how the connections of one transport are secured, and which messages of dialers
// are believed (P44). Without keys no connection is secured and every message is believed.
//
// The key of a connection says what its peer may send. A routing id ends with a LineToken, which
// proves that the dialer holds the secret of its process life. So a message is believed only from
// the process that it names, although members share a key. Threads: its transport's thread.
#pragma once

#include <optional>
#include <string>

#include "common/endpoint.h"
#include "common/recent_map.h"
#include "net/zmq/zmq_context.h"
#include "net/zmq/zmq_socket.h"
#include "proto/message_limits.h"
#include "proto/messages.h"

namespace pando {

class LineGuard {
 public:
  // `context` outlives the guard.
  LineGuard(const ZmqContext& context, bool is_scheduler)
      : context_(context), is_scheduler_(is_scheduler) {}

  // The key of this process life; empty without keys.
  const std::string& public_key() const { return context_.own_keys().public_key; }
  bool has_keys() const { return context_.has_keys(); }
  const Keys& keys() const { return context_.keys(); }

  // Makes later tcp connections, except those to the scheduler, use clear text (run.encrypt).
  // Returns false if they use it already, or if there are no keys.
  bool SpeakInClear();
  LineSecurity SecurityToBind(const Endpoint& endpoint) const;
  // Returns the security of a connection to `peer`, which must show `public_key`. The scheduler
  // must show the admin's key.
  Result<LineSecurity> SecurityToDial(const Endpoint& endpoint, const PeerId& peer,
                                      const std::string& public_key) const;
  // Returns the routing id with its token, for a connection with this security.
  std::string Sign(const std::string& routing_id, const LineSecurity& security) const;

  // Believes later messages of this process only from the key's holder. The first key of an
  // incarnation stays. Call it again for processes still in use: others are forgotten first.
  void Trust(Incarnation process, const std::string& public_key);
  // Returns the token of a text on a shared-memory link with this process. It is empty without
  // keys, and nullopt if that process's key is not trusted yet.
  std::optional<std::string> SignLink(Incarnation peer, const std::string& text) const;
  // Returns whether to believe a message of a secured connection. From a process without a trusted
  // key the cores get only what any newcomer may send. Remembers the routing id for answers.
  bool IsPermitted(const ZmqSocket::Received& received, const Envelope& envelope);
  // Returns the process that this routing id proves to be the dialer; nullopt if it proves none.
  std::optional<Incarnation> ProvenSender(const std::string& routing_id);
  // Returns the whole routing id of a peer, given the part without the token.
  std::string Complete(const std::string& without_token, Incarnation peer);

 private:
  const KeyPair& Shown() const;
  bool IsProven(const std::string& routing_id, Incarnation sender);
  bool Proves(const std::string& routing_id, const std::string& public_key) const;
  void Note(const std::string& routing_id);
  std::string TokenFrom(const std::string& public_key, const std::string& text) const;

  // Enough for a thousand processes with several lanes. A forgotten entry is computed again.
  static constexpr size_t kRememberedMax = 1 << 14;

  const ZmqContext& context_;
  const bool is_scheduler_;
  bool speaks_in_clear_ = false;
  RecentMap<Incarnation, std::string> keys_{kNodesMax};  // trusted keys
  // The secrets shared with other keys, by public key. They make a wrong token cheap to check.
  mutable RecentMap<std::string, std::string> shared_{kRememberedMax};
  RecentMap<std::string, std::string> whole_{kRememberedMax};   // routing ids, by their first part
  RecentMap<std::string, Incarnation> proven_{kRememberedMax};  // by routing id
};

}  // namespace pando
