#include "bench/training/common_flags.h"

#include <utility>

#include "bench/training/pando_program.h"

namespace pando::bench {

void AddTrainingFlags(CLI::App& command, TrainingFlags* flags) {
  command.add_option("--model", flags->models, "Models of the zoo, each in turn")
      ->delimiter(',')
      ->capture_default_str();
  command
      .add_option("--batch", flags->worker_batch,
                  "Samples of each worker in a step; 0: 128 of MNIST's, else 32")
      ->check(CLI::Range(0u, 65536u))
      ->capture_default_str();
  command
      .add_option("--data", flags->data,
                  "Folder that has mnist/ and cifar10/, before data/ and ../shared/data/;\n"
                  "where none has them, pictures are drawn")
      ->type_name("DIR");
  command.add_option("--program", flags->program, "The program pando to measure")
      ->type_name("FILE");
  command.add_option("--rounds", flags->rounds, "Samples of each point; all points take turns")
      ->check(CLI::Range(1u, kTrainingRoundsMax))
      ->capture_default_str();
}

Status ResolveTraining(const TrainingFlags& flags, std::string* program,
                       std::vector<Workload>* workloads) {
  Result<std::string> found = FindPando(flags.program);
  if (!found.ok()) return found.status();
  *program = *std::move(found);
  for (const std::string& model : flags.models) {
    Result<Workload> workload = FindWorkload(model, flags.worker_batch, DataFolders(flags.data));
    if (!workload.ok()) return workload.status();
    workloads->push_back(*std::move(workload));
  }
  return Status();
}

void MakeTrainingQuick(const CLI::App& command, TrainingFlags* flags, Window* window) {
  if (command.count("--model") == 0) flags->models = {"mnist-cnn"};
  if (command.count("--rounds") == 0) flags->rounds = 1;
  if (command.count("--seconds") == 0) window->seconds = 0.5;
}

void AddWindowFlags(CLI::App& command, Window* window) {
  command.add_option("--seconds", window->seconds, "Time of one sample, at least")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command.add_option("--steps-min", window->steps_min, "Steps of one sample, at least")
      ->check(CLI::Range(1u, 1'000'000u))
      ->capture_default_str();
  command.add_option("--warm-up", window->warm_up_steps, "Steps of each run before its sample")
      ->check(CLI::Range(1u, 1'000'000u))
      ->capture_default_str();
}

const std::vector<std::string>& TransportNames() {
  static const std::vector<std::string> names{"auto", "tcp", "ipc", "shm"};
  return names;
}

void AddTransportFlag(CLI::App& command, std::vector<std::string>* transports) {
  command.add_option("--transport", *transports, "As pando train --transport, each in turn")
      ->delimiter(',')
      ->check(CLI::IsMember(TransportNames()))
      ->capture_default_str();
}

void AddStrategyFlag(CLI::App& command, std::vector<std::string>* strategies) {
  command.add_option("--strategy", *strategies, "ps, allreduce")
      ->delimiter(',')
      ->check(CLI::IsMember({"ps", "allreduce"}))
      ->capture_default_str();
}

}  // namespace pando::bench
