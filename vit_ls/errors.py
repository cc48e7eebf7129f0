"""Ways a run ends early, and the exit status of each."""

from vit_ls.boundary import ReportedError

STOPPED_STATUS = 85  # after a requested stop; the SLURM script requeues on it


class EngineError(ReportedError, RuntimeError):
    """A run ends here; the message is one line that says why and what is left."""

    status = 1


class CheckpointError(EngineError):
    """A checkpoint cannot be read, used or written; the message names it."""


class RunFailedError(EngineError):
    """The run cannot go on."""


class StoppedError(EngineError):
    """The run was asked to stop, and has saved where it stands."""

    status = STOPPED_STATUS
