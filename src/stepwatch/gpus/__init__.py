"""The cards: what each can do at most, how we know it, and how to find one by any of its names."""

from stepwatch.gpus.catalogue import Gpu, Peak, gpus
from stepwatch.gpus.names import find_gpu, find_gpu_in_text

__all__ = ["Gpu", "Peak", "find_gpu", "find_gpu_in_text", "gpus"]
