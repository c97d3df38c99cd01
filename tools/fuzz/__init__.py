"""Inputs that nobody wrote, put through every command: `python -m tools.fuzz --help`.

`material` gathers whole inputs, `mutations` damages them, `roads` asks all questions about one and checks the laws of
the answers, `campaign` does so in processes with limits of time and memory and keeps what broke, as small as it gets.
"""
