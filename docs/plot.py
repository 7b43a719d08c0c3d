"""Draws docs/gallery.svg from the gallery's table in docs/performance.md.

python docs/plot.py
"""

from __future__ import annotations

from pathlib import Path

from tritongen.page.measured import measured_in

HERE = Path(__file__).parent
SHOWN = (
    "softmax log_softmax cross_entropy layer_norm rms_norm rope argmax cosine_similarity logsumexp mish gelu kl_div"
).split()
SERIES = (("tritongen", "#2563eb"), ("torch", "#d4d4d8"), ("torch.compile", "#a1a1aa"))
LABELS, WIDTH, BAR, GAP = 150, 420, 9, 12  # pixels: of the names, of 100 %, of a bar, between operators


def shares() -> dict[str, tuple[int, ...]]:
    """Of each operator, the shares of the copy ceiling: ours, torch's and torch.compile's, in %."""
    found = measured_in((HERE / "performance.md").read_text(encoding="utf-8")).shares
    return {name: tuple(of.values()) for name, of in found.items()}


def drawn() -> str:
    """The picture."""
    found = shares()
    lines, y = [], 34
    for name in SHOWN:
        lines.append(f'<text x="{LABELS - 8}" y="{y + 2 * BAR}" text-anchor="end">{name}</text>')
        for place, ((_, color), share) in enumerate(zip(SERIES, found[name], strict=True)):
            top, width = y + place * BAR, share * WIDTH // 100
            lines.append(f'<rect x="{LABELS}" y="{top}" width="{width}" height="{BAR - 1}" fill="{color}"/>')
            lines.append(f'<text x="{LABELS + width + 4}" y="{top + BAR - 2}" class="n">{share}%</text>')
        y += len(SERIES) * BAR + GAP
    legend, x = [], LABELS
    for name, color in SERIES:
        legend.append(f'<rect x="{x}" y="10" width="10" height="10" fill="{color}"/>')
        legend.append(f'<text x="{x + 14}" y="19">{name}</text>')
        x += 110
    style = "text{font:12px sans-serif;fill:#3f3f46}.n{font-size:9px}"
    size = f'viewBox="0 0 {LABELS + WIDTH + 60} {y}" width="{LABELS + WIDTH + 60}" height="{y}"'
    body = "\n".join([*legend, *lines])
    background = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{style}</style>\n{background}\n{body}\n</svg>\n'


if __name__ == "__main__":
    (HERE / "gallery.svg").write_text(drawn(), encoding="utf-8")
