"""Rules of the proof: what a stack should meet besides that its pods find nodes.

Each rule is a function over one view of the stack. These names are for your own rules, too:
docs/your-own-rules.md.
"""

from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.rules.findings import Finding, Severity, error, info, warning
from ml_foundations.planning.rules.rule import Rule, rule
from ml_foundations.planning.rules.stack import JudgedWorkload, Stack

__all__ = [
    "UNKNOWN",
    "Finding",
    "JudgedWorkload",
    "Rule",
    "Severity",
    "Stack",
    "error",
    "info",
    "rule",
    "warning",
]
