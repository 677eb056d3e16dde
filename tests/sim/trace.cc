#include "tests/sim/trace.h"

namespace pando::sim {
namespace {

std::string Text(uint64_t value) { return std::to_string(value); }
std::string Text(const PeerId& peer) {
  return peer.node == kUnknownNode ? "-" : Text(peer.node.value()) + "." + Text(peer.lane);
}
std::string Text(const ViewId& id) { return Text(id.term) + "." + Text(id.number); }

std::string Of(const Push& push) {
  std::string text;
  for (const PushItem& item : push.items) {
    text += " s" + Text(item.shard.value()) + "@" + Text(item.step.value()) + "/" +
            Text(item.node.value());
  }
  return text;
}
std::string Of(const Pull& pull) {
  std::string text;
  for (const PullItem& item : pull.items) {
    text += " s" + Text(item.shard.value()) + "=" + Text(item.version.value());
  }
  return text;
}
std::string Of(const Params& params) {
  std::string text;
  for (const ParamsItem& item : params.items) {
    text += " s" + Text(item.shard.value()) + "=" + Text(item.version.value());
  }
  return text;
}
std::string Of(const PushReply& reply) {
  static constexpr const char* kNames[] = {"pending", "behind", "not-primary"};
  std::string text;
  for (const PushReplyItem& item : reply.items) {
    text += " s" + Text(item.shard.value()) + "=" + Text(item.version.value()) + ":" +
            kNames[static_cast<int>(item.outcome)];
  }
  return text;
}
std::string Of(const Answer& answer) {
  std::string text = " v" + Text(answer.view);
  for (const AnswerItem& item : answer.items) {
    text += " s" + Text(item.shard.value()) + "=" + Text(item.version.value()) + "+" +
            Text(item.nodes.size());
  }
  return text;
}
std::string Of(const Root& root) {
  std::string text;
  for (const RootItem& item : root.items) {
    text += " s" + Text(item.shard.value()) + "@" + Text(item.step.value());
  }
  return text;
}
std::string Of(const Partials& partials) {
  std::string text;
  for (const PartialsItem& item : partials.items) {
    text += " s" + Text(item.shard.value()) + "@" + Text(item.step.value());
  }
  return text;
}
std::string Of(const PartialsPull& pull) {
  std::string text;
  for (const PartialsPullItem& item : pull.items) {
    text += " s" + Text(item.shard.value()) + "@" + Text(item.step.value());
  }
  return text;
}
std::string Of(const RootAck& ack) {
  std::string text;
  for (const RootAckItem& item : ack.items) {
    text += " s" + Text(item.shard.value()) + "=" + Text(item.version.value());
  }
  return text;
}
std::string Of(const Chunk& chunk) {
  std::string text = " s" + Text(chunk.shard.value()) + " pair " + Text(chunk.pair) + " versions";
  for (Version version : chunk.versions) text += " " + Text(version.value());
  return text + ", " + Text(chunk.offset) + "+" + Text(chunk.payload.size_bytes() / 4) + " of " +
         Text(chunk.image_floats);
}
std::string Of(const ChunkAck& ack) {
  return " s" + Text(ack.shard.value()) + " pair " + Text(ack.pair) + " " + Text(ack.floats_taken);
}
std::string Of(const Synced& synced) {
  std::string text;
  for (const SyncedItem& item : synced.items) {
    text +=
        " s" + Text(item.shard.value()) + " on " + Text(item.newcomer) + " pair " + Text(item.pair);
  }
  return text;
}
std::string Of(const SnapshotStored& stored) {
  std::string text;
  for (const SnapshotStoredItem& item : stored.items) {
    text += " s" + Text(item.shard.value()) + "=" + Text(item.version.value()) +
            (item.failure.empty() ? "" : ":failed");
  }
  return text;
}
std::string Of(const ViewUpdate& update) {
  return " v" + Text(update.view.id) + " g" + Text(update.view.generation);
}
std::string Of(const ViewAck& ack) { return " v" + Text(ack.id) + " g" + Text(ack.generation); }
std::string Of(const Question& question) { return " v" + Text(question.view); }
std::string Of(const EngineProposal& proposal) {
  return " " + proposal.kind + ": " + proposal.engines;
}
std::string Of(const EngineDecision& decision) {
  return " " + decision.kind + ": " + decision.engines;
}
std::string Of(const Progress& progress) {
  std::string text = " =" + Text(progress.committed.value());
  if (!progress.rows.empty()) {
    text += " rows " + Text(progress.rows.front().step.value()) + "-" +
            Text(progress.rows.back().step.value());
  }
  return text;
}
std::string Of(const ProgressAck& ack) {
  return " =" + Text(ack.committed.value()) + " next row " + Text(ack.next_row.value());
}
std::string Of(const Evaluate& evaluate) {
  return " =" + Text(evaluate.version.value()) + " slice " + Text(evaluate.slice);
}
std::string Of(const EvaluationResult& result) {
  return " =" + Text(result.version.value()) + " slice " + Text(result.slice);
}
std::string Of(const ReleasePin& release) { return " =" + Text(release.version.value()); }
std::string Of(const SnapshotAt& at) { return " =" + Text(at.version.value()); }
std::string Of(const PeerSilent& silent) { return " " + Text(silent.peer); }
std::string Of(const Divergence& d) {
  return " s" + Text(d.shard.value()) + "=" + Text(d.version.value()) + " on " + Text(d.backup);
}
std::string Of(const RestoreFailed& failed) {
  return " s" + Text(failed.shard.value()) + "=" + Text(failed.snapshot.version.value()) + " " +
         failed.text;
}
std::string Of(const Refused& refused) { return " " + refused.reason; }
std::string Of(const Failure& failure) { return " " + failure.text; }
std::string Of(const Stop& stop) { return " " + stop.text; }
std::string Of(const Welcome& welcome) { return " node " + Text(welcome.node.value()); }
std::string Of(const Register& registration) {
  return " " + registration.host + "/" + Text(registration.process_id);
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
  std::string text = "view " + Text(view.id) + " generation " + Text(view.generation) + ", nodes";
  for (const NodeInfo& node : view.nodes) {
    text += (node.role == Role::kServer ? " server " : " worker ") + Text(node.node.value());
  }
  for (size_t i = 0; i < view.shards.size(); ++i) {
    const ShardPlacement& placement = view.shards[i];
    text += "\n    shard " + Text(i) + ": primary " + Text(placement.primary) + ", backups";
    for (const PeerId& peer : placement.in_sync_backups) text += " " + Text(peer);
    text += ", syncing";
    for (const SyncingBackup& backup : placement.syncing_backups) {
      text += " " + Text(backup.peer) + " since " + Text(backup.since);
    }
  }
  text += "\n    owners";
  for (const MicroBatchOwner& owner : view.owners) {
    text += owner.worker == kUnknownNode ? " -" : " " + Text(owner.worker.value());
    if (owner.previous == kUnknownNode) continue;
    text += "(" + Text(owner.previous.value()) + " till " + Text(owner.first_step.value()) + ")";
  }
  return text;
}

}  // namespace pando::sim
