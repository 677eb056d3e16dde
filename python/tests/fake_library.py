"""A stand-in for libpando_worker.so: one worker and its servers, in this process, in Python.

The package calls it through real C function pointers. Sums are in the order of micro-batches, and
torch.optim makes the versions. Faults are scripted: see `abandon` and `wrong_guesses`.
"""
import ctypes
import random
import tomllib
from types import SimpleNamespace

import torch

from pando_train import _library as lib
from pando_train._weights import write_safetensors


class FakeRun:
    """The state of a run. `library` is what _library.load_library would return.

    Set before the run:
      abandon: {(step, micro_batch): event}; the work is abandoned once at that event: load, give, finish,
        or load:N and give:N at the Nth such call
      rollback: {step: to}; once, when the step is reached, the run goes back to version `to`
      wrong_guesses: peek_work names works in another order than next_work
      stop_at: a step at which the run is interrupted;  fail_at: at which it fails
      folder_given: what pando_describe gives;  error_at_open: with which pando_open fails
      again: how many calls of each waiting function return PANDO_AGAIN first
    """

    def __init__(self, folder):
        self.folder = str(folder)
        self.abandon = {}
        self.rollback = {}
        self.wrong_guesses = False
        self.stop_at = self.fail_at = None
        self.again = 0
        self.folder_given = self.folder.encode()
        self.error_at_open = self.wanted_rank = None
        self.failure = None  # text of pando_fail
        self.error = ""
        self.evaluations = []  # (version, {name: sum})
        self.stopped = None  # the text of pando_stop
        self.losses = []  # (step, micro-batch, sums), finished works in order
        self.trace = []  # (function, tensor)
        self.has_left = self.is_closed = False
        self.raised = []
        self.kind = ""
        self.library = self._make_library()

    def _make_library(self):
        functions = {}
        self._keep = []
        for name, (result, arguments) in lib.FUNCTIONS.items():
            prototype = ctypes.CFUNCTYPE(result, *arguments)
            functions[name] = prototype(self._guarded(getattr(self, name[len("pando_"):])))
        return SimpleNamespace(**functions)

    def _guarded(self, method):
        def call(*arguments):
            try:
                return method(*arguments)
            except BaseException as error:  # ctypes would print it and go on
                self.raised.append(error)
                self.error = f"the fake library raised {error!r}"
                return lib.ERROR
        return call

    # ---- the functions of pando_worker.h ----

    def abi(self):
        return lib.ABI

    def version(self):
        return b"0"

    def open(self, options, handle):
        options = options.contents
        job = tomllib.loads(options.job.decode())
        self.job = job
        self.kind = options.kind.decode()
        self.tensors = [read_tensor(options.tensors[i]) for i in range(options.tensor_count)]
        self.names = [tensor.name for tensor in self.tensors]
        self.train_samples, self.test_samples = options.train_samples, options.test_samples
        self.batch = job["train"]["global_batch"]
        self.micro_batches = job["train"]["micro_batches"]
        self.seed = job["train"]["seed"]
        self.steps_per_epoch = -(-self.train_samples // self.batch)
        self.step_count = job["train"].get("steps") or int(job["train"]["epochs"] * self.steps_per_epoch)
        self.versions = {0: [tensor.value.clone() for tensor in self.tensors]}
        self.server = Server(job, self.tensors, self.step_count)
        self.states = {0: self.server.state()}
        self.step = 0
        self.parts, self.weights = {}, {}  # micro-batch -> its gradients, its weight
        self.current, self.pending = None, self._works(0)
        self._reset_work()
        handle[0] = 1
        self.wanted_rank = options.wanted_rank
        if self.error_at_open:
            self.error = self.error_at_open
            return lib.ERROR
        return lib.OK

    def join(self, handle, timeout_ms):
        return self._delay() or lib.OK

    def describe(self, handle, run):
        run = run.contents
        run.rank, run.seed, run.step_count = 0, self.seed, self.step_count
        run.steps_per_epoch, run.micro_batches, run.took_over = self.steps_per_epoch, self.micro_batches, 0
        run.run_dir = self.folder_given
        return lib.OK

    def next_work(self, handle, work, timeout_ms):
        if self._delay():
            return lib.AGAIN
        if self.current is not None:  # not finished: it comes again, later
            self.pending.append(self.current)
        self._reset_work()
        if self._is_over():
            self.current = None
            return lib.END
        self.current = self.pending.pop(0)
        self._samples = fill_work(work.contents, self.current)
        return lib.OK

    def peek_work(self, handle, ahead, work):
        guesses = self.pending + self._works(self.step + 1)
        if self.wrong_guesses:
            random.Random(len(self.trace)).shuffle(guesses)
        if ahead >= len(guesses):
            return lib.AGAIN
        self._peeked = fill_work(work.contents, guesses[ahead])
        return lib.OK

    def end_reading(self, handle):
        return lib.OK

    def load_tensor(self, handle, index, to, holds, timeout_ms):
        if self._delay():
            return lib.AGAIN
        if self._is_abandoned("load"):
            return lib.ABANDONED
        self.trace.append(("load", self.names[index]))
        version = self.current.version
        if holds[0] != version + 1:
            copy_out(self.versions[version][index], to)
            holds[0] = version + 1
        return lib.OK

    def give_gradient(self, handle, index, gradient, weight):
        if self._is_abandoned("give"):
            return lib.ABANDONED
        assert index not in self.gradients, f"{self.names[index]} was given twice"
        self.trace.append(("give", self.names[index]))
        shape = self.tensors[index].value.shape
        reused = [torch.full(shape, 7.0, dtype=torch.float32) for _ in range(4)]  # memory that was freed too early
        value = copy_in(gradient, shape)
        if not torch.isfinite(value).all():
            self.error = f"the gradient of {self.names[index]} is not finite: training has diverged"
            return lib.ERROR
        del reused
        self.gradients[index] = value * torch.tensor(weight, dtype=torch.float32)
        return lib.OK

    def finish_work(self, handle, sums, count):
        if self._is_abandoned("finish"):
            return lib.ABANDONED
        work, self.current = self.current, None
        values = [sums[i] for i in range(count)]
        if work.kind == lib.EVALUATE:
            self.evaluations.append((work.version, dict(zip(self.job["eval"]["sums"], values))))
            return lib.OK
        if work.kind == lib.REPORT:
            assert count == 0
            if self.stopped:
                self.step_count, self.pending = work.version, []
                self._write_final()
            return lib.OK
        self.losses.append((work.step, work.micro_batch, values))
        assert count == 2 + len(self.job["train"].get("logs", ())) + self.job["train"]["weighted"]
        self.parts[work.micro_batch] = self.gradients
        self.weights[work.micro_batch] = values[-1] if self.job["train"]["weighted"] else len(work.samples)
        if len(self.parts) == self.micro_batches:
            self._commit()
        return lib.OK

    def evaluated(self, handle, means, count):
        sums = dict(self.evaluations[-1:]).get(self.current.version, {})
        items = [lib.MeanStruct(name.replace("_sum", "").encode(), value / self.test_samples)
                 for name, value in sums.items()]
        self._means = (lib.MeanStruct * max(len(items), 1))(*items)
        means[0] = ctypes.cast(self._means, ctypes.POINTER(lib.MeanStruct))
        count[0] = len(items)
        return lib.OK

    def stop(self, handle, text):
        self.stopped = text.decode()
        return lib.OK

    def leave(self, handle):
        self.has_left = True

    def fail(self, handle, text, timeout_ms):
        self.failure = text.decode()
        return lib.OK

    def end(self, handle, text):
        ending = lib.COMPLETED
        if self.fail_at is not None and self.step >= self.fail_at:
            ending, self._text = lib.FAILED, b"worker 1 ran out of memory"
        elif self.has_left:
            ending, self._text = lib.DRAINED, b"this worker has left"
        elif self.step < self.step_count:
            ending, self._text = lib.INTERRUPTED, b"the run was stopped"
        else:
            self._text = b"completed"
        text[0] = self._text
        return ending

    def last_error(self, handle):
        self._error = self.error.encode()
        return self._error

    def close(self, handle):
        self.is_closed = True

    # ---- the run ----

    def _delay(self):
        """PANDO_AGAIN for the first calls."""
        self._calls = getattr(self, "_calls", 0) + 1
        return lib.AGAIN if self._calls % (self.again + 1) else 0

    def _is_over(self):
        return (self.has_left or self.failure is not None
                or any(at is not None and self.step >= at for at in (self.stop_at, self.fail_at))
                or (self.step >= self.step_count and not self.pending))

    def _is_abandoned(self, event):
        if self.is_dropped:
            return True
        self._events[event] = self._events.get(event, 0) + 1
        place = (self.current.step, self.current.micro_batch)
        wanted = self.abandon.get(place) if self.current.kind == lib.TRAIN else None
        if wanted in (event, f"{event}:{self._events[event]}"):
            del self.abandon[place]
            self.is_dropped = True
        return self.is_dropped

    def _reset_work(self):
        self.gradients, self.is_dropped, self._events = {}, False, {}

    def _works(self, step):
        if step >= self.step_count:
            return []
        epoch, index = divmod(step, self.steps_per_epoch)
        order = list(range(self.train_samples))
        random.Random(self.seed * 1000 + epoch).shuffle(order)
        batch = order[index * self.batch:(index + 1) * self.batch]
        bounds = [m * len(batch) // self.micro_batches for m in range(self.micro_batches + 1)]
        return [lib.Work(lib.TRAIN, step, m, epoch, step, tuple(batch[bounds[m]:bounds[m + 1]]))
                for m in range(self.micro_batches)]

    def _evaluation_works(self):
        every = self.job["eval"].get("every_steps") or self.steps_per_epoch
        if self.step % every and self.step != self.step_count:
            return []
        slices = [range(first, min(first + 1024, self.test_samples)) for first in range(0, self.test_samples, 1024)]
        if self.job["eval"].get("whole"):
            slices = [range(self.test_samples)]
        reports = [()] if self.job["eval"].get("report") else []
        return [lib.Work(kind, 0, 0, 0, self.step, tuple(part))
                for kind, parts in ((lib.EVALUATE, slices), (lib.REPORT, reports)) for part in parts]

    def _commit(self):
        samples = sum(len(work.samples) for work in self._works(self.step))
        self.server.set_state(self.states[self.step])
        weight = sum(self.weights.values())
        self.versions[self.step + 1] = self.server.update(self.versions[self.step], self.parts, samples, weight,
                                                          self.step)
        self.parts = {}
        self.states[self.step + 1] = self.server.state()
        self.step += 1
        if self.step in self.rollback:
            self.step = self.rollback.pop(self.step)
        self.pending = self._evaluation_works() + self._works(self.step)
        if self.step == self.step_count:
            self._write_final()

    def _write_final(self):
        values = dict(zip(self.names, self.versions[self.step]))
        write_safetensors(f"{self.folder}/final.safetensors", values)


class Server:
    """Makes version t + 1 with torch.optim, on copies."""

    def __init__(self, job, tensors, step_count):
        self._tensors = tensors
        self._values = [tensor.value.clone() for tensor in tensors]
        options, schedule = job["optimizer"], job["schedule"]
        lr = options["lr"]
        groups = [dict(params=[value], lr=lr * tensor.lr_factor,
                       weight_decay=options["weight_decay"] if tensor.weight_decay < 0 else tensor.weight_decay)
                  for value, tensor in zip(self._values, tensors) if tensor.kind == lib.PARAMETER]
        make = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
                "nadam": torch.optim.NAdam, "rmsprop": torch.optim.RMSprop, "adagrad": torch.optim.Adagrad,
                "adadelta": torch.optim.Adadelta}[options["type"]]
        if "beta1" in options:
            options["betas"] = options["beta1"], options["beta2"]
        kept = ("momentum", "betas", "eps", "alpha", "centered", "rho", "lr_decay", "initial_accumulator_value",
                "momentum_decay", "nesterov", "dampening")
        self._optimizer = make(groups, lr=lr, **{key: options[key] for key in kept if key in options})
        self._factors = [group["lr"] / lr for group in groups]
        assert schedule["type"] in ("constant", "table")
        self._rates = [float(rate) for text in schedule.get("rates", ()) for rate, _, count in [text.partition("*")]
                       for _ in range(int(count or 1))]
        assert len(self._rates) in (0, step_count)

    def state(self):
        return clone(self._optimizer.state_dict())

    def set_state(self, state):
        self._optimizer.load_state_dict(clone(state))

    def update(self, values, parts, samples, weight, step):
        if self._rates:
            for group, factor in zip(self._optimizer.param_groups, self._factors):
                group["lr"] = self._rates[step] * factor
        for index, (value, tensor) in enumerate(zip(self._values, self._tensors)):
            value.copy_(values[index])
            total = torch.zeros_like(value)
            for micro_batch in sorted(parts):
                total += parts[micro_batch].get(index, torch.zeros_like(value))
            total /= samples if tensor.kind == lib.STATISTIC or not weight else weight
            if tensor.kind == lib.STATISTIC:
                value.mul_(1 - tensor.momentum).add_(total, alpha=tensor.momentum)
            else:
                value.grad = total
        self._optimizer.step()
        return [value.clone() for value in self._values]


def clone(value):
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    return [clone(item) for item in value] if isinstance(value, list) else value


def read_tensor(struct):
    shape = [struct.shape[i] for i in range(struct.dimensions)]
    return SimpleNamespace(name=struct.name.decode(), kind=struct.kind, momentum=struct.momentum,
                           lr_factor=struct.lr_factor, weight_decay=struct.weight_decay,
                           value=copy_in(struct.initial, shape))


def copy_in(address, shape):
    value = torch.empty(shape, dtype=torch.float32)
    ctypes.memmove(value.data_ptr(), address, value.numel() * 4)
    return value


def copy_out(value, address):
    ctypes.memmove(address, value.data_ptr(), value.numel() * 4)


def fill_work(struct, work):
    samples = (ctypes.c_uint64 * len(work.samples))(*work.samples)
    struct.kind, struct.micro_batch, struct.step = work.kind, work.micro_batch, work.step
    struct.epoch, struct.version, struct.sample_count = work.epoch, work.version, len(work.samples)
    struct.samples = ctypes.cast(samples, ctypes.POINTER(ctypes.c_uint64))
    return samples
