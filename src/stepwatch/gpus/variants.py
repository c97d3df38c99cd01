"""Which card a short name means when several cards have it.

Cards that differ only in memory, form factor or core count share a key (see `names.py`). The first
card of the list that fits what was said is taken; whatever else was said (memory, form, VRAM, SM count) decides first.
"""

from __future__ import annotations

# By short name the cards behind it, the most common first, and why that is the most common.
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
