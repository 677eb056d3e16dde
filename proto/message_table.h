// The table of messages: all that a message's type decides by itself, a line for each. From it
// follow the type Message (messages.h), the codec's union, which core handles a message
// (dispatch.h), from which senders it is accepted (ViewMember, Scheduler), the client's answers and
// the channel. docs/protocol.md has the same messages, with their answers and repeats; the lint
// suite compares them. To add a message: its struct, its fields (codec_fields.h, pando.capnp), a
// line here, and the handlers in the cores that the line names.
#pragma once

#include <cstdint>

namespace pando {

// What handles a message; all others ignore it. The compiler checks the first four (dispatch.h).
enum class Core : uint16_t {
  kNone = 0,
  kScheduler = 1,
  kLane = 2,
  kWorker = 4,
  kGroup = 8,         // a worker with allreduce
  kJoiner = 16,       // a process without a view: JoinCore
  kClient = 32,       // SchedulerClient: a command, a supervisor
  kIntake = 64,       // a scheduler whose run is not declared yet: DeclarationIntake
  kFiles = 128,       // the scheduler's FileStore (P45)
  kFileClient = 256,  // of a node
};
constexpr Core operator|(Core a, Core b) {
  return static_cast<Core>(static_cast<uint16_t>(a) | static_cast<uint16_t>(b));
}
constexpr bool HasCore(Core cores, Core core) {
  return (static_cast<uint16_t>(cores) & static_cast<uint16_t>(core)) != 0;
}

// The senders from which it is accepted. The first three also are no members, but hold a key (P44)
// of that role or a stronger one where the run has keys; only the scheduler accepts theirs.
// kServers, kWorkers, kNodes (both): members of the view in that role, and the scheduler.
enum class Sender : uint8_t {
  kReader,
  kNewcomer,
  kAdmin,
  kServers,
  kWorkers,
  kNodes,
  kOnlyScheduler
};
constexpr bool MayBeStranger(Sender sender) { return sender <= Sender::kAdmin; }

// kOne: about versions, which another generation may have made again, so it is dropped there (P21).
enum class Generation : uint8_t { kAny, kOne };

// A member may report only what is its own (P46). The scheduler, lanes and workers drop a
// message that concerns anything else (proto/ownership.h, scheduler/ownership.h).
enum class About : uint8_t {
  kItself,      // the sender, a request, or what its handler compares with the sender
  kPrimary,     // shards whose primary the view says it is; for workers, also their relay
  kReplica,     // shards of which the view gives it a replica
  kHolder,      // shards of which a view of the generation gave it a replica
  kSlice,       // the slice of the test set that it was given
  kMicroBatch,  // micro-batches that it owns or verifies, or did lately (item by item)
};

// What a message may have in bytes, all its frames together; a longer one is not decoded. Lists are
// of up to 65,536 items, texts of 64 KiB.
enum class Size : uint32_t {
  kSmall = 512 << 10,
  kList = 32 << 20,
  kDocument = 17 << 20,  // job files, status reports
  kPayloads = 97 << 20,  // closed at 1 MiB: then one more payload, and what is said of each
};

// Which of a node's connections to the scheduler carries it.
enum class Channel : char { kData = 'd', kHeartbeat = 'h' };

struct MessageRow {
  const char* name;
  Core handlers;
  Sender sender;
  Generation generation;
  About about;
  Size size;
  Channel channel = Channel::kData;
};

// X(message, its constant in Envelope::Which, handlers, sender, generation, about, size,
//   channel if not kData)
// clang-format off
#define PANDO_MESSAGES(X) \
  X(Register, REGISTER, kScheduler | kIntake, kNewcomer, kAny, kItself, kSmall) \
  X(Welcome, WELCOME, kJoiner, kOnlyScheduler, kAny, kItself, kDocument) \
  X(Refused, REFUSED, kJoiner | kLane | kWorker | kGroup, kOnlyScheduler, kAny, kItself, kSmall) \
  X(DeclarationWanted, DECLARATION_WANTED, kJoiner, kOnlyScheduler, kAny, kItself, kSmall) \
  X(Declaration, DECLARATION, kIntake, kNewcomer, kAny, kItself, kPayloads) \
  X(Ready, READY, kScheduler, kNodes, kAny, kItself, kSmall) \
  X(Heartbeat, HEARTBEAT, kScheduler, kNodes, kAny, kItself, kSmall, kHeartbeat) \
  X(HeartbeatAck, HEARTBEAT_ACK, kNone, kOnlyScheduler, kAny, kItself, kSmall, kHeartbeat) \
  X(ViewUpdate, VIEW_UPDATE, kScheduler | kLane | kWorker | kGroup, kNodes, kAny, kItself, kList) \
  X(ViewWanted, VIEW_WANTED, kLane | kWorker, kOnlyScheduler, kAny, kItself, kSmall) \
  X(ViewAck, VIEW_ACK, kScheduler, kNodes, kAny, kItself, kSmall) \
  X(Push, PUSH, kLane | kWorker, kWorkers, kOne, kItself, kPayloads) \
  X(Pull, PULL, kLane, kWorkers, kOne, kItself, kList) \
  X(Params, PARAMS, kScheduler | kWorker | kGroup, kNodes, kOne, kPrimary, kPayloads) \
  X(PushReply, PUSH_REPLY, kWorker, kServers, kOne, kPrimary, kList) \
  X(Question, QUESTION, kLane | kWorker, kWorkers, kOne, kItself, kList) \
  X(Answer, ANSWER, kWorker, kNodes, kOne, kPrimary, kList) \
  X(PeerSilent, PEER_SILENT, kScheduler, kNodes, kOne, kItself, kSmall) \
  X(GradientHashes, GRADIENT_HASHES, kScheduler, kWorkers, kOne, kMicroBatch, kList) \
  X(GradientHashesAck, GRADIENT_HASHES_ACK, kWorker, kOnlyScheduler, kOne, kItself, kSmall) \
  X(Leave, LEAVE, kScheduler, kNodes, kAny, kItself, kSmall) \
  X(Root, ROOT, kLane, kServers, kOne, kPrimary, kPayloads) \
  X(RootAck, ROOT_ACK, kLane, kServers, kOne, kReplica, kList) \
  X(Partials, PARTIALS, kLane, kServers, kOne, kReplica, kList) \
  X(PartialsPull, PARTIALS_PULL, kLane, kServers, kOne, kItself, kList) \
  X(Chunk, CHUNK, kLane, kServers, kOne, kPrimary, kPayloads) \
  X(ChunkAck, CHUNK_ACK, kLane, kServers, kOne, kReplica, kList) \
  X(Synced, SYNCED, kScheduler, kServers, kOne, kPrimary, kList) \
  X(Divergence, DIVERGENCE, kScheduler, kServers, kOne, kPrimary, kSmall) \
  X(SnapshotStored, SNAPSHOT_STORED, kScheduler, kServers, kOne, kHolder, kList) \
  X(SnapshotAck, SNAPSHOT_ACK, kLane, kOnlyScheduler, kOne, kItself, kList) \
  X(SnapshotAt, SNAPSHOT_AT, kLane, kOnlyScheduler, kOne, kItself, kSmall) \
  X(SnapshotAtAck, SNAPSHOT_AT_ACK, kScheduler, kServers, kOne, kItself, kSmall) \
  X(RestoreFailed, RESTORE_FAILED, kScheduler, kServers, kOne, kHolder, kSmall) \
  X(StoreFile, STORE_FILE, kFiles, kNodes, kAny, kItself, kPayloads) \
  X(StoreFileAck, STORE_FILE_ACK, kFileClient, kOnlyScheduler, kAny, kItself, kSmall) \
  X(ReadFile, READ_FILE, kFiles, kNodes, kAny, kItself, kSmall) \
  X(FilePart, FILE_PART, kFileClient, kOnlyScheduler, kAny, kItself, kPayloads) \
  X(ListFiles, LIST_FILES, kFiles, kNodes, kAny, kItself, kSmall) \
  X(FileNames, FILE_NAMES, kFileClient, kOnlyScheduler, kAny, kItself, kList) \
  X(ScalarsRequest, SCALARS_REQUEST, kScheduler, kServers, kAny, kItself, kList) \
  X(Scalars, SCALARS, kLane, kOnlyScheduler, kOne, kItself, kList) \
  X(Progress, PROGRESS, kScheduler, kServers, kOne, kItself, kList) \
  X(ProgressAck, PROGRESS_ACK, kLane, kOnlyScheduler, kOne, kItself, kList) \
  X(Evaluate, EVALUATE, kWorker | kGroup, kOnlyScheduler, kOne, kItself, kSmall) \
  X(EvaluationResult, EVALUATION_RESULT, kScheduler, kWorkers, kOne, kSlice, kList) \
  X(ReleasePin, RELEASE_PIN, kLane, kOnlyScheduler, kOne, kItself, kSmall) \
  X(PinReleased, PIN_RELEASED, kScheduler, kServers, kOne, kItself, kSmall) \
  X(Failure, FAILURE, kScheduler, kNodes, kAny, kItself, kSmall) \
  X(Stop, STOP, kJoiner | kLane | kWorker | kGroup, kOnlyScheduler, kAny, kItself, kSmall) \
  X(Bye, BYE, kScheduler, kNodes, kAny, kItself, kSmall) \
  X(StatusRequest, STATUS_REQUEST, kScheduler | kIntake, kReader, kAny, kItself, kSmall) \
  X(StatusReport, STATUS_REPORT, kClient, kOnlyScheduler, kAny, kItself, kDocument) \
  X(Command, COMMAND, kScheduler | kIntake, kAdmin, kAny, kItself, kSmall) \
  X(CommandReply, COMMAND_REPLY, kClient, kOnlyScheduler, kAny, kItself, kSmall) \
  X(FaultNote, FAULT_NOTE, kScheduler | kIntake, kNewcomer, kAny, kItself, kSmall) \
  X(FaultNoteAck, FAULT_NOTE_ACK, kClient, kOnlyScheduler, kAny, kItself, kSmall)
// clang-format on

}  // namespace pando
