"""Modules as they are written in transformers, timm and others, to be imported."""

# ruff: noqa: RET504, RUF005

import torch
import torch.nn.functional as F
from torch import nn


class T5LayerNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        """Construct a layernorm module in the T5 style. No bias and no subtraction of mean."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        variance = hidden_states.to(torch.float32).pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        if self.weight.dtype in [torch.float16, torch.bfloat16]:
            hidden_states = hidden_states.to(self.weight.dtype)
        return self.weight * hidden_states


class Conv1D(nn.Module):
    """GPT-2's."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.empty(nx, nf))
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        size_out = x.size()[:-1] + (self.nf,)
        x = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        x = x.view(size_out)
        return x


class GPT2MLP(nn.Module):
    def __init__(self, n=16, inner=32):
        super().__init__()
        self.c_fc = Conv1D(inner, n)
        self.c_proj = Conv1D(n, inner)
        self.act = nn.GELU(approximate="tanh")

    def forward(self, hidden_states):
        hidden_states = self.c_fc(hidden_states)
        hidden_states = self.act(hidden_states)
        hidden_states = self.c_proj(hidden_states)
        return hidden_states


class BertSelfOutput(nn.Module):
    def __init__(self, hidden_size=16):
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.LayerNorm = nn.LayerNorm(hidden_size, eps=1e-12)
        self.dropout = nn.Dropout(0.1)
        self.eval()

    def forward(self, hidden_states, input_tensor):
        hidden_states = self.dense(hidden_states)
        hidden_states = self.dropout(hidden_states)
        hidden_states = self.LayerNorm(hidden_states + input_tensor)
        return hidden_states


class GeGLU(nn.Module):
    def __init__(self, dim_in=16, dim_out=24):
        super().__init__()
        self.proj = nn.Linear(dim_in, dim_out * 2)

    def forward(self, x):
        x, gate = self.proj(x).chunk(2, dim=-1)
        return x * F.gelu(gate)


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class LayerScale(nn.Module):
    def __init__(self, dim=16, init_values: float = 1e-5):
        super().__init__()
        self.gamma = nn.Parameter(init_values * torch.ones(dim))

    def forward(self, x):
        return x * self.gamma


class LayerNorm2d(nn.Module):
    """ConvNeXt's: channels first."""

    def __init__(self, normalized_shape=16, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + self.eps)
        x = self.weight[:, None, None] * x + self.bias[:, None, None]
        return x


class GlobalResponseNorm(nn.Module):
    def __init__(self, dim=16, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.zeros(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        x_g = x.norm(p=2, dim=(1, 2), keepdim=True)
        x_n = x_g / (x_g.mean(dim=-1, keepdim=True) + self.eps)
        return x + torch.addcmul(self.bias, self.weight, x * x_n)


class PatchEmbed(nn.Module):
    def __init__(self, patch=4, chans=3, dim=8):
        super().__init__()
        self.proj = nn.Conv2d(chans, dim, kernel_size=patch, stride=patch)

    def forward(self, x):
        x = self.proj(x)
        x = x.flatten(2).transpose(1, 2)
        return x


def softcap_attention(q, k, v, mask, scaling: float, softcap: float = 30.0):
    attn_weights = torch.matmul(q, k.transpose(2, 3)) * scaling
    attn_weights = attn_weights / softcap
    attn_weights = torch.tanh(attn_weights)
    attn_weights = attn_weights * softcap
    attn_weights = attn_weights + mask
    attn_weights = F.softmax(attn_weights, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(attn_weights, v)


def sliding_window(q, k, v, window: int = 4):
    i = torch.arange(q.shape[-2], device=q.device)[:, None]
    j = torch.arange(k.shape[-2], device=q.device)[None, :]
    mask = (j <= i) & (j > i - window)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def qk_norm(q, weight, eps: float = 1e-6):
    B, T, C = q.shape
    q = q.view(B, T, 4, C // 4)
    q = q * torch.rsqrt(q.square().mean(-1, keepdim=True) + eps) * weight
    return q.transpose(1, 2)


def interleaved_rope(x, cos, sin):
    x1, x2 = x[..., ::2], x[..., 1::2]
    y1 = x1 * cos - x2 * sin
    y2 = x1 * sin + x2 * cos
    return torch.stack((y1, y2), dim=-1).flatten(-2)


def gptj_rotate(x):
    x1 = x[:, :, :, ::2]
    x2 = x[:, :, :, 1::2]
    x = torch.stack((-x2, x1), dim=-1)
    return x.flatten(-2)


class LoRALinear(nn.Module):
    def __init__(self, d=16, o=12, r=4, alpha=8.0):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(o, d))
        self.lora_a = nn.Parameter(torch.empty(r, d))
        self.lora_b = nn.Parameter(torch.empty(o, r))
        self.scaling = alpha / r

    def forward(self, x):
        return F.linear(x, self.weight) + F.linear(F.linear(x, self.lora_a), self.lora_b) * self.scaling


def siglip_loss(image, text, scale, bias):
    logits = image @ text.t() * scale.exp() + bias
    n = logits.shape[0]
    labels = 2 * torch.eye(n, device=logits.device, dtype=logits.dtype) - torch.ones_like(logits)
    return -F.logsigmoid(labels * logits).sum() / n


def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta: float = 0.1, label_smoothing: float = 0.1):
    logits = (policy_chosen - policy_rejected) - (ref_chosen - ref_rejected)
    losses = -F.logsigmoid(beta * logits) * (1 - label_smoothing) - F.logsigmoid(-beta * logits) * label_smoothing
    return losses.mean(), beta * (policy_chosen - ref_chosen).detach()


def z_loss(logits, labels, z: float = 1e-4):
    lse = torch.logsumexp(logits, -1)
    nll = lse - logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return (nll + z * lse**2).mean()


def lm_loss(logits, labels, ignore_index: int = -100):
    logits = logits.float()
    shift_logits = logits[..., :-1, :].contiguous()
    shift_labels = labels[..., 1:].contiguous()
    return F.cross_entropy(
        shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1), ignore_index=ignore_index
    )


def distillation(student, teacher, T: float = 2.0):
    p = F.log_softmax(student / T, dim=-1)
    q = F.softmax(teacher / T, dim=-1)
    return F.kl_div(p, q, reduction="batchmean") * T * T


def adamw(p, g, m, v, lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, wd: float = 0.01):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    p = p * (1 - lr * wd) - lr * m / (v.sqrt() + eps)
    return p, m, v


def quantize_rows(x):
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
    return (x / scale).round().clamp(-128, 127).to(torch.int8), scale


def mean_pooling(token_embeddings, attention_mask):
    mask = attention_mask.unsqueeze(-1).expand(token_embeddings.size()).float()
    return torch.sum(token_embeddings * mask, 1) / torch.clamp(mask.sum(1), min=1e-9)


def rms_norm_gated(hidden_states, gate, weight, eps: float = 1e-6):
    """Mamba-2's."""
    input_dtype = hidden_states.dtype
    hidden_states = hidden_states.to(torch.float32)
    hidden_states = hidden_states * F.silu(gate.to(torch.float32))
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    hidden_states = hidden_states * torch.rsqrt(variance + eps)
    return weight * hidden_states.to(input_dtype)


def retention(q, k, v, gamma):
    n = q.shape[-2]
    index = torch.arange(n, device=q.device)
    keys = torch.arange(k.shape[-2], device=q.device)
    d = index[:, None] - keys[None, :]
    decay = torch.where(d >= 0, gamma ** d.clamp(min=0), 0.0)
    return (q @ k.transpose(-1, -2) * decay) @ v


def relative_bias(q, k, v, table):
    m = torch.arange(q.shape[-2], device=q.device)
    n = torch.arange(k.shape[-2], device=q.device)
    bucket = (n[None, :] - m[:, None]).clamp(-8, 8) + 8
    bias = table[bucket]
    s = torch.einsum("bhmd,bhnd->bhmn", q, k) + bias
    return torch.einsum("bhmn,bhnd->bhmd", s.softmax(-1), v)


def moe_gate(x, weight, bias):
    scores = torch.sigmoid(F.linear(x.float(), weight.float()))
    choice = scores + bias
    return scores, choice.argmax(-1)


class Attention(nn.Module):
    """timm's, without projections."""

    def __init__(self, num_heads=4):
        super().__init__()
        self.num_heads = num_heads

    def forward(self, q, k, v):
        B, N, C = q.shape
        head_dim = C // self.num_heads
        q = q.reshape(B, N, self.num_heads, head_dim).permute(0, 2, 1, 3)
        k = k.reshape(B, k.shape[1], self.num_heads, head_dim).permute(0, 2, 1, 3)
        v = v.reshape(B, v.shape[1], self.num_heads, head_dim).permute(0, 2, 1, 3)
        q = q * head_dim**-0.5
        attn = q @ k.transpose(-2, -1)
        attn = attn.softmax(dim=-1)
        x = attn @ v
        return x.transpose(1, 2).reshape(B, N, C)
