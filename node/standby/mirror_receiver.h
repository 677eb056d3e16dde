// MirrorReceiver is a standby's side of a mirrored run folder (P47): it writes the leader's files
// to its own run folder. The standby's process runs it at its scheduler endpoint. A full disk or
// another error is an answer to the leader. Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/hash128.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "proto/protocol_core.h"

namespace pando {

class MirrorReceiver : public ProtocolCore {
 public:
  // The folder exists; nothing outside it changes. `outbox` outlives the receiver. An answer comes
  // from the party that the leader's message names as its receiver.
  // `may_begin` is asked before a session removes what the folder has: a leader's late message must
  // not, and a folder that may lead must give that up first (Seat::BeginSession).
  using MayBegin = std::function<bool(uint64_t term)>;
  MirrorReceiver(
      std::string run_dir, Outbox& outbox, MayBegin may_begin = [](uint64_t) { return true; })
      : run_dir_(std::move(run_dir)), outbox_(outbox), may_begin_(std::move(may_begin)) {}

  // Ignores all messages but a leader's.
  void OnMessage(Micros now, const Envelope& envelope) override;
  // Makes durable what the messages since the last call brought, and acknowledges it.
  void Tick(Micros now) override;
  Micros NextDeadline() const override { return kNever; }

 private:
  // A whole file that lacks bytes yet. It is beside its name, with kDraftEnding.
  struct Draft {
    std::string name;
    Hash128 hash;
  };
  void Answer(const Envelope& question, Message message);
  void OnStart(const Envelope& envelope, const MirrorStart& start);
  void OnPart(const Envelope& envelope, const MirrorPart& part);
  Status RemoveAll() const;
  Status Take(const MirrorPart& part);
  Status Remove(const std::string& path);
  Status Fill(const MirrorPart& part);
  Status MakeFolders(const std::string& name);
  Result<UniqueFd> Append(const std::string& path, const MirrorPart& part);
  Status Commit();

  const std::string run_dir_;
  Outbox& outbox_;
  const MayBegin may_begin_;
  uint64_t session_ = 0;  // 0: none
  uint64_t taken_ = 0;    // the session's parts up to this number
  std::optional<Draft> draft_;
  // Until Commit: written files by path, drafts that get their names, and folders with new names.
  std::map<std::string, UniqueFd> written_;
  std::vector<std::string> finished_;
  std::set<std::string> folders_;
  std::optional<Envelope> unanswered_;  // the session's newest part, without its bytes
  std::string failure_;
};

}  // namespace pando
