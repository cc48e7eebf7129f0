"""Trains a model that it is handed: update, recipe, trainer, and the data that they are given."""

from vit_ls.train.recipe import check_recipe, make_optimizer
from vit_ls.train.teacher import make_teacher
from vit_ls.train.trainer import Best, Trainer

__all__ = ["Best", "Trainer", "check_recipe", "make_optimizer", "make_teacher"]
