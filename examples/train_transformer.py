"""Train a small Llama with random weights, as transformers has it and patched with generated operators.

    python examples/train_transformer.py run --out runs        # on a GPU; needs torch, triton and transformers
    python examples/train_transformer.py run --out runs --tiny # on a CPU, in Triton's interpreter
    python examples/train_transformer.py report --runs runs --report docs  # anywhere; needs matplotlib

Every variant of every round trains in a process of its own, from the same weights on the same data, round by round:
so variants are interleaved, and what two rounds of one variant differ by is what differences between variants mean.
Losses stay on the device and times are CUDA events, so that nothing waits for the host within a run.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import itertools
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

VARIANTS = {
    "unpatched": "transformers' model as it is",
    "tritongen": "RMSNorm, SwiGLU, RoPE, attention and the loss by generated operators",
    "liger": "Liger-Kernel's patch; its loss takes the last projection with it, in chunks",
    "liger-logits": "Liger-Kernel's patch with its loss of logits, as ours is",
    "compile": "transformers' model under torch.compile",
    "compile-tritongen": "both; attention is transformers' own, which makes a mask for it where it is traced",
}
DEFAULT_VARIANTS = ["unpatched", "tritongen", "liger", "liger-logits", "compile"]
PHASES = ("forward", "backward", "optimizer")
INTERPRETER = "CPU and Triton's interpreter, whose times say nothing of a GPU's"
ODDS = (0.5, 0.25, 0.15, 0.1)  # of the tokens that may come next


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is trained on what, the same for every variant."""

    hidden: int = 2048
    intermediate: int = 5632
    layers: int = 8
    heads: int = 16
    kv_heads: int = 8
    vocabulary: int = 32_000
    used_tokens: int = 1024
    batch: int = 8
    length: int = 1024
    steps: int = 300
    warm_up: int = 20  # steps whose times do not count, and over which the learning rate rises
    learning_rate: float = 3e-4
    largest_norm: float = 1.0  # of all gradients together, beyond which they are scaled down
    dtype: str = "bfloat16"
    seed: int = 0


TINY = Settings(
    hidden=32,
    intermediate=48,
    layers=2,
    heads=4,
    kv_heads=2,
    vocabulary=96,
    used_tokens=16,
    batch=2,
    length=16,
    steps=40,
    warm_up=5,
    learning_rate=1e-2,
)


def make_tokens(settings: Settings) -> Any:
    """Random text, [steps, batch, length] int64 on the CPU, that takes two tokens of context to foretell.

    Of the vocabulary only some tokens are used. Each may be followed by four others, with fixed odds; by which
    four also depends on the token before it (odd or even). So the loss can fall to the entropy of the odds.
    """
    import torch

    draw = torch.Generator().manual_seed(settings.seed)
    used = settings.used_tokens
    followers = torch.rand(2, used, used, generator=draw).argsort(-1)[..., : len(ODDS)]
    rows = settings.steps * settings.batch
    choices = torch.multinomial(torch.tensor(ODDS), rows * settings.length, replacement=True, generator=draw)
    tokens = torch.randint(used, (settings.length, rows), generator=draw)
    for place, choice in enumerate(choices.view(settings.length, rows)):
        if place >= 2:
            tokens[place] = followers[tokens[place - 2] % 2, tokens[place - 1], choice]
    names = torch.randperm(settings.vocabulary, generator=draw)[:used]
    return names[tokens.T].view(settings.steps, settings.batch, settings.length)


def make_model(settings: Settings, device: str) -> Any:
    """A Llama with random weights, the same at every call."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        vocab_size=settings.vocabulary,
        hidden_size=settings.hidden,
        intermediate_size=settings.intermediate,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.kv_heads,
        max_position_embeddings=settings.length,
        attn_implementation="sdpa",
    )
    torch.manual_seed(settings.seed)
    with torch.device(device):  # Not `.to(dtype)`, which would round the frequencies of RoPE too.
        return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, settings.dtype)).train()


def make_variant(variant: str, model: Any) -> Any:
    """The model as the variant has it. Patches are of the process: one variant for each."""
    import torch

    if variant.startswith("liger"):
        from liger_kernel.transformers import apply_liger_kernel_to_llama

        of_logits = variant == "liger-logits"
        apply_liger_kernel_to_llama(model=model, cross_entropy=of_logits, fused_linear_cross_entropy=not of_logits)
    if variant.endswith("tritongen"):
        from examples.patch_llama import patch

        patch()
    return torch.compile(model) if variant.startswith("compile") else model


class Clock:
    """Moments on a device: CUDA events, so that asking for them does not wait; the host's time on a CPU."""

    def __init__(self, device: str) -> None:
        self.device = device

    def now(self) -> Any:
        if self.device == "cpu":
            return time.perf_counter()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def milliseconds(self, start: Any, end: Any) -> float:
        return 1e3 * (end - start) if self.device == "cpu" else start.elapsed_time(end)


def train(model: Any, tokens: Any, settings: Settings) -> dict[str, Any]:
    """Losses, milliseconds by phase and step, and bytes. Weights are kept in float32 beside the model's dtype."""
    import torch

    device = str(tokens.device.type)
    clock = Clock(device)
    weights = list(model.parameters())
    masters = [weight.detach().float() for weight in weights]  # float32 weights are their own
    optimizer = torch.optim.AdamW(masters, settings.learning_rate, betas=(0.9, 0.95), fused=device == "cuda")
    rise = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / settings.warm_up))
    losses, moments, held = [], [], 0
    for step, batch in enumerate(tokens):
        if device == "cuda" and step == settings.warm_up:
            held = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
        moments.append(clock.now())
        loss = model(input_ids=batch, labels=batch, use_cache=False).loss
        moments.append(clock.now())
        loss.backward()
        moments.append(clock.now())
        for weight, master in zip(weights, masters, strict=True):
            master.grad, weight.grad = weight.grad.float(), None
        torch.nn.utils.clip_grad_norm_(masters, settings.largest_norm)
        optimizer.step()
        optimizer.zero_grad()
        rise.step()
        with torch.no_grad():
            torch._foreach_copy_(weights, masters)
        losses.append(loss.detach())
        del loss
    moments.append(clock.now())
    if device == "cuda":
        torch.cuda.synchronize()
    spans = [clock.milliseconds(start, end) for start, end in itertools.pairwise(moments)]
    return {
        "losses": torch.stack(losses).double().tolist(),
        "milliseconds": {phase: spans[number::3] for number, phase in enumerate(PHASES)},
        "peak_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else None,
        "held_bytes": held if device == "cuda" else None,
    }


def measure(variant: str, settings: Settings) -> dict[str, Any]:
    """Train one variant, in this process; what came of it, and of what, as JSON can hold it."""
    import torch
    import transformers
    import triton

    device = "cuda" if torch.cuda.is_available() else "cpu"
    # Products of float32 are then those of float32, in every variant.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model = make_model(settings, device)
    tokens = make_tokens(settings)
    sums = [weight.detach().double().square().sum().item() for weight in model.parameters()]
    places = torch.arange(tokens.numel()).view_as(tokens)
    start = hashlib.sha256(repr((sums, (tokens * places).sum().item())).encode()).hexdigest()[:16]
    parameters = sum(weight.numel() for weight in model.parameters())
    results = train(make_variant(variant, model), tokens.to(device), settings)
    versions = {"torch": torch.__version__, "triton": triton.__version__, "transformers": transformers.__version__}
    if variant.startswith("liger"):
        versions["liger-kernel"] = importlib.metadata.version("liger-kernel")
    return {
        "variant": variant,
        "settings": dataclasses.asdict(settings),
        "device": torch.cuda.get_device_name() if device == "cuda" else INTERPRETER,
        "versions": versions,
        "parameters": parameters,
        "start": start,
        "floor": -sum(odds * math.log(odds) for odds in ODDS),
        **results,
    }


def run(options: argparse.Namespace, settings: Settings) -> None:
    """Every variant in every round, each in a process of its own; one that fails does not stop the others."""
    failed = []
    options.out.mkdir(parents=True, exist_ok=True)
    for number in options.rounds:
        for variant in options.variants:
            if variant.startswith("liger") and importlib.util.find_spec("liger_kernel") is None:
                print(f"{variant}: liger_kernel is not installed, left out")
                continue
            path = options.out / f"{variant}-{number}.json"
            command = [sys.executable, __file__, "one", variant, str(path), json.dumps(dataclasses.asdict(settings))]
            began = time.perf_counter()
            if subprocess.run(command).returncode:
                failed.append(path.stem)
                continue
            losses = json.loads(path.read_text())["losses"]
            seconds = time.perf_counter() - began
            print(f"{path}: loss {losses[0]:.4f} to {losses[-1]:.4f}, {seconds:.0f} s in all", flush=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def one(variant: str, path: str, settings: str) -> None:
    results = measure(variant, Settings(**json.loads(settings)))
    Path(path).write_text(json.dumps(results, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    runs = commands.add_parser("run", help="train the variants and write a JSON file for each")
    runs.add_argument("--out", type=Path, default=Path("runs"), metavar="FOLDER")
    runs.add_argument("--variants", nargs="+", choices=VARIANTS, default=DEFAULT_VARIANTS)
    runs.add_argument("--rounds", nargs="+", type=int, default=[1, 2], metavar="NUMBER")
    runs.add_argument("--tiny", action="store_true", help="a model for Triton's interpreter")
    runs.add_argument("--steps", type=int)
    runs.add_argument("--learning-rate", type=float)
    alone = commands.add_parser("one", help="what `run` starts for a variant of a round")
    for name in ("variant", "path", "settings"):
        alone.add_argument(name)
    reports = commands.add_parser("report", help="write training.md and training.svg")
    reports.add_argument("--runs", type=Path, default=Path("runs"), metavar="FOLDER")
    reports.add_argument("--report", type=Path, default=Path("docs"), metavar="FOLDER")
    options = parser.parse_args()
    if options.command == "report":
        from examples.training_report import report

        report(options.runs, options.report)
        return
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
    if options.command == "one":
        one(options.variant, options.path, options.settings)
        return
    if not torch.cuda.is_available() and not options.tiny:
        parser.exit(4, f"{parser.prog} run needs a GPU, or --tiny\n")
    given = {name: getattr(options, name) for name in ("steps", "learning_rate")}
    given = {name: value for name, value in given.items() if value is not None}
    run(options, dataclasses.replace(TINY if options.tiny else Settings(), **given))


if __name__ == "__main__":
    main()
