"""Generate the part of docs/proof.md about the stages of pods."""

from pathlib import Path

from ml_foundations.catalog.injections import injections
from ml_foundations.catalog.tables import rows
from ml_foundations.kinds.kind_files import package_kinds, queue_of
from ml_foundations.planning.api_server.stages import readers

from codegen import ROOT
from codegen.objects import END, START

PAGE = ROOT / "docs" / "proof.md"


def files() -> dict[Path, str]:
    """Return the page, with its generated part."""
    before, _, rest = PAGE.read_text().partition(START)
    lines = ["| what is added to pods | by | stages that have it |", "|---|---|---|"]
    for row in rows("stage_additions.csv", "ml_foundations.planning.api_server"):
        stages = ", ".join(row["stages"].split())
        lines.append(f"| {row['addition']} | {row['who']} | {stages} |")
    for entry in injections().values():
        if entry.stage == "webhook":
            what = entry.container or entry.gate or entry.selector or entry.toleration
            kind = next(
                name
                for name in ("container", "gate", "selector", "toleration", "resources")
                if getattr(entry, name)
            )
            shown = ", ".join(f"`{network}`" for network in [what] if network) or "of networks"
            lines.append(f"| {kind} {shown}, if {entry.when} | {entry.by} | stored |")
    as_stored = [kind for kind in package_kinds() if queue_of(kind).gate == "stored"]
    kinds = " and ".join(f"{kind}s" for kind in as_stored)
    lines += ["", "| decision by | reads | source |", "|---|---|---|"]
    for reader in readers().values():
        stage = reader.stage
        if reader.of_pods != stage:
            stage = f"{stage}; of {kinds}: {reader.of_pods}"
        lines.append(f"| {reader.who} | {stage} | {reader.source} |")
    table = "\n".join(lines)
    return {PAGE: f"{before}{START}\n\n{table}\n\n{END}{rest.partition(END)[2]}"}
