"""axolotl: the Hugging Face Trainer with figures of its own in the dictionaries."""

from __future__ import annotations

from dataclasses import replace

from stepwatch.messages import Message
from stepwatch.readers.formats import hf_trainer
from stepwatch.readers.text.line import Line
from stepwatch.run import Levers, Traits

FORMAT = replace(
    hf_trainer.FORMAT,
    name="axolotl",
    traits=Traits(
        may_evaluate=True,
        levers=Levers(
            evaluate_every="eval_steps",
            save_every="save_steps",
            batch="micro_batch_size",
            accumulation="gradient_accumulation_steps",
            workers="dataloader_num_workers",
            prefetch="dataloader_prefetch_factor",
            log_every="logging_steps",
            precision="bf16: true",
            compile="torch_compile: true",
            recompute="gradient_checkpointing: true",
            length="sequence_len",
        ),
    ),
    axolotl=True,
    about=Message(
        "Like the Hugging Face Trainer, whose progress bar it shows. Its own tokens per second count the trained "
        "tokens of one card only, by a clock that does not wait for the card, and are ignored."
    ),
    example="""\
{'loss': '1.284', 'grad_norm': '0.91', 'learning_rate': '0.0002', 'ppl': '3.611', 'memory/max_active (GiB)': '8.14', \
'tokens/train_per_sec_per_gpu': '2210', 'tokens/trainable': 81200, 'tokens/total': 163840, 'epoch': '0.8'}
 80%|████████  | 200/250 [08:14<02:04,  2.47s/it]
[2026-03-02 11:20:09,114] [INFO] [axolotl.train] Training completed! Saving trained model to ./outputs/out.""",
    checkpoints=(*hf_trainer.FORMAT.checkpoints, Line("{any}Training completed! Saving trained model to ")),
    settings=(*hf_trainer.FORMAT.settings, Line("{any}Starting trainer...", header=True, sets={"training": "."})),
)
READER = FORMAT.reader()._replace(claims_any_bar=True)
