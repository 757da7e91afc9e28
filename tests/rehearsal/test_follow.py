"""What is shown of ``pulumi up``: how far it is, what changed, and all that it said at the end."""

from ml_foundations.rehearsal.engine.pulumi_output import PulumiOutput

PREVIEW = """\
Previewing update (dev):

@ previewing update.......
 +  pulumi:pulumi:Stack shop-dev create
 +  kubernetes:core/v1:Namespace team create
 ~  kubernetes:apps/v1:Deployment chat update [diff: ~spec]
Diagnostics:
  pulumi:pulumi:Stack (shop-dev):
    warning: only once

Resources:
    + 2 to create
    ~ 1 to update
    +-1 to replace
    4 changes. 3 unchanged

"""
UPDATE = """\
Updating (dev):
@ updating....
 +  pulumi:pulumi:Stack shop-dev creating (0s)
 +  kubernetes:core/v1:Namespace team creating (0s)
 +  kubernetes:core/v1:Namespace team created (0.02s)
 ~  kubernetes:apps/v1:Deployment chat updated (1s) [diff: ~spec]
Diagnostics:
  pulumi:pulumi:Stack (shop-dev):
    warning: only once
    Written at app:teams.serving: an error's own line

Outputs:
    url: "x"

Resources:
    + 2 created
    ~ 1 updated
    3 unchanged

Duration: 2s
"""


def follow(text: str) -> tuple[PulumiOutput, list[str]]:
    follower = PulumiOutput()
    said = [follower.add(line) for line in text.splitlines(keepends=True)]
    return follower, [each for each in said if each]


def test_how_far_it_is() -> None:
    follower, said = follow(PREVIEW + UPDATE)
    assert said[:3] == ["previews", "Stack shop-dev create", "Namespace team create"]
    last = ["1 of 4 changes, Namespace team created", "2 of 4 changes, Deployment chat updated"]
    assert said[-2:] == last
    assert (follower.done, follower.planned) == (2, 4)


def test_what_is_shown_are_the_changes_and_the_last_sections() -> None:
    shown = follow(PREVIEW + UPDATE)[0].summary()
    assert shown.splitlines()[:3] == [
        " +  kubernetes:core/v1:Namespace team created (0.02s)",
        " ~  kubernetes:apps/v1:Deployment chat updated (1s) [diff: ~spec]",
        "Diagnostics:",
    ]
    assert shown.endswith(UPDATE.partition("Diagnostics:")[2])
    assert shown.count("only once") == 1
    assert "creating" not in shown


def test_of_many_changes_the_count_is_enough() -> None:
    names = [f"c{index}" for index in range(13)]
    steps = "".join(f" +  kubernetes:core/v1:ConfigMap {name} created (0s)\n" for name in names)
    shown = follow(f"Updating (dev):\n{steps}Resources:\n    + 13 created\n")[0].summary()
    assert shown == "Resources:\n    + 13 created\n"


def test_of_what_fails_all_that_it_said_is_shown() -> None:
    failed = PREVIEW.replace("warning: only once", "error: the stack cannot run as it is declared")
    assert "error: the stack cannot run" in follow(failed)[0].summary()
    unknown = "error: no stack named 'dev' found\n"
    assert follow(unknown)[0].summary() == unknown
