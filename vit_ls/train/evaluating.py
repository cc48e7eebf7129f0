"""The evaluations of a run: of its weights, and of their average."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from timm.task import TrainingTask

from vit_ls.config import TrainConfig
from vit_ls.evaluate.counting import check_evaluated, evaluate
from vit_ls.job.ranks import Ranks
from vit_ls.job.rng import seeded
from vit_ls.train.distribute import eval_model


def evaluate_run(
    task: TrainingTask,
    loader: Any,
    config: TrainConfig,
    ranks: Ranks,
    autocast: AbstractContextManager[Any],
    *,
    after_batch: Callable[[], None],
) -> dict[str, Any]:
    """Evaluate a run as it stands.

    Args:
        task: Holds the model and its average.
        loader: Batches of held-out images and labels, of this process.
        config: Of the run.
        ranks: The processes.
        autocast: Context of the forward pass.
        after_batch: Called after each batch; it may raise.

    Returns:
        The values for the epoch's row: eval_*, and eval_ema_* where the average is evaluated.

    Raises:
        RunFailedError: There are no images, or more than allowed cannot be read.
    """
    row: dict[str, Any] = {}
    for name, ema in (("eval_", False), ("eval_ema_", True)):
        model = eval_model(task, ema=ema)
        if model is None or (ema and config.model_ema_force_cpu):
            continue
        # Starting the loader draws a random number, how often depends on its processes and on
        # restarts; training must not notice.
        with seeded(config.seed):
            result = evaluate(
                model,
                loader,
                ranks,
                autocast,
                channels_last=config.channels_last,
                after_batch=after_batch,
            )
        check_evaluated(result, config.val_split, config.max_unreadable)
        row |= {name + key: value for key, value in result.metrics.items()}
        row["eval_unreadable"] = result.unreadable
    return row
