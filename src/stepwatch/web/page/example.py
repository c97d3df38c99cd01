# A nanoGPT config for a card with 12 GB: GPT-2 (124M), half a million tokens per iteration.
# stepwatch estimate examples/train_gpt2_small.py --gpu 4070

n_layer = 12
n_head = 12
n_embd = 768
block_size = 1024

batch_size = 8
gradient_accumulation_steps = 8 * 8

max_iters = 12000
eval_interval = 500
eval_iters = 200
log_interval = 10
always_save_checkpoint = False

compile = True
