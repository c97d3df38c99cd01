"""Setting names that several formats share, as the trainers call them.

Checked against their sources: transformers' training_args.py, detectron2's config/defaults.py, mmengine's guides
(set_interval, save_gpu_memory, speed_up_training), ultralytics' cfg/default.yaml, Lightning's Trainer.
"""

from __future__ import annotations

from stepwatch.run import Levers

HUGGING_FACE = Levers(  # TRL, LLaMA-Factory, ms-swift and unsloth use the same names
    evaluate_every="eval_steps", save_every="save_steps", batch="per_device_train_batch_size",
    accumulation="gradient_accumulation_steps", workers="dataloader_num_workers", prefetch="dataloader_prefetch_factor",
    log_every="logging_steps", precision="bf16=True", compile="torch_compile=True",
    recompute="gradient_checkpointing=True",
)  # fmt: skip
DETECTRON2 = Levers(
    evaluate_every="TEST.EVAL_PERIOD", save_every="SOLVER.CHECKPOINT_PERIOD", batch="SOLVER.IMS_PER_BATCH",
    workers="DATALOADER.NUM_WORKERS", precision="SOLVER.AMP.ENABLED=True", length="INPUT.MAX_SIZE_TRAIN",
)  # fmt: skip
MMENGINE = Levers(
    evaluate_every="train_cfg.val_interval", save_every="default_hooks.checkpoint.interval", other_units=True,
    batch="train_dataloader.batch_size", accumulation="optim_wrapper.accumulative_counts",
    workers="train_dataloader.num_workers", precision="optim_wrapper.type='AmpOptimWrapper'", compile="compile=True",
    recompute="activation_checkpointing",
)  # fmt: skip
ULTRALYTICS = Levers(
    save_every="save_period", other_units=True, batch="batch", accumulates=True, workers="workers", cache="cache=True",
    compile="compile=True", length="imgsz",
)  # fmt: skip
LIGHTNING = Levers(
    evaluate_every="val_check_interval", evaluation_batches="limit_val_batches",
    save_every="ModelCheckpoint(every_n_train_steps=…)", other_units=True, batch="batch_size",
    accumulation="accumulate_grad_batches", workers="DataLoader(num_workers=…)",
    prefetch="DataLoader(prefetch_factor=…)", log_every="log_every_n_steps", precision="precision='bf16-mixed'",
)  # fmt: skip
