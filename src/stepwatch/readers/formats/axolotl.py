"""axolotl: the Hugging Face Trainer with additional figures in the dictionaries."""

from __future__ import annotations

from dataclasses import replace

from stepwatch.readers.formats import hf_trainer
from stepwatch.readers.levers import HUGGING_FACE
from stepwatch.readers.text.line import Line
from stepwatch.run import Traits

FORMAT = replace(
    hf_trainer.FORMAT,
    name="axolotl",
    traits=Traits(
        may_evaluate=True,
        levers=HUGGING_FACE._replace(
            batch="micro_batch_size",
            precision="bf16: true",
            compile="torch_compile: true",
            recompute="gradient_checkpointing: true",
            length="sequence_len",
        ),
    ),
    axolotl=True,
    checkpoints=(*hf_trainer.FORMAT.checkpoints, Line("{any}Training completed! Saving trained model to ")),
    settings=(*hf_trainer.FORMAT.settings, Line("{any}Starting trainer...", header=True, sets={"training": "."})),
)
READER = FORMAT.reader()._replace(claims_any_bar=True)
