# The messages of proto/messages.h on the wire. Only proto/codec_*.cc sees the generated code.
#
# One Cap'n Proto message is one Envelope; each of its segments is one frame (layout in codec.h).
# Payloads are external segments over the gradient or parameter buffer itself.
#
# To change this file, add fields and union members at the end, with new numbers. If a field changes
# its type or meaning, or an older program would misread it, increment kProtocolVersion (codec.h).
# "unset" fields keep Cap'n Proto's default, zero. proto/message_limits.h bounds every count and length.

@0xd3a7be6b6f0c4c11;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("pando::wire");

struct PeerId {            # set by the party itself, or by the scheduler in a view
  node @0 :UInt32;         # id given by the scheduler; 0: the scheduler, 2^32 - 1: no id yet
  lane @1 :UInt16;         # index of a server's lane; 0 in workers and the scheduler
  incarnation @2 :UInt64;  # random, one per process life; 0 as a receiver: any
}

struct ViewId {            # set by the scheduler
  term @0 :UInt64;         # incremented at each start of the scheduler
  number @1 :UInt64;       # within the term; 0: no view yet
}

struct Envelope {
  protocolVersion @0 :UInt32;  # set by the codec; other versions are refused
  generation @1 :UInt32;       # the sender's (P21)
  job @2 :UInt64;              # the sender's job; 0 from a node that does not know it yet
  view @3 :ViewId;             # the newest view the sender has
  sender @4 :PeerId;           # set by the sender (P19)
  receiver @5 :PeerId;         # set by the sender; another incarnation refuses the message (P19)
  union {
    register @6 :Register;
    welcome @7 :Welcome;
    refused @8 :Refused;
    ready @9 :Ready;
    heartbeat @10 :Heartbeat;
    heartbeatAck @11 :HeartbeatAck;
    viewUpdate @12 :ViewUpdate;
    viewAck @13 :ViewAck;
    push @14 :Push;
    pull @15 :Pull;
    params @16 :Params;
    pushReply @17 :PushReply;
    question @18 :Question;
    answer @19 :Answer;
    scalarsRequest @20 :ScalarsRequest;
    scalars @21 :Scalars;
    progress @22 :Progress;
    progressAck @23 :ProgressAck;
    evaluate @24 :Evaluate;
    evaluationResult @25 :EvaluationResult;
    releasePin @26 :ReleasePin;
    pinReleased @27 :PinReleased;
    stop @28 :Stop;
    bye @29 :Bye;
    failure @30 :Failure;
    statusRequest @31 :StatusRequest;
    statusReport @32 :StatusReport;
    root @33 :Root;
    rootAck @34 :RootAck;
    chunk @35 :Chunk;
    chunkAck @36 :ChunkAck;
    synced @37 :Synced;
    divergence @38 :Divergence;
    peerSilent @39 :PeerSilent;
    snapshotStored @40 :SnapshotStored;
    snapshotAck @41 :SnapshotAck;
    snapshotAt @42 :SnapshotAt;
    snapshotAtAck @43 :SnapshotAtAck;
    leave @44 :Leave;
    gradientHashes @45 :GradientHashes;
    gradientHashesAck @46 :GradientHashesAck;
    command @47 :Command;
    commandReply @48 :CommandReply;
    faultNote @49 :FaultNote;
    faultNoteAck @50 :FaultNoteAck;
    restoreFailed @51 :RestoreFailed;
    partials @52 :Partials;
    partialsPull @53 :PartialsPull;
    retired54 @54 :Void;
    retired55 @55 :Void;
    declarationWanted @56 :DeclarationWanted;
    declaration @57 :Declaration;
    storeFile @58 :StoreFile;
    storeFileAck @59 :StoreFileAck;
    readFile @60 :ReadFile;
    filePart @61 :FilePart;
    listFiles @62 :ListFiles;
    fileNames @63 :FileNames;
    viewWanted @64 :ViewWanted;
  }
}

# ---- membership and views: node <-> scheduler -----------------------------------------------------

enum Role {
  scheduler @0;
  server @1;
  worker @2;
  client @3;  # asks for the run's status; not a member
}

struct Register {                  # node -> scheduler
  role @0 :Role;                   # set by the node
  processId @1 :UInt32;            # the operating system's, on `host`
  host @2 :Text;                   # host name, for people and to place replicas apart
  laneEndpoints @3 :List(Text);    # a server's, by lane: "tcp://10.0.0.3:41213"; empty in workers
  wantedRank @4 :UInt32 = 0xffffffff;  # of its role, as in its last incarnation; the default: any
  processKey @5 :UInt64;           # drawn for the process: two containers may have one host name and process id
  publicKey @6 :Text;              # of this process life, in Z85; empty without keys (P44)
  machine @7 :Text;                # of a server: what fails with it; empty: host
  rack @8 :Text;                   # label of what fails together beyond a machine; empty: none
}

struct Welcome {                   # scheduler -> node; every field set by the scheduler
  node @0 :UInt32;                 # id given to this incarnation
  rank @1 :UInt32;                 # index among the nodes of its role
  jobToml @2 :Text;                # the resolved job file
  data @3 :DataFacts;              # as the scheduler read it from the data set
  snapshotDir @4 :Text;            # absolute, of the scheduler's machine (P29)
  filesEndpoint @5 :Text;          # of the file store; empty: servers use snapshotDir (P45)
  viewKey @6 :Text;                # public key of the views' signatures, in Z85; empty without keys (P44)
}

struct DataFacts {                 # set by the process that opened the data set
  trainSamples @0 :UInt64;         # samples, >= 1
  testSamples @1 :UInt64;          # samples
  height @2 :UInt32;               # pixels, >= 1
  width @3 :UInt32;                # pixels, >= 1; columns in a table
  channels @4 :UInt32;             # values per pixel, >= 1
  classCount @5 :UInt32;           # classes, >= 1
  fingerprint @6 :UInt64;          # hash of the data set (P38)
}

enum RefusalKind {
  notThisOne @0;                   # this process does not fit
  runIsOver @1;                    # no process can join any more
  givenUp @2;                      # declared dead: the process may join as another incarnation
}

struct Refused {                   # scheduler -> node
  reason @0 :Text;                 # for people: what does not fit and what to do
  kind @1 :RefusalKind;
}

struct Ready {                     # node -> scheduler; set by the node
  kind @0 :Text;                   # backend, instruction set, library versions (P40)
  probeHash @1 :UInt64;            # worker: gradient hash of a probe micro-batch (P40); server: unset
  dataFingerprint @2 :UInt64;      # worker: of its data set (P38); server: unset
}

struct DeclarationWanted {         # scheduler -> worker (P43); set by the scheduler
  offset @0 :UInt64;               # bytes of version 0 that it has
}

struct Declaration {               # worker -> scheduler (P43); set by the worker
  jobToml @0 :Text;                # sections of a job file
  offset @1 :UInt64;               # of the payload, in bytes of version 0's flat vector
  payload @2 :Data;                # floats; its own frame
}

enum Activity {
  starting @0;
  idle @1;
  computing @2;
  waitingForParameters @3;
  evaluating @4;
  serving @5;
  leaving @6;
}

struct Heartbeat {                 # node -> scheduler, on the heartbeat channel; set by the node
  activity @0 :Activity;
  step @1 :UInt64;                 # the step it works on
  waitingFor @2 :PeerId;           # the lane that owes parameters, or the backup that owes an acknowledgement
  waitingMs @3 :UInt64;            # milliseconds since the wait began
  microBatchUs @4 :UInt64;         # microseconds that a micro-batch takes a worker; 0: not known
  dataStallUs @5 :UInt64;          # microseconds that a worker's threads have waited for samples so far
  gpuMemoryBytes @6 :UInt64;       # worker: used on its GPU by all processes; 0: no GPU, or unknown
  gpuPercent @7 :UInt32;           # worker: share of the last second with a running kernel
  exposedSyncUs @8 :UInt64;        # microseconds that a worker's threads have waited for parameters, on average
  tcpLines @9 :UInt32;             # dialed lanes whose payloads use TCP; of a server those of its first lane
  ipcLines @10 :UInt32;            # ... a Unix socket
  shmLines @11 :UInt32;            # ... shared memory
  samplesWaitMs @12 :UInt64;       # worker: how long a thread has been waiting for samples now
  logLine @13 :Text;               # the last line of its log; empty: its output is no file
  tcpTraffic @14 :LineTraffic;     # bytes by TCP so far
  ipcTraffic @15 :LineTraffic;     # ... by Unix sockets
  shmTraffic @16 :LineTraffic;     # ... by shared memory
}

struct LineTraffic {               # bytes of messages, payloads in shared memory included
  sent @0 :UInt64;
  received @1 :UInt64;
}

struct HeartbeatAck {}             # scheduler -> node, on the heartbeat channel

struct NodeInfo {                  # set by the scheduler from the node's Register
  node @0 :UInt32;
  rank @1 :UInt32;                 # index among the nodes of its role
  incarnation @2 :UInt64;
  role @3 :Role;
  host @4 :Text;
  laneEndpoints @5 :List(Text);    # by lane; empty in workers
  probeHash @6 :UInt64;            # worker: of its Ready (P40); 0 in servers
  publicKey @7 :Text;              # of its Register (P44)
}

struct SyncingBackup {             # set by the scheduler
  peer @0 :PeerId;
  since @1 :ViewId;                # the view that made the pair of primary and newcomer (P24)
}

struct ShardPlacement {            # of the shard with this index; set by the scheduler
  primary @0 :PeerId;              # node 2^32 - 1: none yet
  inSyncBackups @1 :List(PeerId);
  syncingBackups @2 :List(SyncingBackup);
}

struct MicroBatchOwner {           # of the micro-batch with this index; set by the scheduler
  worker @0 :UInt32;               # node id; 2^32 - 1: there is no worker
  previous @1 :UInt32;             # node id: computes before firstStep (P18); 2^32 - 1: none
  firstStep @2 :UInt64;            # the first step that `worker` computes
}

struct SnapshotRef {               # P29; set by the scheduler
  version @0 :UInt64;              # 0: made from the job's seed
  generation @1 :UInt32;
}

struct View {                      # P17; set by the scheduler
  id @0 :ViewId;
  generation @1 :UInt32;           # of this view (P21)
  nodes @2 :List(NodeInfo);
  shards @3 :List(ShardPlacement);     # by shard id
  owners @4 :List(MicroBatchOwner);    # by micro-batch index
  restore @5 :SnapshotRef;             # the snapshot from which this generation began (P21)
}

struct ViewUpdate {                # scheduler -> node, or any node -> a peer with an older one (P13)
  view @0 :View;
  signature @1 :Text;              # of the scheduler over the view, in Z85; empty without keys (P44)
}

struct ViewWanted {}               # scheduler -> node that names a view which it does not know (P26)

struct ViewAck {                   # node -> scheduler
  id @0 :ViewId;                   # the newest view the node has
  generation @1 :UInt32;           # of that view
}

# ---- the step: worker <-> server lane -------------------------------------------------------------

struct PushItem {                  # set by the worker
  shard @0 :UInt32;                # shard id
  node @1 :UInt32;                 # canonical tree node (P3), >= 1
  step @2 :UInt64;
  payload @3 :Data;                # sum over the node's samples, unscaled: fp32, little-endian, or
                                   # as the job's push codec encodes it (P34)
}

struct Push {                      # worker -> primary's lane (P6)
  items @0 :List(PushItem);
}

enum ParamsForm {
  exact @0;                        # fp32, little-endian
  encoded @1;                      # with the job's pull codec (P34), plan/shard_codec.h
}

struct PullItem {                  # set by the requester
  shard @0 :UInt32;                # shard id
  version @1 :UInt64;              # exactly this one (I4)
  form @2 :ParamsForm;             # requested form of the payload
}

struct Pull {                      # worker or scheduler -> primary's lane
  items @0 :List(PullItem);
}

struct ParamsItem {                # set by the lane
  shard @0 :UInt32;                # shard id
  version @1 :UInt64;              # of the payload; committed (P9)
  payload @2 :Data;                # the shard, whole
  form @3 :ParamsForm;             # of the payload, as requested; a push requests the job's form
}

struct Params {                    # lane -> requester
  items @0 :List(ParamsItem);
}

enum PushOutcome {
  pending @0;                      # held; Params follows once, without a further request
  behind @1;                       # the requested version is gone
  notPrimary @2;                   # this lane is not the shard's primary in its view
}

struct PushReplyItem {             # set by the lane
  shard @0 :UInt32;                # shard id
  node @1 :UInt32;                 # tree node of the push that is answered; 0 for a pull
  version @2 :UInt64;              # requested
  outcome @3 :PushOutcome;
  current @4 :UInt64;              # behind: the committed version, else unset
}

struct PushReply {                 # lane -> requester (P10)
  items @0 :List(PushReplyItem);
}

struct Question {                  # worker -> primary's lane (P17)
  view @0 :ViewId;                 # the worker's
}

struct AnswerItem {                # set by the lane
  shard @0 :UInt32;                # shard id
  version @1 :UInt64;              # committed
  nodes @2 :List(UInt32);          # tree nodes held of the step that reads `version`
}

struct Answer {                    # lane -> worker
  view @0 :ViewId;                 # copied from the question
  items @1 :List(AnswerItem);      # every shard whose primary this lane is
}

# ---- replication: primary's lane <-> backup's lane ------------------------------------------------

struct RootItem {                  # set by the primary
  shard @0 :UInt32;                # shard id
  step @1 :UInt64;
  scalars @2 :StepScalars;         # of that step
  payload @3 :Data;                # fp32, little-endian: the tree's root, unscaled
  factors @4 :List(Float32);       # of the gradient, then of the shard's adapted tensors (P16); or none
}

struct Root {                      # primary -> backup (P8)
  items @0 :List(RootItem);
  firstRow @1 :UInt64;             # step; the scheduler has the metric rows below it
}

struct RootAckItem {               # set by the backup
  shard @0 :UInt32;                # shard id
  version @1 :UInt64;              # made by the backup
  hash @2 :UInt64;                 # of its record, optimizer state included
}

struct RootAck {                   # backup -> primary
  items @0 :List(RootAckItem);
}

struct PartialsItem {              # set by the primary (P16)
  shard @0 :UInt32;                # shard id
  step @1 :UInt64;
  values @2 :List(Float32);        # norms, layout in optim/version_maker.h
}

struct Partials {                  # primary's lane -> primary's lane
  items @0 :List(PartialsItem);
}

struct PartialsPullItem {          # set by the requester
  shard @0 :UInt32;                # shard id
  step @1 :UInt64;
}

struct PartialsPull {              # primary's lane -> primary's lane
  items @0 :List(PartialsPullItem);
}

struct Chunk {                     # primary -> newcomer (P20): a piece of a shard's frozen image
  shard @0 :UInt32;                # shard id
  pair @1 :ViewId;                 # SyncingBackup.since
  versions @2 :List(UInt64);       # in the image, ascending
  imageFloats @3 :UInt64;          # floats of the whole image
  offset @4 :UInt64;               # of the payload within the image, in floats
  payload @5 :Data;                # fp32, little-endian
}

struct ChunkAck {                  # newcomer -> primary
  shard @0 :UInt32;                # shard id
  pair @1 :ViewId;                 # copied
  newest @2 :UInt64;               # version: the image's last
  floatsTaken @3 :UInt64;          # floats from the image's start, without a gap
}

struct SyncedItem {                # set by the primary
  shard @0 :UInt32;                # shard id
  newcomer @1 :PeerId;
  pair @2 :ViewId;                 # SyncingBackup.since
}

struct Synced {                    # primary's lane -> scheduler (P24)
  items @0 :List(SyncedItem);
}

struct Divergence {                # primary's lane -> scheduler: two records of one version (P8)
  shard @0 :UInt32;                # shard id
  version @1 :UInt64;
  backup @2 :PeerId;
  primaryHash @3 :UInt64;          # of the primary's record
  backupHash @4 :UInt64;           # of the backup's
}

struct PeerSilent {                # lane or worker -> scheduler (P23)
  peer @0 :PeerId;                 # owes an answer
  silentMs @1 :UInt64;             # milliseconds since it was asked
}

# ---- snapshots: lane <-> scheduler ----------------------------------------------------------------

struct SnapshotStoredItem {        # set by the lane
  shard @0 :UInt32;                # shard id
  version @1 :UInt64;
  hash @2 :UInt64;                 # of the record
  file @3 :Text;                   # a name within the snapshot folder
  failure @4 :Text;                # for people: why it could not be stored; empty: it is stored
}

struct SnapshotStored {            # lane -> scheduler (P29)
  items @0 :List(SnapshotStoredItem);
}

struct RestoreFailed {             # lane -> scheduler: it cannot restore a shard of its view (P30)
  generation @0 :UInt32;           # of the snapshot
  version @1 :UInt64;
  shard @2 :UInt32;                # shard id
  isCorrupt @3 :Bool;              # the data are damaged; else this server cannot read them
  text @4 :Text;                   # for people: the file and what is wrong
}

struct SnapshotAckItem {           # copied
  shard @0 :UInt32;                # shard id
  version @1 :UInt64;
}

struct SnapshotAck {               # scheduler -> lane
  items @0 :List(SnapshotAckItem);
}

struct SnapshotAt {                # scheduler -> lane
  version @0 :UInt64;              # to store besides those that are due
}

struct SnapshotAtAck {             # lane -> scheduler
  version @0 :UInt64;              # copied
}

# ---- scalars and progress: lane <-> scheduler -----------------------------------------------------

struct StepScalars {               # set by the scheduler alone (P36)
  lr @0 :Float32;
  momentum @1 :Float32;            # SGD's momentum, or Adam's beta1
  biasCorrection1 @2 :Float32;     # Adam: 1 - beta1^(t+1)
  biasCorrection2Sqrt @3 :Float32; # Adam: sqrt(1 - beta2^(t+1))
}

struct ScalarsRequest {            # lane -> scheduler
  first @0 :UInt64;                # step; a multiple of kScalarsPerBlock
}

struct Scalars {                   # scheduler -> lane
  first @0 :UInt64;                # copied from the request
  steps @1 :List(StepScalars);     # of steps first, first + 1, ...
}

struct StepMetrics {               # set by the lane of the metric shard
  step @0 :UInt64;
  loss @1 :Float32;                # mean over the step's samples
  accuracy @2 :Float32;            # share of the step's samples, 0 to 1
}

struct Progress {                  # lane -> scheduler
  committed @0 :UInt64;            # version that every shard of the lane has committed
  rows @1 :List(StepMetrics);      # ascending by step
}

struct ProgressAck {               # scheduler -> lane
  committed @0 :UInt64;            # copied
  nextRow @1 :UInt64;              # step; rows below it are known
}

# ---- evaluation (P31) -----------------------------------------------------------------------------

struct Evaluate {                  # scheduler -> worker
  version @0 :UInt64;              # pinned
  slice @1 :UInt32;                # index of this slice of the test set
  firstSample @2 :UInt64;          # [firstSample, lastSample) of the test set
  lastSample @3 :UInt64;
}

struct EvaluationResult {          # worker -> scheduler; set by the worker
  version @0 :UInt64;              # copied
  slice @1 :UInt32;                # copied
  sampleCount @2 :UInt64;          # samples evaluated
  correctCount @3 :UInt64;         # samples whose largest output is their label's
  lossSum @4 :Float64;             # over the samples
  top5Count @5 :UInt64;            # samples with at most four outputs above their label's
  confusion @6 :List(ConfusionCount);  # ascending by label and predicted; counts add up to
                                   # sampleCount
  sums @7 :List(Float64);          # of an external model, in the order of the job's eval.sums
}

struct ConfusionCount {
  label @0 :UInt32;                # class of the samples
  predicted @1 :UInt32;            # class of their largest output
  count @2 :UInt32;                # of samples, at least one
}

struct ReleasePin {                # scheduler -> lane
  version @0 :UInt64;              # versions up to this need no pin any more
}

struct PinReleased {               # lane -> scheduler
  version @0 :UInt64;              # copied
}

# ---- end, failure, status -------------------------------------------------------------------------

enum StopReason {
  completed @0;
  failed @1;
  interrupted @2;
  drained @3;                      # other nodes have the receiver's work; the run goes on
}

struct Stop {                      # scheduler -> all nodes
  reason @0 :StopReason;
  text @1 :Text;                   # for people
}

struct Bye {}                      # node -> scheduler: answer to Stop

enum FailureKind {
  training @0;                     # every other machine would fail in the same way
  machine @1;                      # of this machine: its files, its connections
}

struct Failure {                   # node -> scheduler: it cannot go on
  text @0 :Text;                   # for people: what, where, what was expected
  kind @1 :FailureKind;            # set by the node
}

struct StatusRequest {}            # client -> scheduler

struct StatusReport {              # scheduler -> client
  json @0 :Text;                   # the run's status, one JSON object
}

struct Leave {}                    # node -> scheduler: it was asked to leave

struct GradientHash {              # set by the worker (P41)
  step @0 :UInt64;
  microBatch @1 :UInt32;           # index within the step
  hash @2 :UInt64;                 # of the whole gradient, in flat order
}

struct GradientHashes {            # worker -> scheduler
  items @0 :List(GradientHash);    # ascending by step and micro-batch
}

struct GradientHashesAck {         # scheduler -> worker
  below @0 :UInt64;                # step; hashes of lower steps are known or not needed any more
}

enum CommandKind {
  drain @0;
  snapshot @1;
  stop @2;
}

struct Command {                   # client -> scheduler
  kind @0 :CommandKind;
  target @1 :Text;                 # drain: "worker 1", "server-0"; else empty
}

enum CommandOutcome {
  accepted @0;                     # in progress
  done @1;
  refused @2;
}

struct CommandReply {              # scheduler -> client
  outcome @0 :CommandOutcome;
  text @1 :Text;                   # for people
}

struct FaultNote {                 # supervisor -> scheduler; times: microseconds of the steady clock
  number @0 :UInt64;               # given by the supervisor
  action @1 :Text;                 # "kill", "stop", "partition", "exit"
  role @2 :Role;                   # the target's
  processId @3 :UInt32;            # the operating system's, on `host`
  host @4 :Text;                   # the target's host name
  target @5 :Text;                 # for people: "worker 1"
  injectedUs @6 :UInt64;           # 0: not by the supervisor
  exitedUs @7 :UInt64;             # when it saw the process end; 0: it has not
  text @8 :Text;                   # for people: "signal 9 (SIGKILL)"
  processKey @9 :UInt64;           # of the target, as it registers
}

struct FaultNoteAck {              # scheduler -> supervisor
  number @0 :UInt64;               # copied
}

struct StoreFile {                 # node -> file store (P45); set by the node
  name @0 :Text;                   # within the run folder
  offset @1 :UInt64;               # of the payload, in bytes
  size @2 :UInt64;                 # of the whole file
  hash @3 :Text;                   # of the whole file: xxh3-128, hex
  payload @4 :Data;                # its own frame
}

struct StoreFileAck {              # file store -> node
  name @0 :Text;                   # copied
  offset @1 :UInt64;               # bytes that it has
  isStored @2 :Bool;               # whole and durable
  failure @3 :Text;                # for people; empty: none
}

struct ReadFile {                  # node -> file store (P45)
  name @0 :Text;                   # within the run folder
  offset @1 :UInt64;
  size @2 :UInt64;                 # bytes wanted; 0: only the file's size
}

struct FilePart {                  # file store -> node
  name @0 :Text;                   # copied
  offset @1 :UInt64;               # copied
  fileSize @2 :UInt64;             # of the whole file
  isMissing @3 :Bool;              # there is no such file
  failure @4 :Text;                # for people; empty: none
  payload @5 :Data;                # its own frame
}

struct ListFiles {                 # node -> file store (P45)
  prefix @0 :Text;                 # what the names begin with
  after @1 :Text;                  # names that come after this one
}

struct FileNames {                 # file store -> node
  prefix @0 :Text;                 # copied
  after @1 :Text;                  # copied
  names @2 :List(Text);            # ascending
}
