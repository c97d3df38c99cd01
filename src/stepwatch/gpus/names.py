"""Finds a card by the name that people type or drivers report, by whole tokens and never by substrings.

A name is parsed into a `Label`: the key that identifies the card (`rtx4070ti`, `a100`), and what only describes it:
brand words, form, memory, cores. The key must be equal to a key of the catalogue; the description must not contradict
the card. Nothing is corrected: an unknown name is refused, with the nearest names.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from functools import cache
from heapq import nlargest
from math import inf
from typing import NamedTuple

from stepwatch.errors import UnknownGpu
from stepwatch.gpus.catalogue import CPU, GIB, Gpu, gpus
from stepwatch.messages import Message
from stepwatch.settings import Origin, Settings

_LONGEST_NAME = 200
_SHOWN_LENGTH = 60
# Drivers report up to 7 % less than the nominal memory (a T4 of 16 GB: 15 GiB), and some people count in 10^9.
VRAM_TOLERANCE = 0.1

_TRADE_MARKS = re.compile(r"\((?:r|tm)\)|[®™]", re.IGNORECASE)
_ASIDE = re.compile(r"\(([^()]*)\)")
# "8xA100", "2 x 4090", "A100 x8", "a100x8"; but not the X of "7900 XTX".
_COUNT = re.compile(r"^\s*\d{1,5}(?:[x×*]\s*|\s+[x×*]\s+)(?!tx?\b)(?=[a-z]|\d{4})|(?:\s+[x×*]\s*|(?<=\d)x)\d{1,5}\s*$")
_MEMORY = re.compile(r"(?<![^\W_])(\d{1,3})\s*(?:gb|gib|g)(?![^\W_])")
_CORES = re.compile(r"(?<![^\W_])(\d{1,3})[\s-]*cores?(?![^\W_])")
_GLUED_BRAND = re.compile(r"\b(nvidia|geforce|tesla|radeon|instinct)(?=[a-z0-9])")
_GLUED_FORM = re.compile(r"(?<=\d)(?=sxm|pcie|nvl|laptop|mobile)")
_SERIES = re.compile(r"^(?:rtx|gtx|rx)(?!titan)")
_MAX_Q = re.compile(r"max[ -]q\b")
_TOKEN = re.compile(r"[^\W_]+|[/+,;&|]")
_FORM = re.compile(r"sxm\d?|pcie|nvl|hbm\d\w?|\d{3}w|workstation|server|maxq|ls|n|ac")

_NOISE = frozenset({"gpu", "gpus", "graphics", "card", "generation", "edition", "with", "design", "colab", "kaggle"})
_SYNONYMS = {"mobile": "laptop", "notebook": "laptop"}
_SEPARATORS = frozenset("/+,;&|")
# Part of the identity, but written in different places: "Laptop RTX 4070", "RTX Ada 6000".
_TRAILING = ("ada", "laptop")
# Remarks in brackets, such as "(host has 3)", are dropped, except for these words, which are never just a remark.
_RANKS = frozenset(
    {"ti", "super", "d", "v2", "ada", "sff", "pro", "max", "ultra", "xt", "xtx"}
    | {"laptop", "mobile", "notebook", "maxq", "mig", "vgpu"}
)

_BRANDS = frozenset(
    {"nvidia", "amd", "intel", "apple", "google", "geforce", "desktop", "tesla", "instinct", "radeon", "data", "center"}
    | {"arc", "mps", "maxwell", "pascal", "volta", "turing", "ampere", "lovelace", "hopper", "blackwell"}
)
_BRAND_WORDS = {
    ("NVIDIA", "geforce"): ("geforce", "desktop"),
    ("NVIDIA", "laptop"): ("geforce",),
    ("NVIDIA", "datacentre"): ("tesla",),
    ("AMD", "datacentre"): ("instinct",),
    ("AMD", "desktop"): ("radeon",),
    ("Intel", "datacentre"): ("data", "center"),
    ("Intel", "desktop"): ("arc",),
    ("Intel", "workstation"): ("arc",),
    ("Apple", "integrated"): ("mps",),
}

_BRAND = re.compile(r"(?:NVIDIA|GeForce|Tesla|Quadro|TITAN|AMD|Radeon|Intel\(R\)|Apple)(?= )")
_END_OF_NAME = re.compile(r"\s{2,}|[\t\n,;:|=\"'`<>()\[\]{}]")
_CUT_OFF = ("..", "…")  # old versions of nvidia-smi cut long names: "GeForce RTX 2080..." may be a Ti

# Cards that differ only in memory, form factor or core count share a key. For each key, its cards, the most common one
# first, and why it is the most common. What else is known (memory, form, SM count) takes precedence.
PREFERENCES: dict[str, tuple[str, ...]] = {
    "p100": ("Tesla P100 PCIe 16GB", "Tesla P100 SXM2 16GB", "Tesla P100 PCIe 12GB"),  # the P100 of Kaggle and Colab
    # the V100 of AWS p3, of Google Cloud and of Colab
    "v100": ("Tesla V100 SXM2 16GB", "Tesla V100 SXM2 32GB", "Tesla V100 PCIe 16GB", "Tesla V100 PCIe 32GB"),
    # nanoGPT's own reference, the A100 of Colab and AWS p4d; all four have the same peaks
    "a100": ("NVIDIA A100 SXM4 40GB", "NVIDIA A100 SXM4 80GB", "NVIDIA A100 PCIe 40GB", "NVIDIA A100 PCIe 80GB"),
    "a800": ("NVIDIA A800 SXM4 80GB", "NVIDIA A800 PCIe 80GB"),  # as the A100: SXM first
    # the H100 of nearly every cloud and of the published runs
    "h100": (
        "NVIDIA H100 SXM5 80GB",
        "NVIDIA H100 PCIe 80GB",
        "NVIDIA H100 NVL 94GB",
        "NVIDIA H100 SXM5 96GB HBM2e 500W",
    ),
    "h800": ("NVIDIA H800 SXM5 80GB", "NVIDIA H800 PCIe 80GB"),  # the driver calls the SXM card just H800
    "h200": ("NVIDIA H200 SXM 141GB", "NVIDIA H200 NVL 141GB"),  # the driver calls the SXM card just H200
    "gh200": ("NVIDIA GH200 96GB", "NVIDIA GH200 144GB"),  # the first and far more widespread version
    "rtx2060": ("GeForce RTX 2060 6GB", "GeForce RTX 2060 12GB"),  # sold for three years before the 12GB card
    "rtx2080ti": ("GeForce RTX 2080 Ti", "GeForce RTX 2080 Ti 22GB"),  # 22GB cards are refitted
    "rtx3050": ("GeForce RTX 3050 8GB", "GeForce RTX 3050 6GB"),  # the original card
    "rtx3060": ("GeForce RTX 3060 12GB", "GeForce RTX 3060 8GB"),  # the original card; the 8GB one is rare
    # the original card; 20GB cards are refitted
    "rtx3080": ("GeForce RTX 3080 10GB", "GeForce RTX 3080 12GB", "GeForce RTX 3080 20GB"),
    "rtx3080laptop": ("GeForce RTX 3080 Laptop GPU 8GB", "GeForce RTX 3080 Laptop GPU 16GB"),  # the standard memory
    "rtxa2000": ("NVIDIA RTX A2000 6GB", "NVIDIA RTX A2000 12GB"),  # the driver says 12GB on the larger card
    "rtx4060ti": ("GeForce RTX 4060 Ti 8GB", "GeForce RTX 4060 Ti 16GB"),  # the cheaper and earlier card
    "rtx4090": ("GeForce RTX 4090", "GeForce RTX 4090 48GB"),  # 48GB cards are refitted
    "rtx4090d": ("GeForce RTX 4090 D", "GeForce RTX 4090 D 48GB"),  # 48GB cards are refitted
    "rtx5060ti": ("GeForce RTX 5060 Ti 16GB", "GeForce RTX 5060 Ti 8GB"),  # sold far more than the 8GB card
    # the edition with the full 600 W, and the one of the published runs
    "rtxpro6000": (
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    ),
    "m1max": ("Apple M1 Max (32-core)", "Apple M1 Max (24-core)"),  # the full chip
    "m3max": ("Apple M3 Max (40-core)", "Apple M3 Max (30-core)"),  # the full chip
    "m4max": ("Apple M4 Max (40-core)", "Apple M4 Max (32-core)"),  # the full chip
}


class Label(NamedTuple):
    """A parsed name."""

    key: str
    words: frozenset[str] = frozenset()
    forms: frozenset[str] = frozenset()
    memory_gb: int | None = None
    cores: int | None = None


class _Card(NamedTuple):
    """A card with everything that a name may say about it."""

    gpu: Gpu
    labels: tuple[Label, ...]
    keys: tuple[str, ...]
    """All spellings: also without the series (`4070`, `7900xtx`; a TITAN keeps its own), and with S for SUPER."""
    words: frozenset[str]
    forms: frozenset[str]
    memories_gb: frozenset[int]

    def fits(self, label: Label) -> bool:
        """Whether nothing in the label contradicts the card; any memory fits if it is the buyer's choice."""
        return (
            label.words <= self.words
            and label.forms <= self.forms
            and (label.memory_gb is None or self.gpu.vram_bytes is None or label.memory_gb in self.memories_gb)
            and (label.cores is None or label.cores == self.gpu.sm_count)
        )

    def is_called(self, label: Label) -> bool:
        """Whether the label is one of the card's own names, written in full as a driver writes it."""
        return self.fits(label) and any(
            own.key == label.key
            and own.forms == label.forms
            and (own.memory_gb == label.memory_gb or own.memory_gb is None)
            for own in self.labels
        )


def find_gpu(name: str, *, vram_bytes: float | None = None, sm_count: int | None = None) -> Gpu:
    """The card of that name; memory and SM count, if known, decide between cards that share the name."""
    label = _read(name)
    if label.key == "cpu" or "(cpu)" in name.casefold():
        return CPU
    key, _, number = label.key.rpartition(" ")
    by_memory = label  # `V100-32`, `a100-80`: a number after the key is its memory
    if label.memory_gb is None and number.isdecimal():
        by_memory = label._replace(key=key, memory_gb=int(number))
    for attempt in (label, by_memory) if len(name) <= _LONGEST_NAME else ():
        fitting = [card for card in _cards() if attempt.key in card.keys and card.fits(attempt)]
        if fitting:
            gpu = fitting[0].gpu if len(fitting) == 1 else _choose(fitting, vram_bytes, sm_count)
            memory = vram_bytes or (attempt.memory_gb or 0) * GIB
            # The size of unified memory is the buyer's choice: known only if it was stated.
            return replace(gpu, vram_bytes=float(memory)) if gpu.vram_bytes is None and 0 < memory < inf else gpu
    raise _unknown(name, label)


def find_gpu_in_text(text: str) -> Gpu | None:
    """The card that a log line names as a driver would; None if in doubt, so that no plain number becomes a card."""
    found = {gpu for brand in _BRAND.finditer(text) if (gpu := _named_at(text, brand.start())) is not None}
    return found.pop() if len(found) == 1 else None


def _named_at(text: str, start: int) -> Gpu | None:
    rest = _TRADE_MARKS.sub("", text[start : start + 2 * _LONGEST_NAME])
    words = _END_OF_NAME.split(rest, maxsplit=1)[0].split()[:9]  # the most words that a name may have
    for length in range(len(words), 1, -1):
        name, following = " ".join(words[:length]), words[length:]
        label = _read("" if name.endswith(_CUT_OFF) else name)
        called = [card for card in _cards() if label.key in card.keys and card.is_called(label)]
        if called:
            return None if _goes_on(following) else _choose(called, None, None)
    return None


def _goes_on(following: list[str]) -> bool:
    """Whether the next word belongs to the name: then what was found is the beginning of another card's name."""
    word = " ".join(following[: 2 if following[:1] == ["with"] else 1])
    label = _read(word)
    return label.key in _RANKS or bool(label.forms) or label.memory_gb is not None or word.startswith(_CUT_OFF)


def _read(name: str) -> Label:
    """Parses a name. Never fails: the key of nonsense is simply not in the catalogue."""
    text = unicodedata.normalize("NFKC", _TRADE_MARKS.sub(" ", name[: _LONGEST_NAME + 1])).casefold().replace("_", " ")
    text = _GLUED_FORM.sub(" ", _GLUED_BRAND.sub(r"\1 ", text))
    text = _MAX_Q.sub("maxq", text).replace("pci-e", "pcie")
    text = _COUNT.sub("", _ASIDE.sub(_telling_part, text))
    sizes: list[int | None] = []
    for size in (_MEMORY, _CORES):
        found = size.search(text)
        sizes.append(int(found[1]) if found is not None else None)
        text = text if found is None else f"{text[: found.start()]} {text[found.end() :]}"
    tokens = [_SYNONYMS.get(token, token) for token in _TOKEN.findall(text) if token not in _NOISE]
    if "maxq" in tokens and not any("pro" in token for token in tokens):
        tokens.append("laptop")  # "RTX 3080 with Max-Q Design"; only the RTX PRO has a Max-Q desktop card
        tokens = [token for token in tokens if token != "maxq"]
    words = _BRANDS.intersection(tokens)
    forms = frozenset(token for token in tokens if _FORM.fullmatch(token))
    identity = [token for token in tokens if token not in words and token not in forms and token not in _TRAILING]
    key = ""  # `rtx 4070 ti` and `rtx4070ti` are one; digits never run together, or `L4 0` would be an L40
    for token in (*identity, *(token for token in _TRAILING if token in tokens)):
        between = " " if key[-1:].isdigit() and token[0].isdigit() else ""
        key += between + ("|" if token in _SEPARATORS else token)
    return Label(key.strip("|"), words, forms, *sizes)


def _telling_part(aside: re.Match[str]) -> str:
    """What is kept of a remark in brackets: memory, cores, and the words that distinguish cards."""
    text = aside[1]
    sizes = [found[0] for pattern in (_MEMORY, _CORES) for found in pattern.finditer(text)]
    tokens = _TOKEN.findall(text)
    return " ".join([" ", *sizes, *(t for t in tokens if t in _RANKS or t in _BRANDS or _FORM.fullmatch(t))])


def _choose(cards: list[_Card], vram_bytes: float | None, sm_count: int | None) -> Gpu:
    """Chooses among cards that share a name: by SM count, then by memory, then the most common one."""
    cards = [card for card in cards if card.gpu.sm_count == sm_count] or cards
    distances = [
        abs(vram_bytes / card.gpu.vram_bytes - 1) if vram_bytes is not None and card.gpu.vram_bytes else inf
        for card in cards
    ]
    if min(distances) <= VRAM_TOLERANCE:
        cards = [card for card, distance in zip(cards, distances, strict=True) if distance == min(distances)]
    order = PREFERENCES.get(cards[0].labels[0].key, ())
    return min((card.gpu for card in cards), key=lambda gpu: order.index(gpu.name) if gpu.name in order else len(order))


@cache
def _cards() -> tuple[_Card, ...]:
    cards = []
    for gpu in gpus():
        names = dict.fromkeys(name.removeprefix("NVIDIA ") for name in (gpu.name, *gpu.aliases))
        labels = tuple(_read(name) for name in names)
        forms = {form for label in labels for form in label.forms}
        memories = {label.memory_gb for label in labels if label.memory_gb is not None}
        spelt = [spelling for label in labels for spelling in (label.key, _SERIES.sub("", label.key))]
        card = _Card(
            gpu=gpu,
            labels=labels,
            keys=tuple(dict.fromkeys(key for each in spelt for key in (each, each.replace("super", "s")))),
            # Words that add nothing about this card, but would contradict another.
            words=_BRANDS.intersection(
                (
                    gpu.vendor.lower(),
                    *_BRAND_WORDS.get((gpu.vendor, gpu.segment), ()),
                    *(gpu.architecture or "").lower().split(),
                )
            ),
            forms=frozenset(forms | {"sxm" for form in forms if form.startswith("sxm")}),
            memories_gb=frozenset(memories | ({round(gpu.vram_bytes / GIB)} if gpu.vram_bytes else set())),
        )
        cards.append(card)
    return tuple(cards)


def _unknown(name: str, label: Label) -> UnknownGpu:
    shown = "".join(char for char in name[:_LONGEST_NAME] if char.isprintable()).strip()[:_SHOWN_LENGTH]
    nearest = _nearest(label)
    if nearest:
        remedy = Message("nearest: {nearest:word}; `stepwatch gpus` lists every card", {"nearest": ", ".join(nearest)})
    else:
        remedy = Message("name a graphics card with --gpu; `stepwatch gpus` lists them")
    return UnknownGpu(Message("there is no card “{name:word}” in the catalogue", {"name": shown}), remedy)


def _nearest(label: Label) -> list[str]:
    """The most similar names: of the brand or architecture if one was named, else all that are similar enough."""
    of_brand = [card for card in _cards() if label.words and label.words <= card.words]
    cards = of_brand or _cards()
    from difflib import SequenceMatcher  # only a typo needs it

    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(label.key[:_SHOWN_LENGTH])

    def likeness(card: _Card) -> float:
        ratios = []
        for key in card.keys:
            matcher.set_seq1(key)
            ratios.append(matcher.ratio())
        return max(ratios)

    least = 0.0 if of_brand else 0.6  # the cutoff of difflib.get_close_matches
    return [card.gpu.name for card in nlargest(5, cards, key=likeness) if likeness(card) >= least]


# --- the card a question is about -------------------------------------------------------------------------------


_CARDS = re.compile(r"^\s*(?P<before>\d{1,4})\s?[x×]\s?(?=\D|\d{4})|\s[x×]\s?(?P<after>\d{1,4})\s*$")


def named_card(name: str | None) -> tuple[Gpu, str] | None:
    """The card that --gpu names, and how it is known."""
    if not name:
        return None
    if name.strip().lower() not in ("this", "cpu"):
        return find_gpu(name), Origin.USER.value
    from stepwatch.gpus import this_machine  # a card with a name needs neither the driver nor a calibration

    return this_machine.processor(Origin.USER) if name.strip().lower() == "cpu" else this_machine.card_of_this_machine()


def count_in(name: str | None) -> int | None:
    """`8xA100` and `A100 x8` are eight cards."""
    found = _CARDS.search(name or "")
    return int(found["before"] or found["after"]) if found else None


def card_of_config(settings: Settings) -> tuple[Gpu, str] | None:
    """The processor, if the config says `device = 'cpu'`."""
    if not (settings.text("device") or "").startswith("cpu"):
        return None
    from stepwatch.gpus.this_machine import processor

    return processor(settings["device"].origin)
