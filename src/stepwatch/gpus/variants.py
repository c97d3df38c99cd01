"""Which card a short name means when several cards bear it.

Cards that are told apart only by memory, form factor or core count share a key (see `names.py`). The first
card of the list that fits what was said is taken; whatever else was said (memory, form, VRAM, SM count) decides first.
"""

from __future__ import annotations

from typing import NamedTuple


class Preference(NamedTuple):
    """The cards behind one short name, most common first, and why the first is the most common."""

    cards: tuple[str, ...]
    why: str


PREFERENCES: dict[str, Preference] = {
    "p100": Preference(
        ("Tesla P100 PCIe 16GB", "Tesla P100 SXM2 16GB", "Tesla P100 PCIe 12GB"),
        "the P100 of Kaggle and Colab",
    ),
    "v100": Preference(
        ("Tesla V100 SXM2 16GB", "Tesla V100 SXM2 32GB", "Tesla V100 PCIe 16GB", "Tesla V100 PCIe 32GB"),
        "the V100 of AWS p3, of Google Cloud and of Colab",
    ),
    "a100": Preference(
        ("NVIDIA A100 SXM4 40GB", "NVIDIA A100 SXM4 80GB", "NVIDIA A100 PCIe 40GB", "NVIDIA A100 PCIe 80GB"),
        "nanoGPT's own reference, the A100 of Colab and AWS p4d; all four have the same peaks",
    ),
    "a800": Preference(("NVIDIA A800 SXM4 80GB", "NVIDIA A800 PCIe 80GB"), "as the A100: SXM first"),
    "h100": Preference(
        (
            "NVIDIA H100 SXM5 80GB",
            "NVIDIA H100 PCIe 80GB",
            "NVIDIA H100 NVL 94GB",
            "NVIDIA H100 SXM5 96GB HBM2e 500W",
        ),
        "the H100 of nearly every cloud and of the published runs",
    ),
    "h800": Preference(("NVIDIA H800 SXM5 80GB", "NVIDIA H800 PCIe 80GB"), "the driver calls the SXM card just H800"),
    "h200": Preference(("NVIDIA H200 SXM 141GB", "NVIDIA H200 NVL 141GB"), "the driver calls the SXM card just H200"),
    "gh200": Preference(("NVIDIA GH200 96GB", "NVIDIA GH200 144GB"), "the first and far more widespread version"),
    "rtx2060": Preference(
        ("GeForce RTX 2060 6GB", "GeForce RTX 2060 12GB"), "sold for three years before the 12GB card"
    ),
    "rtx2080ti": Preference(("GeForce RTX 2080 Ti", "GeForce RTX 2080 Ti 22GB"), "22GB cards are refitted"),
    "rtx3050": Preference(("GeForce RTX 3050 8GB", "GeForce RTX 3050 6GB"), "the original card"),
    "rtx3060": Preference(("GeForce RTX 3060 12GB", "GeForce RTX 3060 8GB"), "the original card; the 8GB one is rare"),
    "rtx3080": Preference(
        ("GeForce RTX 3080 10GB", "GeForce RTX 3080 12GB", "GeForce RTX 3080 20GB"),
        "the original card; 20GB cards are refitted",
    ),
    "rtx3080laptop": Preference(
        ("GeForce RTX 3080 Laptop GPU 8GB", "GeForce RTX 3080 Laptop GPU 16GB"),
        "the standard memory",
    ),
    "rtxa2000": Preference(
        ("NVIDIA RTX A2000 6GB", "NVIDIA RTX A2000 12GB"), "the driver says 12GB on the larger card"
    ),
    "rtx4060ti": Preference(("GeForce RTX 4060 Ti 8GB", "GeForce RTX 4060 Ti 16GB"), "the cheaper and earlier card"),
    "rtx4090": Preference(("GeForce RTX 4090", "GeForce RTX 4090 48GB"), "48GB cards are refitted"),
    "rtx4090d": Preference(("GeForce RTX 4090 D", "GeForce RTX 4090 D 48GB"), "48GB cards are refitted"),
    "rtx5060ti": Preference(
        ("GeForce RTX 5060 Ti 16GB", "GeForce RTX 5060 Ti 8GB"),
        "sold far more than the 8GB card",
    ),
    "rtxpro6000": Preference(
        (
            "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
            "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        ),
        "the edition with the full 600 W, and the one of the published runs",
    ),
    "m1max": Preference(("Apple M1 Max (32-core)", "Apple M1 Max (24-core)"), "the full chip"),
    "m3max": Preference(("Apple M3 Max (40-core)", "Apple M3 Max (30-core)"), "the full chip"),
    "m4max": Preference(("Apple M4 Max (40-core)", "Apple M4 Max (32-core)"), "the full chip"),
}
