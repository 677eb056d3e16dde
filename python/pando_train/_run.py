"""Run is this process's part in training a module."""
import csv
import ctypes
import errno
import os
import sys
import traceback
import warnings
from functools import partial
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Union

import torch
from torch import nn

from . import _library as lib
from ._data import Reader, Samples, check_guard, count_samples, find_ahead, split_work
from ._evaluation import Evaluation, Reduce, Results, evaluating
from ._exchange import Exchange
from ._from_torch import is_scheduler
from ._hooks import Hooks, check_scalers, uses_compile
from ._job import count_steps, make_sections, write_toml
from ._launch import OwnRun
from ._micro_batch import MicroBatch
from ._numbers import convert
from ._optimizers import Turns, check_options, make_clip, read_torch
from ._preload import VARIABLE as PRELOAD, fork_workers
from ._process import ProcessGuard
from ._random import choose_determinism, derive, describe_kind, given_seed, seed_generators
from ._state import ModuleState
from ._tensors import TensorTable, clean_name
from ._weights import read_safetensors, write_safetensors
from ._rounds import Inner, Rounds, read_outer
from ._script import find_logged_names, find_loop_around, find_second_join
from .errors import Abandoned, PandoError, RunFailed, Stopped
from .optim import SGD, DiLoCo, Optimizer

INTERRUPTED_STATUS = 130  # the exit code of pando's own processes
NEXT_RUN_STATUS = 86  # kExitNextRun in common/exit_codes.h: `pando run` starts the next run, and the script again
COMPLETED_RUN = "PANDO_COMPLETED_RUN"  # folder of the run, in a script that is restarted for the part after its loop
EARLIER_RUNS = "PANDO_EARLIER_RUNS"  # folders of the completed runs, one a line; not set: the script has one run

_has_joined = False  # this script has called join
_loop_count = 0  # loops that have begun, if the script may have several
_is_in_run = False  # the last one has not ended


# For each option: key of the job file, type, argument of join.
OPTIONS = (("train.global_batch", int, "global_batch"), ("train.micro_batches", int, "micro_batches"),
           ("train.seed", int, "seed"), ("train.weighted", bool, "weighted"), ("train.staleness", int, "staleness"),
           ("optimizer.clip_norm", float, "clip_norm"), ("optimizer.clip_value", float, "clip_value"),
           ("optimizer.ema_decay", float, "ema_decay"),
           ("optimizer.weight_decay_exclude_bias_and_norm", bool, "exclude_bias_and_norm"),
           ("eval.every_epochs", int, "evaluate_every_epochs"), ("eval.every_steps", int, "evaluate_every_steps"),
           ("eval.early_stop_patience", int, "early_stop_patience"),
           ("eval.metric", str, "early_stop_metric"), ("eval.mode", str, "early_stop_mode"))
OPTIONAL = ("seed", "evaluate_every_epochs", "evaluate_every_steps", "early_stop_metric", "early_stop_mode")


def join(model: nn.Module, train_set: Any,
         optimizer: Union[Optimizer, torch.optim.Optimizer, Dict[str, torch.optim.Optimizer]], *,
         schedule: Any = None, schedule_every: Optional[str] = None, turns: Optional[Sequence[str]] = None,
         outer: Optional[DiLoCo] = None,
         epochs: Optional[float] = None, steps: Optional[int] = None, global_batch: int = 128,
         micro_batches: int = 8, params: Iterable[Any] = (), clip_norm: float = 0.0,
         clip_value: float = 0.0, weight_clip: Union[float, Dict[str, float]] = 0.0, log: Sequence[str] = (),
         ema_decay: float = 0.0, exclude_bias_and_norm: bool = False,
         drop_last: bool = False, weighted: bool = False, staleness: int = 0,
         evaluate_every_epochs: Optional[int] = None,
         evaluate_every_steps: Optional[int] = None, early_stop_patience: int = 0,
         early_stop_metric: Optional[str] = None, early_stop_mode: Optional[str] = None,
         seed: Optional[int] = None, threads: int = 1) -> "Run":
    """Prepares this process to train `model` on the servers of a run. Run.loader then joins the run.

    All workers of a run pass equal arguments. The keys of docs/job-file.md say more about each one.

      train_set: a map-style data set
      optimizer: one of torch.optim with the model's parameters, which is read once, or one of pando.optim; or several
        of torch.optim by name, each with its own parameters
      schedule: one of torch.optim.lr_scheduler that sets this optimizer's rates, or one of pando.schedule; or one of
        torch for each name
      schedule_every: "step" or "epoch": when the plain loop calls schedule.step(), of torch
      turns: names of optimizers: step t trains the parameters of turns[t % len(turns)], and no others; default: each
        step trains all
      outer: pando.DiLoCo: the loop is over run.rounds(), and `optimizer`, any of torch, makes the local steps
      epochs, steps: the length of the run; give one of them; with `outer` a step is a round
      global_batch: number of samples of a step, over all workers; with `outer` of a local step
      micro_batches: number of parts of a step; one worker at a time computes each part
      params: parameters, or groups of them with lr and weight_decay, as for torch's optimizers; default: all
      clip_norm, clip_value: bounds of the step's whole gradient; 0: none
      weight_clip: each weight stays within +- this, as in Wasserstein GANs; with turns perhaps by name
      log: names of values that the loop passes to mb.log; needed for those that the script does not write as
        `mb.log(name=...)`
      ema_decay: share that an average of the weights keeps at each step; 0: no average
      exclude_bias_and_norm: no weight decay for tensors of one dimension
      drop_last: an epoch's last batch is left out if the data do not fill it
      weighted: gradient and loss are means over the weights of run.micro_batch(weight=), not over samples
      staleness: 1: a step reads the version before the newest, so that its exchange runs while the next is computed
      early_stop_metric: name of an evaluation's sum; default: correct, or loss_sum without it
      early_stop_mode: "max" or "min": its best value; default: max for correct, min for a name with loss in it
      seed: decides the order of samples, augmentation and dropout; default: the value given to pando.seed
      threads: number of threads of each operation in this process; equal in all workers

    Raises PandoError for a module, data set or optimizer that Pando cannot train, and for a second call in a script
    that `pando node` or Ray has started.
    """
    given = dict(locals())
    check_guard()
    check_is_only_join()
    choose_determinism(convert(int, "threads", threads))
    table = TensorTable(model)
    options = {key: convert(kind, name, given[name]) for key, kind, name in OPTIONS
               if given[name] is not None or name not in OPTIONAL}
    if options.get("eval.metric") == "loss":
        options["eval.metric"] = "loss_sum"  # the sum whose mean is shown as loss
    options["train.last_batch"] = "drop" if convert(bool, "drop_last", drop_last) else "short"
    options.setdefault("train.seed", given_seed())
    own = optimizer, schedule, schedule_every
    if outer is not None:
        batch = read_outer(outer, optimizer, params, table, options)
        optimizer = SGD(outer.lr, outer.momentum, nesterov=outer.nesterov)
        schedule = schedule_every = None
    is_torch = check_options(optimizer, schedule, schedule_every, params, turns)
    groups_in_turn = Turns(list(optimizer) if isinstance(optimizer, dict) else [], turns)
    is_ours = not (is_torch and (is_scheduler(schedule) or isinstance(schedule, dict)))
    sections = make_sections(None if is_torch else optimizer, schedule if is_ours else None, epochs=epochs,
                             steps=steps, options=options)
    count_samples(train_set, "the training set")
    if is_torch:
        params = read_torch(optimizer, None if is_ours else schedule, schedule_every, groups_in_turn, weight_clip,
                            count_steps(len(train_set), sections["train"]), sections)
    else:
        sections["optimizer"].update(make_clip(weight_clip))
    table.apply_groups(params, sections["optimizer"]["lr"])
    logged = find_logged_names(log)
    if logged:
        sections["train"]["logs"] = logged
    run = Run(table, train_set, sections, groups_in_turn)
    if outer is not None:
        run.inner = Inner(*own, outer, batch, count_steps(len(train_set), sections["train"]))
    return run


def check_is_only_join() -> None:
    """Raises PandoError at the second join, or already at the first one if the script's text has a second one."""
    global _has_joined
    is_second, _has_joined = _has_joined, True
    if not os.environ.get("PANDO_SCHEDULER") or EARLIER_RUNS in os.environ:
        return
    line = None if is_second else find_second_join()
    if is_second or line is not None:
        raise PandoError(f"pando.join is called a second time{'' if is_second else f' in line {line}'}: a script that "
                         "`pando node` or Ray starts has one run. Train the second model in a script with its own run, "
                         "which can read the first run's weights; or start this script with `pando run` or `python`, "
                         "where each join has its own run")


def find_completed_run() -> Optional[str]:
    """Returns the folder of this loop's run if it has completed, and None if the loop joins the run.

    If the run does not exist yet, ends the script, which `pando run` starts again with that run.
    """
    global _loop_count, _is_in_run
    completed = os.environ.get(COMPLETED_RUN)
    if EARLIER_RUNS not in os.environ:
        return completed
    if _is_in_run:
        raise PandoError("run.loader() was called before the script's previous loop had ended: under `pando run` a "
                         "script has one run after another")
    earlier = [folder for folder in os.environ[EARLIER_RUNS].split("\n") if folder]
    if _loop_count > len(earlier):
        raise Stopped(NEXT_RUN_STATUS)
    _loop_count, _is_in_run = _loop_count + 1, True
    return [*earlier, completed][_loop_count - 1]


class Run:
    """This worker's part in a run. pando.join makes it.

    Threads: the main thread of the script.
    """

    def __init__(self, table: TensorTable, train_set: Any, sections: Dict[str, Dict[str, Any]], turns: Turns):
        self.table = table
        self.turns = turns
        self.inner: Optional[Inner] = None  # with rounds of local steps
        self.log_names: List[str] = sections["train"].get("logs", [])
        self._train_set = train_set
        self._sections = sections
        self.state = ModuleState(table.module)
        self._evaluation: Optional[Evaluation] = None
        self._on_evaluation: Optional[Callable[[Results], Any]] = None
        self._is_reporting = False  # the function of on_evaluation is being called
        self._current: Optional[lib.Work] = None
        self._is_waiting = False  # the program has a batch, whose micro_batch() has not begun
        self._is_open = False
        self._is_over = self._is_complete = False  # the run has ended; the module has final weights
        self._is_followed_up = False  # the run had ended before this script started
        self._own_run: Optional[OwnRun] = None
        self._guard: Optional[ProcessGuard] = None
        # These are set when the loop begins:
        self.worker: Optional[lib.Worker] = None
        self.facts: Optional[lib.RunFacts] = None
        self.exchange: Optional[Exchange] = None
        self.hooks: Union[Hooks, Rounds, None] = None

    def evaluate_with(self, test_set: Any, function: Callable[..., Any], batch_size: int = 64,
                      reduce: Optional[Reduce] = None) -> None:
        """Evaluates versions of the weights during the loop, by evaluate_every_epochs or _steps, and the last one.

        `function` gets a batch of at most `batch_size` test samples, like the loop's training batches. It
        returns sums over them by name, as numbers or tensors of one element. Each sum is shown per sample
        under its name, and `loss_sum` as `loss`. The module is in eval() and no_grad. Call this before the loop.

        For means that are no sums, as AUC or F1, `reduce` gets the list of what the function has returned for all
        batches, in their order, and returns values by name; or it is a dict of names and such functions, which return
        one value. One process then evaluates the whole test set.
        """
        if self._is_open:
            raise PandoError("evaluate_with was called after the loop had begun: call it before run.loader()")
        count_samples(test_set, "the test set")
        self._evaluation = Evaluation(self.table.module, test_set, function,
                                      convert(int, "batch_size of evaluate_with", batch_size), reduce)
        if self._evaluation.is_whole:
            self._sections["eval"]["whole"] = True

    def on_evaluation(self, function: Callable[[Results], Any], may_stop: bool = True) -> Callable[[Results], Any]:
        """Calls `function` with the Results of each evaluation, in one process of the run. Call this before the loop.

        Meanwhile the module has exactly the evaluated version, in eval() and no_grad, so the function may write a
        checkpoint, draw samples or log. Without evaluate_with the results have no means. In the function run.stop()
        ends the run. Steps wait for the function, unless `may_stop` is False. If the process dies or leaves within it,
        another one calls it again, so write files under a temporary name with run.rank in it, and rename them.
        """
        if self._is_open or self._on_evaluation is not None:
            raise PandoError("on_evaluation was called after the loop had begun, or twice: call it once, before "
                             "run.loader(), with a function that does everything")
        self._on_evaluation = function
        self._sections["eval"]["report"] = "decides" if convert(bool, "may_stop", may_stop) else "beside"
        return function

    def stop(self, reason: str = "run.stop() was called") -> None:
        """Ends the run as completed, with the version whose evaluation the function of on_evaluation has got."""
        if not self._is_reporting or self._sections["eval"]["report"] != "decides":
            raise PandoError("run.stop() was called outside of the function of run.on_evaluation, or with "
                             "may_stop=False: only after an evaluation is the last step the same in every run. "
                             "`pando stop` ends a run at any time")
        self.worker.stop(str(reason) or "run.stop() was called")

    @property
    def rank(self) -> int:
        """The number of this process among the run's workers: which process, not which data.

        Any process may compute any part of a step, and a restarted process may get another number. Before the loop
        it is known only in a script that runs alone or that `pando run` has started without --preload.
        """
        if self.facts is not None and not self._is_followed_up:
            return self.facts.rank
        rank = os.environ.get("PANDO_RANK")
        if PRELOAD in os.environ or (os.environ.get("PANDO_SCHEDULER") and not rank):
            raise PandoError("run.rank and run.is_main are known in the loop, when this process has joined the run; "
                             "for output that must come once use run.on_evaluation")
        return int(rank or 0)

    @property
    def is_main(self) -> bool:
        """Whether `rank` is 0, in one living process at most. After a death there may be none for a while."""
        return self.rank == 0

    def loader(self, num_workers: int = 0, collate_fn: Optional[Callable[[List[Any]], Any]] = None,
               pin_memory: bool = False) -> Iterator[Any]:
        """Joins the run, and yields one batch for each micro-batch of this process.

        `num_workers` processes read samples ahead; 0: this process reads them when needed. After the loop
        the module holds the run's final weights. Raises RunFailed with the root cause if the run has
        failed, and Stopped, which ends the script, if it was stopped or this process has left it.
        """
        return self._open(False, num_workers, collate_fn, pin_memory)

    def rounds(self, num_workers: int = 0, collate_fn: Optional[Callable[[List[Any]], Any]] = None,
               pin_memory: bool = False) -> Iterator[Iterator[Any]]:
        """Joins the run, and yields the batches of each round of this process, with join(outer=).

        Arguments and errors are those of `loader`.
        """
        return self._open(True, num_workers, collate_fn, pin_memory)

    def _open(self, has_rounds: bool, num_workers: int, collate_fn: Optional[Callable],
              pin_memory: bool) -> Iterator[Any]:
        if has_rounds != (self.inner is not None):
            raise PandoError("run.rounds() and pando.join(outer=pando.DiLoCo(...)) go together; without outer= the "
                             "loop is over run.loader()")
        if self._is_open:
            raise PandoError("run.loader() was called twice: one loop trains all epochs; use evaluate_with for "
                             "evaluations between them")
        line = find_loop_around(self)
        if line is not None:
            raise PandoError(f"run.loader() is called in the loop of line {line}, and would be called again. It yields "
                             "the batches of all epochs: remove that loop, and use evaluate_with between the epochs")
        self._is_open = True
        return self._loop(convert(int, "num_workers", num_workers), collate_fn, pin_memory)

    @property
    def turn(self) -> Optional[str]:
        """The name of the optimizer whose parameters the current batch trains, with join(turns=).

        It is None without turns, because each batch then trains all parameters. The step's number decides it.
        """
        if self._current is None or self._current.kind != lib.TRAIN:
            raise PandoError("run.turn is known in the loop: a step's number decides it")
        return self.turns.at(self._current.step)

    def micro_batch(self, weight: Optional[float] = None, groups: Optional[Sequence[str]] = None,
                    send_at_end: bool = False) -> MicroBatch:
        """Returns the with block for one batch of the loader: forward, backward and log.

        `weight`, with join(weighted=True), is the count that the loss is a mean over, for example of tokens. `groups`,
        with join(turns=), is [run.turn]; another value raises PandoError. With `send_at_end` gradients and statistics
        leave at the block's end. Blocks that call backward, or a batch norm, several times do so by themselves, if the
        process's first block of this turn does.
        """
        if groups is not None and list(groups) != [self.turn]:
            raise PandoError(f"groups of run.micro_batch is {list(groups)}, and step {self._current.step} trains "
                             f"{self.turn}: choose the block by run.turn, which follows join(turns=)")
        if self._current is None or not self._is_waiting:
            raise PandoError("run.micro_batch() was called without a new batch: use it once for each batch of "
                             "run.loader(), within the loop")
        if (weight is not None) != self._sections["train"]["weighted"]:
            raise PandoError("run.micro_batch(weight=) and pando.join(weighted=True) go together: with both, gradients "
                             "are means over the weights; without, over samples")
        if weight is not None and convert(float, "weight of run.micro_batch", weight) < 0:
            raise PandoError(f"weight of run.micro_batch is {float(weight):g}: expected a number from 0 on")
        self._is_waiting = False
        return MicroBatch(self, self._current, weight, send_at_end)

    def round(self) -> MicroBatch:
        """Returns the with block for the batches of one round: local steps of the inner optimizer, and log."""
        if self.inner is None:
            raise PandoError("run.round() goes with pando.join(outer=pando.DiLoCo(...)); without it use "
                             "run.micro_batch()")
        return self.micro_batch()

    def save(self, path: str) -> None:
        """Writes the weights as safetensors with PyTorch's names, with buffers and frozen parameters.

        They are the final ones, or in the function of on_evaluation those of the evaluated version.
        """
        if not self._is_complete and not self._is_reporting:
            raise PandoError(f"cannot save {path}: the module does not hold the final weights. Call run.save after "
                             "the loop or in run.on_evaluation's function; `pando export RUN_DIR` writes those of a "
                             "run in progress")
        write_safetensors(path, {clean_name(name): value for name, value in self.table.module.state_dict().items()})

    def metrics(self) -> List[Dict[str, Optional[float]]]:
        """Returns the rows of the run's metrics.csv so far (docs/run-folder.md), by the names of its columns.

        A missing value is None. For pandas: `pandas.DataFrame(run.metrics())`. Raises PandoError if the
        run's folder is not on this machine, or the loop has not begun.
        """
        if self.facts is None:
            raise PandoError("run.metrics() was called before the loop: the run has no rows yet")
        path = os.path.join(self.facts.run_dir, "metrics.csv")
        try:
            with open(path, newline="", encoding="utf-8") as file:
                return [{name: float(text) if text else None for name, text in row.items()}
                        for row in csv.DictReader(file)]
        except OSError as error:
            raise PandoError(f"cannot read {path} ({error.strerror}): it is on the scheduler's machine") from error

    def leave(self) -> None:
        """Leaves the run in order: other workers take over, and the loop ends. A run without other workers stops."""
        if self._own_run is not None:
            self._own_run.stop()
        elif self.worker is not None:
            self.worker.leave()

    def _loop(self, num_workers: int, collate: Optional[Callable], pin_memory: bool) -> Iterator[Any]:
        reader, close = None, self._close
        completed = find_completed_run()
        if completed:
            self._follow_up(completed)
            return
        try:
            reader = self._start(num_workers, collate, pin_memory)
            yield from self._batches(reader)
            self._end()
        except GeneratorExit:  # after break, or after an error in the loop, which the guard may get
            close = self._close if self._is_over else partial(self._guard.remove_late, self._close)
            raise
        except Exception as error:
            self.fail("".join(traceback.format_exception(type(error), error, error.__traceback__)))
            raise
        finally:
            if reader is not None:
                reader.close()
            self._current = None
            if self.hooks is not None:
                self.hooks.remove()
            close()

    def _batches(self, reader: Reader) -> Iterator[Any]:
        while True:
            self._current = self.worker.next_work()
            if self._current is None:
                return
            if self._current.kind != lib.TRAIN:
                self._evaluate(reader, self._current)
                continue
            if self.inner is not None:
                batch = self.hooks.make_batches(reader, self._current)
            else:
                batch = reader.read(next(split_work(self._current, 1)))
            self._is_waiting = True
            yield batch
            if self._is_waiting:
                raise PandoError("the loop took a batch and did not call run.micro_batch() before it took the next: "
                                 "each batch is work of the run, and no other process computes it. A loader that "
                                 "fetches ahead, as those of Lightning and Accelerate do, cannot read run.loader()")
            if not (self.hooks.can_finish or self.exchange.is_abandoned or self._is_over):
                raise PandoError("a micro-batch ended without a gradient: call loss.backward() within "
                                 "run.micro_batch(), on a loss that the module's parameters contribute to")

    def _evaluate(self, reader: Reader, work: lib.Work) -> None:
        self.exchange.begin(False, work.version, 1.0, 1)
        self.state.save()
        try:
            self.exchange.load_all()
            self.table.set_counts(work.version)
            self.worker.finish_work(self._report(work) if work.kind == lib.REPORT else self._add_up(reader, work))
        except Abandoned:
            self.exchange.is_abandoned = True
        finally:
            self.state.restore()
            self.exchange.end()

    def _add_up(self, reader: Reader, work: lib.Work) -> List[float]:
        batches = (reader.read(chunk) for chunk in split_work(work, self._evaluation.batch_size))
        return self._evaluation.run(batches, self.facts.seed, work.version, work.samples)

    def _report(self, work: lib.Work) -> List[float]:
        """Calls the function of on_evaluation. A report has no sums."""
        results = Results(work.version, work.version / self.facts.steps_per_epoch, self.worker.evaluated())
        self._is_reporting = True
        try:
            with evaluating(self.table.module, derive("report", self.facts.seed, work.version)):
                self._on_evaluation(results)
        finally:
            self._is_reporting = False
        self.hooks.check_report()
        return []

    def _start(self, num_workers: int, collate: Optional[Callable], pin_memory: bool) -> Reader:
        """Joins the run and hooks the module."""
        self.table.start()
        test_set = self._evaluation.test_set if self._evaluation else None
        self._find_names(Reader(Samples(self._train_set, test_set, 0), lambda: iter(()), collate, 0, False))
        device = find_device(self.table)
        check_scalers()
        is_compiling = uses_compile()  # both checks precede the fork, which hides objects from the collector
        fork_workers()
        library = lib.load_library()
        endpoint = os.environ.get("PANDO_SCHEDULER")
        if not endpoint:
            self._own_run = OwnRun()
            endpoint = self._own_run.endpoint
        self.worker = lib.Worker(library, self._make_options(endpoint, device))
        self._guard = ProcessGuard(self.leave, self.fail)
        is_in_time = self.worker.join()
        self.facts = self.worker.describe()
        if self.facts.took_over and is_in_time:
            print("pando: the run's first weights are another worker's, and differ from this script's: call "
                  "pando.seed before the model is built", file=sys.stderr)
        self._tell_of_batches()
        self.exchange = Exchange(self.worker, self.table, device)
        self.hooks = Hooks(self.table, self.exchange, is_compiling) if self.inner is None else \
            Rounds(self.table, self.exchange, self.inner, self.facts.seed)
        batch_size = self._evaluation.batch_size if self._evaluation else 1
        return Reader(Samples(self._train_set, test_set, self.facts.seed),
                      lambda: find_ahead(self._current, self.worker.peek_work, batch_size,
                                         self.inner.batch if self.inner else None),
                      collate, num_workers, pin_memory)

    def _tell_of_batches(self) -> None:
        """Says once what a batch norm normalises over: a plain loop's is the whole batch."""
        train, norms = self._sections["train"], nn.modules.batchnorm._BatchNorm
        has_norms = any(isinstance(each, norms) for each in self.table.module.modules())
        if has_norms and self.inner is None and self.facts.rank == 0:
            samples = train["global_batch"] / train["micro_batches"]
            print(f"pando: batch norm normalises over a micro-batch, {samples:g} samples: global_batch "
                  f"{train['global_batch']} in {train['micro_batches']} micro_batches. Fewer micro-batches are larger, "
                  "and faster, as long as each worker has one", file=sys.stderr)

    def _find_names(self, reader: Reader) -> None:
        """Learns the names of the evaluation's sums from its first test samples."""
        if self._evaluation is None:
            return
        count = self._evaluation.trial_samples
        work = lib.Work(lib.EVALUATE, 0, 0, 0, 0, tuple(range(count)))
        self.state.save()
        self._evaluation.find_names(reader.read(next(split_work(work, count))))
        self.state.restore()
        self._sections["eval"]["sums"] = self._evaluation.names

    def _make_options(self, endpoint: str, device: torch.device) -> lib.OptionsStruct:
        entries = self.table.entries
        initial_values = [entry.tensor.detach().to("cpu", copy=False).contiguous() for entry in entries]
        tensors = (lib.TensorStruct * len(entries))()
        for struct, entry, initial in zip(tensors, entries, initial_values):
            shape = (ctypes.c_uint64 * max(initial.dim(), 1))(*initial.shape)
            struct.name, struct.shape, struct.dimensions = entry.name.encode(), shape, initial.dim()
            struct.kind, struct.momentum = entry.kind, entry.momentum
            struct.group, struct.lr_factor, struct.weight_decay = entry.group, entry.lr_factor, entry.weight_decay
            struct.initial = initial.data_ptr()
        module = getattr(self.table.module, "_orig_mod", self.table.module)
        test_samples = len(self._evaluation.test_set) if self._evaluation else 0
        self._sections["model"] = {"constants": self.table.describe_constants()}
        rank = os.environ.get("PANDO_RANK")
        options = lib.OptionsStruct(
            endpoint.encode(), write_toml(self._sections).encode(), type(module).__name__.encode(), tensors,
            len(entries), len(self._train_set), test_samples,
            describe_kind(device).encode(), 0, int(rank) if rank else lib.ANY_RANK)
        options.keep = initial_values
        return options

    def fail(self, text: str) -> None:
        """Ends the run with the root cause `text`. Does nothing outside of the loop."""
        if self.worker is not None:
            self._is_over = True
            self.worker.fail(text)

    def _end(self) -> None:
        """Ends the run for this process: raises RunFailed or Stopped, or loads the final weights."""
        self._is_over = True
        ending, text = self.worker.end()
        if ending == lib.COMPLETED:
            self._load_final(self.worker.describe().run_dir)  # another folder if the run's folder is not here
        elif ending == lib.FAILED:
            cause = f". {self.state.suspect}" if self.state.suspect and "different gradients" in text else ""
            raise RunFailed((text or "the run has failed: its summary.json says why") + cause)
        else:
            print(f"pando: {text or 'this process has left the run'}", file=sys.stderr)
            raise Stopped(0 if ending == lib.DRAINED else INTERRUPTED_STATUS)

    def _follow_up(self, run_dir: str) -> None:
        """Handles a run that ended before this script started: the loop is empty, and the script goes on after it."""
        train, samples = self._sections["train"], len(self._train_set)
        steps_per_epoch, step_count = count_steps(samples, train)
        self.facts = lib.RunFacts(int(os.environ.get("PANDO_RANK") or 0), train["seed"], step_count, steps_per_epoch,
                                  train["micro_batches"], False, run_dir)
        self._is_over = self._is_followed_up = True
        self._load_final(run_dir)
        if not self._is_complete and EARLIER_RUNS in os.environ:
            raise PandoError(f"the script's later runs need the weights of {run_dir}/final.safetensors, which cannot "
                             "be read: bring the file back")

    def _load_final(self, run_dir: str) -> None:
        global _is_in_run
        _is_in_run = False
        seed_generators(derive("end", self.facts.seed))  # the loop has left them as its last micro-batch did
        path = os.path.join(run_dir, "final.safetensors")
        try:
            if not run_dir:  # the run was over before this process could ask for its folder
                raise FileNotFoundError(errno.ENOENT, "the run's folder is not known")
            values, metadata = read_safetensors(path)
        except OSError as error:
            warnings.warn(f"the module does not hold the final weights: {path} cannot be read ({error.strerror}). "
                          "They are in the run folder, on the scheduler's machine")
            return
        for entry in self.table.entries:
            if entry.name not in values or values[entry.name].shape != entry.tensor.shape:
                raise PandoError(f"{path} has no tensor {entry.name} of shape {tuple(entry.tensor.shape)}")
            entry.tensor.data.copy_(values[entry.name])
        self.table.set_counts(int(metadata.get("step", self.facts.step_count)))
        self._is_complete = True

    def _close(self) -> None:
        if self._guard is not None:
            self._guard.remove()
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.close()
        if self._own_run is not None:
            self._own_run.close(self._is_over)


def find_device(table: TensorTable) -> torch.device:
    """Returns the device of all tensors. Raises PandoError for several devices, or one of another kind."""
    first = table.entries[0]
    for entry in table.entries:
        if entry.tensor.device != first.tensor.device:
            raise PandoError(f"{entry.name} is on {entry.tensor.device} and {first.name} on {first.tensor.device}: "
                             "move the whole model to one device before run.loader()")
    if first.tensor.device.type not in ("cpu", "cuda"):
        raise PandoError(f"the module is on the device {first.tensor.device}: Pando trains on cpu and cuda")
    return first.tensor.device
