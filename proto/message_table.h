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
  kJoiner = 16,       // a process without a view: JoinCore, EngineAgreement
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

// What a message may have in bytes, all its frames together; a longer one is not decoded. Lists are
// of up to 65,536 items, texts of 64 KiB.
enum class Size : uint32_t {
  kSmall = 512 << 10,
  kList = 32 << 20,
  kDocument = 17 << 20,  // job files, status reports, engines
  kPayloads = 97 << 20,  // closed at 1 MiB: then one more payload, and what is said of each
};

// Which of a node's connections to the scheduler carries it.
enum class Channel : char { kData = 'd', kHeartbeat = 'h' };

struct MessageRow {
  const char* name;
  Core handlers;
  Sender sender;
  Generation generation;
  Size size;
  Channel channel = Channel::kData;
};

// X(message, its constant in Envelope::Which, handlers, sender, generation, size,
//   channel if not kData)
// clang-format off
#define PANDO_MESSAGES(X) \
  X(Register, REGISTER, kScheduler | kIntake, kNewcomer, kAny, kSmall) \
  X(Welcome, WELCOME, kJoiner, kOnlyScheduler, kAny, kDocument) \
  X(Refused, REFUSED, kJoiner | kLane | kWorker | kGroup, kOnlyScheduler, kAny, kSmall) \
  X(DeclarationWanted, DECLARATION_WANTED, kJoiner, kOnlyScheduler, kAny, kSmall) \
  X(Declaration, DECLARATION, kIntake, kNewcomer, kAny, kPayloads) \
  X(EngineProposal, ENGINE_PROPOSAL, kScheduler, kWorkers, kAny, kDocument) \
  X(EngineDecision, ENGINE_DECISION, kJoiner, kOnlyScheduler, kAny, kDocument) \
  X(Ready, READY, kScheduler, kNodes, kAny, kSmall) \
  X(Heartbeat, HEARTBEAT, kScheduler, kNodes, kAny, kSmall, kHeartbeat) \
  X(HeartbeatAck, HEARTBEAT_ACK, kNone, kOnlyScheduler, kAny, kSmall, kHeartbeat) \
  X(ViewUpdate, VIEW_UPDATE, kScheduler | kLane | kWorker | kGroup, kNodes, kAny, kList) \
  X(ViewWanted, VIEW_WANTED, kLane | kWorker, kOnlyScheduler, kAny, kSmall) \
  X(ViewAck, VIEW_ACK, kScheduler, kNodes, kAny, kSmall) \
  X(Push, PUSH, kLane | kWorker, kWorkers, kOne, kPayloads) \
  X(Pull, PULL, kLane, kWorkers, kOne, kList) \
  X(Params, PARAMS, kScheduler | kWorker | kGroup, kNodes, kOne, kPayloads) \
  X(PushReply, PUSH_REPLY, kWorker, kServers, kOne, kList) \
  X(Question, QUESTION, kLane | kWorker, kWorkers, kOne, kList) \
  X(Answer, ANSWER, kWorker, kNodes, kOne, kList) \
  X(PeerSilent, PEER_SILENT, kScheduler, kNodes, kOne, kSmall) \
  X(GradientHashes, GRADIENT_HASHES, kScheduler, kWorkers, kOne, kList) \
  X(GradientHashesAck, GRADIENT_HASHES_ACK, kWorker, kOnlyScheduler, kOne, kSmall) \
  X(Leave, LEAVE, kScheduler, kNodes, kAny, kSmall) \
  X(Root, ROOT, kLane, kServers, kOne, kPayloads) \
  X(RootAck, ROOT_ACK, kLane, kServers, kOne, kList) \
  X(Partials, PARTIALS, kLane, kServers, kOne, kList) \
  X(PartialsPull, PARTIALS_PULL, kLane, kServers, kOne, kList) \
  X(Chunk, CHUNK, kLane, kServers, kOne, kPayloads) \
  X(ChunkAck, CHUNK_ACK, kLane, kServers, kOne, kList) \
  X(Synced, SYNCED, kScheduler, kServers, kOne, kList) \
  X(Divergence, DIVERGENCE, kScheduler, kServers, kOne, kSmall) \
  X(SnapshotStored, SNAPSHOT_STORED, kScheduler, kServers, kOne, kList) \
  X(SnapshotAck, SNAPSHOT_ACK, kLane, kOnlyScheduler, kOne, kList) \
  X(SnapshotAt, SNAPSHOT_AT, kLane, kOnlyScheduler, kOne, kSmall) \
  X(SnapshotAtAck, SNAPSHOT_AT_ACK, kScheduler, kServers, kOne, kSmall) \
  X(RestoreFailed, RESTORE_FAILED, kScheduler, kServers, kOne, kSmall) \
  X(StoreFile, STORE_FILE, kFiles, kNodes, kAny, kPayloads) \
  X(StoreFileAck, STORE_FILE_ACK, kFileClient, kOnlyScheduler, kAny, kSmall) \
  X(ReadFile, READ_FILE, kFiles, kNodes, kAny, kSmall) \
  X(FilePart, FILE_PART, kFileClient, kOnlyScheduler, kAny, kPayloads) \
  X(ListFiles, LIST_FILES, kFiles, kNodes, kAny, kSmall) \
  X(FileNames, FILE_NAMES, kFileClient, kOnlyScheduler, kAny, kList) \
  X(ScalarsRequest, SCALARS_REQUEST, kScheduler, kServers, kAny, kList) \
  X(Scalars, SCALARS, kLane, kOnlyScheduler, kOne, kList) \
  X(Progress, PROGRESS, kScheduler, kServers, kOne, kList) \
  X(ProgressAck, PROGRESS_ACK, kLane, kOnlyScheduler, kOne, kList) \
  X(Evaluate, EVALUATE, kWorker | kGroup, kOnlyScheduler, kOne, kSmall) \
  X(EvaluationResult, EVALUATION_RESULT, kScheduler, kWorkers, kOne, kList) \
  X(ReleasePin, RELEASE_PIN, kLane, kOnlyScheduler, kOne, kSmall) \
  X(PinReleased, PIN_RELEASED, kScheduler, kServers, kOne, kSmall) \
  X(Failure, FAILURE, kScheduler, kNodes, kAny, kSmall) \
  X(Stop, STOP, kJoiner | kLane | kWorker | kGroup, kOnlyScheduler, kAny, kSmall) \
  X(Bye, BYE, kScheduler, kNodes, kAny, kSmall) \
  X(StatusRequest, STATUS_REQUEST, kScheduler | kIntake, kReader, kAny, kSmall) \
  X(StatusReport, STATUS_REPORT, kClient, kOnlyScheduler, kAny, kDocument) \
  X(Command, COMMAND, kScheduler | kIntake, kAdmin, kAny, kSmall) \
  X(CommandReply, COMMAND_REPLY, kClient, kOnlyScheduler, kAny, kSmall) \
  X(FaultNote, FAULT_NOTE, kScheduler | kIntake, kNewcomer, kAny, kSmall) \
  X(FaultNoteAck, FAULT_NOTE_ACK, kClient, kOnlyScheduler, kAny, kSmall)
// clang-format on

}  // namespace pando
