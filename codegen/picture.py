"""docs/images/architecture.svg: the picture of the architecture."""

from pathlib import Path
from xml.sax.saxutils import escape

from codegen import ROOT

_WIDTH, _HEIGHT = 980, 490
_INK, _SOFT, _GREEN, _BLUE, _SAND = "#1f2430", "#5b6475", "#e6f4ea", "#e8f0fe", "#fdf3e1"


def _box(x: int, y: int, width: int, height: int, title: str, lines: list[str], fill: str) -> str:
    """Return a box with a title and some lines of text."""
    style = f'rx="8" fill="{fill}" stroke="#c8ccd4"'
    box = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" {style}/>'
    style = f'font-size="15" font-weight="600" fill="{_INK}"'
    box += f'<text x="{x + 14}" y="{y + 25}" {style}>{escape(title)}</text>'
    for index, line in enumerate(lines):
        start = f'<text x="{x + 14}" y="{y + 46 + 18 * index}" font-size="13" fill="{_SOFT}">'
        box += f"{start}{escape(line)}</text>"
    return box


def _arrow(*points: tuple[int, int], label: str = "", at: tuple[int, int] = (0, 0)) -> str:
    """Return an arrow along some points, with a label next to it."""
    path = " ".join(f"{x},{y}" for x, y in points)
    style = f'fill="none" stroke="{_INK}" stroke-width="1.4" marker-end="url(#tip)"'
    line = f'<polyline points="{path}" {style}/>'
    if not label:
        return line
    style = f'font-size="12" fill="{_SOFT}"'
    return f'{line}<text x="{at[0]}" y="{at[1]}" {style}>{escape(label)}</text>'


_PARTS = [
    _box(
        20,
        24,
        270,
        84,
        "Pulumi.<stack>.yaml",
        ["pools, storage, teams, workloads", "checked by editors too: schema.json"],
        _SAND,
    ),
    _box(
        355,
        24,
        270,
        84,
        "settings",
        ["every wrong value at once,", "with its path and what is allowed"],
        _SAND,
    ),
    _box(
        690,
        24,
        270,
        84,
        "components",
        ["arguments → manifests (pure)", "→ Pulumi resources"],
        _BLUE,
    ),
    _box(
        690,
        168,
        270,
        102,
        "planning",
        [
            "fits / cannot fit / undetermined,",
            "what it costs, what is left of quotas;",
            "pure Python, no Pulumi",
        ],
        _GREEN,
    ),
    _box(
        355,
        168,
        270,
        102,
        "pulumi up",
        ["the engine asks the plugins of", "gcp and kubernetes"],
        _BLUE,
    ),
    _box(
        20,
        330,
        440,
        136,
        "The real thing",
        [
            "Pulumi's own plugins",
            "Google Cloud: GKE, its nodes and GPUs",
            "Kubernetes, Helm, the GPU Operator",
        ],
        _SAND,
    ),
    _box(
        520,
        330,
        440,
        136,
        "A rehearsal, on this machine",
        [
            "embedded plugins, answering as those do",
            "the real etcd, API server, controllers and scheduler",
            "nodes simulated by KWOK, as GKE makes them;",
            "pools that scale, GPUs that appear with the operator",
            "no cloud account, no container engine",
        ],
        _GREEN,
    ),
    _arrow((290, 66), (351, 66)),
    _arrow((625, 66), (686, 66)),
    _arrow((825, 108), (825, 164), label="manifests, pools, quotas", at=(640, 141)),
    _arrow((690, 219), (629, 219), label="proved", at=(638, 211)),
    _arrow(
        (430, 270), (430, 300), (240, 300), (240, 326), label="pulumi up -s prod", at=(272, 293)
    ),
    _arrow(
        (550, 270), (550, 300), (740, 300), (740, 326), label="make up STACK=prod", at=(600, 293)
    ),
]


def files() -> dict[Path, str]:
    """Return the picture and its text."""
    return {ROOT / "docs" / "images" / "architecture.svg": _svg()}


def _svg() -> str:
    """Return the whole picture."""
    tip = '<path d="M0,0 L9,4 L0,8 z"/>'
    size = 'markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto"'
    marker = f'<marker id="tip" {size}>{tip}</marker>'
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="Helvetica, sans-serif"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    paper = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>'
    return f"{head}<defs>{marker}</defs>{paper}{''.join(_PARTS)}</svg>\n"
