"""What timm's scripts have and these have not, each with its reason."""

from typing import Any, NamedTuple


class Absent(NamedTuple):
    """A setting of timm's scripts that is left out here.

    Attributes:
        default: What timm's script has it at, and writes into its args.yaml; nothing is lost by it.
        why: The reason, and what to do instead.
        idle: Whether any other value changes nothing about the numbers either.
        many: Whether its flag takes several values.
    """

    default: Any
    why: str
    idle: bool = False
    many: bool = False

    @property
    def bare(self) -> bool:
        """Whether its flag takes no value."""
        return self.default is False


_ONE_SIZE = "all images of a run have one size"
_ONE_LABEL = "images have one label each"
_LOSS = "cross-entropy, --bce-loss and --jsd-loss are the losses here"

ABSENT = {
    # of train.py
    "use_multi_epochs_loader": Absent(
        False, "loading processes stay alive between epochs anyway", idle=True
    ),
    "worker_seeding": Absent("all", "each image has its own seed here", idle=True),
    "no_prefetcher": Absent(False, "the prefetcher runs on a CPU too", idle=True),
    "local_rank": Absent(0, "the rank is read from the environment", idle=True),
    "synchronize_step": Absent(False, "the step time is read at the log interval", idle=True),
    "amp_impl": Absent("native", "mixed precision is torch's own; use --amp"),
    "apex_amp": Absent(False, "use --amp"),
    "torchscript": Absent(False, "torch has deprecated it; use --torchcompile"),
    "fuser": Absent("", "it belongs to TorchScript; use --torchcompile"),
    "aot_autograd": Absent(False, "use --torchcompile"),
    "drop_connect": Absent(None, "use --drop-path"),
    "tta": Absent(0, "timm's script averages neighbouring images, not versions of one"),
    "model_dtype": Absent(None, "use --amp"),
    "train_img_sizes": Absent(None, _ONE_SIZE, many=True),
    "train_batch_sizes": Absent(None, _ONE_SIZE, many=True),
    "train_size_probs": Absent(None, _ONE_SIZE, many=True),
    "train_size_schedule": Absent("constant", _ONE_SIZE),
    "train_size_schedule_spread": Absent(0.65, _ONE_SIZE),
    "train_size_random_mix": Absent(0.1, _ONE_SIZE),
    "train_batches_per_epoch": Absent(None, "an epoch is the whole training split"),
    "variable_batch_loss_scale": Absent("none", _ONE_SIZE),
    "naflex_loader": Absent(False, _ONE_SIZE),
    "naflex_train_seq_lens": Absent([128, 256, 576, 784, 1024], _ONE_SIZE, many=True),
    "naflex_max_seq_len": Absent(576, _ONE_SIZE),
    "naflex_patch_sizes": Absent(None, _ONE_SIZE, many=True),
    "naflex_patch_size_probs": Absent(None, _ONE_SIZE, many=True),
    "naflex_loss_scale": Absent("linear", _ONE_SIZE),
    "naflex_patchify_channels_first": Absent(False, _ONE_SIZE),
    "task": Absent("classification", _ONE_LABEL),
    "target_format": Absent(None, _ONE_LABEL),
    "multilabel_threshold": Absent(0.5, _ONE_LABEL),
    "loss": Absent(None, _LOSS),
    "class_stats": Absent(None, _LOSS),
    "loss_class_weight": Absent(None, _LOSS),
    "loss_pos_weight": Absent(None, "use --bce-pos-weight"),
    "loss_weight_power": Absent(1.0, _LOSS),
    # of the losses that newer scripts choose by --loss: the defaults of timm's loss factory
    "asl_gamma_pos": Absent(1.0, _LOSS),
    "asl_gamma_neg": Absent(4.0, _LOSS),
    "asl_clip": Absent(0.05, _LOSS),
    "asl_reduction": Absent("batchmean", _LOSS),
    "poly_epsilon": Absent(2.0, _LOSS),
    "poly_gamma": Absent(0.0, _LOSS),
    "poly_alpha": Absent(None, _LOSS),
    "twoway_tp": Absent(4.0, _LOSS),
    "twoway_tn": Absent(1.0, _LOSS),
    "db_neg_scale": Absent(2.0, _LOSS),
    "db_init_bias": Absent(0.05, _LOSS),
    "db_focal_gamma": Absent(2.0, _LOSS),
    # of validate.py
    "multi_label": Absent(False, _ONE_LABEL),
    "num_gpu": Absent(1, "start several processes with torchrun"),
    "retry": Absent(False, "set a smaller --batch-size"),
    "valid_labels": Absent("", "python -m robustness counts on the classes of a data set alone"),
    "metrics_avg": Absent(None, "--per-class writes the counts of each class"),
    "results_format": Absent("csv", "--results-file is a CSV file"),
    "tf_preprocessing": Absent(False, "images are prepared by timm's transforms"),
    "test_pool": Absent(False, "set --img-size; the models here take any"),
    "reparam": Absent(False, "weights are evaluated as they were trained"),
    "crop_border_pixels": Absent(None, "use --crop-mode and --crop-pct"),
}
