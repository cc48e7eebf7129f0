"""Where the time of an update goes: a trace of torch's profiler."""

import logging
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

_logger = logging.getLogger(__name__)

WARM_UP = 10  # updates before it, for compiling, tuning and filling the loader
TRACE = "trace.json.gz"


class Profile:
    """Traces some updates of this process, and what lies between them.

    Args:
        updates: How many.
        folder: Takes the trace, in Chrome's format.
    """

    def __init__(self, updates: int, folder: Path) -> None:
        self.path = folder / TRACE
        self._left = WARM_UP + updates
        # The profiler itself needs a step or two before what it measures is true.
        steps = schedule(wait=WARM_UP - 2, warmup=2, active=updates, repeat=1)
        kinds = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            kinds.append(ProfilerActivity.CUDA)
        self._profiler = profile(activities=kinds, schedule=steps, on_trace_ready=self._write)
        self._profiler.start()

    def step(self) -> None:
        """Count one update."""
        if self._left > 0:
            self._left -= 1
            self._profiler.step()
            if self._left == 0:
                self._profiler.stop()

    def close(self) -> None:
        """End a trace for which the run was too short."""
        if self._left > 0:
            missing, self._left = self._left, 0
            self._profiler.stop()
            _logger.warning("--profile: the run ended %d updates before its trace.", missing)

    def _write(self, profiler: profile) -> None:
        part = self.path.with_name(f".{self.path.name}")
        try:
            profiler.export_chrome_trace(str(part))
            part.replace(self.path)
        except (OSError, RuntimeError) as error:
            _logger.warning("%s cannot be written: %s", self.path, error)
            return
        _logger.info("%s holds the trace; ui.perfetto.dev shows it.", self.path)
