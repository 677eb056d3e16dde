#include "cli/job_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "cli/device_choice.h"
#include "cli/job_key_makers.h"
#include "common/nearest_name.h"
#include "models/network.h"
#include "models/network_file.h"

namespace pando {
namespace {

void AddModelAndDataKeys(std::vector<JobKey>* keys) {
  using enum ValueKind;
  keys->push_back(MakeChoice({"model.name", "--model", "", "the network to train"}, Model::Names(),
                             PANDO_FIELD(model)));
  keys->back().file_suffix = kNetworkFileSuffix;
  keys->push_back(MakeKey(kText,
                          {"model.network", "", "",
                           "text of the network's file, where model.name is one; empty: read from "
                           "it (docs/networks.md)"},
                          PANDO_FIELD(network)));
  keys->push_back(MakeKey(kCountList,
                          {"model.hidden", "", "units", "widths of the mlp's hidden layers"},
                          PANDO_FIELD(mlp_hidden), kUint32));
  keys->push_back(MakeChoice({"data.name", "--dataset", "", "the data set"}, DataSetNames(),
                             PANDO_FIELD(dataset)));
  keys->push_back(
      MakeKey(kText,
              {"data.path", "--data", "folder",
               "where the data set's files lie; empty: data/NAME or ../shared/data/NAME"},
              PANDO_FIELD(data_path)));
  keys->push_back(MakeChoiceList({"data.columns", "", "",
                                  "a table's columns to learn from, by name; none: u, g, r, i, z "
                                  "and redshift of sdss"},
                                 {}, PANDO_FIELD(columns)));
  keys->push_back(MakeChoiceList(
      {"data.augment", "--augment", "",
       "what is drawn anew for each training picture: crop (shifted by up to an eighth of its "
       "side; of photographs, a part of any size, resized), flip (left to right); empty: nothing"},
      {"crop", "flip"}, PANDO_FIELD(augment)));
  keys->push_back(MakeKey(kCount,
                          {"data.resize", "--resize", "pixels",
                           "side that pictures are resized to; 0: as they are, photographs 224"},
                          PANDO_FIELD(resize), kSide));
  keys->push_back(MakeKey(kCount,
                          {"data.limit", "--limit", "samples",
                           "training samples, a subset drawn from the seed; 0: all"},
                          PANDO_FIELD(train_limit), kSteps));
  keys->push_back(MakeKey(
      kCount,
      {"data.test_limit", "", "samples", "test samples, a subset drawn from the seed; 0: all"},
      PANDO_FIELD(test_limit), kSteps));
  keys->push_back(MakeKey(
      kCount,
      {"data.bad_pictures_max", "", "pictures",
       "pictures that cannot be decoded and may be replaced by the next one of the list, in "
       "the whole run; more are an error"},
      PANDO_FIELD(bad_pictures_max), kBadPictures));
  keys->push_back(MakeKey(kCount,
                          {"data.synthetic_train_samples", "", "samples",
                           "training samples that synthetic data sets draw"},
                          PANDO_FIELD(synthetic_train_samples), kUint32));
  keys->push_back(MakeKey(
      kCount,
      {"data.synthetic_test_samples", "", "samples", "test samples that synthetic data sets draw"},
      PANDO_FIELD(synthetic_test_samples), kUint32));
}

void AddTrainKeys(std::vector<JobKey>* keys) {
  using enum ValueKind;
  keys->push_back(MakeKey(
      kCount,
      {"train.steps", "--steps", "steps", "length of the run in steps; 0: train.epochs says it"},
      PANDO_FIELD(steps), kSteps));
  keys->push_back(
      MakeKey(kReal,
              {"train.epochs", "--epochs", "epochs",
               "length of the run in epochs, rounded up to a step; 0: train.steps says it"},
              PANDO_FIELD(epochs), kEpochs));
  keys->push_back(MakeKey(
      kCount,
      {"train.global_batch", "--global-batch", "samples", "samples of one step, over all workers"},
      PANDO_FIELD(global_batch), kUint32));
  keys->push_back(
      MakeKey(kCount,
              {"train.micro_batches", "--micro-batches", "per step",
               "parts of a step that workers compute; fixes the result, whoever computes them"},
              PANDO_FIELD(micro_batches), kMicroBatches));
  keys->push_back(MakeKey(
      kChoice,
      {"train.last_batch", "", "", "the last batch of an epoch, where the data do not fill it"},
      PANDO_FIELD(last_batch)));
  keys->push_back(MakeKey(
      kCount, {"train.seed", "--seed", "", "seed of weights, shuffling, dropout, synthetic data"},
      PANDO_FIELD(seed)));
  keys->push_back(MakeKey(kReal,
                          {"train.label_smoothing", "--label-smoothing", "",
                           "share of a label that is spread over all classes, in training"},
                          PANDO_FIELD(label_smoothing), kBelowOne));
  keys->push_back(MakeKey(kBool,
                          {"train.activation_checkpointing", "--activation-checkpointing", "",
                           "drop most activations and compute them again in backward: less memory, "
                           "more time, the same result"},
                          PANDO_FIELD(activation_checkpointing)));
  keys->push_back(MakeKey(
      kChoice,
      {"train.precision", "--precision", "",
       "what GPUs compute in; parameters and sums of gradients are floats in each. CPUs compute in "
       "floats alone, and take no part in bf16 and fp16"},
      PANDO_FIELD(precision)));
  keys->push_back(MakeKey(kBool,
                          {"train.allow_nondeterministic", "--allow-nondeterministic", "",
                           "let GPUs use faster algorithms whose bits differ from run to run: the "
                           "weights are then those of this run alone"},
                          PANDO_FIELD(allow_nondeterministic)));
  keys->push_back(MakeKey(
      kChoice,
      {"train.codec", "--codec", "",
       "how gradients travel to the servers, which add them up as floats: fp16, bf16 and int8 "
       "(with a scale for each 256) are shorter and less exact. 1-bit and top-k send little, and "
       "add what they lost to the next gradient: with them a fault changes the weights. Each "
       "micro-batch travels by itself then"},
      PANDO_FIELD(push_codec)));
  keys->push_back(MakeKey(
      kReal,
      {"train.top_k_share", "", "", "with top-k: the share of a gradient's values that travels"},
      PANDO_FIELD(top_k_share), kShare));
  keys->push_back(MakeKey(
      kChoice,
      {"train.pull_codec", "--pull-codec", "",
       "how parameters travel to the workers, who compute with what arrives; servers keep floats"},
      PANDO_FIELD(pull_codec)));
  keys->back().choices.resize(kPullCodecs);
}

void AddLossScaleKeys(std::vector<JobKey>* keys) {
  using enum ValueKind;
  keys->push_back(MakeKey(kReal,
                          {"fp16.loss_scale", "", "",
                           "with fp16: by what the loss is multiplied; 0: it moves, as the next "
                           "keys say. Steps with an overflow are skipped"},
                          PANDO_FIELD(optimizer.loss_scale.loss_scale), kLossScale));
  keys->push_back(MakeKey(kCount, {"fp16.initial_scale_power", "", "", "it begins with 2 to this"},
                          PANDO_FIELD(optimizer.loss_scale.initial_scale_power), kScalePower));
  keys->push_back(MakeKey(
      kCount,
      {"fp16.loss_scale_window", "", "steps", "steps without an overflow after which it doubles"},
      PANDO_FIELD(optimizer.loss_scale.loss_scale_window), kScaleWindow));
  keys->push_back(
      MakeKey(kCount, {"fp16.hysteresis", "", "steps", "steps with an overflow until it halves"},
              PANDO_FIELD(optimizer.loss_scale.hysteresis), kScaleWindow));
  keys->push_back(MakeKey(kReal,
                          {"fp16.min_loss_scale", "", "", "an overflow at this scale ends the run"},
                          PANDO_FIELD(optimizer.loss_scale.min_loss_scale), kPositive));
}

void AddOptimizerKeys(std::vector<JobKey>* keys) {
  using enum ValueKind;
  keys->push_back(MakeKey(kChoice,
                          {"optimizer.type", "--optimizer", "",
                           "the optimizer; formulas as PyTorch's, of lars and lamb the papers'"},
                          PANDO_FIELD(optimizer.kind)));
  keys->push_back(MakeKey(kReal,
                          {"optimizer.lr", "--lr", "", "learning rate; the highest of a schedule"},
                          PANDO_FIELD(optimizer.lr), kPositive));
  keys->push_back(MakeKey(kReal,
                          {"optimizer.momentum", "--momentum", "", "momentum of sgd and lars"},
                          PANDO_FIELD(optimizer.momentum), kBelowOne));
  keys->push_back(MakeKey(kReal, {"optimizer.dampening", "", "", "sgd: dampening of the momentum"},
                          PANDO_FIELD(optimizer.dampening), kUnit));
  keys->push_back(MakeKey(kBool, {"optimizer.nesterov", "", "", "sgd: Nesterov's momentum"},
                          PANDO_FIELD(optimizer.nesterov)));
  keys->push_back(MakeKey(kReal,
                          {"optimizer.beta1", "", "", "adam, adamw, lamb: decay of the mean"},
                          PANDO_FIELD(optimizer.beta1), kBelowOne));
  keys->push_back(MakeKey(kReal,
                          {"optimizer.beta2", "", "", "adam, adamw, lamb: decay of the square"},
                          PANDO_FIELD(optimizer.beta2), kBelowOne));
  keys->push_back(MakeKey(kReal, {"optimizer.eps", "", "", "adam, adamw, lamb: added to the root"},
                          PANDO_FIELD(optimizer.eps), kPositive));
  keys->push_back(MakeKey(
      kReal,
      {"optimizer.weight_decay", "--weight-decay", "",
       "share of the weights added to the gradient; in adamw, taken off the weights; in lamb, "
       "added to the direction"},
      PANDO_FIELD(optimizer.weight_decay)));
  keys->push_back(
      MakeKey(kBool,
              {"optimizer.weight_decay_exclude_bias_and_norm", "", "",
               "no decay of tensors of one dimension: biases, norms' weights; always so in lars, "
               "lamb"},
              PANDO_FIELD(optimizer.weight_decay_exclude_bias_and_norm)));
  keys->push_back(
      MakeKey(kReal,
              {"optimizer.clip_value", "", "",
               "each element of the gradient is clipped to ± this, before decay; 0: none"},
              PANDO_FIELD(optimizer.clip_value)));
  keys->push_back(MakeKey(kReal,
                          {"optimizer.clip_norm", "--clip-norm", "",
                           "the whole gradient is scaled down to at most this norm, before decay; "
                           "0: none"},
                          PANDO_FIELD(optimizer.clip_norm)));
  keys->push_back(MakeKey(
      kReal,
      {"optimizer.trust_coefficient", "", "",
       "lars: a layer's rate is lr · this · norm of its weights / norm of its gradient and decay"},
      PANDO_FIELD(optimizer.trust_coefficient), kPositive));
  keys->push_back(MakeKey(
      kReal,
      {"optimizer.trust_ratio_max", "", "",
       "lamb: bound of norm of a layer's weights / norm of its update; DeepSpeed's max_coeff"},
      PANDO_FIELD(optimizer.trust_ratio_max), kPositive));
  keys->push_back(MakeKey(kReal,
                          {"optimizer.ema_decay", "--ema-decay", "",
                           "share that the average of the weights keeps at each step, as 0.999; "
                           "pando export --ema writes it; 0: none is kept"},
                          PANDO_FIELD(optimizer.ema_decay), kBelowOne));
}

void AddScheduleKeys(std::vector<JobKey>* keys) {
  using enum ValueKind;
  keys->push_back(MakeKey(
      kChoice, {"schedule.type", "--schedule", "", "how the learning rate moves over the run"},
      PANDO_FIELD(schedule.kind)));
  keys->push_back(MakeKey(kCount,
                          {"schedule.warmup_steps", "", "steps", "linear rise before any type"},
                          PANDO_FIELD(schedule.warmup_steps)));
  keys->push_back(MakeKey(kCount, {"schedule.step_size", "", "steps", "step: steps between decays"},
                          PANDO_FIELD(schedule.step_size)));
  keys->push_back(MakeKey(kCountList,
                          {"schedule.milestones", "", "steps",
                           "multi-step: the steps, after warm-up, from which it decays once more"},
                          PANDO_FIELD(schedule.milestones), kSteps));
  keys->push_back(MakeKey(
      kReal,
      {"schedule.gamma", "", "", "step, multi-step: factor of each decay; exponential: of a step"},
      PANDO_FIELD(schedule.gamma), kPositive));
  keys->push_back(
      MakeKey(kReal, {"schedule.start_factor", "", "", "linear: rate at the start = lr · this"},
              PANDO_FIELD(schedule.start_factor), kUnit));
  keys->push_back(MakeKey(kReal,
                          {"schedule.end_factor", "", "", "linear: rate at the end = lr · this"},
                          PANDO_FIELD(schedule.end_factor), kUnit));
  keys->push_back(MakeKey(kCount,
                          {"schedule.total_iters", "", "steps",
                           "linear, polynomial: steps from start to end; 0: all after warm-up"},
                          PANDO_FIELD(schedule.total_iters), kSteps));
  keys->push_back(MakeKey(
      kReal, {"schedule.power", "", "", "polynomial: rate = lr · (share of steps left)^this"},
      PANDO_FIELD(schedule.power)));
  keys->push_back(MakeKey(kReal, {"schedule.min_lr", "", "", "cosine: rate at the end"},
                          PANDO_FIELD(schedule.min_lr)));
  keys->push_back(MakeKey(kReal,
                          {"schedule.pct_start", "", "", "one-cycle: share of the run that rises"},
                          PANDO_FIELD(schedule.pct_start), kOpenUnit));
  keys->push_back(
      MakeKey(kReal, {"schedule.div_factor", "", "", "one-cycle: rate at the start = lr / this"},
              PANDO_FIELD(schedule.div_factor), kAtLeastOne));
  keys->push_back(MakeKey(kReal,
                          {"schedule.final_div_factor", "", "",
                           "one-cycle: rate at the end = rate at the start / this"},
                          PANDO_FIELD(schedule.final_div_factor), kAtLeastOne));
  keys->push_back(MakeKey(
      kBool,
      {"schedule.cycle_momentum", "", "", "one-cycle: momentum (adam: beta1) runs the other way"},
      PANDO_FIELD(schedule.cycle_momentum)));
  keys->push_back(MakeKey(kReal, {"schedule.base_momentum", "", "", "one-cycle: lowest momentum"},
                          PANDO_FIELD(schedule.base_momentum), kBelowOne));
  keys->push_back(MakeKey(kReal, {"schedule.max_momentum", "", "", "one-cycle: highest momentum"},
                          PANDO_FIELD(schedule.max_momentum), kBelowOne));
}

void AddEvalKeys(std::vector<JobKey>* keys) {
  using enum ValueKind;
  keys->push_back(MakeKey(kCount,
                          {"eval.every_epochs", "--eval-every-epochs", "epochs",
                           "epochs between evaluations on the test set; 0: eval.every_steps says "
                           "it, or only at the end"},
                          PANDO_FIELD(eval_every_epochs), kEpochs));
  keys->push_back(
      MakeKey(kCount,
              {"eval.every_steps", "--eval-every-steps", "steps",
               "steps between evaluations on the test set; 0: eval.every_epochs says it"},
              PANDO_FIELD(eval_every_steps), kSteps));
  keys->push_back(
      MakeKey(kCount,
              {"eval.early_stop_patience", "--early-stop-patience", "evaluations",
               "the run ends when so many in a row have not bettered the test accuracy; 0: it runs "
               "to its end"},
              PANDO_FIELD(early_stop_patience), kPatience));
  keys->push_back(MakeKey(kReal,
                          {"eval.early_stop_min_delta", "--early-stop-min-delta", "",
                           "a test accuracy is better if it is above the best by more than this"},
                          PANDO_FIELD(early_stop_min_delta), kBelowOne));
}

#undef PANDO_FIELD

std::vector<JobKey> MakeKeys() {
  std::vector<JobKey> keys;
  AddModelAndDataKeys(&keys);
  AddTrainKeys(&keys);
  AddLossScaleKeys(&keys);
  AddOptimizerKeys(&keys);
  AddScheduleKeys(&keys);
  AddEvalKeys(&keys);
  AddRunKeys(&keys);
  return keys;
}

}  // namespace

const std::vector<JobKey>& JobKeys() {
  static const std::vector<JobKey> keys = MakeKeys();
  return keys;
}

const JobKey* FindJobKey(std::string_view name) {
  for (const JobKey& key : JobKeys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string SuggestJobKey(std::string_view wrong) {
  std::vector<std::string> names;
  for (const JobKey& key : JobKeys()) {
    // A right key in no section or another one is the likeliest slip.
    if (wrong.substr(wrong.rfind('.') + 1) == key.leaf())
      return fmt::format("did you mean '{}'?", key.name);
    names.push_back(key.name);
  }
  return DidYouMean(wrong, names);
}

}  // namespace pando
