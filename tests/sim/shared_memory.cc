#include "tests/sim/shared_memory.h"

#include <unistd.h>

#include "common/check.h"
#include "common/hash.h"

namespace pando::sim {
namespace {

// Slots of the virtual jobs are a page each.
constexpr SharedPool::Sizes kSizes{.segment_bytes = 4 << 20, .slot_bytes_min = 1};

template <class M>
void AppendPayloads(M&, std::vector<Blob*>*) {}
template <class M>
requires requires(M& m) { m.items.front().payload; }
void AppendPayloads(M& m, std::vector<Blob*>* payloads) {
  for (auto& item : m.items) payloads->push_back(&item.payload);
}
void AppendPayloads(Chunk& m, std::vector<Blob*>* payloads) { payloads->push_back(&m.payload); }

std::vector<Blob*> Payloads(Envelope* envelope) {
  std::vector<Blob*> payloads;
  std::visit([&](auto& m) { AppendPayloads(m, &payloads); }, envelope->message);
  return payloads;
}

SharedMemory::Address MakeAddress(const PeerId& peer) { return {peer.incarnation, peer.lane}; }

// Frees the reader's words once nothing that it was given is left, as a closed connection does.
struct Words {
  std::shared_ptr<SharedPool> pool;
  uint32_t reader;
  ~Words() { pool->RemoveReader(reader); }
};

}  // namespace

// Looks, when it is let go, whether it is still what was sent.
struct SharedMemory::Reading {
  Blob bytes;
  uint64_t hash;
  std::shared_ptr<News> news;
  ~Reading() { news->is_torn |= Hash64(bytes.bytes()) != hash; }
};

BufferSource SharedMemory::Source(const PeerId& self) {
  if (!is_on_) return {};
  Result<std::shared_ptr<SharedPool>> pool = SharedPool::Create(kSizes);
  PANDO_CHECK(pool.ok());
  return pools_.insert_or_assign(MakeAddress(self), *pool).first->second->source();
}

void SharedMemory::Forget(Incarnation incarnation) {
  std::erase_if(pools_, [&](const auto& pool) { return pool.first.first == incarnation; });
  std::erase_if(links_, [&](const auto& link) {
    return link.first.first.first == incarnation || link.first.second.first == incarnation;
  });
}

SharedMemory::Link* SharedMemory::FindLink(const Address& sender, const Address& receiver) {
  if (const auto link = links_.find({sender, receiver}); link != links_.end()) return &link->second;
  const auto pool = pools_.find(sender);
  if (pool == pools_.end()) return nullptr;
  const std::optional<uint32_t> index = pool->second->AddReader();
  if (!index) return nullptr;
  auto words = std::make_shared<Words>(pool->second, *index);
  Link link{*index, std::make_unique<SharedReader>(std::move(words))};
  return &links_.emplace(std::pair(sender, receiver), std::move(link)).first->second;
}

void SharedMemory::MapSegments(SharedPool& pool, Link& link) {
  for (; link.mapped_count < pool.segment_count(); ++link.mapped_count) {
    const SharedPool::Facts facts = pool.segment(link.mapped_count);
    const Status mapped = link.reader->Map(link.mapped_count, UniqueFd(dup(facts.fd)),
                                           facts.size_bytes, link.reader_index);
    PANDO_CHECK(mapped.ok());
  }
}

std::vector<SharedMemory::Named> SharedMemory::Take(const PeerId& receiver, Envelope* envelope) {
  std::vector<Named> named;
  const auto pool = pools_.find(MakeAddress(envelope->sender));
  if (pool == pools_.end() || receiver.node == kSchedulerNode) return named;
  const std::vector<Blob*> payloads = Payloads(envelope);
  for (size_t i = 0; i < payloads.size(); ++i) {
    const auto bytes = payloads[i]->bytes();
    if (bytes.empty()) continue;
    const std::optional<SharedReference> reference = pool->second->Find(bytes);
    Link* link = reference ? FindLink(pool->first, MakeAddress(receiver)) : nullptr;
    if (link == nullptr || !pool->second->Offer(*reference, link->reader_index)) continue;
    MapSegments(*pool->second, *link);
    named.push_back({i, *reference, Hash64(bytes)});
    *payloads[i] = Blob();
  }
  return named;
}

bool SharedMemory::Restore(const std::vector<Named>& named, const PeerId& receiver,
                           Envelope* envelope) {
  const std::vector<Blob*> payloads = Payloads(envelope);
  for (const Named& one : named) {
    const auto link = links_.find({MakeAddress(envelope->sender), MakeAddress(receiver)});
    Result<Blob> bytes =
        link == links_.end() ? Unavailable("gone") : link->second.reader->Open(one.reference);
    if (!bytes.ok()) {
      PANDO_CHECK(bytes.status().code() == StatusCode::kUnavailable);
      ++news_->overtaken_count;
      return false;
    }
    ++news_->read_count;
    const auto at = bytes->bytes();
    *payloads[one.index] = Blob(at, std::make_shared<Reading>(*std::move(bytes), one.hash, news_));
  }
  return true;
}

}  // namespace pando::sim
