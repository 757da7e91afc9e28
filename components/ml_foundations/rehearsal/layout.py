"""The files of a rehearsal: one private folder per stack, in the project and ignored by git."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import stat
from pathlib import Path

from ml_foundations.rehearsal.files import write
from ml_foundations.rehearsal.progress import RehearsalError

SOURCE_ROOT = Path(__file__).resolve().parents[2]
"""The folder of this package. The processes of a rehearsal import it from there, too."""

_STACK = re.compile(r"(?!\.+$)[A-Za-z0-9_.-]{1,100}")
"""A stack's name, as Pulumi allows it. ``down`` removes the folder with this name: never ``..``."""


class Rehearsal:
    """The files of one stack's rehearsal. ``root`` is private (0700), and ``down`` removes it.

    Each cluster of a program has a replica. The files of the first one are in ``root`` itself.
    """

    def __init__(self, stack: str, root: Path, cluster: str = "") -> None:
        self.stack = stack
        self.root = root
        self.removal_marker = root.with_name(f"{root.name}~")
        """Exists while ``down`` removes the rehearsal. No stack can have this name."""
        self.cluster = cluster
        """The name of the replica, from ``for_cluster``; empty for the first."""
        self.replica_dir = root / "clusters" / cluster if cluster else root
        self.kubeconfig = self.replica_dir / "kubeconfig"
        """The kubeconfig with which kubectl and helm access the replica."""
        self.cluster_dir = self.replica_dir / "cluster"
        """kwokctl's folder: certificates, data, pid files and logs of the control plane."""
        self.bin_dir = root / "bin"
        """The first folder on PATH: pulumi, kubectl, helm and the authentication plugin."""
        self.pulumi_home = root / "pulumi"
        """PULUMI_HOME: only the embedded plugins, and nothing of the user's."""
        self.backend_dir = root / "state"
        """Pulumi's file backend, with the state of the rehearsed stack."""
        self.gke_dir = self.replica_dir / "gke"
        """The state of the simulated Google Cloud, as ``cloud.store`` keeps it."""
        self.releases_dir = self.replica_dir / "releases"
        """A JSON file per Helm release that was installed or only recorded."""
        self.page = root / "report.html"
        self.log_dir = self.replica_dir / "logs"
        """The logs of all processes except the control plane's."""
        self.placeholders = root / "placeholders.json"
        """The keys with encrypted values in the stack file. The program gets placeholders."""
        self.up_log = self.log_dir / "pulumi-up.log"
        """The output of the last ``pulumi up``."""
        self.preview_events = root / "preview-events.jsonl"
        """The events of the last preview, one per line: the declared resources, in any language."""
        self.applied = root / "applied.json"
        """The files that the last ``pulumi up`` read, and the state that it left."""
        self.kubectl_cache_dir = root / "kubectl"
        """kubectl's cache. The many replicas would fill the user's own one."""
        self.ca_bundle = root / "ca-bundle.crt"
        """The certificate authorities that a client in the rehearsal trusts."""
        self.job_seconds = root / "job-seconds.json"
        """How long the pods of Jobs run; 0 for the default."""
        self.servers = root / "servers.json"
        """The replica of each present or former address of an API server."""
        self.tokens = root / "tokens.csv"
        """The access token for Google's APIs. All replicas of the rehearsal accept it."""

    @classmethod
    def of(cls, stack: str, project: Path) -> Rehearsal:
        """Return the rehearsal of a stack of a Pulumi project, whether or not it is up.

        Raises:
            RehearsalError: the name of the stack or the folder of the project is invalid, or a
                folder of the rehearsal is a link or another user's.
        """
        if unreadable := re.search(r"[,:\"\x00-\x1f\x7f-\x9f\ud800-\udfff]", str(project)):
            raise RehearsalError(
                f"{str(project)!r} has the character {unreadable[0]!r}, which tools cannot read in "
                "a path. Rename or move the folder"
            )
        if not _STACK.fullmatch(stack):
            raise RehearsalError(
                f"no stack can be named {stack!r}: a name has 1 to 100 letters, digits, "
                "hyphens, underscores and dots"
            )
        rehearsal = cls(stack=stack, root=project / ".rehearsal" / stack)
        rehearsal.require_own_folders()
        for replica in rehearsal.replicas:
            replica.require_own_folders()
        return rehearsal

    @classmethod
    def of_this_process(cls) -> Rehearsal:
        """Return the rehearsal that started this plugin or helper."""
        return cls.at(Path(os.environ["ML_FOUNDATIONS_REHEARSAL"]))

    @classmethod
    def at(cls, root: Path) -> Rehearsal:
        """Return the rehearsal with a folder."""
        return cls(stack=root.name, root=root)

    @property
    def replicas(self) -> list[Rehearsal]:
        """Return this rehearsal for each of its clusters, the first one first."""
        names = sorted(path.name for path in (self.root / "clusters").glob("*"))
        return [Rehearsal(self.stack, self.root, name) for name in ("", *names)]

    def for_cluster(self, cluster_id: str) -> Rehearsal:
        """Return the replica of a cluster other than the first, by the cluster's id."""
        parts = cluster_id.split("/")[1::2]
        name = "_".join(re.sub("[^a-z0-9.-]", "-", part) for part in parts)
        return Rehearsal(self.stack, self.root, name)

    @property
    def token(self) -> str:
        """Return the access token."""
        return self.tokens.read_text().partition(",")[0]

    @property
    def project(self) -> Path:
        """Return the folder with Pulumi.yaml."""
        return self.root.parent.parent

    @property
    def title(self) -> str:
        """Return the stack's name, after that of its project if it is not in this checkout."""
        if self.project == SOURCE_ROOT.parent:
            return self.stack
        return f"{self.project.name} {self.stack}"

    def command(self, name: str, **options: str) -> str:
        """Return the command line that runs a command on this rehearsal.

        If make ran the present command, the result is a target of make.
        """
        if self.stack != "dev":
            options = {"stack": self.stack} | options
        if self.project != Path.cwd():
            options = {"project": os.path.relpath(self.project)} | options
        has_target = name in ("up", "down", "status", "report")
        is_target = has_target and "ML_FOUNDATIONS_MAKE" in os.environ
        typed = os.environ.get("ML_FOUNDATIONS_COMMAND", "ml-foundations")
        words = ["make" if is_target else typed, name]
        for key, value in options.items():
            quoted = shlex.quote(value)
            words.append(f"{key.upper()}={quoted}" if is_target else f"--{key} {quoted}")
        return " ".join(words)

    @property
    def _folders(self) -> list[Path]:
        """Return the folders that ``make`` creates, each after those that it is in."""
        of_replica = (self.cluster_dir, self.gke_dir, self.releases_dir, self.log_dir)
        of_root = (self.bin_dir, self.pulumi_home, self.backend_dir)
        outer = [self.root.parent, self.root]
        outer += [self.replica_dir.parent, self.replica_dir] if self.cluster else []
        return [*outer, *of_root, *of_replica]

    def require_own_folders(self) -> None:
        """Raise an error if a command would change or delete what is not the rehearsal's.

        A repository may have a link in the place of a folder, and so may another user.

        Raises:
            RehearsalError: a folder is a link, not a folder, or belongs to another user.
        """
        for folder in (*self._folders, self.removal_marker):
            try:
                status = folder.lstat()
            except FileNotFoundError:
                continue
            fault = ""
            if stat.S_ISLNK(status.st_mode):
                fault = "a link"
            elif folder != self.removal_marker and not stat.S_ISDIR(status.st_mode):
                fault = "not a folder"
            elif status.st_uid != os.geteuid():
                fault = "another user's"
            if fault:
                raise _not_own(folder, fault)
        for parent, folders, names in os.walk(self.root):
            for path in (Path(parent, name) for name in (*folders, *names)):
                # `up` links to tools and to Pulumi's files, which a removal does not follow.
                if path.is_symlink() and (path.is_dir() or path.suffix == ".lock"):
                    raise _not_own(path, "a link")

    def make(self) -> None:
        """Create the missing folders, private to the user."""
        self.require_own_folders()
        for folder in self._folders:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
        # The folder has keys and a passphrase, and the user's project may not ignore it.
        write(self.root.parent / ".gitignore", "*\n")
        if not self.tokens.exists():
            write(self.tokens, f"{secrets.token_urlsafe(32)},rehearsal,rehearsal,system:masters\n")


def _not_own(path: Path, fault: str) -> RehearsalError:
    fix = "Nothing was changed. Remove it, or choose another project"
    return RehearsalError(f"{path} is {fault}, and may hold no rehearsal. {fix}")


def cache_dir() -> Path:
    """Return the folder of built and downloaded tools, which all checkouts of the user share."""
    return Path(os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")) / "ml-foundations"
