"""Regenerate the PTX of this folder from its sources.

Needs `nvcc` 13.0 on PATH and the packages `nvidia-cuda-nvrtc==13.0.88` and `triton==3.6.0`. No GPU
is needed.

    python tests/data/tightness/build.py
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "sources"))


def main() -> None:
    """Build everything: `layers_nvcc` and `layers_nvrtc` from one source, and Triton's."""
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
    import layers

    spec = importlib.util.spec_from_file_location("kernels", HERE.parent / "kernels" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    source = HERE / "sources" / "layers.cu"
    folder = HERE / "ptx"
    folder.mkdir(exist_ok=True)
    (folder / "layers_nvcc.ptx").write_text(kernels.compile_nvcc(source, "sm_80", False))
    (folder / "layers_nvrtc.ptx").write_text(kernels.compile_nvrtc(source, "sm_90", False))
    facts = {}
    for name, text, launch in layers.modules():
        (folder / f"{name}.ptx").write_text(text)
        facts[name] = launch
    (HERE / "triton.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
