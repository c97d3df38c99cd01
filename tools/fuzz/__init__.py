"""Puts inputs that nobody wrote through every command: `python -m tools.fuzz --help`.

`material` gathers whole inputs, `mutations` damages them, `roads` asks all questions about one and checks the laws of
the answers, `campaign` does this in processes with limits on time and memory and keeps what broke, made as small as
possible.
"""
