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
enum class Core : uint8_t {
  kNone = 0,
  kScheduler = 1,
  kLane = 2,
  kWorker = 4,
  kGroup = 8,    // a worker with allreduce
  kJoiner = 16,  // a process without a view: JoinCore, EngineAgreement
  kClient = 32,  // SchedulerClient: a command, a supervisor
  kIntake = 64,  // a scheduler whose run is not declared yet: DeclarationIntake
};
constexpr Core operator|(Core a, Core b) {
  return static_cast<Core>(static_cast<uint8_t>(a) | static_cast<uint8_t>(b));
}
constexpr bool HasCore(Core cores, Core core) {
  return (static_cast<uint8_t>(cores) & static_cast<uint8_t>(core)) != 0;
}

// The senders from which it is accepted. kAnyone: also a process that is no member, by the
// scheduler. kMembers: members of the view and the scheduler.
enum class Sender : uint8_t { kAnyone, kMembers, kOnlyScheduler };

// kOne: about versions, which another generation may have made again, so it is dropped there (P21).
enum class Generation : uint8_t { kAny, kOne };

// Which of a node's connections to the scheduler carries it.
enum class Channel : char { kData = 'd', kHeartbeat = 'h' };

struct MessageRow {
  const char* name;
  Core handlers;
  Sender sender;
  Generation generation;
  Channel channel = Channel::kData;
};

// X(message, its constant in Envelope::Which, handlers, sender, generation, channel if not kData)
// clang-format off
#define PANDO_MESSAGES(X) \
  X(Register, REGISTER, kScheduler | kIntake, kAnyone, kAny) \
  X(Welcome, WELCOME, kJoiner, kOnlyScheduler, kAny) \
  X(Refused, REFUSED, kJoiner | kLane | kWorker | kGroup, kOnlyScheduler, kAny) \
  X(DeclarationWanted, DECLARATION_WANTED, kJoiner, kOnlyScheduler, kAny) \
  X(Declaration, DECLARATION, kIntake, kAnyone, kAny) \
  X(EngineProposal, ENGINE_PROPOSAL, kScheduler, kMembers, kAny) \
  X(EngineDecision, ENGINE_DECISION, kJoiner, kOnlyScheduler, kAny) \
  X(Ready, READY, kScheduler, kMembers, kAny) \
  X(Heartbeat, HEARTBEAT, kScheduler, kMembers, kAny, kHeartbeat) \
  X(HeartbeatAck, HEARTBEAT_ACK, kNone, kOnlyScheduler, kAny, kHeartbeat) \
  X(ViewUpdate, VIEW_UPDATE, kLane | kWorker | kGroup, kMembers, kAny) \
  X(ViewAck, VIEW_ACK, kScheduler, kMembers, kAny) \
  X(Push, PUSH, kLane | kWorker, kMembers, kOne) \
  X(Pull, PULL, kLane, kMembers, kOne) \
  X(Params, PARAMS, kScheduler | kWorker | kGroup, kMembers, kOne) \
  X(PushReply, PUSH_REPLY, kWorker, kMembers, kOne) \
  X(Question, QUESTION, kLane | kWorker, kMembers, kOne) \
  X(Answer, ANSWER, kWorker, kMembers, kOne) \
  X(PeerSilent, PEER_SILENT, kScheduler, kMembers, kOne) \
  X(GradientHashes, GRADIENT_HASHES, kScheduler, kMembers, kOne) \
  X(GradientHashesAck, GRADIENT_HASHES_ACK, kWorker, kOnlyScheduler, kOne) \
  X(Leave, LEAVE, kScheduler, kMembers, kAny) \
  X(Root, ROOT, kLane, kMembers, kOne) \
  X(RootAck, ROOT_ACK, kLane, kMembers, kOne) \
  X(Partials, PARTIALS, kLane, kMembers, kOne) \
  X(PartialsPull, PARTIALS_PULL, kLane, kMembers, kOne) \
  X(Chunk, CHUNK, kLane, kMembers, kOne) \
  X(ChunkAck, CHUNK_ACK, kLane, kMembers, kOne) \
  X(Synced, SYNCED, kScheduler, kMembers, kOne) \
  X(Divergence, DIVERGENCE, kScheduler, kMembers, kOne) \
  X(SnapshotStored, SNAPSHOT_STORED, kScheduler, kMembers, kOne) \
  X(SnapshotAck, SNAPSHOT_ACK, kLane, kOnlyScheduler, kOne) \
  X(SnapshotAt, SNAPSHOT_AT, kLane, kOnlyScheduler, kOne) \
  X(SnapshotAtAck, SNAPSHOT_AT_ACK, kScheduler, kMembers, kOne) \
  X(RestoreFailed, RESTORE_FAILED, kScheduler, kMembers, kOne) \
  X(ScalarsRequest, SCALARS_REQUEST, kScheduler, kMembers, kAny) \
  X(Scalars, SCALARS, kLane, kOnlyScheduler, kOne) \
  X(Progress, PROGRESS, kScheduler, kMembers, kOne) \
  X(ProgressAck, PROGRESS_ACK, kLane, kOnlyScheduler, kOne) \
  X(Evaluate, EVALUATE, kWorker | kGroup, kOnlyScheduler, kOne) \
  X(EvaluationResult, EVALUATION_RESULT, kScheduler, kMembers, kOne) \
  X(ReleasePin, RELEASE_PIN, kLane, kOnlyScheduler, kOne) \
  X(PinReleased, PIN_RELEASED, kScheduler, kMembers, kOne) \
  X(Failure, FAILURE, kScheduler, kMembers, kAny) \
  X(Stop, STOP, kJoiner | kLane | kWorker | kGroup, kOnlyScheduler, kAny) \
  X(Bye, BYE, kScheduler, kMembers, kAny) \
  X(StatusRequest, STATUS_REQUEST, kScheduler | kIntake, kAnyone, kAny) \
  X(StatusReport, STATUS_REPORT, kClient, kOnlyScheduler, kAny) \
  X(Command, COMMAND, kScheduler | kIntake, kAnyone, kAny) \
  X(CommandReply, COMMAND_REPLY, kClient, kOnlyScheduler, kAny) \
  X(FaultNote, FAULT_NOTE, kScheduler | kIntake, kAnyone, kAny) \
  X(FaultNoteAck, FAULT_NOTE_ACK, kClient, kOnlyScheduler, kAny)
// clang-format on

}  // namespace pando
