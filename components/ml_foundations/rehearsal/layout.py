"""Where a rehearsal keeps its files: one private folder per stack, inside the project and ignored by git."""

from __future__ import annotations

import os
import re
import secrets
import shlex
from pathlib import Path

from ml_foundations.rehearsal.files import write
from ml_foundations.rehearsal.progress import RehearsalError

SOURCE_ROOT = Path(__file__).resolve().parents[2]
"""The folder from which this package is imported: processes of the rehearsal import it from there, too."""

_MAKE_TARGETS = ("up", "down", "status", "report")

_STACK = re.compile(r"(?!\.+$)[A-Za-z0-9_.-]{1,100}")
"""A stack's name, as Pulumi has it. It names a folder here, which ``down`` removes: never ``..``."""


class Rehearsal:
    """The files of one stack's rehearsal. Everything below ``root`` is private (0700) and goes away with ``down``.

    Each cluster of a program has a replica, and the first one's files stand below ``root`` itself.
    """

    def __init__(self, stack: str, root: Path, cluster: str = "") -> None:
        self.stack = stack
        self.root = root
        self.removal_marker = root.with_name(f"{root.name}~")
        """Exists while ``down`` removes the rehearsal. No stack can have this name."""
        self.cluster = cluster
        """Which replica it is, by ``for_cluster``; empty for the first."""
        self.replica_dir = root / "clusters" / cluster if cluster else root
        """Holds all that is the replica's own."""
        self.kubeconfig = self.replica_dir / "kubeconfig"
        """The kubeconfig with which kubectl and helm reach the replica."""
        self.cluster_dir = self.replica_dir / "cluster"
        """Kwokctl's work folder: certificates, data, pid files and logs of the control plane."""
        self.bin_dir = root / "bin"
        """First on PATH in a rehearsal: pulumi, kubectl, helm and the exec authentication plugin."""
        self.pulumi_home = root / "pulumi"
        """PULUMI_HOME: holds the embedded plugins and nothing of the user's."""
        self.backend_dir = root / "state"
        """Pulumi's file backend: the state of the rehearsed stack."""
        self.gke_dir = self.replica_dir / "gke"
        """What the simulated Google Cloud knows: clusters, node pools, recorded resources, where pods ran."""
        self.releases_dir = self.replica_dir / "releases"
        """One JSON file per Helm release that the embedded kubernetes plugin installed or recorded."""
        self.page = root / "report.html"
        """The report as a page."""
        self.log_dir = self.replica_dir / "logs"
        """Logs of the processes that are not the control plane's own."""
        self.placeholders = root / "placeholders.json"
        """The keys of the stack file whose values are encrypted: the program gets a placeholder."""
        self.up_log = self.log_dir / "pulumi-up.log"
        """All that the last ``pulumi up`` printed."""
        self.preview_events = root / "preview-events.jsonl"
        """The events of the last preview, one a line: what the program declares, in any language."""
        self.applied = root / "applied.json"
        """The files from which the last ``pulumi up`` was made, and the state that it left."""
        self.kubectl_cache_dir = root / "kubectl"
        """Where kubectl notes what the API server serves: replicas come and go, and would fill the user's own cache."""
        self.ca_bundle = root / "ca-bundle.crt"
        """The certificate authorities that a client in the rehearsal trusts."""
        self.servers = root / "servers.json"
        """The replica that each address of an API server is or was of."""
        self.tokens = root / "tokens.csv"
        """The access token that a program gets for Google's APIs. It opens every replica of the rehearsal."""

    @classmethod
    def of(cls, stack: str, project: Path) -> Rehearsal:
        """The rehearsal of a stack of a Pulumi project, whether or not it is up.

        Raises:
            RehearsalError: no stack can have that name, or no rehearsal be in that folder.
        """
        if re.search(r"[,:\n]", str(project)):
            raise RehearsalError(
                f"{str(project)!r} has a comma or colon, where tools would cut the path. Rename or move the folder"
            )
        if not _STACK.fullmatch(stack):
            raise RehearsalError(
                f"no stack can be named {stack!r}: a name has 1 to 100 letters, digits, hyphens, underscores and dots"
            )
        return cls(stack=stack, root=project / ".rehearsal" / stack)

    @classmethod
    def of_this_process(cls) -> Rehearsal:
        """The rehearsal that a plugin or one of its helpers was started in."""
        return cls.at(Path(os.environ["ML_FOUNDATIONS_REHEARSAL"]))

    @classmethod
    def at(cls, root: Path) -> Rehearsal:
        """The rehearsal that has a folder."""
        return cls(stack=root.name, root=root)

    @property
    def replicas(self) -> list[Rehearsal]:
        """This rehearsal as each cluster has it, the first one first."""
        others = sorted(path.name for path in (self.root / "clusters").glob("*"))
        return [Rehearsal(self.stack, self.root, name) for name in ("", *others)]

    def for_cluster(self, cluster_id: str) -> Rehearsal:
        """Return the replica of a cluster other than the first, by the cluster's id."""
        parts = cluster_id.split("/")[1::2]
        return Rehearsal(
            self.stack, self.root, "_".join(re.sub("[^a-z0-9.-]", "-", part) for part in parts)
        )

    @property
    def token(self) -> str:
        """The access token."""
        return self.tokens.read_text().partition(",")[0]

    @property
    def project(self) -> Path:
        """The folder that holds Pulumi.yaml."""
        return self.root.parent.parent

    @property
    def title(self) -> str:
        """What to call it: the stack, behind the folder of a project that is not this checkout."""
        return (
            self.stack
            if self.project == SOURCE_ROOT.parent
            else f"{self.project.name} {self.stack}"
        )

    def command(self, name: str, **options: str) -> str:
        """What the user would type to run a command on this rehearsal: of make, where make ran the last one."""
        if self.stack != "dev":
            options = {"stack": self.stack} | options
        if self.project != Path.cwd():
            options = {"project": os.path.relpath(self.project)} | options
        if "ML_FOUNDATIONS_MAKE" in os.environ and name in _MAKE_TARGETS:
            return " ".join(
                [
                    "make",
                    name,
                    *(f"{key.upper()}={shlex.quote(value)}" for key, value in options.items()),
                ]
            )
        typed = os.environ.get("ML_FOUNDATIONS_COMMAND", "ml-foundations")
        return " ".join(
            [typed, name, *(f"--{key} {shlex.quote(value)}" for key, value in options.items())]
        )

    def make(self) -> None:
        """Create the folders that do not exist yet, private to the user."""
        own = (self.cluster_dir, self.bin_dir, self.pulumi_home, self.backend_dir, self.gke_dir)
        for folder in (
            self.root.parent,
            self.root,
            self.replica_dir,
            *own,
            self.releases_dir,
            self.log_dir,
        ):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
        # It holds keys and a passphrase, in the project of somebody who may not have heard of it.
        (self.root.parent / ".gitignore").write_text("*\n")
        if not self.tokens.exists():
            write(self.tokens, f"{secrets.token_urlsafe(32)},rehearsal,rehearsal,system:masters\n")


def cache_dir() -> Path:
    """The folder for what is built or downloaded once and shared by every checkout of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")) / "ml-foundations"
