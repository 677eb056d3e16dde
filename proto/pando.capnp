# This file is the only description of Pando's messages. From it Cap'n Proto's compiler writes the wire
# format, which only proto/codec_*.cc sees. A plugin (generate_messages.cc) writes the rest: the plain
# structs that the protocol cores see, the visitors of their fields, and the table of messages.
#
# One Cap'n Proto message is one Envelope; each of its segments is one frame (layout in codec.h).
# Payloads are external segments over the gradient or parameter buffer itself.
#
# The order of the lines is the order of the structs' members, and the order of the written fields.
# To change this file, add fields and union members with new numbers. A message that is not needed any
# more becomes `retiredN @N :Void`. If a field changes its type or meaning, or an older program would
# misread it, increment kProtocolVersion (codec.h). A field that is not set keeps Cap'n Proto's default,
# zero. A rule that concerns several fields is a function CheckRules in codec_fields.h.

@0xd3a7be6b6f0c4c11;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("pando::wire");

# ---- the annotations that the plugin reads --------------------------------------------------------

# Annotations of a field. The trailing comments say which value is annotated.
annotation type(field, group) :Text; # the member's type, or its items'; by default the wire's
annotation initial(field) :Text;     # the member's initial value; by default 0 or the first enumerator
annotation limit(field) :Limit;      # of a number, of the bytes of a text, of the items of a list
annotation each(field) :Limit;       # of each item of a list
annotation min(field) :UInt32;       # of a tree node
annotation bytes(field) :Void;       # the payload is any bytes; by default floats
# Annotations of a struct or an enum.
annotation message(struct) :MessageFacts;
annotation compared(struct) :Void;        # it has the operators ==, <, ...
annotation byHand(struct, enum) :Void;    # the type is written by hand in C++

struct Limit {
  what @0 :Text;  # for errors
  max @1 :Text;   # in C++; it may name members that come before this one: m.size
}

# The facts that a message's type decides by itself; message_types.h explains each.
struct MessageFacts {
  handlers @0 :List(Core);
  sender @1 :Sender;
  generation @2 :Generation;
  about @3 :About;
  size @4 :Size;
  channel @5 :Channel;
}
enum Core {
  scheduler @0;
  lane @1;
  worker @2;
  group @3;
  joiner @4;
  client @5;
  intake @6;
  files @7;
  fileClient @8;
  standby @9;
  mirror @10;
}
enum Sender {
  reader @0;
  newcomer @1;
  admin @2;
  servers @3;
  workers @4;
  nodes @5;
  onlyScheduler @6;
}
enum Generation {
  any @0;
  one @1;
}
enum About {
  itself @0;
  primary @1;
  replica @2;
  holder @3;
  slice @4;
  microBatch @5;
}
enum Size {
  small @0;
  list @1;
  document @2;
  payloads @3;
}
enum Channel {
  data @0;
  heartbeat @1;
}

const hostBytes :Limit = (what = "bytes of a host name", max = "kNameBytesMax");
const endpointBytes :Limit = (what = "bytes of an endpoint", max = "kNameBytesMax");
const fileNameBytes :Limit = (what = "bytes of a file name", max = "kNameBytesMax");
const publicKeyBytes :Limit = (what = "bytes of a public key", max = "kPublicKeyBytesMax");

# ---- the envelope ---------------------------------------------------------------------------------

struct Envelope $byHand {
  protocolVersion @0 :UInt32;  # set by the codec; other versions are refused
  generation @1 :UInt32;       # the sender's generation (P21)
  job @2 :UInt64;              # the sender's job; 0 from a node that does not know it yet
  view @3 :ViewId;             # the sender's newest view
  sender @4 :PeerId;           # set by the sender (P19)
  receiver @5 :PeerId;         # set by the sender; another incarnation refuses the message (P19)
  union {
    register @6 :Register;
    welcome @7 :Welcome;
    refused @8 :Refused;
    declarationWanted @56 :DeclarationWanted;
    declaration @57 :Declaration;
    ready @9 :Ready;
    heartbeat @10 :Heartbeat;
    heartbeatAck @11 :HeartbeatAck;
    viewUpdate @12 :ViewUpdate;
    viewDelta @65 :ViewDelta;
    viewWanted @64 :ViewWanted;
    viewHint @66 :ViewHint;
    viewAck @13 :ViewAck;
    push @14 :Push;
    pull @15 :Pull;
    params @16 :Params;
    pushReply @17 :PushReply;
    question @18 :Question;
    answer @19 :Answer;
    peerSilent @39 :PeerSilent;
    gradientHashes @45 :GradientHashes;
    gradientHashesAck @46 :GradientHashesAck;
    leave @44 :Leave;
    root @33 :Root;
    rootAck @34 :RootAck;
    partials @52 :Partials;
    partialsPull @53 :PartialsPull;
    chunk @35 :Chunk;
    chunkAck @36 :ChunkAck;
    synced @37 :Synced;
    divergence @38 :Divergence;
    hashWanted @67 :HashWanted;
    recordHashes @68 :RecordHashes;
    snapshotStored @40 :SnapshotStored;
    snapshotAck @41 :SnapshotAck;
    snapshotAt @42 :SnapshotAt;
    snapshotAtAck @43 :SnapshotAtAck;
    restoreFailed @51 :RestoreFailed;
    storeFile @58 :StoreFile;
    storeFileAck @59 :StoreFileAck;
    readFile @60 :ReadFile;
    filePart @61 :FilePart;
    listFiles @62 :ListFiles;
    fileNames @63 :FileNames;
    mirrorStart @69 :MirrorStart;
    mirrorStarted @70 :MirrorStarted;
    mirrorPart @71 :MirrorPart;
    mirrorAck @72 :MirrorAck;
    scalarsRequest @20 :ScalarsRequest;
    scalars @21 :Scalars;
    progress @22 :Progress;
    progressAck @23 :ProgressAck;
    evaluate @24 :Evaluate;
    evaluationResult @25 :EvaluationResult;
    releasePin @26 :ReleasePin;
    pinReleased @27 :PinReleased;
    failure @30 :Failure;
    stop @28 :Stop;
    bye @29 :Bye;
    statusRequest @31 :StatusRequest;
    statusReport @32 :StatusReport;
    command @47 :Command;
    commandReply @48 :CommandReply;
    faultNote @49 :FaultNote;
    faultNoteAck @50 :FaultNoteAck;
    retired54 @54 :Void;
    retired55 @55 :Void;
  }
}

enum Role {
  scheduler @0;
  server @1;
  worker @2;
  client @3;  # asks for the run's status; not a member
}

struct PeerId $compared {
  # One addressable party of the protocol: a process life (node and incarnation) and, in a server, the
  # lane.
  node @0 :UInt32 $type("NodeId") $initial("kUnknownNode");
    # The id that the scheduler gave. A node without a Welcome has kUnknownNode.
  incarnation @2 :UInt64 $type("Incarnation");
    # It is drawn for each process life. 0 as a receiver: any incarnation (only for Register and clients).
  lane @1 :UInt16 $limit(what = "lane", max = "kLanesMax - 1");
    # The index of a server's lane; 0 in workers and the scheduler.
}

struct ViewId $compared {
  # The scheduler numbers its views.
  term @0 :UInt64;  # incremented at each start of the scheduler
  number @1 :UInt64;  # within the term; 0: there is no view yet
}

# ---- membership and views: node <-> scheduler -----------------------------------------------------

struct Register $message(handlers = [scheduler, intake], sender = newcomer) $compared {
  # Node -> scheduler, repeated until Welcome or Refused.
  role @0 :Role $initial("Role::kWorker");
  host @2 :Text $limit(.hostBytes);  # host name, for people and to place replicas apart
  processId @1 :UInt32;  # the operating system's, on `host`
  laneEndpoints @3 :List(Text) $limit(what = "lane count", max = "kLanesMax") $each(.endpointBytes);
    # a server's, by lane: "tcp://10.0.0.3:41213"; a worker has one if it has a rack
  wantedRank @4 :UInt32 = 0xffffffff;  # within its role; another one if this is in use
  processKey @5 :UInt64;  # drawn for the process, as two containers may agree in host and id
  publicKey @6 :Text $limit(.publicKeyBytes);  # this process life's, if the run has keys (P44)
  machine @7 :Text $limit(.hostBytes);  # a server's failure domain (MachineOf); empty: `host`
  rack @8 :Text $limit(.hostBytes);  # label of machines that fail together; empty: none
}

struct DataFacts $byHand {
  # The facts of a data set (plan/job_plan.h), from the process that opened it.
  trainSamples @0 :UInt64 $limit(what = "training sample count", max = "kStepMax");
  testSamples @1 :UInt64 $limit(what = "test sample count", max = "kStepMax");
  shape :group $type("SampleShape") {
    height @2 :UInt32;  # in pixels
    width @3 :UInt32;  # in pixels; in a table the columns
    channels @4 :UInt32;  # values per pixel
  }
  classCount @5 :UInt32;
  fingerprint @6 :UInt64;  # hash of the data set (P38)
}

struct Welcome $message(handlers = [joiner], sender = onlyScheduler, size = document) {
  # Scheduler -> node. A repeated Register gets the same answer.
  node @0 :UInt32 $type("NodeId");  # id given to this incarnation
  rank @1 :UInt32 $limit(what = "rank", max = "kNodesMax");
    # index among its role, 0..: for names in logs
  jobToml @2 :Text $limit(what = "bytes of a job file", max = "kDocumentBytesMax");
    # the resolved job file
  data @3 :DataFacts;  # the scheduler's facts about the data set
  snapshotDir @4 :Text $limit(what = "bytes of a snapshot folder", max = "kPathBytesMax");
    # on the scheduler's machine (P29); absolute
  filesEndpoint @5 :Text $limit(.endpointBytes);
    # The endpoint of the scheduler's file store, at the host where the node reaches it; empty:
    # servers read and write snapshot_dir themselves (P45).
  viewKey @6 :Text $limit(.publicKeyBytes);
    # the public key that signs views, if the run has keys (P44)
}

struct DeclarationWanted $message(handlers = [joiner], sender = onlyScheduler) {
  # P43. Scheduler -> worker whose program declares the run, instead of Welcome: asks for the part of
  # the declaration that begins at `offset`.
  offset @0 :UInt64;  # of version 0's flat vector, in bytes
}

struct Declaration $message(handlers = [intake], sender = newcomer, size = payloads) {
  # Worker -> scheduler: answers DeclarationWanted with a part of the run that its program declares.
  jobToml @0 :Text $limit(what = "bytes of a job file", max = "kDocumentBytesMax");
    # sections of a job file: model, data, train, optimizer, schedule, eval
  offset @1 :UInt64;  # copied
  payload @2 :Data;  # bytes of version 0's flat vector from the offset on
}

enum RefusalKind {
  notThisOne @0;  # the process does not fit
  runIsOver @1;  # no process can join any more
  givenUp @2;
    # The process was declared dead. It may join as another incarnation (P19).
}

struct Refused $message(handlers = [joiner, lane, worker, group], sender = onlyScheduler) {
  # Scheduler -> node, which cannot take part (any more).
  reason @0 :Text $limit(what = "bytes of a reason", max = "kTextBytesMax");
    # for people: the misfit, and what to do
  kind @1 :RefusalKind;
}

struct Ready $message(handlers = [scheduler], sender = nodes) $compared {
  # Node -> scheduler, repeated until a view has the node: the node has loaded all that the job needs.
  kind @0 :Text $limit(what = "bytes of a worker kind", max = "kNameBytesMax");
    # backend, instruction set, library versions (P40)
  probeHash @1 :UInt64;  # worker: gradient hash of a probe micro-batch (P40)
  dataFingerprint @2 :UInt64;  # worker: its data set's (P38)
}

enum Activity {
  # The activity of a process.
  starting @0;
  idle @1;
  computing @2;
  waitingForParameters @3;
  evaluating @4;
  serving @5;
  leaving @6;
}

struct LineTraffic {
  # Bytes of messages that a process has exchanged by one kind of connection, including its payloads
  # in shared memory.
  sent @0 :UInt64;
  received @1 :UInt64;
}

struct Heartbeat $message(handlers = [scheduler], sender = nodes, channel = heartbeat) {
  # Node -> scheduler, from a separate thread, every heartbeat_ms.
  activity @0 :Activity;
  step @1 :UInt64 $type("Step");  # the step it works on
  waitingFor @2 :PeerId;
    # kWaitingForParameters: the lane that owes them. kServing: the backup that owes lane 0 an
    # acknowledgement. Unset: none.
  waitingMs @3 :UInt64;  # milliseconds since the wait began
  microBatchUs @4 :UInt64;  # worker: recent time of a micro-batch; 0 while unknown
  dataStallUs @5 :UInt64;  # worker: its threads' waits for samples so far
  exposedSyncUs @8 :UInt64;  # worker: mean of its threads' waits for parameters so far
  gpuMemoryBytes @6 :UInt64;  # worker: used on its GPU by all processes; 0: none, or unknown
  gpuPercent @7 :UInt32;  # worker: share of the last second with a running kernel
  tcpLines @9 :UInt32;
    # Connections to lanes with payloads over TCP. A server counts those of its first lane.
  ipcLines @10 :UInt32;  # connections with payloads over a Unix socket
  shmLines @11 :UInt32;  # connections with payloads in shared memory
  samplesWaitMs @12 :UInt64;  # worker: how long a thread has been waiting for samples now
  logLine @13 :Text $limit(what = "bytes of a log's line", max = "kLogLineBytesMax");
    # the last line of its log; empty: its output is no file
  tcpTraffic @14 :LineTraffic;  # the whole process's, over TCP
  ipcTraffic @15 :LineTraffic;  # the whole process's, over Unix sockets
  shmTraffic @16 :LineTraffic;  # the whole process's, with payloads in shared memory
  schedulersHash @17 :UInt64;  # of the schedulers in the last HeartbeatAck (P47); 0: none came
}

struct HeartbeatAck $message(handlers = [], sender = onlyScheduler, channel = heartbeat) {
  # Scheduler -> node, by the same channel.
  schedulers @0 :List(Text) $limit(what = "scheduler count", max = "kSchedulersMax") $each(.endpointBytes);
    # Where all schedulers of the run listen, if it may have several (P47).
  isGivenUp @1 :Bool;  # the sender is not a member any more: it has to join again
}

struct NodeInfo $compared {
  # A member of a view, as it has registered.
  node @0 :UInt32 $type("NodeId");
  incarnation @2 :UInt64 $type("Incarnation");
  role @3 :Role $initial("Role::kWorker");
  rank @1 :UInt32 $limit(what = "rank", max = "kNodesMax");  # index among the nodes of its role
  host @4 :Text $limit(.hostBytes);
  laneEndpoints @5 :List(Text) $limit(what = "lane count", max = "kLanesMax") $each(.endpointBytes);
    # by lane; a worker's, if it has any: where its rack's workers reach it (P6a)
  probeHash @6 :UInt64;  # worker: from its Ready; workers of one kind have the same (P40)
  publicKey @7 :Text $limit(.publicKeyBytes);  # from its Register
  rack @8 :Text $limit(.hostBytes);  # from its Register, where racks sum (P6a); else empty
}

struct SyncingBackup $compared {
  # A newcomer to which the primary is sending a shard.
  peer @0 :PeerId;
  since @1 :ViewId;  # P24: the view that made the pair (primary, newcomer)
}

struct ShardPlacement $compared {
  # The lanes that hold the shard with this index.
  primary @0 :PeerId;  # its node is kUnknownNode while there is none
  inSyncBackups @1 :List(PeerId) $limit(what = "replica count", max = "kReplicasMax");
  syncingBackups @2 :List(SyncingBackup) $limit(what = "syncing replica count", max = "kReplicasMax");
}

struct MicroBatchOwner $compared {
  # The worker that computes the micro-batch with this index.
  worker @0 :UInt32 $type("NodeId");  # kUnknownNode: there is no worker
  firstStep @2 :UInt64 $type("Step");  # P18: the owner computes from this step on
  previous @1 :UInt32 $type("NodeId") $initial("kUnknownNode");
    # Computes before first_step, if that is above the lowest incomplete step.
}

struct SnapshotRef $compared {
  # A complete snapshot: every shard's record of one version, of one generation (P29).
  generation @1 :UInt32;
  version @0 :UInt64 $type("Version");  # 0: made from the job's seed, without files
}

struct View {
  # P17: membership, placement and assignment together.
  id @0 :ViewId;
  generation @1 :UInt32;  # of this view (P21)
  restore @5 :SnapshotRef;
    # The snapshot from which this generation began (P21). A replica that the view names in sync,
    # and that has no data of this generation, restores it from this snapshot.
  nodes @2 :List(NodeInfo) $limit(what = "node count", max = "kNodesMax");
  shards @3 :List(ShardPlacement) $limit(what = "shard count", max = "kShardsMax");  # by shard id
  owners @4 :List(MicroBatchOwner) $limit(what = "micro-batch count", max = "kMicroBatchesMax");
    # by micro-batch index
}

struct ViewUpdate $message(handlers = [scheduler, lane, worker, group], sender = nodes,
    size = list) {
  # A whole view: scheduler -> node that has no view from which a ViewDelta could begin; and the
  # answer to ViewWanted.
  view @0 :Data $type("SharedView");  # packed: a Cap'n Proto message whose root is the View
  signature @1 :Text $limit(what = "bytes of a signature", max = "kSignatureBytesMax");
    # the scheduler's, over the view (P44); empty without keys
}

struct PlacedShard {
  # A shard whose lanes have changed.
  shard @0 :UInt32 $type("ShardId");
  placement @1 :ShardPlacement;
}

struct OwnerRun {
  # Consecutive micro-batches that have the same new owner.
  first @0 :UInt32 $type("MicroBatch");
  count @1 :UInt32 $limit(what = "micro-batches of a run", max = "kMicroBatchesMax");
  owner @2 :MicroBatchOwner;
}

struct ViewChange {
  # The difference between two views (proto/view_delta.h).
  base @0 :ViewId;  # the older view
  baseHash @1 :UInt64;  # SharedView::hash of it
  id @2 :ViewId;  # of the newer view, as are the other fields
  generation @3 :UInt32;
  restore @4 :SnapshotRef;
  removed @5 :List(UInt32) $type("NodeId") $limit(what = "node count", max = "kNodesMax");
  changed @6 :List(NodeInfo) $limit(what = "node count", max = "kNodesMax");  # and added ones
  shards @7 :List(PlacedShard) $limit(what = "shard count", max = "kShardsMax");
  owners @8 :List(OwnerRun) $limit(what = "micro-batch count", max = "kMicroBatchesMax");
  hash @9 :UInt64;
}

struct ViewDelta $message(handlers = [lane, worker, group], sender = onlyScheduler, size = list) {
  # Scheduler -> node, repeated until acknowledged: the difference between the view that the node
  # has acknowledged and the newest one (P17a).
  change @0 :Data $type("SharedChange");  # in the form of ViewUpdate::view
  signature @1 :Text $limit(what = "bytes of a signature", max = "kSignatureBytesMax");
}

struct ViewWanted $message(handlers = [scheduler, lane, worker, group], sender = nodes) {
  # Scheduler -> node: asks for a view that the node has named and the scheduler does not know (P26).
  # Node -> scheduler or a peer: asks for its view (P13, P17a).
}

struct ViewHint $message(handlers = [lane, worker, group], sender = nodes) {
  # Node -> peer that shows an older view: the envelope names the newer one (P13).
}

struct ViewAck $message(handlers = [scheduler], sender = nodes) {
  # Node -> scheduler: the newest view that the node has.
  id @0 :ViewId;  # it may be newer than the acknowledged one (P26)
  generation @1 :UInt32;  # of that view
}

struct StepScalars {
  # The optimizer's inputs at one step that only the scheduler computes (P36).
  lr @0 :Float32;
  momentum @1 :Float32;  # SGD's momentum or Adam's beta1, if the schedule cycles it
  biasCorrection1 @2 :Float32 $initial("1");  # Adam: 1 − beta1^(t+1); Adagrad: 1 + t · lr_decay
  biasCorrection2Sqrt @3 :Float32 $initial("1");  # Adam, NAdam: √(1 − beta2^(t+1))
  gradientFactor @4 :Float32 $initial("0");  # NAdam: of the gradient in the direction
  meanFactor @5 :Float32 $initial("0");  # NAdam: of the mean in the direction
}

# ---- the step: worker <-> server lane -------------------------------------------------------------

struct PushItem {
  # A sum of gradients for one shard. It also requests version step + 1 of the shard.
  shard @0 :UInt32 $type("ShardId");
  step @2 :UInt64 $type("Step");
  node @1 :UInt32 $type("TreeNode") $min(1);  # canonical
  payload @3 :Data;  # a sum over the node's samples, unscaled: floats, or encoded (P34)
}

struct Push $message(handlers = [lane, worker], sender = workers, generation = one,
    size = payloads) {
  # Worker -> the lane of the primary (P6), or a relay (P6a).
  items @0 :List(PushItem) $limit(what = "pushes in a message", max = "kItemsPerMessageMax");
}

enum ParamsForm $byHand {
  # See plan/payload_plan.h.
  exact @0;
  encoded @1;
}

struct PullItem {
  # A request for exactly this version of a shard (I4).
  shard @0 :UInt32 $type("ShardId");
  version @1 :UInt64 $type("Version");
  form @2 :ParamsForm;  # the wanted form of the payload
}

struct Pull $message(handlers = [lane], sender = workers, generation = one, size = list) {
  # Worker or scheduler -> lane, if no push asks for the version: at a start, with layer residency,
  # for an evaluation, for the final weights.
  items @0 :List(PullItem) $limit(what = "pulls in a message", max = "kItemsPerMessageMax");
}

struct ParamsItem {
  # A committed version of a shard, whole.
  shard @0 :UInt32 $type("ShardId");
  version @1 :UInt64 $type("Version");  # of the payload; committed (P9)
  payload @2 :Data;
  form @3 :ParamsForm;  # of the payload, as requested; a push requests the job's form
}

struct Params $message(handlers = [scheduler, worker, group], sender = nodes, generation = one,
    about = primary, size = payloads) {
  # Lane -> the sender of the push or the pull; relay -> giver (P6a).
  items @0 :List(ParamsItem) $limit(what = "shards in a message", max = "kItemsPerMessageMax");
}

enum PushOutcome {
  # The state of a shard that has no version to send (P10).
  pending @0;  # the push is held; Params follows once, without a further request
  behind @1;  # the requested version is gone; PushReplyItem.current is the committed one
  notPrimary @2;  # this lane is not the shard's primary in its view
}

struct PushReplyItem {
  # The outcome of a push or a pull of one shard.
  shard @0 :UInt32 $type("ShardId");
  version @2 :UInt64 $type("Version");  # requested
  node @1 :UInt32 $type("TreeNode");  # of the answered push; 0 for a pull
  outcome @3 :PushOutcome;
  current @4 :UInt64 $type("Version");  # the committed version, with the outcome kBehind
}

struct PushReply $message(handlers = [worker], sender = servers, generation = one, about = primary,
    size = list) {
  # Lane -> the sender of the push or the pull (P10).
  items @0 :List(PushReplyItem) $limit(what = "replies in a message", max = "kItemsPerMessageMax");
}

struct Question $message(handlers = [lane, worker], sender = workers, generation = one,
    size = list) {
  # Worker -> every primary's lane on each new view (P17); repeated until answered.
  view @0 :ViewId;  # the worker's; an answer with another view is dropped
}

struct AnswerItem {
  # The versions and contributions of one shard that the lane has.
  shard @0 :UInt32 $type("ShardId");
  version @1 :UInt64 $type("Version");  # committed
  nodes @2 :List(UInt32) $type("TreeNode") $min(1)
      $limit(what = "tree nodes of a shard", max = "kMicroBatchesMax");
    # The nodes that are held for the step that updates this version.
  laterNodes @3 :List(UInt32) $type("TreeNode") $min(1)
      $limit(what = "tree nodes of a shard", max = "kMicroBatchesMax");
    # The nodes that are held for the step after it. Only with train.staleness.
}

struct Answer $message(handlers = [worker], sender = nodes, generation = one, about = primary,
    size = list) {
  # Lane -> worker.
  view @0 :ViewId;  # copied from the question
  items @1 :List(AnswerItem) $limit(what = "shards in an answer", max = "kItemsPerMessageMax");
    # every shard whose primary this lane is; a relay's: those that it sums
}

# ---- replication: primary's lane <-> backup's lane ------------------------------------------------

struct RootItem {
  # The root of a step's tree for one shard (P8).
  shard @0 :UInt32 $type("ShardId");
  step @1 :UInt64 $type("Step");
  scalars @2 :StepScalars;  # of that step
  payload @3 :Data;  # the tree's root: a sum over the step's samples, unscaled; empty: a question
  factors @4 :List(Float32) $initial("{}")
      $limit(what = "factors of a shard", max = "kPartialsPerShardMax");
    # P16: the factors of this shard, from all partial values (PartialPlan). Empty if the update
    # needs none.
}

struct Root $message(handlers = [lane], sender = servers, generation = one, about = replica,
    size = payloads) {
  # Primary -> each in-sync backup, and each syncing one whose transfer is complete; repeated until
  # acknowledged. It counts only if both are in the envelope's view (P13). A promoted primary asks
  # its backups with an item without a payload; one that has made that version answers with its root
  # (P22).
  items @0 :List(RootItem) $limit(what = "roots in a message", max = "kItemsPerMessageMax");
  firstRow @1 :UInt64 $type("Step");  # the scheduler has the metric rows below it
}

struct RootAckItem {
  # A version that the backup has made. A repeated root is acknowledged again.
  shard @0 :UInt32 $type("ShardId");
  version @1 :UInt64 $type("Version");  # made by the backup
  hash @2 :UInt64;  # of the record, optimizer state included
  isAnswer @3 :Bool;  # to a promoted primary's question; the version is the backup's newest (P22)
}

struct RootAck $message(handlers = [lane], sender = servers, generation = one, about = replica,
    size = list) {
  # Backup -> primary.
  items @0 :List(RootAckItem) $limit(what = "root acknowledgements", max = "kItemsPerMessageMax");
}

struct PartialsItem {
  # The values of one shard that other shards need for their update (P16).
  shard @0 :UInt32 $type("ShardId");
  step @1 :UInt64 $type("Step");
  values @2 :List(Float32) $limit(what = "partial values of a shard", max = "kPartialsPerShardMax");
    # Optimizer::MakePartials
}

struct PartialSum {
  # The part of the partial values that every update needs, added up over these shards (P16).
  step @0 :UInt64 $type("Step");
  shards @1 :List(UInt32) $type("ShardId")
      $limit(what = "shards of a sum", max = "kItemsPerMessageMax");  # empty: all shards
  values @2 :List(Float32) $limit(what = "values of a partial sum", max = "kPartialSumFloatsMax");
    # PartialTotal
}

struct Partials $message(handlers = [lane], sender = servers, generation = one, about = replica,
    size = list) {
  # Primary's lane -> lanes of the primaries whose updates need these values: once when the shards'
  # roots are complete, then in answer to a PartialsPull, at once, with the available values.
  items @0 :List(PartialsItem) $limit(what = "shards in a message", max = "kItemsPerMessageMax");
  sums @1 :List(PartialSum) $limit(what = "sums in a message", max = "kItemsPerMessageMax");
}

struct PartialsPullItem {
  # A shard and step whose values are missing.
  shard @0 :UInt32 $type("ShardId");
  step @1 :UInt64 $type("Step");
}

struct PartialsPull $message(handlers = [lane], sender = servers, generation = one, size = list) {
  # Primary's lane -> primary's lane, repeated until the values arrive.
  items @0 :List(PartialsPullItem) $limit(what = "pulls in a message", max = "kItemsPerMessageMax");
}

struct Chunk $message(handlers = [lane], sender = servers, generation = one, about = primary,
    size = payloads) {
  # Source -> newcomer: a piece of a shard's frozen image (P20). The image has the kept versions'
  # parameters, ascending, then the newest version's optimizer state.
  shard @0 :UInt32 $type("ShardId");
  pair @1 :ViewId;  # SyncingBackup::since
  versions @2 :List(UInt64) $type("Version")
      $limit(what = "versions of an image", max = "kImageVersionsMax");
    # The committed versions that the source keeps, ascending: pinned, earlier ones, newest. Only
    # the newest has optimizer state.
  imageFloats @3 :UInt64 $limit(what = "floats of an image", max = "kImageFloatsMax");
    # of the whole image
  offset @4 :UInt64 $limit(what = "offset of a chunk", max = "m.image_floats");
    # of the payload, in floats
  payload @5 :Data;  # fp32, little-endian
}

struct ChunkAck $message(handlers = [lane], sender = servers, generation = one, about = replica,
    size = list) {
  # Newcomer -> source.
  shard @0 :UInt32 $type("ShardId");
  pair @1 :ViewId;  # copied
  newest @2 :UInt64 $type("Version");  # of the image
  floatsTaken @3 :UInt64 $limit(what = "floats taken of an image", max = "kImageFloatsMax");
    # from the image's start, without a gap
  hash @4 :UInt64;  # of the newest version's record, once all floats are taken; before that 0
}

struct SyncedItem {
  # A newcomer that has acknowledged every version that was made, committed or not (P24).
  shard @0 :UInt32 $type("ShardId");
  newcomer @1 :PeerId;
  pair @2 :ViewId;  # SyncingBackup.since
}

struct Synced $message(handlers = [scheduler], sender = servers, generation = one, about = primary,
    size = list) {
  # Primary's lane -> scheduler, repeated until a view answers.
  items @0 :List(SyncedItem) $limit(what = "synced shards", max = "kItemsPerMessageMax");
}

struct Divergence $message(handlers = [scheduler], sender = servers, generation = one,
    about = primary) {
  # Primary's lane -> scheduler, repeated until a view or generation answers: a backup has made a
  # different version (P8), or its image has other bits (P20).
  shard @0 :UInt32 $type("ShardId");
  version @1 :UInt64 $type("Version");
  backup @2 :PeerId;
  primaryHash @3 :UInt64;  # of the primary's record
  backupHash @4 :UInt64;  # of the backup's
}

struct HashWanted $message(handlers = [lane], sender = onlyScheduler, generation = one) {
  # Scheduler -> lanes of a shard whose replicas differ, repeated until they answer (P8).
  shard @0 :UInt32 $type("ShardId");
  version @1 :UInt64 $type("Version");
}

struct RecordHashes $message(handlers = [scheduler], sender = servers, generation = one,
    about = replica) {
  # Lane -> scheduler, once it has made the version: its hash of the record.
  shard @0 :UInt32 $type("ShardId");
  version @1 :UInt64 $type("Version");
  madeHash @2 :UInt64;  # when the version was made
  nowHash @3 :UInt64;  # of the same memory now; the other one if it holds a later version already
}

struct PeerSilent $message(handlers = [scheduler], sender = nodes, generation = one) {
  # Lane or worker -> scheduler: a peer has not answered for two leases (P23).
  peer @0 :PeerId;  # the silent one
  silentMs @1 :UInt64;  # milliseconds since it was asked
}

# ---- snapshots (P29): lane <-> scheduler ----------------------------------------------------------

struct SnapshotStoredItem {
  # A shard's record in a snapshot.
  shard @0 :UInt32 $type("ShardId");
  version @1 :UInt64 $type("Version");
  hash @2 :UInt64;  # of the record
  file @3 :Text $limit(.fileNameBytes);  # within the snapshot folder
  failure @4 :Text $limit(what = "bytes of a failure", max = "kTextBytesMax");
    # why it could not be stored; empty: it is stored
}

struct SnapshotStored $message(handlers = [scheduler], sender = servers, generation = one,
    about = holder, size = list) {
  # Lane -> scheduler, repeated until acknowledged (P29).
  items @0 :List(SnapshotStoredItem) $limit(what = "stored shards", max = "kItemsPerMessageMax");
}

struct SnapshotAckItem {
  # A record that the scheduler knows to be stored.
  shard @0 :UInt32 $type("ShardId");
  version @1 :UInt64 $type("Version");
}

struct SnapshotAck $message(handlers = [lane], sender = onlyScheduler, generation = one,
    size = list) {
  # Scheduler -> lane.
  items @0 :List(SnapshotAckItem)
      $limit(what = "snapshot acknowledgements", max = "kItemsPerMessageMax");
}

struct SnapshotAt $message(handlers = [lane], sender = onlyScheduler, generation = one) {
  # Scheduler -> lane, repeated until acknowledged: store this version too, besides the due ones.
  version @0 :UInt64 $type("Version");
}

struct SnapshotAtAck $message(handlers = [scheduler], sender = servers, generation = one) {
  # Lane -> scheduler.
  version @0 :UInt64 $type("Version");  # copied
}

struct RestoreFailed $message(handlers = [scheduler], sender = servers, generation = one,
    about = holder) {
  # Lane -> scheduler, repeated until a new generation: it cannot restore a shard for which the view
  # names it in sync.
  snapshot :group $type("SnapshotRef") {  # View.restore
    generation @0 :UInt32;
    version @1 :UInt64;
  }
  shard @2 :UInt32 $type("ShardId");
  isCorrupt @3 :Bool;  # the data are damaged; else this server cannot read them
  text @4 :Text $limit(what = "bytes of a failure", max = "kTextBytesMax");
    # for people: the file and what is wrong
}

# ---- files: node <-> the scheduler's file store (P45) ---------------------------------------------

struct StoreFile $message(handlers = [files], sender = nodes, size = payloads) {
  # Node -> store: bytes of a file. Repeated until answered.
  name @0 :Text $limit(.fileNameBytes);
    # within the run folder: "snapshots/g000-v000000500-...safetensors"
  offset @1 :UInt64 $limit(what = "offset in a file", max = "kFileBytesMax");  # of the payload
  size @2 :UInt64 $limit(what = "bytes of a file", max = "kFileBytesMax");  # of the file
  hash @3 :Text $limit(what = "bytes of a hash", max = "kHashBytesMax");  # of the file (Hash128)
  payload @4 :Data $bytes;  # its own frame
}

struct StoreFileAck $message(handlers = [fileClient], sender = onlyScheduler) {
  # Store -> node.
  name @0 :Text $limit(.fileNameBytes);  # copied
  offset @1 :UInt64 $limit(what = "offset in a file", max = "kFileBytesMax");
    # bytes that the store has: the next piece begins there
  isStored @2 :Bool;  # whole and durable
  failure @3 :Text $limit(what = "bytes of a failure", max = "kTextBytesMax");
    # why it cannot be stored; empty: it can
}

struct ReadFile $message(handlers = [files], sender = nodes) {
  # Node -> store, repeated until answered.
  name @0 :Text $limit(.fileNameBytes);  # within the run folder
  offset @1 :UInt64 $limit(what = "offset in a file", max = "kFileBytesMax");
  size @2 :UInt64 $limit(what = "bytes to read", max = "kFilePartBytesMax");
    # bytes wanted; 0: only the file's size
}

struct FilePart $message(handlers = [fileClient], sender = onlyScheduler, size = payloads) {
  # Store -> node.
  name @0 :Text $limit(.fileNameBytes);  # copied
  offset @1 :UInt64 $limit(what = "offset in a file", max = "kFileBytesMax");  # copied
  fileSize @2 :UInt64 $limit(what = "bytes of a file", max = "kFileBytesMax");  # of the whole file
  isMissing @3 :Bool;  # there is no such file
  failure @4 :Text $limit(what = "bytes of a failure", max = "kTextBytesMax");
    # why it cannot be read; empty: it can
  payload @5 :Data $bytes;  # fewer bytes than wanted: the file ends there
}

struct ListFiles $message(handlers = [files], sender = nodes) {
  # Node -> store, repeated until answered: asks for the names of files that begin with a prefix.
  prefix @0 :Text $limit(.fileNameBytes);  # the names' beginning
  after @1 :Text $limit(.fileNameBytes);  # only names that come after this one
}

struct FileNames $message(handlers = [fileClient], sender = onlyScheduler, size = list) {
  # Store -> node.
  prefix @0 :Text $limit(.fileNameBytes);  # copied
  after @1 :Text $limit(.fileNameBytes);  # copied
  names @2 :List(Text) $limit(what = "file names", max = "kFileNamesMax") $each(.fileNameBytes);
    # ascending, at most kFileNamesMax; if there are that many, there may be more
}

# ---- a mirrored run folder: leader -> standby scheduler (P47) --------------------------------------

struct MirrorStart $message(handlers = [standby], sender = admin) {
  # Leader -> standby. Repeated until answered.
  session @0 :UInt64;  # random; the standby removes the files of its earlier session
  term @1 :UInt64;  # orders leaders: a standby begins no session of an earlier one
}

struct MirrorStarted $message(handlers = [mirror], sender = onlyScheduler) {
  # Standby -> leader.
  session @0 :UInt64;  # copied
}

enum MirrorKind {
  # How a part changes the standby's file.
  whole @0;  # of a file that gets its name when all bytes are there
  growing @1;  # of a file that grows at its end
  removed @2;  # the leader has removed the file
}

struct MirrorPart $message(handlers = [standby], sender = admin, size = payloads) {
  # Leader -> standby: bytes of a file. Repeated until acknowledged.
  session @0 :UInt64;
  part @1 :UInt64;
    # number in the session, from 1: the standby takes parts in this order; 0 only asks for an answer
  kind @2 :MirrorKind;
  name @3 :Text $limit(.fileNameBytes);  # within the run folder
  offset @4 :UInt64 $limit(what = "offset in a file", max = "kFileBytesMax");
    # of the payload; at 0 the file begins again
  size @5 :UInt64 $limit(what = "bytes of a file", max = "kFileBytesMax");  # of the file
  hash @6 :Text $limit(what = "bytes of a hash", max = "kHashBytesMax");
    # of a whole file (Hash128), in its last part
  payload @7 :Data $bytes;  # its own frame
}

struct MirrorAck $message(handlers = [mirror], sender = onlyScheduler) {
  # Standby -> leader.
  session @0 :UInt64;  # copied; 0: the standby does not have the session, and the leader begins again
  part @1 :UInt64;  # the standby has the parts up to this number durably
  failure @2 :Text $limit(what = "bytes of a failure", max = "kTextBytesMax");
    # why it cannot take the next part; empty: it can
}

# ---- scalars and progress: lane <-> scheduler -----------------------------------------------------

struct ScalarsRequest $message(handlers = [scheduler], sender = servers, size = list) {
  # Lane -> scheduler, repeated until answered.
  first @0 :UInt64 $type("Step");  # a multiple of kScalarsPerBlock
}

struct Scalars $message(handlers = [lane], sender = onlyScheduler, generation = one, size = list) {
  # Scheduler -> lane.
  first @0 :UInt64 $type("Step");  # copied from the request
  steps @1 :List(StepScalars) $limit(what = "steps of scalars", max = "kScalarsPerBlock");
    # up to kScalarsPerBlock, fewer at the end of the job
}

struct StepMetrics {
  # Means over the samples of one step.
  step @0 :UInt64 $type("Step");
  loss @1 :Float32;
  accuracy @2 :Float32;  # 0 to 1
  logged @3 :List(Float32) $limit(what = "logged means", max = "kEvaluationSumsMax");
    # of an external model: those that train.logs names
}

struct Progress $message(handlers = [scheduler], sender = servers, generation = one, size = list) {
  # Lane -> scheduler, at once in a new view. Rows are repeated until acknowledged. They start with
  # the lowest row that the lane has and that is not acknowledged.
  committed @0 :UInt64 $type("Version");
    # The version that all shards of which the lane is primary have committed; the final version if
    # there are none. It counts only for the envelope's view.
  rows @1 :List(StepMetrics) $limit(what = "metric rows", max = "kMetricRowsPerMessageMax");
    # ascending; from the lane of the metric shard
}

struct ProgressAck $message(handlers = [lane], sender = onlyScheduler, generation = one,
    size = list) {
  # Scheduler -> lane.
  committed @0 :UInt64 $type("Version");  # copied
  nextRow @1 :UInt64 $type("Step");  # the scheduler has the rows below it
}

# ---- evaluation (P31) -----------------------------------------------------------------------------

enum EvaluationPart {
  slice @0;  # of the test set
  report @1;  # P31a: the program's function gets the version and the sums of all slices
}

struct Evaluate $message(handlers = [worker, group], sender = onlyScheduler, generation = one,
    size = list) {
  # Scheduler -> worker, repeated until answered: evaluate test samples [first, last) at a pinned
  # version, or report the version's sums.
  version @0 :UInt64 $type("Version");  # pinned
  slice @1 :UInt32;  # index of this slice of the test set; for a report the number of slices
  firstSample @2 :UInt64;  # [firstSample, lastSample) of the test set; for a report none
  lastSample @3 :UInt64 $limit(what = "sample index", max = "kStepMax");
  part @4 :EvaluationPart;
  sums @5 :List(Float64) $initial("{}")
      $limit(what = "sums of an evaluation", max = "kEvaluationSumsMax");
    # for a report, over the whole test set: by name, as in the job's eval.sums
}

struct ConfusionCount $compared {
  # Samples of one class by their predicted class.
  label @0 :UInt32;  # class of the samples
  predicted @1 :UInt32;  # class of their largest output
  count @2 :UInt32;  # of samples, at least one
}

struct EvaluationResult $message(handlers = [scheduler], sender = workers, generation = one,
    about = slice, size = list) {
  # Worker -> scheduler.
  version @0 :UInt64 $type("Version");  # copied
  slice @1 :UInt32;  # copied
  sampleCount @2 :UInt64 $limit(what = "sample count", max = "kStepMax");  # samples evaluated
  correctCount @3 :UInt64 $limit(what = "correct count", max = "m.sample_count");
    # samples whose largest output is their label's
  lossSum @4 :Float64;  # over the samples
  top5Count @5 :UInt64 $limit(what = "top-5 count", max = "m.sample_count");
    # samples with at most four classes ahead of the label
  confusion @6 :List(ConfusionCount) $limit(what = "confusion counts", max = "kConfusionCountsMax");
    # ascending by label and predicted; the slice's samples
  sums @7 :List(Float64) $initial("{}")
      $limit(what = "sums of an evaluation", max = "kEvaluationSumsMax");
    # an external model's sums: by name, as in the job's eval.sums
  stopText @8 :Text $limit(what = "bytes of a reason", max = "kTextBytesMax");
    # for a report: why the run ends with this version (P32); empty: it goes on
}

struct ReleasePin $message(handlers = [lane], sender = onlyScheduler, generation = one) {
  # Scheduler -> lane, repeated until acknowledged: versions up to this one need no pin any more.
  version @0 :UInt64 $type("Version");
}

struct PinReleased $message(handlers = [scheduler], sender = servers, generation = one) {
  # Lane -> scheduler.
  version @0 :UInt64 $type("Version");  # copied
}

# ---- end, failure, status -------------------------------------------------------------------------

enum StopReason {
  # Why a process ends.
  completed @0;
  failed @1;
  interrupted @2;
  drained @3;  # other nodes have taken over the receiver's work; the run goes on
}

struct Stop $message(handlers = [joiner, lane, worker, group], sender = onlyScheduler) {
  # Scheduler -> all nodes, repeated until Bye (P33).
  reason @0 :StopReason;
  text @1 :Text $limit(what = "bytes of a stop text", max = "kTextBytesMax");  # for people
}

struct Bye $message(handlers = [scheduler], sender = nodes) {
  # Node -> scheduler: the answer to Stop.
}

enum FailureKind {
  training @0;  # every other machine would fail in the same way (a loss that is not a number)
  machine @1;
    # Only this machine fails (a data file that ends early, a lane that cannot be dialed).
}

struct Failure $message(handlers = [scheduler], sender = nodes) {
  # Node -> scheduler, repeated until Stop or Refused: the node cannot go on.
  text @0 :Text $limit(what = "bytes of a failure", max = "kTextBytesMax");
    # for people: the error, its place, the expected value
  kind @1 :FailureKind;
}

struct Leave $message(handlers = [scheduler], sender = nodes) {
  # Node -> scheduler, repeated until Stop: a signal asked the node to leave. Others take over its
  # work first.
}

struct GradientHash {
  # The hash of a micro-batch's gradient that two workers compute (P41).
  step @0 :UInt64 $type("Step");
  microBatch @1 :UInt32 $type("MicroBatch");  # index within the step
  hash @2 :UInt64;
    # The hash of the whole gradient, in flat order. It is 0 if the sender came too late to compute
    # the gradient.
}

struct GradientHashes $message(handlers = [scheduler], sender = workers, generation = one,
    about = microBatch, size = list) {
  # Worker -> scheduler, repeated until acknowledged.
  items @0 :List(GradientHash) $limit(what = "gradient hashes", max = "kGradientHashesPerMessageMax");
    # ascending by step and micro-batch
}

struct GradientHashesAck $message(handlers = [worker], sender = onlyScheduler, generation = one) {
  # Scheduler -> worker.
  below @0 :UInt64 $type("Step");  # reports of lower steps are known or not needed any more
}

struct StatusRequest $message(handlers = [scheduler, intake], sender = reader) {
  # Client -> scheduler.
}

struct StatusReport $message(handlers = [client], sender = onlyScheduler, size = document) {
  # Scheduler -> client.
  json @0 :Text $limit(what = "bytes of a status report", max = "kDocumentBytesMax");
    # the run's status, one JSON object
}

enum CommandKind {
  # The commands that a client may send.
  drain @0;
  snapshot @1;
  stop @2;
}

struct Command $message(handlers = [scheduler, intake], sender = admin) {
  # Client -> scheduler, repeated by the client until kDone or kRefused. The scheduler recognises a
  # repeat by the client's incarnation.
  kind @0 :CommandKind;
  target @1 :Text $limit(what = "bytes of a target", max = "kNameBytesMax");
    # kDrain: "worker 1", "server-0"
}

enum CommandOutcome {
  # The progress of a command.
  accepted @0;  # in progress
  done @1;
  refused @2;
}

struct CommandReply $message(handlers = [client], sender = onlyScheduler) {
  # Scheduler -> client.
  outcome @0 :CommandOutcome;
  text @1 :Text $limit(what = "bytes of a command's reply", max = "kTextBytesMax");  # for people
}

struct FaultNote $message(handlers = [scheduler, intake], sender = newcomer) {
  # Supervisor (`pando train`, `pando node`) -> scheduler, repeated until acknowledged: a fault that
  # it saw or injected. Times are those of the machine's steady clock, which both share; 0 is unknown.
  number @0 :UInt64;  # given by the supervisor, for the acknowledgement
  action @1 :Text $limit(what = "bytes of a fault's action", max = "kNameBytesMax");
    # "kill", "stop", "partition"; "exit" for a process that ended by itself
  role @2 :Role $initial("Role::kWorker");  # the target's
  host @4 :Text $limit(.hostBytes);  # the target's host name
  processId @3 :UInt32;  # of the target
  target @5 :Text $limit(what = "bytes of a target", max = "kNameBytesMax");
    # "worker 1", as the supervisor names it
  injectedUs @6 :UInt64;  # 0: the supervisor did not inject it
  exitedUs @7 :UInt64;  # when the supervisor saw the process end; 0: it has not ended
  text @8 :Text $limit(what = "bytes of a fault's text", max = "kTextBytesMax");
    # "signal 9 (SIGKILL)"
  processKey @9 :UInt64;  # of the target
}

struct FaultNoteAck $message(handlers = [client], sender = onlyScheduler) {
  # Scheduler -> supervisor.
  number @0 :UInt64;  # copied
}
