// The C interface: checks arguments, turns Status into results, and stops all exceptions.
#include "embed/pando_worker.h"

#include <fmt/core.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cfenv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/system.h"
#include "embed/program_worker.h"
#include "job/job_draft.h"
#include "job/job_file.h"
#include "plan/external_model.h"
#include "proto/message_limits.h"
#include "run/safetensors_file.h"
#include "scheduler/evaluation/evaluation.h"

using pando::InvalidArgument;
using pando::ProgramComputer;
using pando::ProgramWorker;
using pando::Result;
using pando::Status;

// Threads: as in pando_worker.h.
struct pando_worker {
  const pid_t process = getpid();
  std::unique_ptr<ProgramWorker> worker;  // null: it could not be opened
  std::mutex mutex;                       // guards:
  std::map<std::thread::id, std::string> errors;
  std::string end_text;
  std::string run_dir;
  std::string weights_dir;
  // Only the program's thread uses these:
  std::shared_ptr<const pando::CurrentWork> current;
  std::vector<uint64_t> peeked;
  std::vector<std::string> mean_names;
  std::vector<pando_mean> means;
};

namespace {

using Deadline = std::chrono::steady_clock::time_point;

// For a root cause; its message needs a little more.
constexpr size_t kFailureBytesMax = pando::kTextBytesMax - 1024;
// The time for which a failure of the program waits until the scheduler has it.
constexpr std::chrono::seconds kFailurePatience(5);

// The value of an environment variable that `pando node` sets; empty: it is not set.
std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

Deadline After(uint32_t timeout_ms) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
}

pando_result Fail(pando_worker* worker, const std::string& text) {
  std::lock_guard lock(worker->mutex);
  worker->errors[std::this_thread::get_id()] = text;
  return PANDO_ERROR;
}

// No C++ exception may leave a C function.
template <class Function>
pando_result Guarded(pando_worker* worker, Function function) {
  if (worker == nullptr) return PANDO_ERROR;
  try {
    return function();
  } catch (const std::exception& error) {
    try {
      return Fail(worker, fmt::format("out of memory, or a fault of Pando: {}", error.what()));
    } catch (...) {
    }
  } catch (...) {
  }
  return PANDO_ERROR;
}

// Code that adds gradients flushes denormals, as servers do (docs/determinism.md), with any setting
// of the program's thread.
class ScopedFloatEnvironment {
 public:
  ScopedFloatEnvironment() {
    fegetenv(&before_);
    pando::SetFloatEnvironment();
  }
  ~ScopedFloatEnvironment() { fesetenv(&before_); }
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;

 private:
  fenv_t before_;
};

pando_result ToResult(ProgramComputer::Outcome outcome) {
  switch (outcome) {
    case ProgramComputer::Outcome::kDone:
      return PANDO_OK;
    case ProgramComputer::Outcome::kAgain:
      return PANDO_AGAIN;
    case ProgramComputer::Outcome::kAbandoned:
      break;
  }
  return PANDO_ABANDONED;
}

// Ends every call if the run is over; PANDO_OK while it goes on.
pando_result EndFor(pando_worker* worker) {
  const ProgramWorker::Ending* ending = worker->worker->ending();
  if (ending == nullptr) return PANDO_OK;
  const bool is_end =
      ending->failure.ok() || ending->failure.code() == pando::StatusCode::kInterrupted;
  return is_end ? PANDO_END : Fail(worker, ending->failure.message());
}

pando_result NotJoined(pando_worker* worker) {
  return Fail(worker, "pando_join has not returned PANDO_OK");
}

// The common part of calls that need an opened worker.
template <class Function>
pando_result Opened(pando_worker* worker, Function function) {
  return Guarded(worker, [&] {
    return worker->worker == nullptr ? PANDO_ERROR  // pando_open reported why
                                     : function(*worker->worker);
  });
}

// The common part of calls that need a run.
template <class Function>
pando_result InRun(pando_worker* worker, Function function) {
  return Opened(worker, [&](ProgramWorker& program) {
    if (const pando_result end = EndFor(worker); end != PANDO_OK) return end;
    if (!program.has_joined()) return NotJoined(worker);
    return function(program);
  });
}

pando_result Report(pando_worker* worker, const Result<ProgramComputer::Outcome>& outcome) {
  if (outcome.ok()) return ToResult(*outcome);
  // The run ends with this cause; without it the scheduler would only see a process vanish.
  if (outcome.status().code() == pando::StatusCode::kInternal)
    worker->worker->AwaitEnd(std::chrono::steady_clock::now() + kFailurePatience);
  return Fail(worker, outcome.status().message());
}

// ---- pando_open ---------------------------------------------------------------------------------

Result<pando::TensorSpec> SpecFor(const pando_tensor& tensor, uint32_t index) {
  const bool has_name = tensor.name != nullptr && *tensor.name != '\0';
  if (!has_name || std::string(tensor.name).find_first_of(" \"\\\n\t") != std::string::npos)
    return InvalidArgument(
        fmt::format("tensor {}: expected a name without spaces and quotes", index));
  if (tensor.initial == nullptr)
    return InvalidArgument(fmt::format("tensor '{}' has no initial values", tensor.name));
  if (tensor.kind != PANDO_PARAMETER && tensor.kind != PANDO_STATISTIC)
    return InvalidArgument(
        fmt::format("tensor '{}': {} is no kind of tensor", tensor.name, tensor.kind));
  if (!std::isfinite(tensor.lr_factor) || std::isnan(tensor.weight_decay))
    return InvalidArgument(
        fmt::format("tensor '{}': lr_factor and weight_decay must be numbers", tensor.name));
  pando::TensorSpec spec{.name = tensor.name,
                         .shape = {tensor.shape, tensor.shape + tensor.dimensions}};
  if (tensor.kind == PANDO_STATISTIC) {
    spec.kind = pando::TensorKind::kStatistic;
    spec.momentum = tensor.momentum;
  } else {
    spec.group = tensor.group;
    spec.lr_factor = tensor.lr_factor;
    spec.weight_decay = tensor.weight_decay < 0 ? -1 : tensor.weight_decay;
  }
  return spec;
}

std::string Quoted(const std::string& text) { return pando::JobValueToml(pando::JobValue(text)); }

// Writes [model] and [data] from the options.
Result<std::string> DeclaredSections(const pando_options& options) {
  std::vector<std::string> tensors;
  for (uint32_t i = 0; i < options.tensor_count; ++i) {
    PANDO_ASSIGN_OR_RETURN(const pando::TensorSpec spec, SpecFor(options.tensors[i], i));
    tensors.push_back(pando::TensorText(spec));
  }
  return fmt::format(
      "[model]\nname = {0}\nprogram = {1}\ntensors = {2}\n[data]\nname = {0}\n"
      "synthetic_train_samples = {3}\nsynthetic_test_samples = {4}\n",
      Quoted(pando::kExternalName), Quoted(options.model_name != nullptr ? options.model_name : ""),
      pando::JobValueToml(pando::JobValue(tensors)), options.train_samples, options.test_samples);
}

Result<pando::Job> DeclaredJob(const pando_options& options) {
  if (options.tensor_count == 0 || options.tensors == nullptr)
    return InvalidArgument("the model has no tensors: nothing can be trained");
  if (options.train_samples == 0) return InvalidArgument("the data set has no training samples");
  pando::JobDraft draft;
  if (options.job != nullptr) PANDO_RETURN_IF_ERROR(draft.AddToml(options.job, "the job"));
  PANDO_ASSIGN_OR_RETURN(const std::string sections, DeclaredSections(options));
  PANDO_RETURN_IF_ERROR(draft.AddToml(sections, "the declaration"));
  return draft.Finish();
}

Result<ProgramWorker::Options> ReadOptions(const pando_options& options) {
  if (options.scheduler == nullptr || *options.scheduler == '\0')
    return InvalidArgument(
        "no scheduler to join: start the program with `pando run` or `pando node`, which give its "
        "endpoint as PANDO_SCHEDULER");
  const std::string kind =
      options.kind != nullptr && *options.kind != '\0' ? options.kind : "program";
  if (kind.size() > pando::kNameBytesMax)
    return InvalidArgument(
        fmt::format("kind has {} bytes, at most {} are allowed: give a hash of the longer parts",
                    kind.size(), pando::kNameBytesMax));
  PANDO_ASSIGN_OR_RETURN(pando::Job job, DeclaredJob(options));
  PANDO_ASSIGN_OR_RETURN(const pando::TensorLayout layout, pando::ExternalLayout(job));
  auto flat = std::make_shared<pando::FloatBuffer>(layout.float_count());
  for (uint32_t i = 0; i < options.tensor_count; ++i) {
    std::copy_n(options.tensors[i].initial, layout.specs()[i].size(),
                flat->data() + layout.offset(i));
  }
  // Parsed as the scheduler will parse it, so that both compare equal texts.
  PANDO_ASSIGN_OR_RETURN(job, pando::ParseJobText(pando::WriteJobText(job), "the declaration"));
  job.init_hash = pando::WeightsHash(layout, std::as_const(*flat).span());
  const std::string text = pando::WriteJobText(job);
  if (text.size() > pando::kDocumentBytesMax)
    return InvalidArgument(fmt::format(
        "the declaration has {} bytes, and at most {} are allowed: give the {} tensors shorter "
        "names, or keep rates equal for several steps (schedule.rates has {} rates)",
        text.size(), pando::kDocumentBytesMax, job.tensors.size(), job.schedule.rates.size()));
  return ProgramWorker::Options{
      .scheduler = options.scheduler,
      .job = job,
      .declared = {text, pando::ToBlob(std::move(flat))},
      .kind = kind,
      .start_timeout_ms = options.start_timeout_ms == 0 ? 60000 : options.start_timeout_ms,
      .wanted_rank = options.wanted_rank,
      .rack = Variable("PANDO_RACK"),
      .bind = Variable("PANDO_BIND"),
      .insecure = Variable("PANDO_INSECURE") == "1"};
}

void Fill(pando_work* work, const pando::JobPlan& plan, const pando::CurrentWork& current) {
  *work = {};
  work->kind = current.is_training() ? PANDO_TRAIN
               : current.is_report() ? PANDO_REPORT
                                     : PANDO_EVALUATE;
  work->version = current.version().value();
  work->sample_count = current.samples.size();
  work->samples = current.samples.data();
  if (!current.is_training()) return;
  work->micro_batch = current.micro_batch.micro_batch.value();
  work->step = current.step().value();
  work->epoch = plan.steps.Epoch(current.step());
}

pando_ending ToEnding(const ProgramWorker::Ending& ending) {
  if (ending.failure.code() == pando::StatusCode::kInterrupted) return PANDO_INTERRUPTED;
  if (!ending.failure.ok()) return PANDO_FAILED;
  if (!ending.stop) return PANDO_INTERRUPTED;
  switch (ending.stop->reason) {
    case pando::StopReason::kCompleted:
      return PANDO_COMPLETED;
    case pando::StopReason::kFailed:
      return PANDO_FAILED;
    case pando::StopReason::kInterrupted:
      return PANDO_INTERRUPTED;
    case pando::StopReason::kDrained:
      break;
  }
  return PANDO_DRAINED;
}

}  // namespace

uint32_t pando_abi(void) { return PANDO_WORKER_ABI; }

const char* pando_version(void) { return pando::PandoVersion(); }

pando_result pando_open(const pando_options* options, pando_worker** worker) {
  if (worker == nullptr) return PANDO_ERROR;
  *worker = new (std::nothrow) pando_worker;  // the program owns it until pando_close
  return Guarded(*worker, [&] {
    if (options == nullptr) return Fail(*worker, "pando_open got no options");
    Result<ProgramWorker::Options> read = ReadOptions(*options);
    if (!read.ok()) return Fail(*worker, read.status().message());
    (*worker)->worker = std::make_unique<ProgramWorker>(*std::move(read));
    return PANDO_OK;
  });
}

pando_result pando_join(pando_worker* worker, uint32_t timeout_ms) {
  return Opened(worker, [&](ProgramWorker& program) {
    if (!program.AwaitJoin(After(timeout_ms))) return PANDO_AGAIN;
    return EndFor(worker);
  });
}

// Also works for a run that has ended since.
pando_result pando_describe(pando_worker* worker, pando_run* run) {
  return Opened(worker, [&](ProgramWorker& program) {
    if (!program.has_joined()) return EndFor(worker) == PANDO_END ? PANDO_END : NotJoined(worker);
    const ProgramWorker::Facts& facts = program.facts();
    const pando::JobPlan& plan = program.plan();
    const ProgramWorker::Ending* ending = program.ending();
    std::lock_guard lock(worker->mutex);
    const bool has_weights = ending != nullptr && ending->weights != nullptr;
    std::string& run_dir = has_weights ? worker->weights_dir : worker->run_dir;
    run_dir = has_weights ? ending->weights->path() : pando::RunDirFor(facts.membership);
    *run = {.rank = facts.membership.rank,
            .seed = plan.job.seed,
            .step_count = plan.steps.step_count(),
            .steps_per_epoch = plan.steps.steps_per_epoch(),
            .micro_batches = plan.job.micro_batches,
            .took_over = facts.took_over ? 1u : 0u,
            .run_dir = run_dir.c_str()};
    return PANDO_OK;
  });
}

pando_result pando_next_work(pando_worker* worker, pando_work* work, uint32_t timeout_ms) {
  return InRun(worker, [&](ProgramWorker& program) {
    worker->current = program.computer().NextWork(After(timeout_ms));
    if (worker->current != nullptr) Fill(work, program.plan(), *worker->current);
    if (worker->current != nullptr) return PANDO_OK;
    const pando_result end = EndFor(worker);
    return end == PANDO_OK ? PANDO_AGAIN : end;
  });
}

pando_result pando_peek_work(pando_worker* worker, uint32_t ahead, pando_work* work) {
  return InRun(worker, [&](ProgramWorker& program) {
    std::optional<ProgramComputer::Guess> guess = program.computer().PeekWork(ahead);
    if (!guess) return PANDO_AGAIN;
    worker->peeked = std::move(guess->samples);
    *work = {.kind = PANDO_TRAIN,
             .micro_batch = guess->micro_batch.value(),
             .step = guess->step.value(),
             .epoch = program.plan().steps.Epoch(guess->step),
             .version = program.plan().steps.VersionReadBy(guess->step).value(),
             .sample_count = worker->peeked.size(),
             .samples = worker->peeked.data()};
    return PANDO_OK;
  });
}

pando_result pando_end_reading(pando_worker* worker) {
  return InRun(worker, [&](ProgramWorker& program) {
    program.computer().EndReading();
    return PANDO_OK;
  });
}

pando_result pando_load_tensor(pando_worker* worker, uint32_t tensor, float* to, uint64_t* holds,
                               uint32_t timeout_ms) {
  return InRun(worker, [&](ProgramWorker& program) {
    return Report(worker, program.computer().LoadTensor(tensor, to, holds, After(timeout_ms)));
  });
}

pando_result pando_give_gradient(pando_worker* worker, uint32_t tensor, const float* gradient,
                                 double weight) {
  return InRun(worker, [&](ProgramWorker& program) {
    const ScopedFloatEnvironment environment;
    return Report(worker, program.computer().GiveGradient(tensor, gradient, weight));
  });
}

pando_result pando_finish_work(pando_worker* worker, const double* sums, uint32_t count) {
  return InRun(worker, [&](ProgramWorker& program) {
    const ScopedFloatEnvironment environment;
    return Report(worker, program.computer().Finish({sums, count}));
  });
}

pando_result pando_evaluated(pando_worker* worker, const pando_mean** means, uint32_t* count) {
  return InRun(worker, [&](ProgramWorker& program) {
    if (worker->current == nullptr || !worker->current->is_report())
      return Fail(worker, "the current work is not a report");
    const std::vector<double>& sums = worker->current->evaluation->request.sums;
    worker->mean_names = pando::MeanNames(program.plan().job);
    worker->means.clear();
    for (size_t i = 0; i < std::min(sums.size(), worker->mean_names.size()); ++i)
      worker->means.push_back({worker->mean_names[i].c_str(),
                               sums[i] / static_cast<double>(program.plan().data.test_samples)});
    *means = worker->means.data();
    *count = static_cast<uint32_t>(worker->means.size());
    return PANDO_OK;
  });
}

pando_result pando_stop(pando_worker* worker, const char* text) {
  return InRun(worker, [&](ProgramWorker& program) {
    const Status stopped =
        program.computer().StopRun(std::string(text, strnlen(text, kFailureBytesMax)));
    return stopped.ok() ? PANDO_OK : Fail(worker, stopped.message());
  });
}

void pando_leave(pando_worker* worker) {
  const bool is_ours = worker != nullptr && worker->process == getpid();
  if (is_ours && worker->worker != nullptr) worker->worker->Leave();
}

pando_result pando_fail(pando_worker* worker, const char* text, uint32_t timeout_ms) {
  return InRun(worker, [&](ProgramWorker& program) {
    program.computer().Fail(std::string(text, strnlen(text, kFailureBytesMax)));
    return program.AwaitEnd(After(timeout_ms)) ? PANDO_OK : PANDO_AGAIN;
  });
}

pando_ending pando_end(pando_worker* worker, const char** text) {
  const ProgramWorker::Ending* ending =
      worker == nullptr || worker->worker == nullptr ? nullptr : worker->worker->ending();
  if (ending == nullptr) return PANDO_NOT_ENDED;
  std::lock_guard lock(worker->mutex);
  if (worker->end_text.empty()) {
    worker->end_text = !ending->failure.ok() ? ending->failure.message()
                       : ending->stop        ? ending->stop->text
                                             : "the run is over";
  }
  if (text != nullptr) *text = worker->end_text.c_str();
  return ToEnding(*ending);
}

const char* pando_last_error(pando_worker* worker) {
  if (worker == nullptr) return "there is no worker: out of memory, or pando_open was not called";
  std::lock_guard lock(worker->mutex);
  const auto error = worker->errors.find(std::this_thread::get_id());
  return error == worker->errors.end() ? "" : error->second.c_str();
}

void pando_close(pando_worker* worker) {
  // A forked child has none of the threads, and shares descriptors with its parent.
  if (worker != nullptr && worker->process == getpid()) delete worker;
}
