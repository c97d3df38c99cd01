"""Costs from first principles: FLOPs of a model, and what evaluations and checkpoints should take."""

from stepwatch.estimator.flops import A100_FLOPS, flops_per_token
from stepwatch.estimator.priors import checkpoint_prior, evaluation_prior

__all__ = ["A100_FLOPS", "checkpoint_prior", "evaluation_prior", "flops_per_token"]
