"""Operators in the place of math of LlamaForCausalLM.

`patch()` puts the functions below in the place of the model's own, in every model of this process, and returns a
function that puts those back. A call that is unlike its examples (another dtype, a mask, one token) is the model's own.

Written by
tritongen patch 'transformers.models.llama.modeling_llama:LlamaForCausalLM(LlamaConfig(hidden_size=64,
    intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=96)).bfloat16()'
    --example 'input_ids=i64[2,16] labels=i64[2,16]' --specs specs/rms_norm.toml --specs specs/swiglu.toml --specs
    examples/specs/rotary.toml --specs examples/specs/attention_bshd.toml --specs examples/specs/token_loss.toml
    --results loss

In training, nothing may read these results of the model: token_loss writes the gradient over logits.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
import transformers.integrations.sdpa_attention as sdpa_attention
import transformers.loss.loss_utils as loss_utils
import transformers.modeling_utils as modeling_utils
import transformers.models.llama.modeling_llama as modeling_llama

from examples.ops import attention_bshd, rotary, token_loss
from generated import rms_norm, swiglu


# transformers/models/llama/modeling_llama.py:61, 5 calls
def llama_rms_norm(self, hidden_states):
    return rms_norm(hidden_states, self.weight, eps=self.variance_epsilon)


# transformers/models/llama/modeling_llama.py:126, 2 calls
def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
    y = rotary(
        q.permute([0, 2, 1, 3]),
        cos[:, :, : cos.shape[2] // 2].expand([q.shape[0], -1, -1]),
        sin[:, :, : sin.shape[2] // 2].expand([q.shape[0], -1, -1]),
    )
    y_2 = rotary(
        k.permute([0, 2, 1, 3]),
        cos[:, :, : cos.shape[2] // 2].expand([k.shape[0], -1, -1]),
        sin[:, :, : sin.shape[2] // 2].expand([k.shape[0], -1, -1]),
    )
    return (y.permute([0, 2, 1, 3]), y_2.permute([0, 2, 1, 3]))


# transformers/integrations/sdpa_attention.py:95, 2 calls
def sdpa_attention_forward(
    module,
    query,
    key,
    value,
    attention_mask,
    dropout=0.0,
    scaling=None,
    is_causal=None,
    position_bias=None,
    cache=None,
    **kwargs,
):
    o = attention_bshd(
        query.permute([0, 2, 1, 3]), key.permute([0, 2, 1, 3]), value.permute([0, 2, 1, 3]), scale=scaling
    )
    return (o.permute([0, 2, 1, 3]).transpose(1, 2), None)


# transformers/models/llama/modeling_llama.py:163, 2 calls
def llama_mlp(self, x):
    return self.down_proj(swiglu(self.up_proj(x), self.gate_proj(x)))


# transformers/loss/loss_utils.py:51, one call
def for_causal_lm_loss(
    logits, labels, vocab_size, num_items_in_batch=None, ignore_index=-100, shift_labels=None, **kwargs
):
    slice_2 = torch.nn.functional.pad(labels, [0, 1], "constant", ignore_index)[..., 1:]
    ne = slice_2.contiguous().view([-1]).to(dtype=torch.int64, device=logits.device).ne(ignore_index)
    loss = token_loss(
        logits.flatten(0, 1), slice_2.flatten(0, 1), ne.sum().to(torch.float32).reciprocal(), ignore_index=ignore_index
    )
    return loss.sum()


class Like:
    """A tensor of a dtype, or an int. A letter is one length everywhere, more than 1; ANY is any length."""

    def __init__(self, kind: Any, *lengths: Any) -> None:
        self.kind, self.lengths = kind, lengths

    def fits(self, value: Any, letters: dict[str, int]) -> bool:
        if self.kind is int:
            return type(value) is int and _is_length(value, self.lengths[0], letters)
        if not isinstance(value, torch.Tensor) or value.dtype != self.kind or value.dim() != len(self.lengths):
            return False
        return all(_is_length(one, wanted, letters) for one, wanted in zip(value.shape, self.lengths, strict=True))


class Has:
    """A module with these attributes."""

    def __init__(self, **attributes: Any) -> None:
        self.attributes = attributes

    def fits(self, value: Any, letters: dict[str, int]) -> bool:
        return all(getattr(value, name, None) == one for name, one in self.attributes.items())


ANY = object()

# Each function, where it goes, and arguments of the calls that it takes.
REPLACED: Any = [
    (
        llama_rms_norm,
        [(modeling_llama.LlamaRMSNorm, "forward")],
        [{"hidden_states": Like(torch.bfloat16, "A", "B", ANY)}],
    ),
    (
        apply_rotary_pos_emb,
        [(modeling_llama, "apply_rotary_pos_emb")],
        [
            {
                "q": Like(torch.bfloat16, "A", ANY, "B", ANY),
                "k": Like(torch.bfloat16, "A", ANY, "B", ANY),
                "cos": Like(torch.bfloat16, 1, "B", ANY),
                "sin": Like(torch.bfloat16, 1, "B", ANY),
                "unsqueeze_dim": 1,
            }
        ],
    ),
    (
        sdpa_attention_forward,
        [
            (sdpa_attention, "sdpa_attention_forward"),
            (modeling_utils, "sdpa_attention_forward"),
            (modeling_utils.AttentionInterface._global_mapping, "sdpa"),
        ],
        [
            {
                "query": Like(torch.bfloat16, "A", ANY, "B", ANY),
                "key": Like(torch.bfloat16, "A", ANY, "B", ANY),
                "value": Like(torch.bfloat16, "A", ANY, "B", ANY),
                "position_ids": ANY,
                "attention_mask": None,
                "dropout": 0.0,
                "is_causal": None,
                "position_bias": None,
                "cache": None,
                "scaling": ANY,
            }
        ],
    ),
    (llama_mlp, [(modeling_llama.LlamaMLP, "forward")], [{"x": Like(torch.bfloat16, "A", "B", ANY)}]),
    (
        for_causal_lm_loss,
        [
            (loss_utils, "ForCausalLMLoss"),
            (loss_utils.LOSS_MAPPING, "ForCausalLM"),
            (loss_utils.LOSS_MAPPING, "ForConditionalGeneration"),
            (loss_utils.LOSS_MAPPING, "CsmForConditionalGeneration"),
        ],
        [
            {
                "logits": Like(torch.bfloat16, "A", "B", "C"),
                "labels": Like(torch.int64, "D", "E"),
                "vocab_size": Like(int, "C"),
                "num_items_in_batch": None,
                "shift_labels": None,
                "ignore_index": ANY,
            }
        ],
    ),
]


def patch() -> Callable[[], None]:
    """Put the functions in place. What it returns undoes that."""
    before = []
    for function, places, examples in REPLACED:
        for owner, name in places:
            own = owner[name] if isinstance(owner, dict) else vars(owner)[name]
            before.append((owner, name, own))
            _put(owner, name, _instead_of(own, function, examples))

    def undo() -> None:
        for place in reversed(before):
            _put(*place)

    return undo


def _put(owner: Any, name: str, function: Any) -> None:
    if isinstance(owner, dict):
        owner[name] = function
    else:
        setattr(owner, name, function)


def _instead_of(own: Any, function: Any, examples: Any) -> Any:
    parameters = inspect.signature(function).parameters.values()
    names = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    defaults = {one.name: one.default for one in parameters if one.default is not one.empty}

    @functools.wraps(own)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        if len(args) <= len(names) and any(_is_like(given, example) for example in examples):
            return function(**given)
        return own(*args, **kwargs)

    return call


def _is_like(given: dict[str, Any], example: dict[str, Any]) -> bool:
    letters: dict[str, int] = {}
    if not all(_fits(given.get(name), wanted, letters) for name, wanted in example.items()):
        return False
    plain = (bool, type(None), torch.nn.Module)
    return all(name in example or isinstance(one, plain) for name, one in given.items())


def _fits(value: Any, wanted: Any, letters: dict[str, int]) -> bool:
    if wanted is ANY:
        return True
    if isinstance(wanted, Like | Has):
        return wanted.fits(value, letters)
    if isinstance(wanted, tuple):
        is_as_long = isinstance(value, tuple | list) and len(value) == len(wanted)
        return is_as_long and all(_fits(one, other, letters) for one, other in zip(value, wanted, strict=True))
    return type(value) is type(wanted) and bool(value == wanted)


def _is_length(length: Any, wanted: Any, letters: dict[str, int]) -> bool:
    if isinstance(wanted, str):
        return length > 1 and letters.setdefault(wanted, length) == length
    return wanted is ANY or length == wanted
