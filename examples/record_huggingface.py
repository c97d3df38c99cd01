"""The recorder in Hugging Face's Trainer, with a tiny random model: `python examples/record_huggingface.py`.

Needs torch, transformers and accelerate, and no network. Writes run.jsonl and out/ into the current directory; then:
`stepwatch explain run.jsonl`.
"""

from __future__ import annotations

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.set_num_threads(1)  # more would only get in each other's way
rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (64, 32))]
model = GPT2LMHeadModel(
    GPT2Config(n_layer=2, n_head=2, n_embd=32, n_positions=32, vocab_size=64, bos_token_id=0, eos_token_id=0)
)
arguments = TrainingArguments(
    "out", max_steps=40, per_device_train_batch_size=4, logging_steps=5, eval_strategy="steps", eval_steps=10,
    save_steps=20, report_to=[], use_cpu=True, disable_tqdm=True,
)  # fmt: skip

# shown in docs/record.md:
from stepwatch.recorder.huggingface import StepwatchCallback  # noqa: E402

trainer = Trainer(
    model, arguments, train_dataset=rows, eval_dataset=rows[:16], callbacks=[StepwatchCallback("run.jsonl")]
)
trainer.train()
# so far
