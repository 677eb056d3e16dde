// These limits bound the content of every message (I6). The decoder checks them before it allocates
// memory, so that a peer can neither crash this process nor fill its memory. Senders keep to them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pando {

inline constexpr uint32_t kNodesMax = 65536;         // ids in use, and nodes in a view
inline constexpr uint32_t kLanesMax = 256;           // per server
inline constexpr uint32_t kSchedulersMax = 16;       // of a run, with its standbys
inline constexpr uint32_t kShardsMax = 65536;        // 256 GB of parameters at 4 MiB each
inline constexpr uint32_t kMicroBatchesMax = 65536;  // per step
inline constexpr uint32_t kTreeNodesMax = 2 * kMicroBatchesMax;  // ids are in [1, this)
inline constexpr uint32_t kReplicasMax = 16;                     // backups of one shard
inline constexpr uint32_t kItemsPerMessageMax = kShardsMax;
inline constexpr uint32_t kMetricRowsPerMessageMax = 65536;
inline constexpr uint32_t kGradientHashesPerMessageMax = 65536;
inline constexpr uint32_t kPartialsPerShardMax = 1 << 23;  // 2 exact sums for each of its tensors
inline constexpr uint32_t kPartialSumFloatsMax = 64;
inline constexpr uint32_t kConfusionCountsMax = 1024;  // for a slice: at most one per sample
inline constexpr uint32_t kEvaluationSumsMax = 64;     // for an external model
inline constexpr uint32_t kImageVersionsMax = 5;       // pinned, and 2 · kStalenessMax + 2
// Steps and versions stay far below values where an addition could wrap.
inline constexpr uint64_t kStepMax = uint64_t{1} << 62;

// P26. How far a peer's term, view or generation may be above the newest known one: far more than a
// journal can lose, and so little that no number wraps.
inline constexpr uint64_t kNewsAheadMax = 1 << 20;
constexpr bool IsBelievable(uint64_t told, uint64_t known) {
  return told <= known || told - known <= kNewsAheadMax;
}

inline constexpr size_t kLogLineBytesMax = 256;
inline constexpr size_t kNameBytesMax = 1024;          // host names, endpoints, kinds
inline constexpr size_t kPublicKeyBytesMax = 40;       // in Z85
inline constexpr size_t kSignatureBytesMax = 80;       // in Z85
inline constexpr size_t kPathBytesMax = 4096;          // folders; Linux's limit
inline constexpr size_t kTextBytesMax = 64 * 1024;     // texts for people
inline constexpr size_t kDocumentBytesMax = 16 << 20;  // job files, status reports
inline constexpr size_t kViewWordsMax = 4 << 20;       // of a view that is not packed
inline constexpr size_t kFileNamesMax = 1024;          // in one answer
inline constexpr uint64_t kFileBytesMax = uint64_t{1} << 42;
inline constexpr uint64_t kFilePartBytesMax = 1 << 20;  // in one answer
inline constexpr size_t kHashBytesMax = 32;             // hex digits
inline constexpr size_t kPayloadBytesMax = 64 << 20;    // for one shard; the target is 4 MiB
// A shard's image in a transfer has the kept versions and at most as many buffers of state.
inline constexpr uint64_t kImageFloatsMax =
    2 * kImageVersionsMax * (kPayloadBytesMax / sizeof(float));

// The frames of one message: one per payload, and the builder's own segments.
inline constexpr size_t kFramesPerMessageMax = 2 * kItemsPerMessageMax;
inline constexpr size_t kFrameBytesMax = kPayloadBytesMax;

// ZeroMQ delivers whole messages. After one large message the receiver could start only when its
// last byte arrives; with several messages, replies begin while the rest is still being sent. So a
// message is closed at this size of its payloads: 256 KiB to 1 MiB were best on loopback.
inline constexpr size_t kMessageBytes = 1 << 20;

}  // namespace pando
