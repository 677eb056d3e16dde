// The messages between scheduler, server lanes and workers, as plain structs. The protocol cores
// see only these; proto/codec turns them into frames and back. A payload is a Blob. Outgoing, it is
// the gradient buffer itself; incoming, it is inside the received frame. proto/codec.h says when it
// is copied. Rules (P...) and invariants (I...) are in docs/protocol.md.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "common/blob.h"
#include "common/ids.h"
#include "common/text.h"
#include "plan/job_plan.h"
#include "proto/file_messages.h"
#include "proto/message_table.h"

namespace pando {

enum class Role : uint8_t { kScheduler, kServer, kWorker, kClient };
template <>
inline constexpr auto kEnumNames<Role> = std::to_array({"scheduler", "server", "worker", "client"});

// One addressable party of the protocol: a process life (node + incarnation) and, in a server, the
// lane. A node without a Welcome has id kUnknownNode.
inline constexpr NodeId kSchedulerNode{0};
inline constexpr NodeId kUnknownNode{UINT32_MAX};
struct PeerId {
  NodeId node = kUnknownNode;
  Incarnation incarnation;  // 0 as a receiver: any (only for Register and clients)
  uint16_t lane = 0;
  auto operator<=>(const PeerId&) const = default;
};

// A message that is a list of equal parts.
template <class Item>
struct ListOf {
  std::vector<Item> items;
};

struct ViewId {
  uint64_t term = 0;    // incremented at each start of the scheduler
  uint64_t number = 0;  // within the term; 0 is "no view yet"
  auto operator<=>(const ViewId&) const = default;
};

// ---- membership and views: node <-> scheduler --------------------------------------------------

inline constexpr uint32_t kAnyRank = UINT32_MAX;
// Node -> scheduler, repeated until Welcome or Refused.
struct Register {
  Role role = Role::kWorker;
  std::string host;
  uint32_t process_id = 0;
  std::vector<std::string> lane_endpoints;  // a server's, by lane: "tcp://10.0.0.3:41213"
  uint32_t wanted_rank = kAnyRank;          // of its role; another one if it is in use
  uint64_t process_key = 0;  // drawn for the process, as two containers may agree in host and id
  std::string public_key;    // of this process life, where the run has keys (P44)
  std::string machine;       // a server's: what fails with it (MachineOf); empty: `host`
  std::string rack;          // label of what fails together beyond a machine; empty: none
};

// Scheduler -> node. Repeats of Register get the same answer.
struct Welcome {
  NodeId node;               // id given to this incarnation
  uint32_t rank = 0;         // index among its role, 0..: for names in logs
  std::string job_toml;      // the resolved job file
  DataFacts data;            // the scheduler's facts about the data set
  std::string snapshot_dir;  // of the scheduler's machine (P29); absolute
  // Of the scheduler's file store, at the host where the node reaches it; empty: servers read and
  // write snapshot_dir themselves (P45).
  std::string files_endpoint;
  std::string view_key;  // the public key that signs views, where the run has keys (P44)
};

// P43. Scheduler -> worker whose program declares the run, instead of Welcome: the first bytes of
// its declaration that the scheduler lacks.
struct DeclarationWanted {
  uint64_t offset = 0;  // of version 0's flat vector, in bytes
};
// Worker -> scheduler, in answer: the run that its program declares.
struct Declaration {
  std::string job_toml;  // sections of a job file: model, data, train, optimizer, schedule, eval
  uint64_t offset = 0;   // copied
  Blob payload;          // bytes of version 0's flat vector from there
};

// kNotThisOne: the process does not fit. kRunIsOver: no process can join any more. kGivenUp: it was
// declared dead, and its process may join as another incarnation (P19).
enum class RefusalKind : uint8_t { kNotThisOne, kRunIsOver, kGivenUp };
struct Refused {
  std::string reason;  // for people: what does not fit and what to do
  RefusalKind kind = RefusalKind::kNotThisOne;
};

// Node -> scheduler, repeated until a view has it: it has loaded what the job needs.
struct Ready {
  std::string kind;               // backend, instruction set, library versions (P40)
  uint64_t probe_hash = 0;        // worker: gradient hash of a probe micro-batch (P40)
  uint64_t data_fingerprint = 0;  // worker: of its data set (P38)
};

enum class Activity : uint8_t {
  kStarting,
  kIdle,
  kComputing,
  kWaitingForParameters,
  kEvaluating,
  kServing,
  kLeaving,
};
template <>
inline constexpr auto kEnumNames<Activity> = std::to_array({"starting", "idle", "computing",
                                                            "waiting for parameters", "evaluating",
                                                            "serving", "leaving"});

// Bytes of messages that a process has exchanged by one kind of connection, its payloads in shared
// memory included.
struct LineTraffic {
  uint64_t sent = 0;
  uint64_t received = 0;
};

// Node -> scheduler, from a separate thread, every heartbeat_ms.
struct Heartbeat {
  Activity activity = Activity::kStarting;
  Step step;  // the step it works on
  // kWaitingForParameters: the lane that owes them. kServing: the backup that owes lane 0 an
  // acknowledgement. Unset: none.
  PeerId waiting_for;
  uint64_t waiting_ms = 0;
  uint64_t micro_batch_us = 0;    // worker: recent time of a micro-batch; 0 while unknown
  uint64_t data_stall_us = 0;     // worker: its threads' waits for samples so far
  uint64_t exposed_sync_us = 0;   // worker: mean of its threads' waits for parameters so far
  uint64_t gpu_memory_bytes = 0;  // worker: used on its GPU by all processes; 0: none, or unknown
  uint32_t gpu_percent = 0;       // worker: share of the last second with a running kernel
  // Dialed lanes, by what carries the payloads. A server counts those of its first lane.
  uint32_t tcp_lines = 0;
  uint32_t ipc_lines = 0;
  uint32_t shm_lines = 0;
  uint64_t samples_wait_ms = 0;  // worker: how long a thread has been waiting for samples now
  std::string log_line;          // the last line of its log; empty: its output is no file
  LineTraffic tcp_traffic;       // of the whole process
  LineTraffic ipc_traffic;
  LineTraffic shm_traffic;
};
struct HeartbeatAck {};

struct NodeInfo {
  NodeId node;
  Incarnation incarnation;
  Role role = Role::kWorker;
  uint32_t rank = 0;
  std::string host;
  std::vector<std::string> lane_endpoints;
  uint64_t probe_hash = 0;  // worker: of its Ready; workers of one kind have the same (P40)
  std::string public_key;   // of its Register
};

struct SyncingBackup {
  PeerId peer;
  ViewId since;  // P24: the view that made the pair (primary, newcomer)
  auto operator<=>(const SyncingBackup&) const = default;
};

struct ShardPlacement {  // of the shard with this index
  PeerId primary;        // node kUnknownNode: none yet
  std::vector<PeerId> in_sync_backups;
  std::vector<SyncingBackup> syncing_backups;
};

struct MicroBatchOwner {  // of the micro-batch with this index
  NodeId worker;          // kUnknownNode: there is no worker
  Step first_step;        // P18: the owner computes from this step on
  // Computes before first_step, if that is above the lowest incomplete step.
  NodeId previous = kUnknownNode;
};

// A complete snapshot: every shard's record of one version, of one generation (P29).
struct SnapshotRef {
  uint32_t generation = 0;
  Version version;  // 0: made from the job's seed, without files
  auto operator<=>(const SnapshotRef&) const = default;
};

// P17. Membership, placement and assignment together.
struct View {
  ViewId id;
  uint32_t generation = 0;
  // The snapshot from which this generation began (P21). A replica that the view names in sync, and
  // that has no data of this generation, restores it from this snapshot.
  SnapshotRef restore;
  std::vector<NodeInfo> nodes;
  std::vector<ShardPlacement> shards;
  std::vector<MicroBatchOwner> owners;
};

// Scheduler -> node, repeated until acknowledged. Node -> peer with an older view (P13), and the
// scheduler that wants it.
struct ViewUpdate {
  View view;
  std::string signature;  // of the scheduler over the view (P44); empty without keys
};
// Scheduler -> node that names a view which the scheduler does not know (P26).
struct ViewWanted {};
struct ViewAck {
  ViewId id;  // the node's newest view, which may be newer than the acknowledged one (P26)
  uint32_t generation = 0;
};

// The optimizer's inputs at one step that only the scheduler computes (P36).
struct StepScalars {
  float lr = 0;
  float momentum = 0;               // SGD's momentum or Adam's beta1, if the schedule cycles it
  float bias_correction1 = 1;       // Adam: 1 − beta1^(t+1)
  float bias_correction2_sqrt = 1;  // Adam: √(1 − beta2^(t+1))
};

// ---- the step: worker <-> server lane ----------------------------------------------------------

// Worker -> primary's lane (P6). Also requests version step + 1 of each shard.
struct PushItem {
  ShardId shard;
  Step step;
  TreeNode node;  // canonical
  Blob payload;   // a sum over the node's samples, unscaled: floats, or encoded (P34)
};
using Push = ListOf<PushItem>;

// Worker or scheduler -> lane: exactly this version of each shard (I4), where no push asks for it:
// at a start, with layer residency, for an evaluation, for the final weights.
struct PullItem {
  ShardId shard;
  Version version;
  ParamsForm form = ParamsForm::kExact;
};
using Pull = ListOf<PullItem>;

// Lane -> worker: committed versions, whole.
struct ParamsItem {
  ShardId shard;
  Version version;
  Blob payload;
  ParamsForm form = ParamsForm::kExact;
};
using Params = ListOf<ParamsItem>;

// Lane -> worker: the state of a shard if there is no version to send (P10).
enum class PushOutcome : uint8_t {
  kPending,     // the push is held; Params follows once, without a further request
  kBehind,      // the requested version is gone; `current` is the committed one
  kNotPrimary,  // this lane is not the shard's primary in its view
};
struct PushReplyItem {
  ShardId shard;
  Version version;  // requested
  TreeNode node;    // of the answered push; 0 for a pull
  PushOutcome outcome = PushOutcome::kPending;
  Version current;  // kBehind
};
using PushReply = ListOf<PushReplyItem>;

// Worker -> every primary's lane on each new view (P17); repeated until answered.
struct Question {
  ViewId view;  // the worker's; an answer with another view is dropped
};
struct AnswerItem {
  ShardId shard;
  Version version;              // committed
  std::vector<TreeNode> nodes;  // held of the step that reads it
};
struct Answer {
  ViewId view;                    // copied from the question
  std::vector<AnswerItem> items;  // every shard whose primary this lane is
};

// ---- replication: primary's lane <-> backup's lane ---------------------------------------------

// P8. Primary -> each in-sync backup, and each syncing one whose transfer is complete; repeated
// until acknowledged. Counts only if both are in the envelope's view (P13).
struct RootItem {
  ShardId shard;
  Step step;
  StepScalars scalars;
  Blob payload;  // the tree's root: a sum over the step's samples, unscaled
  // P16: the factors of this shard, made of all partial values (PartialPlan). Empty if the update
  // needs none.
  std::vector<float> factors = {};
};
struct Root {
  std::vector<RootItem> items;
  Step first_row;  // the scheduler has the metric rows below it
};
// Backup -> primary: it has made this version. A repeated root is acknowledged again.
struct RootAckItem {
  ShardId shard;
  Version version;
  uint64_t hash = 0;  // of the record, optimizer state included
};
using RootAck = ListOf<RootAckItem>;

// P16. Primary's lane -> lanes of the primaries whose updates need these values: once when the
// shard's root is complete, then in answer to a PartialsPull, at once, with the available values.
struct PartialsItem {
  ShardId shard;
  Step step;
  std::vector<float> values;  // Optimizer::MakePartials
};
using Partials = ListOf<PartialsItem>;
// Repeated until the values arrive.
struct PartialsPullItem {
  ShardId shard;
  Step step;
};
using PartialsPull = ListOf<PartialsPullItem>;

// P20. Source -> newcomer: a piece of a shard's frozen image. The image has the kept versions'
// parameters, ascending, then the newest version's optimizer state.
struct Chunk {
  ShardId shard;
  ViewId pair;                    // SyncingBackup::since
  std::vector<Version> versions;  // kept by the source, ascending, committed: pinned, previous,
                                  // newest; the newest alone has optimizer state
  uint64_t image_floats = 0;      // of the whole image
  uint64_t offset = 0;            // of the payload, in floats
  Blob payload;
};
struct ChunkAck {
  ShardId shard;
  ViewId pair;
  Version newest;             // of the image
  uint64_t floats_taken = 0;  // from the image's start, without a gap
};

// Primary's lane -> scheduler, repeated until a view answers: the newcomer has acknowledged every
// version that was made, committed or not (P24).
struct SyncedItem {
  ShardId shard;
  PeerId newcomer;
  ViewId pair;
};
using Synced = ListOf<SyncedItem>;

// Primary's lane -> scheduler, repeated until a new generation: replicas made different versions
// (P8).
struct Divergence {
  ShardId shard;
  Version version;
  PeerId backup;
  uint64_t primary_hash = 0;
  uint64_t backup_hash = 0;
};

// Lane or worker -> scheduler: a peer has owed an answer for two leases (P23).
struct PeerSilent {
  PeerId peer;
  uint64_t silent_ms = 0;
};

// ---- snapshots (P29): lane <-> scheduler -------------------------------------------------------

// Lane -> scheduler, repeated until acknowledged.
struct SnapshotStoredItem {
  ShardId shard;
  Version version;
  uint64_t hash = 0;    // of the record
  std::string file;     // within the snapshot folder
  std::string failure;  // why it could not be stored; empty: it is stored
};
using SnapshotStored = ListOf<SnapshotStoredItem>;
struct SnapshotAckItem {
  ShardId shard;
  Version version;
};
using SnapshotAck = ListOf<SnapshotAckItem>;
// Scheduler -> lane, repeated until acknowledged: store this version too, besides the due ones.
struct SnapshotAt {
  Version version;
};
struct SnapshotAtAck {
  Version version;
};

// Lane -> scheduler, repeated until a new generation: it cannot restore a shard for which the view
// names it in sync.
struct RestoreFailed {
  SnapshotRef snapshot;  // View::restore
  ShardId shard;
  bool is_corrupt = false;  // the data are damaged; else this server cannot read them
  std::string text;
};

// ---- scalars and progress: lane <-> scheduler --------------------------------------------------

inline constexpr uint64_t kScalarsPerBlock = 4096;
struct ScalarsRequest {  // lane -> scheduler, repeated until answered
  Step first;            // a multiple of kScalarsPerBlock
};
struct Scalars {
  Step first;
  std::vector<StepScalars> steps;  // up to kScalarsPerBlock, fewer at the end of the job
};

struct StepMetrics {  // means over the step's samples
  Step step;
  float loss = 0;
  float accuracy = 0;
};
// Lane -> scheduler, at once in a new view. Rows are repeated until acknowledged. They start with
// the lowest row that the lane has and that is not acknowledged.
struct Progress {
  Version committed;  // every shard whose primary the lane is has committed it; the final version
                      // if it is primary of no shard. Counts for the envelope's view alone.
  std::vector<StepMetrics> rows;  // ascending; from the lane of the metric shard
};
struct ProgressAck {
  Version committed;  // copied
  Step next_row;      // the scheduler has the rows below it
};

// ---- evaluation (P31) --------------------------------------------------------------------------

// Scheduler -> worker, repeated until answered: evaluate test samples [first, last) at a pinned
// version.
struct Evaluate {
  Version version;
  uint32_t slice = 0;
  uint64_t first_sample = 0;
  uint64_t last_sample = 0;
};
// Samples of one class by their predicted class.
struct ConfusionCount {
  uint32_t label = 0;
  uint32_t predicted = 0;
  uint32_t count = 0;
  bool operator==(const ConfusionCount&) const = default;
};
struct EvaluationResult {
  Version version;
  uint32_t slice = 0;
  uint64_t sample_count = 0;
  uint64_t correct_count = 0;
  double loss_sum = 0;
  uint64_t top5_count = 0;                // of samples with at most four classes ahead of the label
  std::vector<ConfusionCount> confusion;  // ascending by label and predicted; the slice's samples
  std::vector<double> sums = {};  // of an external model: by name, as in the job's eval.sums
};
// Scheduler -> lane, repeated until acknowledged: versions up to this one need no pin any more.
struct ReleasePin {
  Version version;
};
struct PinReleased {
  Version version;
};

// ---- end, failure, status ----------------------------------------------------------------------

enum class StopReason : uint8_t { kCompleted, kFailed, kInterrupted, kDrained };
// Scheduler -> all nodes, repeated until Bye (P33).
struct Stop {
  StopReason reason = StopReason::kCompleted;
  std::string text;
};
struct Bye {};

// kTraining: every other machine would fail in the same way (a loss that is not a number).
// kMachine: only this machine fails (a data file that ends early, a lane that cannot be dialed).
enum class FailureKind : uint8_t { kTraining, kMachine };
// Node -> scheduler: it cannot go on. Repeated until Stop or Refused.
struct Failure {
  std::string text;
  FailureKind kind = FailureKind::kTraining;
};

// Node -> scheduler, repeated until Stop: a signal asked it to leave. Others take over its work
// first.
struct Leave {};

// P41. Worker -> scheduler, repeated until acknowledged: hashes of the gradients of micro-batches
// that two workers compute.
struct GradientHash {
  Step step;
  MicroBatch micro_batch;
  uint64_t hash = 0;  // of the whole gradient, in flat order; 0: there is none, the sender came too
                      // late to compute it
};
using GradientHashes = ListOf<GradientHash>;  // ascending by (step, micro-batch)
struct GradientHashesAck {
  Step below;  // reports of steps below are known or not needed any more
};

// Client -> scheduler.
struct StatusRequest {};
struct StatusReport {
  std::string json;
};

enum class CommandKind : uint8_t { kDrain, kSnapshot, kStop };
// Client -> scheduler, repeated by the client until kDone or kRefused. The scheduler recognises a
// repeat by the client's incarnation.
struct Command {
  CommandKind kind = CommandKind::kDrain;
  std::string target;  // kDrain: "worker 1", "server-0"
};
enum class CommandOutcome : uint8_t { kAccepted, kDone, kRefused };
struct CommandReply {
  CommandOutcome outcome = CommandOutcome::kAccepted;
  std::string text;  // for people
};

// Supervisor (`pando train`, `pando node`) -> scheduler, repeated until acknowledged: a fault that
// it saw or made. Times are of the machine's steady clock, which both share; 0 is unknown.
struct FaultNote {
  uint64_t number = 0;  // given by the supervisor, for the acknowledgement
  std::string action;   // "kill", "stop", "partition"; "exit" for one that happened by itself
  Role role = Role::kWorker;
  std::string host;
  uint32_t process_id = 0;  // of the target
  std::string target;       // "worker 1", as the supervisor names it
  uint64_t injected_us = 0;
  uint64_t exited_us = 0;    // when the supervisor saw the process end; 0: it has not ended
  std::string text;          // "signal 9 (SIGKILL)"
  uint64_t process_key = 0;  // of the target
};
struct FaultNoteAck {
  uint64_t number = 0;
};

template <class, class... Ms>
using VariantWithoutFirst = std::variant<Ms...>;
#define PANDO_AS_ITEM(Name, ...) , Name
using MessageVariant = VariantWithoutFirst<void PANDO_MESSAGES(PANDO_AS_ITEM)>;
#undef PANDO_AS_ITEM

// By the message's index in the variant.
inline constexpr auto kMessageRows = [] {
  using enum Core;
  using enum Sender;
  using enum Generation;
  using enum About;
  using enum Size;
  using enum Channel;
#define PANDO_AS_ROW(Name, CONSTANT, ...) MessageRow{#Name, __VA_ARGS__},
  return std::to_array({PANDO_MESSAGES(PANDO_AS_ROW)});
#undef PANDO_AS_ROW
}();

// One message of any type. messages.cc has its special members: compiled in each file that copies
// or drops messages, they take a third of that file's compilation.
struct Message : MessageVariant {
  using MessageVariant::MessageVariant;
  Message();
  Message(const Message& other);
  Message(Message&& other) noexcept;
  Message& operator=(const Message& other);
  Message& operator=(Message&& other) noexcept;
  ~Message();
};

// Whether a member of that role is one of these senders.
constexpr bool MaySend(Role role, Sender sender) {
  if (sender == Sender::kNodes) return role == Role::kServer || role == Role::kWorker;
  return sender == (role == Role::kServer ? Sender::kServers : Sender::kWorkers);
}

inline const MessageRow& RowFor(const Message& message) { return kMessageRows[message.index()]; }

// Whether a message is of one of these types. For the rules of message admission.
template <class... Ms>
bool HoldsAny(const Message& message) {
  return (std::holds_alternative<Ms>(message) || ...);
}

// The envelope of every message. The codec adds and checks the protocol's version number.
struct Envelope {
  JobId job;  // 0 from a node that does not know it
  uint32_t generation = 0;
  ViewId view;
  PeerId sender;
  PeerId receiver;  // P19: a node refuses messages for another incarnation
  Message message;
};

}  // namespace pando
