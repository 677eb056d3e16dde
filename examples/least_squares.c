/* Least squares by gradient descent: a worker of a Pando run in C.
 *
 *   pando run --workers 2 --servers 2 build/examples/least_squares [STEPS]
 *
 * The model is y = w · x + b with 8 inputs. Sample i is drawn from its number, so every process has
 * the same data without a file. The true w is 1, 2, ..., 8 and the true b is -3. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed/pando_worker.h"

enum { kInputs = 8, kTrainSamples = 4096, kTestSamples = 1500, kWait = 100 };

/* The k-th number of sample i, from -1 to 1 (splitmix64). */
static float draw(uint64_t i, uint64_t k) {
  uint64_t z = (i * 64 + k + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (float)(int32_t)(z >> 32) / 2147483648.0f;
}

static float truth(uint64_t i) {
  float y = -3;
  for (int k = 0; k < kInputs; ++k) y += (float)(k + 1) * draw(i, (uint64_t)k);
  return y;
}

/* Sums over the samples of the squared error's gradient, by w and b. Returns the sum of errors. */
static double gradient(const pando_work* work, uint64_t first, const float* w, float b, float* dw,
                       float* db) {
  double loss = 0;
  memset(dw, 0, kInputs * sizeof *dw);
  *db = 0;
  for (uint64_t s = 0; s < work->sample_count; ++s) {
    const uint64_t i = first + work->samples[s];
    float error = b - truth(i);
    for (int k = 0; k < kInputs; ++k) error += w[k] * draw(i, (uint64_t)k);
    for (int k = 0; k < kInputs; ++k) dw[k] += 2 * error * draw(i, (uint64_t)k);
    *db += 2 * error;
    loss += (double)error * error;
  }
  return loss;
}

static int fail(pando_worker* worker) {
  fprintf(stderr, "least_squares: %s\n", pando_last_error(worker));
  pando_close(worker);
  return 1;
}

int main(int argc, char** argv) {
  char job[256];
  snprintf(job, sizeof job,
           "[train]\nsteps = %lu\nglobal_batch = 64\nmicro_batches = 8\n[optimizer]\nlr = 0.05\n"
           "[eval]\nevery_steps = 100\nsums = ['loss_sum']\n",
           argc > 1 ? strtoul(argv[1], NULL, 10) : 200);
  const char* rank = getenv("PANDO_RANK");
  const uint64_t shape[] = {kInputs};
  float w[kInputs] = {0}, b = 0;
  const pando_tensor tensors[] = {
      {.name = "w", .shape = shape, .dimensions = 1, .lr_factor = 1, .weight_decay = -1, .initial = w},
      {.name = "b", .dimensions = 0, .lr_factor = 1, .weight_decay = -1, .initial = &b}};
  const pando_options options = {
      .scheduler = getenv("PANDO_SCHEDULER"),
      .job = job,
      .model_name = "least squares",
      .tensors = tensors,
      .tensor_count = 2,
      .train_samples = kTrainSamples,
      .test_samples = kTestSamples,
      .kind = "least_squares",
      .wanted_rank = rank != NULL && *rank != '\0' ? (uint32_t)strtoul(rank, NULL, 10) : UINT32_MAX};
  pando_worker* worker;
  pando_result result = pando_open(&options, &worker);
  if (result == PANDO_OK) {
    do result = pando_join(worker, kWait);
    while (result == PANDO_AGAIN);
  }
  if (result == PANDO_ERROR) return fail(worker);
  uint64_t holds_w = 0, holds_b = 0;
  while (result != PANDO_END) {
    pando_work work;
    result = pando_next_work(worker, &work, kWait);
    if (result == PANDO_OK) {
      do result = pando_load_tensor(worker, 0, w, &holds_w, kWait);
      while (result == PANDO_AGAIN);
    }
    if (result == PANDO_OK) {
      do result = pando_load_tensor(worker, 1, &b, &holds_b, kWait);
      while (result == PANDO_AGAIN);
    }
    if (result == PANDO_OK) {
      float dw[kInputs], db;
      const int is_training = work.kind == PANDO_TRAIN;
      const double loss = gradient(&work, is_training ? 0 : kTrainSamples, w, b, dw, &db);
      if (is_training) result = pando_give_gradient(worker, 0, dw, 1);
      if (is_training && result == PANDO_OK) result = pando_give_gradient(worker, 1, &db, 1);
      if (result == PANDO_OK) result = pando_finish_work(worker, &loss, 1);
    }
    if (result == PANDO_ERROR) return fail(worker);
  }
  const char* text;
  const pando_ending ending = pando_end(worker, &text);
  printf("least_squares: %s\n", text);
  pando_close(worker);
  return ending == PANDO_COMPLETED || ending == PANDO_DRAINED ? 0 : 1;
}
