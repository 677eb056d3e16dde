#include "files/file_client.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "common/hash128.h"

namespace pando {
namespace {

// Copies bytes [first, first + count) of the file out of its pieces.
Blob Gather(const Pieces& pieces, uint64_t first, uint64_t count) {
  auto bytes = std::make_shared<std::vector<std::byte>>();
  bytes->reserve(count);
  for (const std::span<const std::byte> piece : pieces) {
    const uint64_t skipped = std::min<uint64_t>(first, piece.size());
    const uint64_t taken = std::min<uint64_t>(count - bytes->size(), piece.size() - skipped);
    const auto part = piece.subspan(skipped, taken);
    bytes->insert(bytes->end(), part.begin(), part.end());
    first -= skipped;
  }
  const std::span<const std::byte> all = *bytes;
  return Blob(all, std::move(bytes));
}

}  // namespace

void FileClient::Begin(std::variant<std::monostate, Storing, Reading, Listing> request) {
  request_ = std::move(request);
  status_ = Status();
  repeat_at_ = Micros(0);
  interval_ = kRepeatInterval;
  is_new_ = true;
}

void FileClient::Store(std::string name, Pieces pieces) {
  Storing storing{.name = std::move(name), .pieces = std::move(pieces), .window = sizes_.window};
  Hash128 hash;
  for (const auto piece : storing.pieces) {
    storing.size += piece.size();
    hash.Update(piece);
  }
  PANDO_CHECK(storing.size > 0);
  storing.hash = hash.Hex();
  Begin(std::move(storing));
}

void FileClient::Read(std::string name, uint64_t first_byte, std::span<std::byte> out) {
  Begin(Reading{.name = std::move(name), .first_byte = first_byte, .out = out});
}

void FileClient::List(std::string prefix) {
  names_.clear();
  Begin(Listing{.prefix = std::move(prefix)});
}

void FileClient::Finish(Status status) {
  status_ = std::move(status);
  request_ = std::monostate();
}

void FileClient::OnMessage(Micros now, const Envelope& envelope) {
  if (envelope.receiver != self_ || envelope.sender.node != kSchedulerNode) return;
  if (envelope.job != job_) return;
  const Message& message = envelope.message;
  if (const auto* ack = std::get_if<StoreFileAck>(&message)) OnAck(now, *ack);
  if (const auto* part = std::get_if<FilePart>(&message)) OnPart(now, *part);
  if (const auto* names = std::get_if<FileNames>(&message)) OnNames(now, *names);
}

void FileClient::Tick(Micros now) {
  if (is_done()) return;
  if (std::exchange(is_new_, false)) answered_at_ = now;
  const bool is_late = now >= repeat_at_;
  if (is_late) {
    repeat_at_ = now + interval_;
    interval_ = std::min(2 * interval_, kRepeatIntervalMax);
  }
  if (auto* storing = std::get_if<Storing>(&request_)) {
    if (is_late && storing->sent > storing->stored) {
      storing->sent = storing->stored;
      storing->window = sizes_.part;
    }
    SendNext(*storing);
  } else if (auto* reading = std::get_if<Reading>(&request_)) {
    if (is_late && !reading->missing.empty()) AskFor(*reading, *reading->missing.begin());
    SendNext(*reading);
  } else if (auto* listing = std::get_if<Listing>(&request_)) {
    if (is_late) listing->is_asked = false;
    SendNext(*listing);
  }
}

void FileClient::OnAnswer(Micros now) {
  answered_at_ = now;
  interval_ = kRepeatInterval;
  repeat_at_ = now + interval_;
}

// ---- storing -----------------------------------------------------------------------------------

void FileClient::SendNext(Storing& storing) {
  const uint64_t end = std::min(storing.size, storing.stored + storing.window);
  while (storing.sent < end) {
    const uint64_t count = std::min(sizes_.part, storing.size - storing.sent);
    Send(StoreFile{storing.name, storing.sent, storing.size, storing.hash,
                   Gather(storing.pieces, storing.sent, count)});
    storing.sent += count;
  }
}

void FileClient::OnAck(Micros now, const StoreFileAck& ack) {
  auto* storing = std::get_if<Storing>(&request_);
  if (storing == nullptr || ack.name != storing->name) return;
  OnAnswer(now);
  if (!ack.failure.empty()) return Finish(Unavailable(ack.failure));
  if (ack.is_stored) return Finish(Status());
  if (ack.offset == storing->stored || ack.offset > storing->size) return;
  // Fewer bytes than before mean that the store has lost what it had.
  const bool is_lost = ack.offset < storing->stored;
  storing->stored = ack.offset;
  storing->sent = is_lost ? ack.offset : std::max(storing->sent, ack.offset);
  storing->window = sizes_.window;
}

// ---- reading -----------------------------------------------------------------------------------

uint64_t FileClient::PartCount(const Reading& reading) const {
  return std::max<uint64_t>(1, (reading.out.size() + sizes_.part - 1) / sizes_.part);
}

void FileClient::AskFor(const Reading& reading, uint64_t part) {
  const uint64_t at = part * sizes_.part;
  const uint64_t size = reading.out.empty() ? 0 : std::min(sizes_.part, reading.out.size() - at);
  Send(ReadFile{reading.name, reading.first_byte + at, size});
}

void FileClient::SendNext(Reading& reading) {
  const uint64_t count = PartCount(reading);
  while (reading.asked < count && reading.missing.size() < sizes_.window / sizes_.part) {
    reading.missing.insert(reading.asked);
    AskFor(reading, reading.asked++);
  }
}

void FileClient::OnPart(Micros now, const FilePart& part) {
  auto* reading = std::get_if<Reading>(&request_);
  if (reading == nullptr || part.name != reading->name) return;
  OnAnswer(now);
  if (part.is_missing) return Finish(NotFound(part.failure));
  if (!part.failure.empty()) return Finish(Unavailable(part.failure));
  if (part.offset < reading->first_byte) return;  // an answer to an earlier request
  const uint64_t at = part.offset - reading->first_byte;
  const auto missing = reading->missing.find(at / sizes_.part);
  if (at % sizes_.part != 0 || missing == reading->missing.end()) return;
  const std::span<std::byte> out =
      reading->out.subspan(at, std::min<uint64_t>(sizes_.part, reading->out.size() - at));
  const std::span<const std::byte> bytes = part.payload.bytes();
  const bool ends_early = part.file_size < part.offset + out.size();
  if (ends_early) {
    return Finish(Corrupt(reading->name + " ends at byte " + std::to_string(part.file_size) +
                          ", before what it should hold"));
  }
  if (bytes.size() != out.size()) return;  // an answer to an earlier request
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size());
  reading->missing.erase(missing);
  file_size_ = part.file_size;
  const uint64_t count = PartCount(*reading);
  if (reading->missing.empty() && reading->asked == count) Finish(Status());
}

// ---- listing -----------------------------------------------------------------------------------

void FileClient::SendNext(Listing& listing) {
  if (std::exchange(listing.is_asked, true)) return;
  Send(ListFiles{listing.prefix, listing.after});
}

void FileClient::OnNames(Micros now, const FileNames& names) {
  auto* listing = std::get_if<Listing>(&request_);
  if (listing == nullptr || names.prefix != listing->prefix || names.after != listing->after)
    return;
  OnAnswer(now);
  names_.insert(names_.end(), names.names.begin(), names.names.end());
  if (names.names.size() < kFileNamesMax) return Finish(Status());
  listing->after = names_.back();
  listing->is_asked = false;
}

void FileClient::Send(Message message) {
  outbox_.Send({.job = job_,
                .sender = self_,
                .receiver = {kSchedulerNode, {}, kFilesLane},
                .message = std::move(message)});
}

}  // namespace pando
