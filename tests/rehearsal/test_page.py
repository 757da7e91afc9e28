"""The report as a page: escaped, complete, alone, and shown by a real browser where there is one."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.planning import judge
from ml_foundations.planning.model.nodes import node_class
from ml_foundations.planning.verdict.cost import cost_of
from ml_foundations.planning.verdict.program import judge_documents
from ml_foundations.rehearsal.report.contents import Quota, Report
from ml_foundations.rehearsal.report.fleet import Fleet, Node, PodTimes
from ml_foundations.rehearsal.report.page import render
from ml_foundations.rehearsal.report.workloads import Workload

from tests.factories import container, deployment, pool, template

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
TWO_NODES = ("gke-ml-h100-0c2f9a1b-x7k2", "gke-ml-h100-0c2f9a1b-p3d9")
EVIL = "<script>alert(1)</script>"
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


def pool_row(name: str, nodes: list[Node], most: int) -> dict[str, Any]:
    gpus, used = sum(node.gpus for node in nodes), sum(len(node.holders) for node in nodes)
    sizes = {"nodes": len(nodes), "min_nodes": 0, "max_nodes": most}
    shown = {"name": name, "machine_type": "a3-highgpu-8g", "gpus": gpus, "gpus_in_use": used}
    return shown | sizes


def nodes_of(name: str, count: int) -> list[Node]:
    """Some full, some shared, some empty, one not ready and one with a broken GPU."""
    held = [("research",) * 8, ("research",) * 3 + ("serving",) * 4, ()]
    found = [Node(f"{name}-{i}", name, 8, held[i % 3], len(set(held[i % 3]))) for i in range(count)]
    dead = Node(f"{name}-dead", name, 8, fault="not ready")
    return [*found, dead, Node(f"{name}-ill", name, 8, missing=1)]


def at(seconds: int) -> datetime:
    return NOW + timedelta(seconds=seconds)


def page_of(count: int, name: str = "train", reload_seconds: int = 0, price: str = "88.49") -> str:
    nodes = nodes_of("h100", count)
    declared = [
        pool("h100", 100, {"node.kubernetes.io/instance-type": "a3-highgpu-8g"}),
        deployment("web", 900, template()),
    ]
    declared[0]["metadata"]["annotations"]["ml-foundations/usd-per-hour"] = price
    why = f"0/2 ready. 0/12 nodes are available: {name}"
    workloads = [
        Workload("research", "Job", name, "Running", [node.name for node in nodes[:5]]),
        Workload("serving", "Deployment", "chat", "Pending", [], why),
        Workload("serving", "Deployment", "embed", "Ready", [*TWO_NODES], "2/2"),
    ]
    pod_times = [
        PodTimes(f"research/{name}-0", "h100-0", NOW, at(20), at(31)),
        PodTimes("serving/chat-0", "", at(5)),
        PodTimes("research/done-0", "h100-1", NOW, at(2), None, at(60)),
    ]
    limits = {"requests.nvidia.com/gpu": "8", "pods": "0"}
    report = Report(
        "dev",
        [pool_row("h100", nodes, count + 2), pool_row("l4", [], 4)],
        workloads,
        [Quota("research", "team-quota", limits, {"requests.nvidia.com/gpu": "6"})],
        [{"type": "gcp:compute/network:Network", "name": name}],
        ["app:token"],
        ["serving/chat: research may call it"],
    )
    cost = cost_of(map(node_class, declared[:1]))
    fleet = Fleet(nodes, {"h100": [at(10)]}, pod_times, cost, judge(declared))
    return render(report, fleet, "dev", at(90), reload_seconds)


class _Reader(HTMLParser):
    """The elements and the text that a page comes to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style", "noscript"):
            self.text += data

    @property
    def cells(self) -> list[str | None]:
        found = [attributes for _, attributes in self.tags if "tabindex" in attributes]
        return [attributes["aria-label"] for attributes in found]


def browse(folder: Path, page: str) -> str:
    """What a real browser makes of a page: its elements when its scripts have run."""
    (folder / "shown.html").write_text(page)
    return visit(folder, f"file://{folder}/shown.html")


def visit(folder: Path, address: str) -> str:
    command = [CHROMIUM or "", "--headless", "--no-sandbox", "--disable-gpu"]
    command += ["--allow-file-access-from-files", f"--user-data-dir={folder}/profile"]
    command += ["--virtual-time-budget=5000", "--dump-dom", address]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def parsed(text: str) -> _Reader:
    reader = _Reader()
    reader.feed(text)
    assert reader.open == []
    return reader


def read(folder: Path, page: str) -> _Reader:
    return parsed(browse(folder, page))


browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


def test_no_text_from_manifests_can_end_the_data() -> None:
    page = page_of(3, name=EVIL)
    assert EVIL not in page
    assert page.count("<script") == 2
    (data,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page)
    assert json.loads(data)["workloads"][0]["name"] == EVIL


def test_the_page_loads_nothing_and_runs_no_other_script() -> None:
    page = page_of(3)
    assert not re.search(r"(?:src|href)=|url\(|@import|https?:|innerHTML|eval\(", page)
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page


@browser
def test_text_from_manifests_is_text_wherever_it_is_shown(tmp_path: Path) -> None:
    page = read(tmp_path, page_of(3, name=EVIL))
    assert [name for name, _ in page.tags].count("script") == 2
    assert page.text.count(EVIL) >= 4


@browser
def test_a_model_server_shows_the_requests_that_it_holds(tmp_path: Path) -> None:
    image = {"image": "vllm/vllm-openai:v0.31.0", "args": ["--model=Qwen/Qwen3-8B"]}
    of_server = container(gpu=1) | image
    h100 = pool("h100", 2, {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, gpu=8)
    verdicts = judge_documents([h100, deployment("llm", 2, template(containers=[of_server]))])
    report = Report("dev", [], [Workload("team", "Deployment", "llm", "Ready")], [], [], [])
    fleet = Fleet([], {}, [], cost_of([]), verdicts)
    (finding,) = verdicts.findings
    text = read(tmp_path, render(report, fleet, "dev", at(90))).text
    assert f"2 GPUs: no price known{finding.message}." in text
    assert finding.message.startswith("each replica of Qwen3-8B with TP 1 has 50.6 to 57.6 GiB of ")


@browser
def test_what_no_price_is_known_of_costs_not_nothing(tmp_path: Path) -> None:
    text = read(tmp_path, page_of(3, price="not known")).text
    assert "At mostunknownno price is known" in text
    assert "At most$0.00" not in text


@browser
def test_it_says_what_is_drawn(tmp_path: Path) -> None:
    page = read(tmp_path, page_of(3))
    assert page.cells == [
        "h100-dead: not ready; 8 GPUs: 8 free; empty",
        "h100-ill: 1 GPU broken; 8 GPUs: 7 free; empty",
        "h100-0: 8 GPUs: 8 research, 0 free; 1 pod",
        "h100-1: 8 GPUs: 3 research, 4 serving, 1 free; 2 pods",
        "h100-2: 8 GPUs: 8 free; empty",
    ]
    for text in (
        "1 of 3 workloads not running",
        "0/2 ready. 0/12 nodes are available: train",
        "requests.nvidia.com/gpu: 6 of 8",
        "Allows no pods.",
        "$88.49",
        "$8,849.00",
        "room for 400 of the 900 pods",
        "1 node came after 10 s",
        "got h100-0 after 20 s, ready 11 s later",
        "waits for a node, 85 s",
        "ended after 58 s on it",
        "1 Network",
        "got a placeholder: app:token.",
    ):
        assert text in page.text, text
    roles = [attributes.get("scope") for name, attributes in page.tags if name == "th"]
    assert set(roles) == {"col", "row"}
    names = [name for name, _ in page.tags]
    assert names.count("table") == names.count("caption") == 4
    assert all(attributes.get("aria-label") for name, attributes in page.tags if name == "section")


@browser
@pytest.mark.parametrize(("seconds", "shown"), [(0, "first"), (1, "second")])
def test_it_reads_itself_again_only_when_it_is_told_to(
    seconds: int, shown: str, tmp_path: Path
) -> None:
    first, second = page_of(3, name="first-job", reload_seconds=seconds), page_of(3, "second-job")
    pages = iter([first])

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(next(pages, second).encode() if self.path == "/" else b"")

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            page = visit(tmp_path, f"http://127.0.0.1:{server.server_port}/")
        finally:
            server.shutdown()
    text = parsed(page).text
    assert [name for name in ("first", "second") if f"{name}-job" in text] == [shown]


@browser
def test_of_many_nodes_those_that_are_alike_are_one(tmp_path: Path) -> None:
    cells = read(tmp_path, page_of(1000)).cells
    assert cells[0] == "h100-dead: not ready; 8 GPUs: 8 free; empty"
    assert "334 nodes like h100-0: 8 GPUs: 8 research, 0 free" in cells
    assert len(cells) == 5


def framed(folder: Path, page: str, script: str, width: int = 1280) -> str:
    """What a script of a page around the page comes to; ``w`` is the page's window."""
    (folder / "page.html").write_text(page)
    frame = f"<iframe id=f src=page.html style='width:{width}px;height:900px;border:0'></iframe>"
    run = f"<script>f.onload = () => {{ const w = f.contentWindow; document.title = {script} }}</script>"
    (title,) = re.findall(r"<title>(.*?)</title>", browse(folder, frame + run))
    return title


@browser
def test_a_pool_is_one_stop_of_the_tab_key_and_arrows_go_on(tmp_path: Path) -> None:
    stops = "[...w.document.querySelectorAll('.node')].map((node) => node.tabIndex).filter((each) => each === 0).length"
    press = "(key) => w.document.activeElement.dispatchEvent(new w.KeyboardEvent('keydown', { key, bubbles: true }))"
    here = "w.document.activeElement.getAttribute('aria-label')"
    keys = "['ArrowRight', 'ArrowDown', 'ArrowDown', 'ArrowLeft']"
    script = f"(w.document.querySelector('.node').focus(), {keys}.forEach({press}), [{stops}, {here}].join(' '))"
    assert framed(tmp_path, page_of(3), script) == "1 h100-0: 8 GPUs: 8 research, 0 free; 1 pod"


@browser
def test_nine_teams_look_different(tmp_path: Path) -> None:
    nodes = [Node(f"h100-{i}", "h100", 8, (f"team-{i}",) * 8, 1) for i in range(9)]
    fleet = Fleet(nodes, {}, [], cost_of([]), judge([]))
    page = render(Report("dev", [pool_row("h100", nodes, 9)], [], [], [], []), fleet, "dev", NOW)
    look = "(gpu) => [w.getComputedStyle(gpu).backgroundColor, w.getComputedStyle(gpu).backgroundImage].join()"
    script = f"new Set([...w.document.querySelectorAll('.node .gpu')].map({look})).size"
    assert framed(tmp_path, page, script) == "9"


@browser
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("count", [3, 100, 1000])
def test_a_browser_shows_it_without_scrolling_sideways(
    count: int, width: int, tmp_path: Path
) -> None:
    size = "[w.document.documentElement.scrollWidth, w.document.querySelectorAll('.node').length]"
    page = page_of(count, name="a-name-that-has-no-end-" * 4)
    across, cells = framed(tmp_path, page, size, width).split(",")
    assert int(across) <= width
    assert int(cells) == (6 if count > 120 else count + 3)


@browser
def test_a_narrow_row_has_its_label_on_the_left_and_all_of_its_nodes_on_the_right(
    tmp_path: Path,
) -> None:
    cell = "[...w.document.querySelectorAll('td[data-label=nodes]')].find((td) => td.children.length === 2)"
    lefts = f"[...{cell}.children].map((node) => Math.round(node.getBoundingClientRect().left))"
    first, second = framed(tmp_path, page_of(3), lefts, width=400).split(",")
    assert first == second
    assert int(first) > 100
