"""Replaces sentences that name an option or a command on the page, which has fields but no prompt."""

from __future__ import annotations

from collections.abc import Mapping

from stepwatch.messages import Message

_CARD = Message("name a graphics card above")
_BOTH_TOKENS = Message(
    "Neither log shows how many tokens a step has, and the steps may differ in size. Add the setting tokens_per_iter if they have the same size."
)
_CHECK = Message("check the path, or paste the log")
# Keyed by the sentence for a prompt; the values stay the same.
ON_PAGE: Mapping[str, Message] = {
    "Checkpoints take {share:pct} of the run, one every {now:time}. At {cost:range} each and one failure a week (assumed; override it with --set mtbf_hours=…), saving every {spacing:time} loses the least time (Young and Daly).": Message("Checkpoints take {share:pct} of the run, one every {now:time}. At {cost:range} each and one failure a week (assumed; the setting mtbf_hours overrides it), saving every {spacing:time} loses the least time (Young and Daly)."),
    "Name the card with --gpu to get advice on micro-batch, compilation and precision.": Message("Name your card above to get advice on micro-batch, compilation and precision."),
    "The log says too little about the model to judge micro-batch, compilation and precision: add --config, or --set n_layer=… n_head=… n_embd=… batch_size=… gradient_accumulation_steps=…": Message("The log says too little about the model to judge micro-batch, compilation and precision: add the settings n_layer, n_head, n_embd, batch_size and gradient_accumulation_steps above."),
    "It is unknown whether the run is compiled: add --set compile=True or compile=False.": Message("It is unknown whether the run is compiled: add the setting compile above, True or False."),
    "The log does not show what compilation would gain here; published runs of similar models became {low:x} to {high:x} times as fast. To find out, run a hundred iterations with --compile=True and compare both logs with stepwatch compare.": Message("The log does not show what compilation would gain here; published runs of similar models became {low:x} to {high:x} times as fast. To find out, run a hundred iterations with compile = True and compare both logs."),
    "It is unknown how often the run evaluates: add --set eval_interval=…": Message("It is unknown how often the run evaluates: add the setting eval_interval above."),
    "The length of the run is unknown, so only the iterations in this log count: add --set max_iters=…": Message("The length of the run is unknown, so only the iterations in this log count: add the setting max_iters above."),
    "Evaluations take {share:pct} of the run. The log does not show eval_iters; nanoGPT's default of {old:n} is assumed: override it with --set eval_iters=…": Message("Evaluations take {share:pct} of the run. The log does not show eval_iters; nanoGPT's default of {old:n} is assumed: the setting eval_iters overrides it."),
    "name the card with --gpu to see what to expect, or wait for the first lines": Message("name your card above to see what to expect, or wait for the first lines"),
    "Neither log shows how many tokens a step has: the steps are assumed to be the same size. If they are not, add both: --set A:tokens_per_iter=… --set B:tokens_per_iter=…": Message("Neither log shows how many tokens a step has: the steps are assumed to be the same size."),
    "Only “{name:word}” shows how many tokens a step has, so the steps may differ in size. Add it for “{other:word}”: --set {side:word}:tokens_per_iter=…": Message("Only “{name:word}” shows how many tokens a step has, so the steps may differ in size."),
    "Neither log shows how many tokens a step has, and the steps may differ in size. Add both: --set A:tokens_per_iter=… --set B:tokens_per_iter=…": _BOTH_TOKENS,
    "The printed MFU of {printed:pct} is measured against an A100 ({a100:tflops}), whatever the card. Name yours with --gpu to get the real one.": Message("The printed MFU of {printed:pct} is measured against an A100 ({a100:tflops}), whatever the card. Name yours above to get the real one."),
    "The log prints an MFU of {printed:pct}, above 100 %: it is measured against an A100 ({a100:tflops}), whatever the card. Name yours with --gpu to get the real one.": Message("The log prints an MFU of {printed:pct}, above 100 %: it is measured against an A100 ({a100:tflops}), whatever the card. Name yours above to get the real one."),
    "A step takes {step:time}, {ratio:x} times what the {gpu:word} should need for this model ({expected:range}). The card has no bfloat16; where nanoGPT selected it anyway, it is emulated. Try --dtype=float16.": Message("A step takes {step:time}, {ratio:x} times what the {gpu:word} should need for this model ({expected:range}). The card has no bfloat16; where nanoGPT selected it anyway, it is emulated. Try dtype = 'float16'."),
    "The log says {name:word} = {told:word}, --config says {given:word}: the log wins.": Message("The log says {name:word} = {told:word}, the config says {given:word}: the log wins."),
    "The log says {name:word} = {told:word}, --set says {given:word}: --set wins.": Message("The log says {name:word} = {told:word}, you say {given:word}: yours is used."),
    "“{name:word}” holds {count:n} runs; the longest, number {number:n}, is compared. For another one: --run {side:word}:{other:n}": Message("“{name:word}” holds {count:n} runs; the longest, number {number:n}, is compared."),
    "A vocabulary of {size:n} characters was assumed; give its size with --vocab_size=…": Message("A vocabulary of {size:n} characters was assumed; the setting vocab_size overrides it."),
    "To try: stepwatch train --recipe=modern, another model and optimizer. Models of up to {params:big} parameters reached the loss of nanoGPT's recipe in {least:pct} to {most:pct} of its time, with two texts on a CPU; on cards and with larger models it was not measured. Price: nanoGPT cannot load the checkpoints. It is another training, so no figure here counts it.": Message("To try: stepwatch's own trainer with recipe = modern, another model and optimizer. Models of up to {params:big} parameters reached the loss of nanoGPT's recipe in {least:pct} to {most:pct} of its time, with two texts on a CPU; on cards and with larger models it was not measured. Price: nanoGPT cannot load the checkpoints. It is another training, so no figure here counts it."),
    "name a graphics card with --gpu; `stepwatch gpus` lists them": _CARD,
    "name a graphics card with --gpu, or measure this machine: stepwatch calibrate": _CARD,
    "The link between the cards is assumed to carry {rate:size} per second; override it with --link.": Message("The link between the cards is assumed to carry {rate:size} per second."),
    "for example: --claim 100ms (an iteration), 2M-tokens/s, 20min (the whole run)": Message("for example: 100ms (an iteration), 2M-tokens/s, 20min (the whole run)"),
    "The calibration was made while the machine was busy, so that these times may be too long. Measure again when it is idle: stepwatch calibrate": Message("The calibration was made while the machine was busy, so that these times may be too long."),
    "measure again: stepwatch calibrate": Message("the machine has to be measured again"),
    "leave --link out, or name pcie4 or pcie5": Message("name pcie4 or pcie5, or no link"),
    "nearest: {nearest:word}; `stepwatch gpus` lists every card": Message("nearest: {nearest:word}"),
    "The {gpu:word} has no bfloat16 and emulates it, which is slow. Use --dtype=float16.": Message("The {gpu:word} has no bfloat16 and emulates it, which is slow. Use dtype = 'float16'."),
    "The log does not show how many tokens an iteration has: add --set tokens_per_iter=… for tokens per second.": Message("The log does not show how many tokens an iteration has: add the setting tokens_per_iter above for tokens per second."),
    "leave --log-format out, or give the format of the log": Message("give the format of the log, or none to have it detected"),
    "give a log file, or paste the log with: stepwatch -": Message("paste the log, or choose a file"),
    '`stepwatch explain --help` lists the formats; for another, show one of its lines: --like "it 12 | 0.34 s"': Message("formats read: {formats:list}"),
    "if such lines are its iterations: {command:list}": Message("if such lines are its iterations, enter one as the example: {example:list}"),
    "--set needs key=value, not “{text:word}”": Message("a setting needs a name and a value, not “{text:word}”"),
    "for example: --set max_iters=6000": Message("for example: max_iters and 6000"),
    "check the path, or paste the log with: stepwatch -": _CHECK,
    "check the file, or paste the log with: stepwatch -": _CHECK,
    "make it readable, or pipe it: … | stepwatch -": Message("make it readable"),
    "cut out the part you want explained, or raise the limit with --max-size": Message("cut out the part you want explained"),
    "watch the plain log, or explain this one: stepwatch explain LOG": Message("watch the plain log, or have this one explained"),
}  # fmt: skip


def on_page(message: Message) -> Message:
    """The message as worded for the page, including any Message among its values."""
    inner = {name: on_page(value) for name, value in message.params.items() if isinstance(value, Message)}
    if inner:
        message = message._replace(params={**message.params, **inner})
    other = ON_PAGE.get(message.key)
    return message if other is None else other._replace(params=message.params)
