"""nanoGPT's training loop with an honest log: files in reading order are config, model, optimizer, evaluation, loop."""
