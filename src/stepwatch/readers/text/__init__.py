r"""The engine for line-based logs: a format describes each kind of line once, as a statement.

    Line("iter {number}: loss {loss}, time {time_ms}ms[, mfu {mfu_pct}%]")

A statement is the line as the trainer prints it, with these exceptions:

    {loss}          a field. Its kind follows from its name (line.FIELDS: times are decimals, losses floats, …);
                    names that are not listed there are counts.
    {lr:word}       a field with an explicit kind.
    {word}          text of this kind that is skipped.
    [, mfu {mfu}%]  an optional part.
    <step;iter>     alternatives.
    two spaces      one or more spaces; `{pad}` is any number of them.
    {any}           any text, as little as possible. At the beginning of a statement: any text may come first.
    {rest}, {end}   all that follows; nothing but spaces up to the end of the line. Without either, any text may follow.
    \[  \<  \{      a bracket or a brace that the trainer prints; in a raw string.

Kinds: `int` (digits), `decimal`, `float` (a decimal, nan or inf), `count` (digits, perhaps with commas), `amount`
(`124.5M`), `clock` (`1:02:03`) and `duration` (`1h 2m`) in seconds, `word` (up to a space), `name` (letters and
digits), `bar` (up to a `|`), `quoted` (up to a quote), `pad`, `gap`, `colour`, `any`, `rest`, `end`.

Further arguments of `Line` are optional pieces, which may follow anywhere after the first, in any order:

    Line("{any}iter {number}:", "loss {loss}", "time {time_ms}ms")

A `LineFormat` (line_format.py) declares what its lines become: `iterations`, `evaluations` (fields at, train_loss,
val_loss, took_s, took_ms), `checkpoints` (at, took_s, took_ms) and `settings` (settings by their names, `gpu_text`;
`header=True` if a process prints the line once at its start, `opening=True` if only this trainer prints it,
`sets={"dtype": "bfloat16"}` for what the line means, `scale=1e9` for its unit). Lines whose fields a format needs once
everything is read are `tables`: `Kept("passes", (line,), ("done", "total"))`. Lines that need code are listed in `own`
and read in `add_event`, or in `add_events` as columns. Iterations that need more than their columns are read in `add`.
Columns are arrays whether the lines were read one by one or together; all of these methods call `super()`.

Everything else follows from the statement: the pattern for single lines, the letters searched for before a pattern is
tried, the mark (the letters next to the time) that identifies a log and a line that nearly fits, and the shape for
numpy (shape.py). Do not state anything twice.
"""
