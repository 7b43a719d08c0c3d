"""Functions and modules as people write them in PyTorch, to be imported."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class LlamaRMSNorm(torch.nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to(input_dtype)


def gated_norm(x, gate, weight, eps: float = 1e-6):
    """RMS normalisation of x, gated by silu of gate."""
    h = x.float() * F.silu(gate.float())
    rstd = torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)
    return (h * rstd * weight.float()).to(x.dtype)


def attention(q, k, v):
    B, H, T, D = q.shape
    s = q @ k.transpose(-1, -2) / math.sqrt(D)
    mask = torch.tril(torch.ones(T, k.shape[2], dtype=torch.bool, device=q.device))
    s = s.masked_fill(~mask, float("-inf"))
    p = F.softmax(s, dim=-1, dtype=torch.float32).to(q.dtype)
    o = p @ v
    return o.transpose(1, 2).reshape(B, T, H * D)


def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
    cos = cos.unsqueeze(unsqueeze_dim)
    sin = sin.unsqueeze(unsqueeze_dim)
    q_embed = (q * cos) + (rotate_half(q) * sin)
    k_embed = (k * cos) + (rotate_half(k) * sin)
    return q_embed, k_embed


def repeat_kv(hidden_states, n_rep: int):
    batch, num_key_value_heads, slen, head_dim = hidden_states.shape
    if n_rep == 1:
        return hidden_states
    hidden_states = hidden_states[:, :, None, :, :].expand(batch, num_key_value_heads, n_rep, slen, head_dim)
    return hidden_states.reshape(batch, num_key_value_heads * n_rep, slen, head_dim)


def eager_attention_forward(query, key, value, attention_mask, scaling):
    key_states = repeat_kv(key, 4)
    value_states = repeat_kv(value, 4)
    attn_weights = torch.matmul(query, key_states.transpose(2, 3)) * scaling
    if attention_mask is not None:
        causal_mask = attention_mask[:, :, :, : key_states.shape[-2]]
        attn_weights = attn_weights + causal_mask
    attn_weights = nn.functional.softmax(attn_weights, dim=-1, dtype=torch.float32).to(query.dtype)
    attn_output = torch.matmul(attn_weights, value_states)
    return attn_output.transpose(1, 2).contiguous()


class LlamaMLP(nn.Module):
    def __init__(self, hidden_size=64, intermediate_size=128):
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class SwiGLU(nn.Module):
    def forward(self, x):
        a, b = x.chunk(2, dim=-1)
        return F.silu(a) * b


class NewGELU(nn.Module):
    def forward(self, input):
        return 0.5 * input * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (input + 0.044715 * torch.pow(input, 3.0))))


class Gemma3RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.zeros(dim))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        output = self._norm(x.float())
        output = output * (1.0 + self.weight.float())
        return output.type_as(x)


class CausalSelfAttention(nn.Module):
    """nanoGPT."""

    def __init__(self, n_embd=64, n_head=4):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.n_head = n_head
        self.n_embd = n_embd

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


class WindowedAttention(nn.Module):
    """Gemma 3: grouped heads behind norms and rotary embeddings, and a mask as transformers makes one."""

    def __init__(self, dim=32, n_heads=4, n_groups=2, head_dim=8, sliding_window=3):
        super().__init__()
        self.head_dim, self.n_rep, self.sliding_window = head_dim, n_heads // n_groups, sliding_window
        self.q_proj = nn.Linear(dim, n_heads * head_dim, bias=False)
        self.k_proj = nn.Linear(dim, n_groups * head_dim, bias=False)
        self.v_proj = nn.Linear(dim, n_groups * head_dim, bias=False)
        self.norm = nn.RMSNorm(head_dim, eps=1e-6)

    def forward(self, x, cos, sin):
        shape = (*x.shape[:-1], -1, self.head_dim)
        q, k, v = (proj(x).view(shape).transpose(1, 2) for proj in (self.q_proj, self.k_proj, self.v_proj))
        q, k = apply_rotary_pos_emb(self.norm(q), self.norm(k), cos, sin)
        k, v = (repeat_kv(one, self.n_rep) for one in (k, v))
        i = torch.arange(x.shape[1])[:, None] + 0
        j = torch.arange(x.shape[1])[None] + 0
        mask = j.new_ones((), dtype=torch.bool) & (j > i - self.sliding_window) & (j <= i)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class SparseAttention(nn.Module):
    """Of each query, the keys whose scores are not below the median."""

    def __init__(self, n_embd=64):
        super().__init__()
        self.q_proj = nn.Linear(n_embd, n_embd)
        self.k_proj = nn.Linear(n_embd, n_embd)
        self.o_proj = nn.Linear(n_embd, n_embd)

    def forward(self, x, memory):
        q, k = self.q_proj(x), self.k_proj(memory)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        least = torch.median(scores, dim=-1, keepdim=True)[0]
        p = scores.masked_fill(scores < least, float("-inf")).softmax(-1)
        return self.o_proj(p @ memory)


def packed_attention(qkv, n_head: int = 4):
    B, T, _ = qkv.shape
    q, k, v = qkv.view(B, T, 3, n_head, -1).unbind(2)
    return q * k + v


def gqa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def loss(logits, labels, ignore_index: int = -100):
    logits = logits.float()
    return F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1), ignore_index=ignore_index)


def focal(logits, targets, alpha: float = 0.25, gamma: float = 2.0):
    p = torch.sigmoid(logits)
    ce_loss = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    loss = ce_loss * ((1 - p_t) ** gamma)
    alpha_t = alpha * targets + (1 - alpha) * (1 - targets)
    loss = alpha_t * loss
    return loss.mean()


def adaln(x, shift, scale):
    x = F.layer_norm(x, (x.shape[-1],))
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


def clip_loss(image, text, logit_scale):
    image = image / image.norm(dim=-1, keepdim=True)
    text = text / text.norm(dim=-1, keepdim=True)
    return logit_scale.exp() * image @ text.t()


def alibi(q, k, v, slopes):
    T = q.shape[-2]
    pos = torch.arange(T, device=q.device)
    rel = torch.arange(k.shape[-2], device=q.device)[None, :] - pos[:, None]
    s = q @ k.mT * q.shape[-1] ** -0.5 + slopes[:, None, None] * rel
    s = s.masked_fill(rel > 0, float("-inf"))
    return torch.softmax(s, -1) @ v


class SE(nn.Module):
    def __init__(self, c=16, r=4):
        super().__init__()
        self.fc1 = nn.Conv2d(c, c // r, 1)
        self.fc2 = nn.Conv2d(c // r, c, 1)

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.fc2(F.relu(self.fc1(s))))


class Router(nn.Module):
    def __init__(self, d=64, e=8):
        super().__init__()
        self.gate = nn.Linear(d, e, bias=False)

    def forward(self, x):
        logits = self.gate(x)
        scores = F.softmax(logits, dim=-1, dtype=torch.float32)
        w, idx = scores.max(-1)
        return w, idx


def l2(x, eps: float = 1e-6):
    return x / (x.square().sum(-1, keepdim=True) + eps).sqrt()


class TokenEmbedding(nn.Module):
    def __init__(self, vocab=100, d=32, n=64):
        super().__init__()
        self.wte = nn.Embedding(vocab, d)
        self.wpe = nn.Embedding(n, d)

    def forward(self, ids):
        pos = torch.arange(ids.shape[1], device=ids.device)
        return self.wte(ids) + self.wpe(pos)


def highest_so_far(x, weight):
    h = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    top = torch.cummax(h, -1)[0]
    return torch.softmax(top * weight, -1)


def route(logits, k: int = 2):
    gates, experts = torch.topk(logits.softmax(-1), k, dim=-1)
    return gates / gates.sum(-1, keepdim=True), experts


def message_passing(x, source, target, weight):
    messages = x.index_select(0, source) @ weight
    return torch.zeros_like(x).index_add(0, target, messages)


def histogram_loss(x, bins, prior):
    counts = prior.scatter_add(1, bins, x.square())
    return (counts.log() - counts.logsumexp(-1, keepdim=True)).sum(-1)


def hits(scores, labels):
    order = scores.argsort(-1, descending=True)
    ranked = torch.zeros_like(scores).scatter_(1, labels[:, None], 1.0).gather(-1, order)
    return ranked.flip(-1).cumsum(-1).flip(-1)


def marked_sums(x, index):
    return x.sum(-1, keepdim=True).scatter(1, index, 1.0)


def norm_without_eps(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight)


def masked_shares(x, mask):
    p = x.masked_fill(mask, torch.finfo(x.dtype).min).softmax(-1)
    return p / (p.sum(-1, keepdim=True) + torch.finfo(x.dtype).eps)


def split_heads(x, weight):
    q, k = F.linear(x, weight).view(*x.shape[:2], 2, 4, x.shape[-1] // 4).unbind(2)
    return (q * k).flatten(2) + x


def widened(x, weight):
    return F.linear(x.float(), weight)


def only_traced(x):
    if type(x) is torch.Tensor:
        raise ValueError(x)
    return x.exp()


def added(*xs):
    return xs[0] + 2 * xs[1]


def self_alibi(x, slopes):
    """Its own keys: positions of another name for an axis."""
    B, T, C = x.shape
    q = x.view(B, T, slopes.shape[0], -1).transpose(1, 2)
    pos = torch.arange(T)
    bias = slopes[:, None, None] * (pos[None, :] - pos[:, None])
    s = q @ q.transpose(-1, -2) + bias
    s = s.masked_fill(pos[None, :] > pos[:, None], float("-inf"))
    return (s.softmax(-1) @ q).transpose(1, 2).reshape(B, T, C)


def unrolled(x, w):
    h = x
    for i in range(w.shape[0]):
        h = torch.tanh(h * w[i])
    return h


def nested_results(x):
    twice, _ = x * 2, None
    return {"twice": twice, "more": (x.sum(-1), [x.exp()])}


def all_of_it_rotated(x, cos):
    """The rest, of which nothing is left, is not."""
    turned, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    return torch.cat([turned * cos, rest], -1)


def half_rotated(x, weight, cos):
    """How many heads there are follows from a weight: their width is a number all the same."""
    q = F.linear(x, weight)
    q = q.view(*q.shape[:-1], -1, 4)
    turned, rest = q[..., :2], q[..., 2:]
    return torch.cat([turned * cos[:, None], rest], -1)


def buckets(x, table):
    """Positions up to a number decide how long a table has to be."""
    far = torch.arange(x.shape[-1]).abs().clamp(max=25)
    return x * table[far + 4]


def after_a_prompt(x, weight):
    """Of what comes behind the first twelve, so that there is no shorter x."""
    return x[:, 12:] * weight
