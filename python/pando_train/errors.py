"""The exceptions of pando_train."""


class PandoError(RuntimeError):
    """The program or the run cannot go on. The message says what failed, where, and what to do next."""


class RunFailed(PandoError):
    """The run has failed. The message is the root cause, which another process may have reported."""


class Stopped(SystemExit):
    """The run was stopped, or this process has left it, before the last step.

    The module does not hold final weights, so the script ends here. The exit status is 130 if the run was
    stopped (`pando resume` continues it), and 0 if the other workers continue. It is 86 if `pando run` first has to
    start the run of a further join, and then the script again.
    """


class Abandoned(BaseException):
    """The current work does not count any more. `Run.micro_batch` catches it, and the loader goes on.

    It is not an Exception, so that `except Exception` in a training loop does not catch it.
    """
