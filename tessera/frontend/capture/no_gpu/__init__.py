"""Kernels of a call without a GPU: torch.compile and Triton at work for GPUs that are named."""

from __future__ import annotations
