"""The functions and attributes of torch that a reference may use: those that compute tensors from tensors only.

The lists are literal, since builds do not import torch. Functions that read or write files or memory, set the state of
torch, compile, load or draw random numbers are left out; other missing functions can be added to their list.
"""

from __future__ import annotations

# Both functions of torch and methods of its tensors.
_BOTH = frozenset(
    (
        "abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr adjoint all allclose amax amin"
        " aminmax angle any arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort argwhere"
        " as_strided asin asinh atan atan2 atanh baddbmm bincount bitwise_and bitwise_left_shift bitwise_not"
        " bitwise_or bitwise_right_shift bitwise_xor bmm broadcast_to ceil cholesky cholesky_inverse"
        " cholesky_solve chunk clamp clamp_max clamp_min clip clone conj corrcoef cos cosh count_nonzero cov cross"
        " cummax cummin cumprod cumsum deg2rad det diag diag_embed diagflat diagonal diagonal_scatter diff digamma"
        " dist div divide dot dsplit eq equal erf erfc erfinv exp exp2 expm1 fix flatten flip fliplr flipud"
        " float_power floor floor_divide fmax fmin fmod frac frexp gather gcd ge ger greater greater_equal gt"
        " hardshrink heaviside histc histogram hsplit hypot i0 igamma igammac index_add index_fill index_put"
        " index_reduce index_select inner inverse is_complex is_floating_point isclose isfinite isinf isnan"
        " isneginf isposinf isreal kron kthvalue lcm ldexp le lerp less less_equal lgamma log log10 log1p log2"
        " log_softmax logaddexp logaddexp2 logcumsumexp logdet logical_and logical_not logical_or logical_xor"
        " logit logsumexp lt masked_fill masked_scatter masked_select matmul matrix_exp matrix_power max maximum"
        " mean median min minimum mm mode moveaxis movedim msort mul multiply mv mvlgamma nan_to_num nanmean"
        " nanmedian nansum narrow ne neg negative nextafter nonzero norm not_equal numel outer permute polygamma"
        " positive pow prelu prod qr rad2deg ravel reciprocal relu remainder renorm repeat_interleave reshape roll"
        " rot90 round rsqrt scatter scatter_add scatter_reduce select select_scatter sgn sigmoid sign signbit sin"
        " sinc sinh slice_scatter slogdet softmax sort split split_with_sizes sqrt square squeeze std sub subtract"
        " sum svd swapaxes swapdims t take take_along_dim tan tanh tensor_split tile topk trace transpose"
        " triangular_solve tril triu true_divide trunc unbind unflatten unique unique_consecutive unsqueeze var"
        " vdot vsplit where xlogy"
    ).split()
)
# By module of torch.
CALLED: dict[str, frozenset[str]] = {
    "torch": _BOTH
    | frozenset(
        (
            "adaptive_avg_pool1d adaptive_max_pool1d arange as_tensor atleast_1d atleast_2d atleast_3d avg_pool1d"
            " bartlett_window batch_norm binary_cross_entropy_with_logits blackman_window block_diag broadcast_shapes"
            " broadcast_tensors bucketize cartesian_prod cat cdist celu chain_matmul channel_shuffle column_stack"
            " combinations complex concat concatenate constant_pad_nd conv1d conv2d conv3d conv_tbc conv_transpose1d"
            " conv_transpose2d conv_transpose3d convolution cosine_embedding_loss cosine_similarity ctc_loss"
            " cumulative_trapezoid dstack einsum embedding embedding_bag eye finfo frobenius_norm full full_like"
            " get_default_dtype group_norm hamming_window hann_window hinge_embedding_loss histogramdd hstack iinfo"
            " imag instance_norm is_tensor isin istft kaiser_window kl_div layer_norm linspace logspace"
            " margin_ranking_loss max_pool1d max_pool1d_with_indices max_pool2d max_pool3d meshgrid nuclear_norm ones"
            " ones_like pairwise_distance pdist pixel_shuffle pixel_unshuffle poisson_nll_loss polar promote_types"
            " real result_type rms_norm scalar_tensor searchsorted selu stack std_mean stft tensor tensordot threshold"
            " trapezoid trapz tril_indices triplet_margin_loss triu_indices vander var_mean view_as_complex"
            " view_as_real vstack zeros zeros_like"
        ).split()
    ),
    "torch.nn.functional": frozenset(
        (
            "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d"
            " adaptive_max_pool1d_with_indices adaptive_max_pool2d adaptive_max_pool2d_with_indices"
            " adaptive_max_pool3d adaptive_max_pool3d_with_indices affine_grid avg_pool1d avg_pool2d avg_pool3d"
            " batch_norm binary_cross_entropy binary_cross_entropy_with_logits celu channel_shuffle conv1d conv2d"
            " conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss"
            " cosine_similarity cross_entropy ctc_loss elu embedding embedding_bag fold gaussian_nll_loss gelu glu"
            " grid_sample group_norm hardshrink hardsigmoid hardswish hardtanh hinge_embedding_loss huber_loss"
            " instance_norm interpolate kl_div l1_loss layer_norm leaky_relu linear local_response_norm log_softmax"
            " lp_pool1d lp_pool2d lp_pool3d margin_ranking_loss max_pool1d max_pool1d_with_indices max_pool2d"
            " max_pool2d_with_indices max_pool3d max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d mish"
            " mse_loss multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss nll_loss normalize one_hot"
            " pad pairwise_distance pdist pixel_shuffle pixel_unshuffle poisson_nll_loss prelu relu relu6 rms_norm"
            " scaled_dot_product_attention selu sigmoid silu smooth_l1_loss soft_margin_loss softmax softmin softplus"
            " softshrink softsign tanh tanhshrink threshold triplet_margin_loss unfold upsample upsample_bilinear"
            " upsample_nearest"
        ).split()
    ),
    "torch.special": frozenset(
        (
            "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u"
            " chebyshev_polynomial_v chebyshev_polynomial_w digamma entr erf erfc erfcx erfinv exp2 expit expm1"
            " gammainc gammaincc gammaln hermite_polynomial_h hermite_polynomial_he i0 i0e i1 i1e"
            " laguerre_polynomial_l legendre_polynomial_p log1p log_ndtr log_softmax logit logsumexp"
            " modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 multigammaln ndtr ndtri"
            " polygamma psi round scaled_modified_bessel_k0 scaled_modified_bessel_k1 shifted_chebyshev_polynomial_t"
            " shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w sinc"
            " softmax spherical_bessel_j0 xlog1py xlogy zeta"
        ).split()
    ),
    "torch.linalg": frozenset(
        (
            "cholesky cholesky_ex cond cross det diagonal eig eigh eigvals eigvalsh householder_product inv inv_ex"
            " ldl_factor ldl_factor_ex ldl_solve lstsq matmul matrix_exp matrix_norm matrix_power matrix_rank"
            " multi_dot norm qr slogdet solve solve_ex solve_triangular svd svdvals tensorinv tensorsolve vander"
            " vecdot vector_norm"
        ).split()
    ),
    "torch.func": frozenset(("functional_call",)),
    "torch.fft": frozenset(
        (
            "fft fft2 fftfreq fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft rfft2"
            " rfftfreq rfftn"
        ).split()
    ),
}
# For peers of a benchmark only: from modules that `import torch` does not import.
CALLED_BY_PEERS = {"torch.nn.attention.flex_attention": frozenset(("create_block_mask", "flex_attention"))}
# Calls a module with given parameters and buffers.
FUNCTIONAL_CALL = "torch.func.functional_call"
# Packages whose functions peers may call.
PEER_PACKAGES = ("apex", "flag_gems", "flash_attn", "helion", "kernels", "liger_kernel", "quack", "vllm", "xformers")
METHODS = _BOTH | frozenset(
    (
        "bfloat16 bool byte cdouble cfloat chalf char contiguous cpu detach dim double element_size expand"
        " expand_as float half int item long ndimension nelement new_full new_ones new_tensor new_zeros repeat"
        " reshape_as short size stride sum_to_size to type_as unfold view view_as"
    ).split()
)
# Attributes of tensors, of named tuples that functions return, and of torch.finfo.
ATTRIBUTES = frozenset(
    (
        "D H L LU P Q R S T U V Vh device dtype eigenvalues eigenvectors eps imag indices itemsize logabsdet mH mT max"
        " min ndim real shape sign tiny values"
    ).split()
)
