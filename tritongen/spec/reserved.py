"""Names that an operator or its namespace cannot have."""

from __future__ import annotations

# The modules of a generated package, which are its attributes, as the operator's function is.
MODULES = frozenset("configs kernels op".split())
# Names that torch.ops has already, or reserves for its own operators.
TORCH_NAMESPACES = frozenset(
    "_c10d_functional _caffe2 _dir _dtensor _native _quantized _test aten at c10d debugprims export higher_order"
    " image import_module inductor load_library loaded_libraries mkl mkldnn mkldnn_prepacked onednn prim prims"
    " profiler py quantized rngprims sparse symm_mem torch torchaudio torchvision xnnpack".split()
)
