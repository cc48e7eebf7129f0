"""Ways a run ends early, and the exit status of each."""

import os
import sys
from collections.abc import Callable

from torch.distributed.elastic.multiprocessing.errors import record

from vit_ls.config import ConfigError

STOPPED_STATUS = 85  # after a requested stop; the SLURM script requeues on it


class EngineError(RuntimeError):
    """A run ends here; the message is one line that says why and what is left."""

    status = 1


class CheckpointError(EngineError):
    """A checkpoint cannot be read, used or written; the message names it."""


class RunFailedError(EngineError):
    """The run cannot go on."""


class StoppedError(EngineError):
    """The run was asked to stop, and has saved where it stands."""

    status = STOPPED_STATUS


def command_line(name: str, main: Callable[[], None]) -> int:
    """Run a program's main function and return its exit status.

    What a user or the outside can cause ends with one line; anything else is a defect and keeps its
    traceback, which torchrun shows as the cause when the job ends.
    """
    try:
        # torchrun gives its processes a file for the cause of a failure.
        (record(main) if "TORCHELASTIC_ERROR_FILE" in os.environ else main)()
    except (ConfigError, EngineError) as error:
        sys.stderr.write(f"{name}: {error}\n")
        return error.status if isinstance(error, EngineError) else 2
    except KeyboardInterrupt:
        sys.stderr.write(f"{name}: interrupted\n")
        return 130
    return 0
