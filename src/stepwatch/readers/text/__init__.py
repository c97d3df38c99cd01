r"""The engine for logs of lines: a format states each of its lines once.

    Line("iter {number}: loss {loss}, time {time_ms}ms[, mfu {mfu_pct}%]")

A statement is the line as the trainer prints it, with these exceptions:

    {loss}          a field. Its kind follows from its name (line.FIELDS: times are decimals, losses floats, …);
                    names that are not listed there are counts.
    {lr:word}       a field with its kind.
    {word}          something of a kind that is passed over.
    [, mfu {mfu}%]  a piece that may be missing.
    <step;iter>     one of several.
    two spaces      one or more spaces; `{pad}` is any number of them.
    {any}           as little as possible of anything. At the beginning of a statement: the line may stand anywhere.
    {rest}, {end}   all that follows; nothing but spaces up to the end of the line. Without either the rest is open.
    \[  \<  \{      a bracket or a brace that the trainer prints; in a raw string.

Kinds: `int` (digits), `decimal`, `float` (a decimal, nan or inf), `count` (digits, perhaps with commas), `amount`
(`124.5M`), `clock` (`1:02:03`) and `duration` (`1h 2m`) in seconds, `word` (up to a space), `name` (letters and
digits), `bar` (up to a `|`), `quoted` (up to a quote), `pad`, `gap`, `colour`, `any`, `rest`, `end`.

Further arguments of `Line` are pieces that stand anywhere behind the first, in any order, each of which may be missing:

    Line("{any}iter {number}:", "loss {loss}", "time {time_ms}ms")

A `LineFormat` (line_format.py) says what its lines become: `iterations`, `evaluations` (fields at, train_loss,
val_loss, took_s, took_ms), `checkpoints` (at, took_s, took_ms) and `settings` (settings by their names, `gpu_text`;
`header=True` where a process prints it once at its start, `opening=True` where only this trainer prints it,
`sets={"dtype": "bfloat16"}` for what the line means, `scale=1e9` for its unit). Lines whose fields a format needs once
all is read are `tables`: `Kept("passes", (line,), ("done", "total"))`. Lines that need code are listed under `own` and
read in `add_event`, or in `add_events` by columns; iterations that need more than their columns in `add`. Columns are
arrays whether the lines were read one by one or together; all of these call `super()`.

From the statement follow the pattern for single lines, the letters that are searched for before any pattern is tried,
the mark by which a log is recognised and a line is named that nearly fits (the letters beside its time), and the shape
for numpy: see shape.py. Nothing is to be stated twice.
"""
