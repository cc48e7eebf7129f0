"""The signals that ask a run to stop, and how processes follow the one that started them."""

import ctypes
import signal
import sys

# SIGTERM: SLURM, Kubernetes, torchrun. SIGUSR1: SLURM before the time is up. SIGINT: Ctrl-C.
STOPPING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
_PR_SET_PDEATHSIG = 1  # of prctl(2)


def end_with_parent(number: signal.Signals) -> None:
    """Let this process get a signal when the one that started it ends; only Linux can do it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
