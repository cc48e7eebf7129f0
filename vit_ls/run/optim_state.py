"""The state of an optimiser: whole, and restored under settings that may have changed."""

import logging
from typing import Any

import torch

_logger = logging.getLogger(__name__)

_HIDDEN = "outside_state_dict"  # torch ignores what it does not know in a state
_RATES = ("lr", "initial_lr")


def whole_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Everything that its next steps depend on, in torch's format with an entry more where needed.

    AdaHessian draws from a generator of its own, and with `update_each` > 1 uses a Hessian for
    several steps, which it keeps on the parameters.
    """
    state: dict[str, Any] = optimizer.state_dict()
    generator = getattr(optimizer, "generator", None)
    if isinstance(generator, torch.Generator):
        reused = getattr(optimizer, "update_each", 1) > 1
        state[_HIDDEN] = {
            "generator": generator.get_state(),
            "hess": [_hess(one) for one in _parameters(optimizer)] if reused else [],
        }
    return state


def restore(
    optimizer: torch.optim.Optimizer,
    saved: dict[str, Any],
    former: torch.optim.Optimizer | None = None,
) -> None:
    """Load a state; rates, and what settings have changed, stay as the optimiser was made.

    Args:
        optimizer: As the settings make it, with its schedule, before any step.
        saved: From `whole_state`.
        former: As the settings of the saved run make it, for the same parameters; None where they
            are the same.

    Raises:
        ValueError: The state does not fit.
    """
    made = [dict(group) for group in optimizer.param_groups]
    hidden = saved.get(_HIDDEN)
    saved = {name: value for name, value in saved.items() if name != _HIDDEN}
    optimizer.load_state_dict(saved if former is None else _converted(optimizer, saved, former))
    for group, fresh in zip(optimizer.param_groups, made, strict=True):
        group.update({name: fresh[name] for name in _RATES if name in fresh})
    if hidden is not None:
        _restore_hidden(optimizer, hidden)
    elif getattr(optimizer, "is_second_order", False):
        _logger.warning("the optimiser's random state was not saved: it does not resume exactly.")


def _converted(
    optimizer: torch.optim.Optimizer, saved: dict[str, Any], former: torch.optim.Optimizer
) -> dict[str, Any]:
    """A saved state as the optimiser would have it: its groups, and the values that are new."""
    numbers = {id(parameter): n for n, parameter in enumerate(_parameters(former))}
    order = [numbers[id(parameter)] for parameter in _parameters(optimizer)]
    same_groups = [len(group["params"]) for group in former.param_groups] == [
        len(group["params"]) for group in optimizer.param_groups
    ]
    groups = []
    for number, group in enumerate(optimizer.state_dict()["param_groups"]):
        was = former.param_groups[number if same_groups else 0]
        old = saved["param_groups"][number if same_groups else 0]
        # Some optimisers count in their groups; where the groups are others, a count that
        # a fresh group lacks is taken over.
        kept = {
            name: value
            for name, value in old.items()
            if name != "params"
            and (name not in group or (same_groups and was.get(name) == group[name]))
        }
        groups.append(group | kept)
    state = {new: saved["state"][old] for new, old in enumerate(order) if old in saved["state"]}
    return saved | {"state": state, "param_groups": groups}


def _restore_hidden(optimizer: Any, hidden: dict[str, Any]) -> None:
    parameters = _parameters(optimizer)
    generator = torch.Generator(parameters[0].device)
    generator.set_state(hidden["generator"])
    optimizer.generator = generator
    for parameter, hess in zip(parameters, hidden["hess"], strict=False):
        parameter.hess = 0.0 if hess is None else hess.to(parameter.device)


def _hess(parameter: Any) -> torch.Tensor | None:
    hess = getattr(parameter, "hess", None)
    return hess if isinstance(hess, torch.Tensor) else None


def _parameters(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
