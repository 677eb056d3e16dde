// FileClient is a node's side of the file store (P45). It stores and reads files in parts, a few of
// which are under way at once, and repeats unanswered requests. If the store has forgotten the
// beginning of a file, because the scheduler died, the client sends it again. Threads: one at a
// time.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/status.h"
#include "files/run_files.h"
#include "proto/message_limits.h"
#include "proto/protocol_core.h"

namespace pando {

class FileClient : public ProtocolCore {
 public:
  // The time after which a request is repeated. It doubles until an answer arrives.
  static constexpr Micros kRepeatInterval = std::chrono::milliseconds(500);
  static constexpr Micros kRepeatIntervalMax = std::chrono::seconds(4);
  struct Sizes {
    uint64_t part = kFilePartBytesMax;
    uint64_t window = 4 << 20;  // bytes of one file that are under way at once
  };

  // `outbox` outlives the client.
  FileClient(const PeerId& self, JobId job, Outbox& outbox, const Sizes& sizes)
      : self_(self), job_(job), sizes_(sizes), outbox_(outbox) {}

  // Store, Read and List each begin a request and give up the earlier one. The caller keeps the
  // bytes in place until the request is done. REQUIRES: Store gets at least one byte.
  void Store(std::string name, Pieces pieces);
  // An empty `out` asks for the file's size alone.
  void Read(std::string name, uint64_t first_byte, std::span<std::byte> out);
  void List(std::string prefix);
  void GiveUp() { request_ = std::monostate(); }

  bool is_done() const { return std::holds_alternative<std::monostate>(request_); }
  // The status of the finished request. kNotFound: there is no such file. kCorrupt: the file ends
  // too early. kUnavailable: the store cannot write or read the file; the message says why.
  const Status& status() const { return status_; }
  uint64_t file_size() const { return file_size_; }                 // after Read
  const std::vector<std::string>& names() const { return names_; }  // after List, ascending
  // The time at which the request began or was last answered.
  Micros answered_at() const { return answered_at_; }

  void OnMessage(Micros now, const Envelope& envelope) override;
  void Tick(Micros now) override;
  Micros NextDeadline() const override { return is_done() ? kNever : repeat_at_; }

 private:
  struct Storing {
    std::string name;
    Pieces pieces;
    uint64_t size = 0;
    std::string hash;
    uint64_t stored = 0;  // the store has the bytes below this offset
    uint64_t sent = 0;
    uint64_t window = 0;  // bytes that may be under way; one part after a silence
  };
  struct Reading {
    std::string name;
    uint64_t first_byte = 0;
    std::span<std::byte> out;
    uint64_t asked = 0;            // the parts below this number have been requested, in order
    std::set<uint64_t> missing{};  // requested parts without an answer
  };
  struct Listing {
    std::string prefix;
    std::string after;
    bool is_asked = false;
  };

  void Begin(std::variant<std::monostate, Storing, Reading, Listing> request);
  void Finish(Status status);
  void OnAnswer(Micros now);
  void OnAck(Micros now, const StoreFileAck& ack);
  void OnPart(Micros now, const FilePart& part);
  void OnNames(Micros now, const FileNames& names);
  void SendNext(Storing& storing);
  void SendNext(Reading& reading);
  void SendNext(Listing& listing);
  void AskFor(const Reading& reading, uint64_t part);
  uint64_t PartCount(const Reading& reading) const;
  void Send(Message message);

  const PeerId self_;
  const JobId job_;
  const Sizes sizes_;
  Outbox& outbox_;
  std::variant<std::monostate, Storing, Reading, Listing> request_;
  Micros repeat_at_{0};
  Micros interval_{0};
  Micros answered_at_{0};
  bool is_new_ = false;
  Status status_;
  uint64_t file_size_ = 0;
  std::vector<std::string> names_;
};

}  // namespace pando
