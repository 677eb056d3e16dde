#include "tests/sim/trace.h"

namespace pando::sim {
namespace {

std::string Brief(uint64_t value) { return std::to_string(value); }
std::string Brief(const PeerId& peer) {
  return peer.node == kUnknownNode ? "-" : Brief(peer.node.value()) + "." + Brief(peer.lane);
}
std::string Brief(const ViewId& id) { return Brief(id.term) + "." + Brief(id.number); }

std::string Of(const Push& push) {
  std::string text;
  for (const PushItem& item : push.items) {
    text += " s" + Brief(item.shard.value()) + "@" + Brief(item.step.value()) + "/" +
            Brief(item.node.value());
  }
  return text;
}
std::string Of(const Pull& pull) {
  std::string text;
  for (const PullItem& item : pull.items) {
    text += " s" + Brief(item.shard.value()) + "=" + Brief(item.version.value());
  }
  return text;
}
std::string Of(const Params& params) {
  std::string text;
  for (const ParamsItem& item : params.items) {
    text += " s" + Brief(item.shard.value()) + "=" + Brief(item.version.value());
  }
  return text;
}
std::string Of(const PushReply& reply) {
  static constexpr const char* kNames[] = {"pending", "behind", "not-primary"};
  std::string text;
  for (const PushReplyItem& item : reply.items) {
    text += " s" + Brief(item.shard.value()) + "=" + Brief(item.version.value()) + ":" +
            kNames[static_cast<int>(item.outcome)];
  }
  return text;
}
std::string Of(const Answer& answer) {
  std::string text = " v" + Brief(answer.view);
  for (const AnswerItem& item : answer.items) {
    text += " s" + Brief(item.shard.value()) + "=" + Brief(item.version.value()) + "+" +
            Brief(item.nodes.size());
  }
  return text;
}
std::string Of(const Root& root) {
  std::string text;
  for (const RootItem& item : root.items) {
    text += " s" + Brief(item.shard.value()) + "@" + Brief(item.step.value());
  }
  return text;
}
std::string Of(const Partials& partials) {
  std::string text;
  for (const PartialsItem& item : partials.items) {
    text += " s" + Brief(item.shard.value()) + "@" + Brief(item.step.value());
  }
  for (const PartialSum& sum : partials.sums) {
    text += " sum@" + Brief(sum.step.value());
    for (ShardId shard : sum.shards) text += " s" + Brief(shard.value());
  }
  return text;
}
std::string Of(const PartialsPull& pull) {
  std::string text;
  for (const PartialsPullItem& item : pull.items) {
    text += " s" + Brief(item.shard.value()) + "@" + Brief(item.step.value());
  }
  return text;
}
std::string Of(const RootAck& ack) {
  std::string text;
  for (const RootAckItem& item : ack.items) {
    text += " s" + Brief(item.shard.value()) + "=" + Brief(item.version.value());
  }
  return text;
}
std::string Of(const Chunk& chunk) {
  std::string text = " s" + Brief(chunk.shard.value()) + " pair " + Brief(chunk.pair) + " versions";
  for (Version version : chunk.versions) text += " " + Brief(version.value());
  return text + ", " + Brief(chunk.offset) + "+" + Brief(chunk.payload.size_bytes() / 4) + " of " +
         Brief(chunk.image_floats);
}
std::string Of(const ChunkAck& ack) {
  return " s" + Brief(ack.shard.value()) + " pair " + Brief(ack.pair) + " " +
         Brief(ack.floats_taken);
}
std::string Of(const Synced& synced) {
  std::string text;
  for (const SyncedItem& item : synced.items) {
    text += " s" + Brief(item.shard.value()) + " on " + Brief(item.newcomer) + " pair " +
            Brief(item.pair);
  }
  return text;
}
std::string Of(const SnapshotStored& stored) {
  std::string text;
  for (const SnapshotStoredItem& item : stored.items) {
    text += " s" + Brief(item.shard.value()) + "=" + Brief(item.version.value()) +
            (item.failure.empty() ? "" : ":failed");
  }
  return text;
}
std::string Of(const ViewUpdate& update) {
  return " v" + Brief(update.view->id) + " g" + Brief(update.view->generation);
}
std::string Of(const ViewDelta& delta) {
  const ViewChange& change = *delta.change;
  return " v" + Brief(change.base) + " -> v" + Brief(change.id) + " g" + Brief(change.generation);
}
std::string Of(const ViewAck& ack) { return " v" + Brief(ack.id) + " g" + Brief(ack.generation); }
std::string Of(const Question& question) { return " v" + Brief(question.view); }
std::string Of(const Progress& progress) {
  std::string text = " =" + Brief(progress.committed.value());
  if (!progress.rows.empty()) {
    text += " rows " + Brief(progress.rows.front().step.value()) + "-" +
            Brief(progress.rows.back().step.value());
  }
  return text;
}
std::string Of(const ProgressAck& ack) {
  return " =" + Brief(ack.committed.value()) + " next row " + Brief(ack.next_row.value());
}
std::string Of(const Evaluate& evaluate) {
  return " =" + Brief(evaluate.version.value()) + " slice " + Brief(evaluate.slice);
}
std::string Of(const EvaluationResult& result) {
  return " =" + Brief(result.version.value()) + " slice " + Brief(result.slice);
}
std::string Of(const ReleasePin& release) { return " =" + Brief(release.version.value()); }
std::string Of(const SnapshotAt& at) { return " =" + Brief(at.version.value()); }
std::string Of(const PeerSilent& silent) { return " " + Brief(silent.peer); }
std::string Of(const Divergence& d) {
  return " s" + Brief(d.shard.value()) + "=" + Brief(d.version.value()) + " on " + Brief(d.backup);
}
std::string Of(const RestoreFailed& failed) {
  return " s" + Brief(failed.shard.value()) + "=" + Brief(failed.snapshot.version.value()) + " " +
         failed.text;
}
std::string Of(const Refused& refused) { return " " + refused.reason; }
std::string Of(const Failure& failure) { return " " + failure.text; }
std::string Of(const Stop& stop) { return " " + stop.text; }
std::string Of(const Welcome& welcome) { return " node " + Brief(welcome.node.value()); }
std::string Of(const Register& registration) {
  return " " + registration.host + "/" + Brief(registration.process_id);
}
std::string Of(const FaultNote& note) { return " " + note.action + " " + note.target; }
std::string Of(const Command& command) { return " " + command.target; }
std::string Of(const CommandReply& reply) { return " " + reply.text; }
template <class Other>
std::string Of(const Other&) {
  return "";
}

}  // namespace

std::string Detail(const Message& message) {
  return std::visit([](const auto& m) { return Of(m); }, message);
}

std::string ViewText(const View& view) {
  std::string text = "view " + Brief(view.id) + " generation " + Brief(view.generation) + ", nodes";
  for (const NodeInfo& node : view.nodes) {
    text += (node.role == Role::kServer ? " server " : " worker ") + Brief(node.node.value());
  }
  for (size_t i = 0; i < view.shards.size(); ++i) {
    const ShardPlacement& placement = view.shards[i];
    text += "\n    shard " + Brief(i) + ": primary " + Brief(placement.primary) + ", backups";
    for (const PeerId& peer : placement.in_sync_backups) text += " " + Brief(peer);
    text += ", syncing";
    for (const SyncingBackup& backup : placement.syncing_backups) {
      text += " " + Brief(backup.peer) + " since " + Brief(backup.since);
    }
  }
  text += "\n    owners";
  for (const MicroBatchOwner& owner : view.owners) {
    text += owner.worker == kUnknownNode ? " -" : " " + Brief(owner.worker.value());
    if (owner.previous == kUnknownNode) continue;
    text += "(" + Brief(owner.previous.value()) + " till " + Brief(owner.first_step.value()) + ")";
  }
  return text;
}

}  // namespace pando::sim
