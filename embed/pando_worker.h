/* pando_worker.h: a worker of a Pando run inside another program, in C.
 *
 * The program computes gradients: with PyTorch, or with its own code. This library does the rest of
 * what `pando worker` does: it joins a run, receives parameters from the servers, sums gradients
 * and pushes them, and sends heartbeats. Any process of the run may be killed at any moment. The
 * final weights are the same bits, if the program's gradients are: a micro-batch's gradient must
 * depend on the parameters, the samples, the step and the micro-batch alone.
 *
 * A program looks like this (examples/least_squares.c is one that runs):
 *
 *   pando_worker* worker;
 *   if (pando_open(&options, &worker) != PANDO_OK) ...
 *   while (pando_join(worker, 100) == PANDO_AGAIN) {}
 *   while ((result = pando_next_work(worker, &work, 100)) != PANDO_END) {
 *     if (result == PANDO_ERROR) ...
 *     if (result == PANDO_AGAIN) continue;
 *     for each tensor:  pando_load_tensor(worker, i, values[i], &holds[i], 100)
 *     compute with samples[0 .. sample_count)
 *     for each tensor:  pando_give_gradient(worker, i, gradient[i], sample_count)
 *     pando_finish_work(worker, sums, 2)
 *   }
 *   pando_close(worker);
 *
 * Results. Every function that may fail returns a pando_result. PANDO_AGAIN means that nothing came
 * within `timeout_ms`, so that the program can look at Ctrl-C; call the function again.
 * PANDO_ABANDONED means that the work does not count any more (another worker has it, or the run
 * went back to a snapshot): drop it and ask for the next work. After PANDO_ERROR,
 * pando_last_error says what went wrong and what to do; only pando_close may follow.
 *
 * Threads. The functions may be called from any thread, and by several at once for different
 * tensors. pando_next_work, pando_finish_work and pando_close are called by one thread while no
 * other call is at work. The library has further threads; it blocks no signals.
 *
 * Forks. A child that was forked after pando_open inherits none of the library's connections. It
 * must not call the library.
 *
 * No C++ exception and no exit() leaves the library.
 */
#ifndef PANDO_WORKER_H
#define PANDO_WORKER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PANDO_API __attribute__((visibility("default")))

/* Incremented with every change of this header that would break an older program. */
#define PANDO_WORKER_ABI 3
PANDO_API uint32_t pando_abi(void);
/* The library's version: "0.9.0". */
PANDO_API const char* pando_version(void);

typedef struct pando_worker pando_worker;

typedef enum pando_result {
  PANDO_OK = 0,
  PANDO_AGAIN = 1,
  PANDO_ABANDONED = 2,
  PANDO_END = 3, /* the run is over for this process; pando_end says how */
  PANDO_ERROR = 4
} pando_result;

typedef enum pando_tensor_kind {
  PANDO_PARAMETER = 0, /* updated by the servers' optimizer from its gradient */
  PANDO_STATISTIC = 1  /* a running mean or variance: its "gradient" is the micro-batch's statistic,
                          and the version is the moving average of the steps' means */
} pando_tensor_kind;

/* One tensor of the model: 32-bit floats, row-major. */
typedef struct pando_tensor {
  const char* name;      /* PyTorch's: "layer1.0.conv1.weight"; without spaces */
  const uint64_t* shape; /* `dimensions` extents; none is 0 */
  uint32_t dimensions;   /* 0: a scalar */
  uint32_t kind;         /* pando_tensor_kind */
  float momentum;        /* PANDO_STATISTIC: a step's share in the running value, PyTorch's */
  uint32_t group;        /* PANDO_PARAMETER: its group of the job's optimizer.groups; else 0 */
  double lr_factor;      /* PANDO_PARAMETER: its rate is the schedule's times this; usually 1 */
  double weight_decay;   /* PANDO_PARAMETER: its own; negative: the job's */
  const float* initial;  /* version 0, if the run takes it from this process; read by pando_open */
} pando_tensor;

/* All strings are UTF-8. Everything is copied by pando_open. */
typedef struct pando_options {
  const char* scheduler; /* its endpoint: "tcp://10.0.0.1:29400", "ipc:///tmp/x" */
  /* The training, as TOML text with the job file's sections train, optimizer, schedule and eval
   * (docs/job-file.md). All workers of a run give the same. The sections run, snapshot, verify and
   * worker come from the command line of `pando run`, and are ignored here. */
  const char* job;
  const char* model_name;      /* for people: "ResNet" */
  const pando_tensor* tensors; /* the same, in the same order, in every worker */
  uint32_t tensor_count;
  uint64_t train_samples; /* of the data set; ≥ 1 */
  uint64_t test_samples;  /* 0: the run has no evaluation */
  /* All that decides a gradient's bits besides the work: "torch 2.15 cpu avx512 1 thread". Two
   * workers of one kind compute the same bits, which verification (verify.every) proves. */
  const char* kind;
  uint32_t start_timeout_ms; /* how long to look for the scheduler; 0: 60 s */
  uint32_t wanted_rank;      /* UINT32_MAX: any; `pando run` gives it as PANDO_RANK */
} pando_options;

/* Checks the options and starts the library's threads. Always sets *worker, so that
 * pando_last_error can be called; always close it. */
PANDO_API pando_result pando_open(const pando_options* options, pando_worker** worker);

/* Waits until the run has this process. The first worker supplies version 0 of the parameters,
 * and the others take it over. PANDO_OK, PANDO_AGAIN, PANDO_END (the run was over),
 * PANDO_ERROR (no scheduler, or the run trains another model: the first difference is named). */
PANDO_API pando_result pando_join(pando_worker* worker, uint32_t timeout_ms);

/* Facts of the run, once joined. */
typedef struct pando_run {
  uint32_t rank;       /* of this worker, for logs */
  uint64_t seed;       /* train.seed */
  uint64_t step_count; /* of the whole run */
  uint64_t steps_per_epoch;
  uint32_t micro_batches; /* of a step */
  uint32_t took_over;     /* 1: version 0 is another worker's, and differs from ours */
  /* The run's folder, on the scheduler's machine. Once the run is completed, a folder of this
   * machine that has final.safetensors. Valid until pando_close. */
  const char* run_dir;
} pando_run;
PANDO_API pando_result pando_describe(pando_worker* worker, pando_run* run);

typedef enum pando_work_kind {
  PANDO_TRAIN = 0,
  PANDO_EVALUATE = 1,
  PANDO_REPORT = 2 /* with eval.report: a version is evaluated, and pando_evaluated has the means */
} pando_work_kind;

typedef struct pando_work {
  uint32_t kind;         /* pando_work_kind */
  uint32_t micro_batch;  /* PANDO_TRAIN: index within the step; otherwise 0 */
  uint64_t step;         /* PANDO_TRAIN: it updates version `step` of the parameters */
  uint64_t epoch;        /* PANDO_TRAIN */
  uint64_t version;      /* of the parameters that are read; train.staleness below `step` */
  uint64_t sample_count; /* ≥ 1; PANDO_REPORT: 0 */
  /* Indices into the training or the test samples. Valid until pando_next_work is called again, or
   * for pando_peek_work until it is. */
  const uint64_t* samples;
} pando_work;

/* Returns the next work: one micro-batch of training, or a slice of at most 1,024 test samples. It
 * replaces the current one. Unfinished work is dropped: it will be given out again, here or
 * elsewhere. Work may be given out before its parameters have arrived.
 * PANDO_OK, PANDO_AGAIN, PANDO_END, PANDO_ERROR. */
PANDO_API pando_result pando_next_work(pando_worker* worker, pando_work* work, uint32_t timeout_ms);

/* Returns the work that pando_next_work will most likely return after `ahead` more calls (0: at the
 * next one), so that samples can be read early. It is a guess, since views change. PANDO_OK, or
 * PANDO_AGAIN if nothing can be guessed. Does not block. */
PANDO_API pando_result pando_peek_work(pando_worker* worker, uint32_t ahead, pando_work* work);

/* The program has read the current work's samples, and computes from now on: the time since
 * pando_next_work was a wait for samples, as metrics.csv and the page show it. Without this call it
 * ends with the first call below. Does not block. PANDO_OK, PANDO_END, PANDO_ERROR. */
PANDO_API pando_result pando_end_reading(pando_worker* worker);

/* Copies the tensor, in the version of the current work, to `to` once it has arrived. `holds`
 * identifies the content of `to`: set it to 0 before the first call, and keep it with `to`. If `to`
 * already has the version, nothing is copied. PANDO_OK, PANDO_AGAIN, PANDO_ABANDONED, PANDO_END,
 * PANDO_ERROR. */
PANDO_API pando_result pando_load_tensor(pando_worker* worker, uint32_t tensor, float* to,
                                         uint64_t* holds, uint32_t timeout_ms);

/* For PANDO_TRAIN: gives the tensor's gradient, `gradient` · `weight`, and copies it before the
 * call returns. Sums over samples are sent, so the gradient of a mean loss has the number of
 * samples as its weight, and so has a micro-batch's statistic. With train.weighted a gradient has
 * the weight of the micro-batch, for example its tokens, and a statistic the number of samples.
 * Gradients are sent at once, while the program computes others. Give each tensor once; a tensor
 * that is not given has a gradient of zeros. PANDO_OK, PANDO_ABANDONED, PANDO_END, PANDO_ERROR (a
 * value is not finite: training has diverged, the tensor is named, and the run ends). */
PANDO_API pando_result pando_give_gradient(pando_worker* worker, uint32_t tensor,
                                           const float* gradient, double weight);

/* Finishes the current work. `sums` are sums over its samples. For training sums[0] is the loss and
 * sums[1] the number of right answers, for metrics.csv; then come those of the job's train.logs.
 * count may be smaller. With train.weighted it is not, and one more is the last: the micro-batch's
 * weight ≥ 0, and the step's gradient and means are divided by the sum of its micro-batches'
 * weights. If a micro-batch lacks another one, or has PANDO_NOT_LOGGED there, the step has no such
 * value. For evaluation the sums have the order of the
 * job's eval.sums, and count is their number; a report has none. PANDO_OK, PANDO_ABANDONED,
 * PANDO_END, PANDO_ERROR. */
#define PANDO_NOT_LOGGED (-1.7976931348623157e308)
PANDO_API pando_result pando_finish_work(pando_worker* worker, const double* sums, uint32_t count);

/* A mean of an evaluation over the test samples, under its name in metrics.csv: "loss". */
typedef struct pando_mean {
  const char* name;
  double value;
} pando_mean;
/* For PANDO_REPORT: the means of the evaluated version, valid until pando_next_work is called
 * again. One worker of the run gets the report of a version. Another one gets it if that worker
 * dies before it has finished the work. PANDO_OK, PANDO_ABANDONED, PANDO_END, PANDO_ERROR. */
PANDO_API pando_result pando_evaluated(pando_worker* worker, const pando_mean** means,
                                       uint32_t* count);
/* For PANDO_REPORT, before pando_finish_work: the run ends as completed, with this version. The job
 * has eval.report = "decides". `text` says why. PANDO_OK, PANDO_END, PANDO_ERROR. */
PANDO_API pando_result pando_stop(pando_worker* worker, const char* text);

/* Asks to leave in order, as SIGTERM does. Go on with pando_next_work until PANDO_END. */
PANDO_API void pando_leave(pando_worker* worker);
/* Ends the run: the program cannot go on, and no other worker could. `text` is the root cause.
 * Waits at most `timeout_ms` until the scheduler has it. */
PANDO_API pando_result pando_fail(pando_worker* worker, const char* text, uint32_t timeout_ms);

typedef enum pando_ending {
  PANDO_NOT_ENDED = 0,
  PANDO_COMPLETED = 1,
  PANDO_FAILED = 2,
  PANDO_INTERRUPTED = 3,
  PANDO_DRAINED = 4 /* this process has left; the run goes on */
} pando_ending;
/* Returns how the run ended here. If `text` is not NULL, *text tells it until pando_close. */
PANDO_API pando_ending pando_end(pando_worker* worker, const char** text);

/* Returns the last PANDO_ERROR's text, with what to do; "" if there was none. Valid until the next
 * call by the same thread. */
PANDO_API const char* pando_last_error(pando_worker* worker);

/* Ends the threads and frees everything; NULL is allowed. A worker that has not reached PANDO_END
 * disappears from the run as if it were killed. */
PANDO_API void pando_close(pando_worker* worker);

#ifdef __cplusplus
}
#endif
#endif /* PANDO_WORKER_H */
