"""The words of the page, by the names that its template and its script call them."""

from __future__ import annotations

from stepwatch.i18n import say
from stepwatch.messages import Message

WORDS = {
    "tagline": Message("Why was that iteration slow, how long will it take?"),
    "promise": Message("What you paste stays on this machine: nothing is stored, nothing is sent elsewhere."),
    "language": Message("Language"),
    "views": Message("Views"),
    "explain": Message("Explain a log"),
    "estimate": Message("Estimate a run"),
    "watch": Message("Watch a log"),
    "log": Message("Log of the training run"),
    "log_hint": Message("Paste the log here, or drop a file anywhere on the page; .gz too."),
    "choose": Message("Choose a file"),
    "take_away": Message("Remove the file"),
    "card": Message("Card"),
    "card_hint": Message("Type to search: 4070, a100, … Leave it empty if you do not know."),
    "card_needed": Message("Type to search: 4070, a100, …"),
    "own_card": Message("this machine's card"),
    "missing": Message("Settings that the log does not show"),
    "given": Message("Settings"),
    "setting": Message("Setting"),
    "value": Message("Value"),
    "add": Message("Add a setting"),
    "remove": Message("Remove this setting"),
    "ask_explain": Message("Explain"),
    "ask_estimate": Message("Estimate"),
    "start": Message("Watch"),
    "stop": Message("Stop"),
    "config": Message("Config of nanoGPT, or nothing for its defaults"),
    "config_hint": Message("Paste the config here, or drop it anywhere on the page. It is read, never executed."),
    "model": Message("Model"),
    "as_config": Message("as the config says"),
    "count": Message("Number of cards"),
    "claim": Message("Is this possible?"),
    "claim_hint": Message("A figure that somebody promised: 100ms for an iteration, 20min for the run, 2M-tokens/s."),
    "path": Message("Path of the log on this machine"),
    "path_hint": Message("It may grow, and need not be there yet."),
    "nothing_allowed": Message("No directory may be read. Start the page with: stepwatch serve --allow DIRECTORY"),
    "answer": Message("Answer"),
    "save_as": Message("Save as"),
    "working": Message("Working …"),
    "done": Message("Answered."),
    "watching": Message("Watching; last change at"),
    "stopped": Message("Stopped."),
    "again": Message("The connection broke; trying again …"),
    "too_large": Message("The file is too large for the page; use the command line."),
    "unreachable": Message("The server does not answer. Is stepwatch serve still running?"),
    "empty": Message("Paste a log or choose a file first."),
}


def words(language: str) -> dict[str, str]:
    return {name: say(text, language) for name, text in WORDS.items()}
