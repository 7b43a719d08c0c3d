"""Names that an operator or its namespace cannot have."""

from __future__ import annotations

# What the modules of an operator need at their top, where its function stands too, and what is beside them.
MODULES = frozenset(
    "torch triton tl math functools configs kernels autograd dtypes elementwise gemm heuristics launch library"
    " scatter_sums tensors tma Any Callable".split()
)
BUILTINS = frozenset(
    "TypeError ValueError bool bytes dict enumerate float getattr hasattr hash id int isinstance"
    " len list map object open print property range reversed set setattr slice sorted str super"
    " tuple type vars zip".split()
)
# What torch.ops has already, or keeps for its own operators.
TORCH_NAMESPACES = frozenset(
    "_c10d_functional _caffe2 _dir _dtensor _native _quantized _test aten at c10d debugprims export higher_order"
    " image import_module inductor load_library loaded_libraries mkl mkldnn mkldnn_prepacked onednn prim prims"
    " profiler py quantized rngprims sparse symm_mem torch torchaudio torchvision xnnpack".split()
)
