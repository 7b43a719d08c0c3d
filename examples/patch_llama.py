"""Generated operators in the place of a transformers Llama's own: RMSNorm, SwiGLU, RoPE, attention and the loss.

rms_norm and swiglu are the gallery's. The others have specs of their own in `examples/specs`:

- `rotary` takes heads as the projections leave them (positions before heads), so that no layout is copied on the way
  back, and the angles of every sequence in the batch.
- `attention_bshd` has that layout too, and heads of keys and values that groups of query heads share. It computes what
  is causal and of whole sequences, as in training and prefill; whatever has a mask, a cache or dropout runs as before.
- `token_loss` gives float32 losses of bfloat16 logits, where the gallery's cross_entropy gives the logits' dtype as
  torch does. Transformers makes a float32 copy of all logits for that. Under autograd it writes their gradient over the
  logits, times one over the number of tokens: so the losses are summed, and the backward has nothing left to do.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.models.llama import modeling_llama

from examples.ops.attention_bshd import attention_bshd
from examples.ops.rotary import rotary
from examples.ops.token_loss import token_loss
from generated.rms_norm import rms_norm
from generated.swiglu import swiglu


def patch_llama(model: modeling_llama.LlamaForCausalLM) -> None:
    """Make `model` compute with generated operators; all Llamas of the process, as far as layers go.

    Its attention must be transformers' "sdpa", which it still is where `attended` does not compute it.

    Raises:
        ValueError: for a model whose MLP is not gated by silu, or with another attention.
    """
    if model.config.hidden_act not in ("silu", "swish"):
        raise ValueError(f"patch_llama: hidden_act must be silu, not {model.config.hidden_act}")
    if model.config._attn_implementation != "sdpa":
        raise ValueError(f"patch_llama: attention must be sdpa, not {model.config._attn_implementation}")
    modeling_llama.LlamaRMSNorm.forward = normalised
    modeling_llama.LlamaMLP.forward = gated
    modeling_llama.apply_rotary_pos_emb = rotated
    AttentionInterface.register("tritongen", attended)
    AttentionMaskInterface.register("tritongen", sdpa_mask)  # None where a sequence is whole
    model.set_attn_implementation("tritongen")
    model.loss_function = next_token_loss


def normalised(self: modeling_llama.LlamaRMSNorm, hidden_states: torch.Tensor) -> torch.Tensor:
    return rms_norm(hidden_states, self.weight, eps=self.variance_epsilon)


def gated(self: modeling_llama.LlamaMLP, x: torch.Tensor) -> torch.Tensor:
    return self.down_proj(swiglu(self.up_proj(x), self.gate_proj(x)))


def rotated(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys with their heads at dimension `unsqueeze_dim`, turned; cos and sin: [1 or batch, S, head]."""
    # Both halves of a head turn by the same angles, which transformers therefore gives twice.
    half = cos.shape[-1] // 2
    cosine = cos[..., :half].expand(q.shape[0], -1, -1)
    sine = sin[..., :half].expand(q.shape[0], -1, -1)

    def turned(x: torch.Tensor) -> torch.Tensor:
        return rotary(x.movedim(unsqueeze_dim, 2), cosine, sine).movedim(2, unsqueeze_dim)

    return turned(q), turned(k)


def attended(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of [batch, heads, S, head] to heads of keys and values: [batch, S, heads, head], and no weights."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    whole = attention_mask is None and query.shape[-2] == key.shape[-2]
    others = any(kwargs.get(name) is not None for name in ("cache", "position_bias", "softcap"))
    if not causal or not whole or dropout or others:
        kwargs |= {"dropout": dropout, "scaling": scaling, "is_causal": is_causal}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = (heads.transpose(1, 2) for heads in (query, key, value))
    return attention_bshd(q, k, v, scale=scale), None


def next_token_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    vocab_size: int,
    num_items_in_batch: torch.Tensor | int | None = None,
    ignore_index: int = -100,
    shift_labels: torch.Tensor | None = None,
    **kwargs: Any,
) -> torch.Tensor:
    """transformers' ForCausalLMLoss: the mean over counted tokens of each one's loss given those before it.

    In training nothing is left of the logits: their gradient takes their memory.
    """
    if shift_labels is None:
        shift_labels = torch.nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    target = shift_labels.reshape(-1).to(logits.device)
    if num_items_in_batch is None:
        num_items_in_batch = (target != ignore_index).sum()
    elif isinstance(num_items_in_batch, torch.Tensor):
        num_items_in_batch = num_items_in_batch.to(logits.device)
    scale = torch.ones((), device=logits.device) / num_items_in_batch
    return token_loss(logits.view(-1, vocab_size), target, scale, ignore_index=ignore_index).sum()
