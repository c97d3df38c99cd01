"""The words of the page, by the names that its template and its script call them."""

from __future__ import annotations

from stepwatch.i18n import say
from stepwatch.messages import Message

WORDS = {
    "tagline": "Why was that iteration slow, how long will it take?",
    "promise": "What you paste stays on this machine: nothing is stored, nothing is sent elsewhere.",
    "language": "Language",
    "views": "Views",
    "explain": "Explain a log",
    "estimate": "Estimate a run",
    "watch": "Watch a log",
    "log": "Log of the training run",
    "log_hint": "Paste the log here, or drop a file anywhere on the page; .gz too.",
    "choose": "Choose a file",
    "take_away": "Remove the file",
    "card": "Card",
    "card_hint": "Type to search: 4070, a100, … Leave it empty if you do not know.",
    "card_needed": "Type to search: 4070, a100, …",
    "own_card": "this machine's card",
    "missing": "Settings that the log does not tell",
    "given": "Settings",
    "setting": "Setting",
    "value": "Value",
    "add": "Add a setting",
    "remove": "Remove this setting",
    "ask_explain": "Explain",
    "ask_estimate": "Estimate",
    "start": "Watch",
    "stop": "Stop",
    "config": "Config of nanoGPT, or nothing for its defaults",
    "config_hint": "Paste the config here, or drop it anywhere on the page. It is read, never executed.",
    "model": "Model",
    "as_config": "as the config says",
    "count": "Number of cards",
    "claim": "Is this possible?",
    "claim_hint": "A figure that somebody promised: 100ms for an iteration, 20min for the run, 2M-tokens/s.",
    "path": "Path of the log on this machine",
    "path_hint": "It may grow, and need not be there yet.",
    "nothing_allowed": "No directory may be read. Start the page with: stepwatch serve --allow DIRECTORY",
    "answer": "Answer",
    "save_as": "Save as",
    "working": "Working …",
    "done": "Answered.",
    "watching": "Watching; last change at",
    "stopped": "Stopped.",
    "again": "The connection broke; trying again …",
    "too_large": "The file is too large for the page; use the command line.",
    "unreachable": "The server does not answer. Is stepwatch serve still running?",
    "empty": "Paste a log or choose a file first.",
}


def words(language: str) -> dict[str, str]:
    return {name: say(Message(text), language) for name, text in WORDS.items()}
