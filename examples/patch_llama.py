"""Generated operators in the place of a transformers Llama's own: RMSNorm, SwiGLU, RoPE and the loss.

rms_norm and swiglu are the gallery's. The other two have specs of their own in `examples/specs`:

- `rotary` takes heads as the projections leave them (positions before heads), so that no layout is copied on the way
  back, and the angles of every sequence in the batch.
- `token_loss` gives float32 losses of bfloat16 logits, where the gallery's cross_entropy gives the logits' dtype as
  torch does. Transformers makes a float32 copy of all logits for that. Under autograd it writes their gradient over the
  logits, times one over the number of tokens: so the losses are summed, and the backward has nothing left to do.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.models.llama import modeling_llama

from examples.ops.rotary import rotary
from examples.ops.token_loss import token_loss
from generated.rms_norm import rms_norm
from generated.swiglu import swiglu


def patch_llama(model: modeling_llama.LlamaForCausalLM) -> None:
    """Make `model` compute with generated operators; all Llamas of the process, as far as layers go.

    Raises:
        ValueError: for a model whose MLP is not gated by silu.
    """
    if model.config.hidden_act not in ("silu", "swish"):
        raise ValueError(f"patch_llama: hidden_act must be silu, not {model.config.hidden_act}")
    modeling_llama.LlamaRMSNorm.forward = normalised
    modeling_llama.LlamaMLP.forward = gated
    modeling_llama.apply_rotary_pos_emb = rotated
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
