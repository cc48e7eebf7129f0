"""Scores: the logits and features that a model gives each image, kept beside its predictions."""
