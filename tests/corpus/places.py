"""Which directories of the corpus do not hold the logs of one trainer."""

from __future__ import annotations

MIXED = {
    "unseen",  # several trainers, known ones among them
    "parameter-golf",  # prints the lines of modded-nanogpt, from which it comes
    "wandb-binary",  # no text: refused before any reader is asked
}
