"""The catalogue of cards: figures, names, and the traps that other tables fall into."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stepwatch.gpus
from stepwatch.errors import UnknownGpu
from stepwatch.gpus import Gpu, find_gpu, find_gpu_in_text, gpus
from stepwatch.gpus.catalogue import CPU, GIB
from stepwatch.gpus.names import _BRAND_WORDS, _BRANDS, PREFERENCES, _cards, _read

TERA = 1e12
CATALOGUE = Path(stepwatch.gpus.__file__).with_name("catalogue.tsv")
SOURCES = Path(__file__).parents[3] / "docs" / "gpus-sources.md"


def refusal(name: str) -> tuple[str, str]:
    with pytest.raises(UnknownGpu) as caught:
        find_gpu(name)
    assert caught.value.remedy is not None
    return caught.value.what.in_english(), caught.value.remedy.in_english()


# Names that people type and drivers report.

TYPED = [
    ("4070", "GeForce RTX 4070"),
    ("rtx4070", "GeForce RTX 4070"),
    ("RTX 4070", "GeForce RTX 4070"),
    ("rtx-4070", "GeForce RTX 4070"),
    ("rtx_4070", "GeForce RTX 4070"),
    ("  GeForce   rtx 4070 ", "GeForce RTX 4070"),
    ("geforcertx4070", "GeForce RTX 4070"),
    ("NVIDIA GeForce RTX 4070", "GeForce RTX 4070"),
    ("RTX 4070 12GB", "GeForce RTX 4070"),
    ("RTX 4070 desktop", "GeForce RTX 4070"),
    ("4070ti", "GeForce RTX 4070 Ti"),
    ("4070 Ti", "GeForce RTX 4070 Ti"),
    ("4070s", "GeForce RTX 4070 SUPER"),
    ("4070 super", "GeForce RTX 4070 SUPER"),
    ("4070tis", "GeForce RTX 4070 Ti SUPER"),
    ("4070 Ti SUPER", "GeForce RTX 4070 Ti SUPER"),
    ("rtx4070tisuper", "GeForce RTX 4070 Ti SUPER"),
    ("RTX 4070 Laptop", "GeForce RTX 4070 Laptop GPU"),
    ("rtx4070laptop", "GeForce RTX 4070 Laptop GPU"),
    ("4070 mobile", "GeForce RTX 4070 Laptop GPU"),
    ("laptop 4070", "GeForce RTX 4070 Laptop GPU"),
    ("RTX 4070 (Laptop)", "GeForce RTX 4070 Laptop GPU"),
    ("NVIDIA GeForce RTX 4070 Laptop GPU", "GeForce RTX 4070 Laptop GPU"),
    ("NVIDIA GeForce RTX 3070 with Max-Q Design", "GeForce RTX 3070 Laptop GPU"),
    ("RTX 3070 Laptop GPU with Max-Q Design", "GeForce RTX 3070 Laptop GPU"),
    ("4090d", "GeForce RTX 4090 D"),
    ("RTX 4090D 24GB", "GeForce RTX 4090 D"),
    ("gtx1080ti", "GeForce GTX 1080 Ti"),
    ("titan rtx", "TITAN RTX"),
    ("a100-80gb", "NVIDIA A100 SXM4 80GB"),
    ("a100-80", "NVIDIA A100 SXM4 80GB"),
    ("A100 80G", "NVIDIA A100 SXM4 80GB"),
    ("A100-SXM4-40GB", "NVIDIA A100 SXM4 40GB"),
    ("A100-SXM-80GB", "NVIDIA A100 SXM4 80GB"),
    ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 SXM4 80GB"),
    ("NVIDIA A100 80GB PCIe", "NVIDIA A100 PCIe 80GB"),
    ("a100 pci-e", "NVIDIA A100 PCIe 40GB"),
    ("Tesla A100", "NVIDIA A100 SXM4 40GB"),
    ("h100", "NVIDIA H100 SXM5 80GB"),
    ("H100 SXM", "NVIDIA H100 SXM5 80GB"),
    ("h100sxm5", "NVIDIA H100 SXM5 80GB"),
    ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM5 80GB"),
    ("NVIDIA H100 NVL", "NVIDIA H100 NVL 94GB"),
    ("T4", "Tesla T4"),
    ("tesla-t4", "Tesla T4"),
    ("colab t4", "Tesla T4"),
    ("V100", "Tesla V100 SXM2 16GB"),
    ("V100-32", "Tesla V100 SXM2 32GB"),
    ("V100 PCIe", "Tesla V100 PCIe 16GB"),
    ("Tesla V100-SXM3-32GB", "Tesla V100 SXM2 32GB"),
    ("A6000", "NVIDIA RTX A6000"),
    ("RTX 6000 Ada", "NVIDIA RTX 6000 Ada Generation"),
    ("rtx6000ada", "NVIDIA RTX 6000 Ada Generation"),
    ("Quadro RTX 6000", "Quadro RTX 6000"),
    ("RTX 8000", "Quadro RTX 8000"),
    ("RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"),
    ("RTX PRO 6000 Max-Q", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"),
    ("RTX PRO 6000 Server", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
    ("MI300X", "AMD Instinct MI300X"),
    ("7900 xtx", "AMD Radeon RX 7900 XTX"),
    ("7900xt", "AMD Radeon RX 7900 XT"),
    ("Intel(R) Arc(TM) A770 Graphics", "Intel Arc A770 16GB"),
    ("M3 Max", "Apple M3 Max (40-core)"),
    ("M3 Max 30-core", "Apple M3 Max (30-core)"),
    ("m3max", "Apple M3 Max (40-core)"),
    ("Apple M1", "Apple M1 (8-core GPU)"),
    ("TPU v5e", "TPU v5e (chip)"),
]

COUNTED = [
    ("2x RTX 4090", "GeForce RTX 4090"),
    ("2 x 4090", "GeForce RTX 4090"),
    ("2×RTX 4090", "GeForce RTX 4090"),
    ("1x4090", "GeForce RTX 4090"),
    ("8xA100", "NVIDIA A100 SXM4 40GB"),
    ("8*H100", "NVIDIA H100 SXM5 80GB"),
    ("4xT4", "Tesla T4"),
    ("2x7900 XTX", "AMD Radeon RX 7900 XTX"),
    ("A100 x8", "NVIDIA A100 SXM4 40GB"),
    ("a100x8", "NVIDIA A100 SXM4 40GB"),
    ("AMD MI300X x1", "AMD Instinct MI300X"),
    ("4x NVIDIA A100 (4 per node)", "NVIDIA A100 SXM4 40GB"),
]

IN_PUBLISHED_RUNS = [
    ("A10", "NVIDIA A10"),
    ("A100 (unspecified)", "NVIDIA A100 SXM4 40GB"),
    ("A100-PCIe-40GB", "NVIDIA A100 PCIe 40GB"),
    ("A100-SXM4-80GB", "NVIDIA A100 SXM4 80GB"),
    ("A40", "NVIDIA A40"),
    ("A800-PCIe-80GB", "NVIDIA A800 PCIe 80GB"),
    ("Apple M1 (MPS)", "Apple M1 (8-core GPU)"),
    ("Apple M1 Pro (MPS)", "Apple M1 Pro (16-core)"),
    ("Apple M2 (CPU)", "cpu"),
    ("Apple M2 (MPS)", "Apple M2 (10-core)"),
    ("Apple M3 Max (CPU)", "cpu"),
    ("Apple M3 Max (MPS)", "Apple M3 Max (40-core)"),
    ("Arc Pro B60", "Intel Arc Pro B60"),
    ("B200", "NVIDIA B200"),
    ("GTX TITAN X (Maxwell)", "GeForce GTX TITAN X"),
    ("H100-NVL", "NVIDIA H100 NVL 94GB"),
    ("H100-PCIe", "NVIDIA H100 PCIe 80GB"),
    ("H100-SXM", "NVIDIA H100 SXM5 80GB"),
    ("H100-SXM-96GB-HBM2e-500W", "NVIDIA H100 SXM5 96GB HBM2e 500W"),
    ("L4", "NVIDIA L4"),
    ("L40", "NVIDIA L40"),
    ("P100-SXM2-16GB", "Tesla P100 SXM2 16GB"),
    ("RTX 2000 Ada", "NVIDIA RTX 2000 Ada Generation"),
    ("RTX 3080", "GeForce RTX 3080 10GB"),
    ("RTX 3080 Ti", "GeForce RTX 3080 Ti"),
    ("RTX 3090", "GeForce RTX 3090"),
    ("RTX 3090 Ti", "GeForce RTX 3090 Ti"),
    ("RTX 4000 Ada", "NVIDIA RTX 4000 Ada Generation"),
    ("RTX 4060 Laptop", "GeForce RTX 4060 Laptop GPU"),
    ("RTX 4060 Ti", "GeForce RTX 4060 Ti 8GB"),
    ("RTX A4000", "NVIDIA RTX A4000"),
    ("RTX A4500", "NVIDIA RTX A4500"),
    ("RTX A6000", "NVIDIA RTX A6000"),
    ("RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"),
    ("RX 7900 XTX", "AMD Radeon RX 7900 XTX"),
    ("TITAN Xp", "TITAN Xp"),
    ("V100 (unspecified)", "Tesla V100 SXM2 16GB"),
    ("V100-32GB", "Tesla V100 SXM2 32GB"),
    ("V100-SXM2-32GB-LS", "Tesla V100 SXM2 32GB"),
]


def test_a_card_is_found_by_what_people_type_and_drivers_report() -> None:
    for name, card in (*TYPED, *COUNTED, *IN_PUBLISHED_RUNS):
        assert find_gpu(name).name == card, name


def test_every_card_is_found_by_its_own_name() -> None:
    for gpu in gpus():
        assert find_gpu(gpu.name) is gpu, gpu.name
        assert find_gpu(gpu.name.lower().replace(" ", "-")) is gpu, gpu.name


def test_every_alias_finds_its_card_or_the_documented_variant() -> None:
    for gpu in gpus():
        for alias in gpu.aliases:
            found = find_gpu(alias)
            if found is not gpu:
                assert found.name == PREFERENCES[_read(alias).key][0], gpu.name
                assert gpu.name in PREFERENCES[_read(alias).key], gpu.name


def test_every_brand_and_architecture_of_the_catalogue_is_known_as_such() -> None:
    """What is not would be taken for a part of a card's name."""
    assert {word for words in _BRAND_WORDS.values() for word in words} <= _BRANDS
    for gpu in gpus():
        architecture = (gpu.architecture or "").lower().split() if gpu.vendor == "NVIDIA" else []
        assert {gpu.vendor.lower(), *architecture} <= _BRANDS | {"ada"}, gpu.name


def test_every_name_shared_by_several_cards_has_a_documented_order() -> None:
    index = {key: [card for card in _cards() if key in card.keys] for each in _cards() for key in each.keys}
    keys = {card.labels[0].key: set[str]() for cards in index.values() for card in cards if len(cards) > 1}
    for key, cards in index.items():
        if key in keys and len(cards) > 1:
            assert {card.gpu.name for card in cards} == set(PREFERENCES[key]), key
    assert keys.keys() == PREFERENCES.keys()


@pytest.mark.parametrize("short", PREFERENCES)
def test_a_short_name_means_the_most_common_variant(short: str) -> None:
    assert find_gpu(short).name == PREFERENCES[short][0]


@pytest.mark.parametrize(
    ("name", "vram_gib", "sm_count", "card"),
    [
        ("NVIDIA GeForce RTX 3080", 11.8, None, "GeForce RTX 3080 12GB"),
        ("NVIDIA GeForce RTX 3080", None, 70, "GeForce RTX 3080 12GB"),
        ("NVIDIA GeForce RTX 3080", 9.8, 68, "GeForce RTX 3080 10GB"),
        ("NVIDIA GeForce RTX 3050", 5.8, None, "GeForce RTX 3050 6GB"),
        ("NVIDIA GeForce RTX 3050", None, 18, "GeForce RTX 3050 6GB"),
        ("NVIDIA GeForce RTX 3060", 7.8, 28, "GeForce RTX 3060 8GB"),
        ("NVIDIA GeForce RTX 2060", 11.8, None, "GeForce RTX 2060 12GB"),
        ("NVIDIA GeForce RTX 2060", None, 34, "GeForce RTX 2060 12GB"),
        ("NVIDIA GeForce RTX 4060 Ti", 15.7, 34, "GeForce RTX 4060 Ti 16GB"),
        ("P100", 11.9, None, "Tesla P100 PCIe 12GB"),
        ("A100", 79.2, 108, "NVIDIA A100 SXM4 80GB"),
        ("H100", 93.6, None, "NVIDIA H100 NVL 94GB"),
        ("H100", None, 114, "NVIDIA H100 PCIe 80GB"),
        ("V100", 31.7, None, "Tesla V100 SXM2 32GB"),
        ("RTX 4090", 47.5, None, "GeForce RTX 4090 48GB"),
    ],
)
def test_memory_and_sm_count_decide_between_cards_of_one_name(
    name: str, vram_gib: float | None, sm_count: int | None, card: str
) -> None:
    vram_bytes = None if vram_gib is None else vram_gib * GIB
    assert find_gpu(name, vram_bytes=vram_bytes, sm_count=sm_count).name == card


@pytest.mark.parametrize("vram_bytes", [0.0, -1.0, float("nan"), float("inf"), 3.0 * GIB])
def test_memory_that_fits_no_variant_decides_nothing(vram_bytes: float) -> None:
    assert find_gpu("3080", vram_bytes=vram_bytes).name == "GeForce RTX 3080 10GB"


def test_memory_in_the_name_can_be_that_of_the_cpu() -> None:
    assert find_gpu("NVIDIA GH200 480GB").vram_bytes == 96 * GIB


def test_unified_memory_is_known_only_when_it_was_said() -> None:
    assert find_gpu("M3 Max").vram_bytes is None
    assert find_gpu("M3 Max 64GB").vram_bytes == 64 * GIB
    assert find_gpu("M3 Max", vram_bytes=36.0 * GIB).vram_bytes == 36 * GIB


# Names that must not become another card.

NO_SUCH_CARD = [
    "RTX A1000",  # not an A100
    "T400",  # not a T4
    "T1000",
    "RTX A3000 Laptop",  # not an A30
    "A1",
    "L400",
    "H2",
    "GA100",
    "L4 0",  # digits never run together
    "A10 0",
    "GTX 4070",  # the wrong series is not corrected
    "RTX 1080",
    "4071",
    "RTX 4070 Tii",
    "RTX 4070 XT",
    "4060 super",
    "RTX 2080 with Max-Q Design",  # not the desktop chip
    "GTX 1080 Laptop",
    "RTX 5090 D v2",
    "RTX 6000",  # Quadro, Ada or Ampere?
    "RTX 4000",
    "6000",
    "TITAN X",  # Maxwell or Pascal?
    "GTX TITAN X (Pascal)",
    "A100 64GB",
    "RTX 4070 24GB",
    "A100-SXM5-40GB",
    "T4 SXM",
    "AMD A100",
    "GeForce A100",
    "Radeon RTX 4090",
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
    "NVIDIA A100 vGPU 20C",
    "NVIDIA GH200/H100",
    "RTX 4090 + RTX 3090",
    "RTX 4090, RTX 3090",
    "Blackwell GPU (unnamed)",
    "Apple Silicon (unspecified, MPS)",
    "Apple M1 7-core",
    "mps",
    "cuda",
    "gpu",
    "unknown",
    "cpus",
    "this",
    "",
    " ",
    "8x",
    "16GB",
    "4070é",
    "4070 " * 100,
]


@pytest.mark.parametrize("name", NO_SUCH_CARD)
def test_a_name_that_is_not_known_is_refused(name: str) -> None:
    refusal(name)


@pytest.mark.parametrize(
    ("name", "bf16_or_fp16_tflops"),
    [
        ("A10G", 70), ("A10", 125), ("L40", 181.1), ("L40S", 362.1), ("L4", 121), ("A40", 149.7), ("A30", 165.2),
        ("RTX A4000", 76.7), ("RTX A4500", 94.6), ("RTX A6000", 154.8), ("H20", 148), ("H200", 989.4),
        ("H200 NVL", 835.5), ("H100 PCIe", 756), ("H100 NVL", 835.5), ("H800", 989.4), ("H800 PCIe", 756),
        ("B200", 2250), ("GB200", 2500), ("B100", 1750), ("MI300X", 1307.4), ("MI250X", 191.5), ("MI210", 181),
        ("AMD Instinct MI250X / MI250", 181.05), ("Intel(R) Data Center GPU Max 1550", 419.45),
        ("RTX 4090", 165.2), ("RTX 4090 D", 147.1), ("RTX 4090 Laptop", 79.4), ("RTX 5090", 209.5),
        ("RTX 5090 Laptop", 114), ("RTX 3090", 71.2), ("RTX 3090 Ti", 80), ("RTX 3070 Ti", 43.5), ("RTX 3060", 25.5),
        ("RTX 3060 Ti", 32.4), ("4080", 97.5), ("4080S", 104.4), ("4070", 58.3), ("5070", 61.7),
        ("RTX 2080 Ti", 53.8), ("2080", 40.3), ("2080 SUPER", 44.6), ("2070S", 36.2), ("TITAN RTX", 130.5),
        ("T4", 65.1), ("V100", 125), ("TPU v5p", 459), ("TPU v6e", 918), ("TPU v3", 61.5),
    ],
)  # fmt: skip
def test_the_peak_is_right_where_public_tables_are_wrong(name: str, bf16_or_fp16_tflops: float) -> None:
    assert find_gpu(name).peak_flops().flops == pytest.approx(bf16_or_fp16_tflops * TERA)


def test_a_refusal_quotes_the_name_and_offers_the_nearest() -> None:
    what, remedy = refusal("RTX 4070 Tii")
    assert what == "there is no card “RTX 4070 Tii” in the catalogue"
    assert "GeForce RTX 4070 Ti," in remedy
    assert "`stepwatch gpus`" in remedy


@pytest.mark.parametrize(
    ("name", "offered"),
    [("RTX 6000", "NVIDIA RTX 6000 Ada Generation"), ("A100 64GB", "NVIDIA A100 SXM4 80GB"), ("mps", "Apple M1")],
)
def test_a_refusal_offers_what_may_have_been_meant(name: str, offered: str) -> None:
    assert offered in refusal(name)[1]


@pytest.mark.parametrize("name", ["foo", "nonsense", "gpu", "cuda", " ", "407" * 40])
def test_a_refusal_offers_no_card_that_is_unlike_the_name(name: str) -> None:
    assert refusal(name)[1] == "name a graphics card with --gpu; `stepwatch gpus` lists them"


def test_of_the_cards_offered_each_is_like_the_name() -> None:
    assert refusal("gb400")[1].startswith("nearest: NVIDIA GB200 (per GPU), NVIDIA GB300 (per GPU),")
    assert refusal("l50")[1] == "nearest: NVIDIA L40, NVIDIA L20; `stepwatch gpus` lists every card"


def test_a_refusal_is_one_short_line_whatever_was_typed() -> None:
    what, _ = refusal("\x1b[31m{evil}\n\t" + "x" * 500)
    assert what == f"there is no card “{('[31m{evil}' + 'x' * 60)[:60]}” in the catalogue"


@given(st.text())
def test_any_text_is_found_or_refused(name: str) -> None:
    try:
        found = find_gpu(name)
    except UnknownGpu as error:
        refused = error
    else:
        assert isinstance(found, Gpu)
        return
    assert len(refused.what.in_english()) < 100
    assert refused.remedy is not None
    assert "`stepwatch gpus`" in refused.remedy.key


_PIECES = st.sampled_from(
    [
        *("rtx", "gtx", "a100", "h100", "4070", "ti", "super", "laptop", "max-q", "8x", "x8", "(", ")", "/", "80gb"),
        *("40", "g", "sxm4", "pcie", "nvidia", "-", "m3", "d"),
    ]
)


@given(st.lists(_PIECES, max_size=8).map(" ".join), st.floats() | st.none(), st.integers() | st.none())
def test_pieces_of_names_in_any_order_are_found_or_refused(
    name: str, vram_bytes: float | None, sm_count: int | None
) -> None:
    with contextlib.suppress(UnknownGpu):
        assert find_gpu(name, vram_bytes=vram_bytes, sm_count=sm_count).name


# Names in a log.

IN_TEXT = [
    ("GPU 0: NVIDIA GeForce RTX 4070 (UUID: GPU-0)", "GeForce RTX 4070"),
    ("NVIDIA GeForce RTX 4070 Ti SUPER", "GeForce RTX 4070 Ti SUPER"),
    ("device: NVIDIA GeForce RTX 4070 Laptop GPU, 8188 MiB", "GeForce RTX 4070 Laptop GPU"),
    ("NVIDIA GeForce RTX 3070 with Max-Q Design", "GeForce RTX 3070 Laptop GPU"),
    ("NVIDIA GeForce RTX 5090 with 31.4 GB", "GeForce RTX 5090"),
    ("NVIDIA GeForce RTX 4090 24GB", "GeForce RTX 4090"),
    ("GeForce RTX 3090", "GeForce RTX 3090"),
    ("Tesla T4 does not support bfloat16 compilation", "Tesla T4"),
    ("|   0  Tesla T4            Off  | 00000000:00:04.0 Off |", "Tesla T4"),
    ('"gpu": "Tesla V100-PCIE-16GB",', "Tesla V100 PCIe 16GB"),
    ("|   0  NVIDIA H100 80GB HBM3          On  |", "NVIDIA H100 80GB HBM3"),
    ("Running on NVIDIA A100-SXM4-80GB.", "NVIDIA A100 SXM4 80GB"),
    ("NVIDIA A100 80GB PCIe", "NVIDIA A100 PCIe 80GB"),
    ("GPU: NVIDIA L40S | Peak FLOPS (BF16): 3.62e+14", "NVIDIA L40S"),
    ("[AMD Instinct MI300X]", "AMD Instinct MI300X"),
    ("Intel(R) Data Center GPU Max 1550", "Intel Data Center GPU Max 1550 (per stack, 2 per GPU)"),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX PRO 6000 Blackwell Max-Q Workstation Edition"),
    ("chip: Apple M3 Max", "Apple M3 Max (40-core)"),
    ("NVIDIA A40 and NVIDIA A40", "NVIDIA A40"),
]


@pytest.mark.parametrize(("text", "card"), IN_TEXT)
def test_a_card_is_seen_in_a_log_line(text: str, card: str) -> None:
    assert find_gpu_in_text(text) is find_gpu(card)


NOT_IN_TEXT = [
    "iter 4070: loss 3.0900, time 4090.00ms, mfu 12.34%",
    "step 3090: train loss 1.5, val loss 1.6",
    "4070",
    "RTX 4070",
    "the A100 is the default",
    "NVIDIA 4070",
    "NVIDIA A100",
    "NVIDIA H100",
    "NVIDIA GeForce RTX 4070...",
    "NVIDIA GeForce RTX 4070 ...",
    "NVIDIA GeForce RTX 40...",
    "NVIDIA GeForce RTX 2080 with Max-Q Design",
    "NVIDIA GeForce RTX 5090 D v2",
    "NVIDIA GeForce GTX 1080 Laptop GPU",
    "NVIDIA GeForce RTX 4070 20GB",
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
    "NVIDIA T400",
    "NVIDIA RTX A1000",
    "NVIDIA A40 or NVIDIA L40",
    "NVIDIA Inference is only supported on Ampere",
    "NVIDIA ",
    "Apple ",
    "",
]


@pytest.mark.parametrize("text", NOT_IN_TEXT)
def test_nothing_else_in_a_log_is_a_card(text: str) -> None:
    assert find_gpu_in_text(text) is None


@given(st.text() | st.text().map("NVIDIA {}".format))
def test_any_log_line_can_be_searched(text: str) -> None:
    assert find_gpu_in_text(text) is None or find_gpu_in_text(text) in gpus()


# Figures.


def test_the_catalogue_is_complete_and_in_order() -> None:
    names = [line.split("\t")[0] for line in CATALOGUE.read_text(encoding="utf-8").splitlines()[1:]]
    assert [gpu.name for gpu in gpus()] == names
    assert len(names) == len(set(names)) >= 153
    assert gpus() is gpus()


def test_every_card_has_sane_figures_and_a_documented_source() -> None:
    for gpu in gpus():
        assert gpu.vendor in {"NVIDIA", "AMD", "Intel", "Apple", "Google"}, gpu.name
        assert gpu.bandwidth_bytes_per_s is not None, gpu.name
        assert 5e10 < gpu.bandwidth_bytes_per_s < 1e13, gpu.name
        assert gpu.vram_bytes is None or 3 * GIB < gpu.vram_bytes < 300 * GIB, gpu.name
        assert (gpu.compute_capability is not None) == (gpu.vendor == "NVIDIA"), gpu.name
        assert gpu.has_bf16 or gpu.bf16_flops is None, gpu.name
        marks = re.findall(r"\[\w+\]", gpu.sources)
        assert marks, gpu.name
        documented = SOURCES.read_text(encoding="utf-8")
        assert all(f"| {mark} |" in documented for mark in marks), gpu.name


def test_peaks_agree_with_sm_count_times_clock_times_rate() -> None:
    for gpu in (gpu for gpu in gpus() if gpu.vendor == "NVIDIA" and gpu.boost_hz and gpu.sm_count):
        assert gpu.compute_capability is not None, gpu.name
        assert gpu.sm_count, gpu.name
        assert gpu.boost_hz, gpu.name
        rate = 128 if gpu.compute_capability in {(6, 0), (7, 0), (7, 5), (8, 0)} else 256
        assert gpu.fp32_flops == pytest.approx(gpu.sm_count * gpu.boost_hz * rate, rel=0.06), gpu.name
        if gpu.is_geforce and gpu.bf16_flops and gpu.fp32_flops:
            assert gpu.bf16_flops == pytest.approx(2 * gpu.fp32_flops, rel=0.27 if gpu.is_laptop else 0.01), gpu.name


def test_units_are_bytes_flops_and_watts() -> None:
    gpu = find_gpu("RTX 4070")
    assert gpu.vram_bytes == 12 * 2**30
    assert gpu.bandwidth_bytes_per_s == 504e9
    assert gpu.bf16_flops == pytest.approx(58.3e12)
    assert gpu.compute_capability == (8, 9)
    assert (gpu.tdp_w, gpu.sm_count, gpu.confidence) == (200, 46, "A")
    assert (gpu.is_geforce, gpu.is_laptop) == (True, False)


def test_the_power_of_a_laptop_is_the_upper_end_of_its_range() -> None:
    assert find_gpu("RTX 4070 Laptop").tdp_w == 115


@pytest.mark.parametrize(
    ("name", "dtype", "tflops", "used"),
    [
        ("A100", None, 312, "bfloat16"),
        ("A100", "bfloat16", 312, "bfloat16"),
        ("A100", "torch.bfloat16", 312, "bfloat16"),
        ("A100", "bf16", 312, "bfloat16"),
        ("A100", "float16", 312, "float16"),
        ("A100", "float32", 156, "tf32"),
        ("A100", "tf32", 156, "tf32"),
        ("A100", "fp8", None, "fp8"),
        ("T4", None, 65.1, "float16"),
        ("T4", "float16", 65.1, "float16"),
        ("T4", "bfloat16", 8.1, "float32"),
        ("T4", "float32", 8.1, "float32"),
        ("T4", "tf32", 8.1, "float32"),
        ("V100", "bfloat16", 15.7, "float32"),
        ("RTX 2080 Ti", "bfloat16", 13.4, "float32"),
        ("GTX 1080", None, 8.9, "float32"),
        ("GTX 1080", "float16", 8.9, "float32"),
        ("M3 Max", None, 14.3, "float32"),
        ("M3 Max", "float16", 14.3, "float16"),
        ("M3 Max", "bfloat16", 14.3, "float32"),
        ("RTX 5090 D", None, None, "bfloat16"),
        ("RTX 5090 D", "float16", None, "float16"),
        ("TPU v4", None, 275, "bfloat16"),
        ("TPU v4", "float32", None, "float32"),
        ("cpu", None, None, "float32"),
        ("cpu", "bfloat16", None, "float32"),
    ],
)
def test_the_peak_says_which_arithmetic_it_stands_for(
    name: str, dtype: str | None, tflops: float | None, used: str
) -> None:
    peak = find_gpu(name).peak_flops(dtype)
    assert peak.dtype == used
    assert peak.flops == (None if tflops is None else pytest.approx(tflops * TERA))


def test_fp32_without_tf32_stays_available() -> None:
    assert find_gpu("A100").fp32_flops == pytest.approx(19.5 * TERA)


@pytest.mark.parametrize(
    ("name", "dtype", "tflops"),
    [
        ("RTX 4070", "bfloat16", 58.3 * 1.25),
        ("RTX 4070 Laptop", "bfloat16", 40.1 * 1.25),
        ("RTX A6000", "bfloat16", 154.8 * 1.25),
        ("A100", "bfloat16", 312 * 1.05),
        ("A100", "float32", 156 * 1.05),
        ("T4", "bfloat16", 8.1 * 1.05),
        ("MI300X", None, 1307.4 * 1.05),
    ],
)
def test_what_is_impossible_leaves_room_for_boost(name: str, dtype: str | None, tflops: float) -> None:
    assert find_gpu(name).impossible_above_flops(dtype) == pytest.approx(tflops * TERA)


@pytest.mark.parametrize(
    ("name", "measured_bf16_tflops"),
    [("3090", 76.7), ("3080 Ti", 76.5), ("4070 SUPER", 76.8), ("4090", 173), ("4090 D", 151), ("5090", 236),
     ("4060 Laptop", 30.9), ("A100", 266), ("H100", 789), ("B200", 1696), ("H20", 141.9)],
)  # fmt: skip
def test_what_was_measured_is_not_impossible(name: str, measured_bf16_tflops: float) -> None:
    limit = find_gpu(name).impossible_above_flops("bfloat16")
    assert limit is not None
    assert measured_bf16_tflops * TERA < limit


def test_the_cpu_is_accepted_and_nothing_is_claimed_about_it() -> None:
    assert find_gpu("cpu") is find_gpu("CPU") is CPU
    assert CPU.impossible_above_flops() is None
    assert CPU.vram_bytes is None
    assert CPU.bandwidth_bytes_per_s is None
    assert CPU not in gpus()


def test_the_room_shows_its_names_in_order() -> None:
    assert stepwatch.gpus.__all__ == sorted(stepwatch.gpus.__all__)
