"""The training loop of nanoGPT with an honest log: data, model, checkpoints. Nothing but its commands imports it."""
