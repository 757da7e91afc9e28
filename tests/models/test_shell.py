"""What scripts start, as the real shell starts it, and what stays undetermined."""

import os
import random
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.models.command import Program, Word, program
from ml_foundations.models.reasons import Cause, Reason
from ml_foundations.models.serving import Serving, read_container

VALUES = {"TP": "8", "EMPTY": "", "ARGS": "-tp 2  --dtype half", "PATTERN": "a*b"}
SECRET = {"HOST": "10.0.0.1", "WORDS": "a b"}
"""Values that the container has from a Secret, so that the manifest does not show them."""
SERVE = "vllm serve m -tp 8"

READ = [
    SERVE,
    f"  {SERVE}\n\n",
    f"set -e\n{SERVE}",
    f"set -euxo pipefail; {SERVE}",
    f"export A=1 && exec {SERVE}",
    f"A=1 B=$A {SERVE}",
    f"A=1; B=$A\nexport B C=$A$UNSET; {SERVE}",
    f"export TP=4 OLD=$TP; {SERVE} $TP $OLD",
    "vllm serve m -tp ${TP:-4} -pp ${PP:-2} -dp ${EMPTY:-1} --x=${EMPTY-1} ${PP-$TP}",
    'vllm serve "${NAME:-a b}" \'$TP\' "\\$TP $TP" \\$TP "a\\\nb" a\\\nb ""',
    "vllm serve m $ARGS x$ARGS $EMPTY ''$EMPTY",
    'X=$ARGS; vllm serve m $X "$X"',
    f"{SERVE} | tee log",
    f"{SERVE} 2>&1 | tee -a log; exit 0",
    f"{SERVE} > log 2> errors < /dev/null --last",
    f"{SERVE} &> log # end",
    f"{SERVE} &\nwait",
    f"{SERVE} & PID=$!; trap 'kill $PID' TERM; wait $PID",
    f"{SERVE} || exit 1",
    f"{SERVE} &\nif true; then echo started; fi\nwait",
    f"# it's a comment $(\n{SERVE} \\\n  --x \\\n  # --y\n",
    f"cd /; ulimit -c unlimited; mkdir -p here && {SERVE}",
    f"pip install 'vllm[audio]' x>=1 && {SERVE}",
    f"ray start --head --port=1; {SERVE}",
    f"pip list | grep x; {SERVE}",
    f'export A=$(hostname) B="$(echo \')\')" C=$((TP * 2)); {SERVE} $C "$A" --x=$A',
    'vllm serve m --host $HOST --x="a $WORDS" --y "$WORDS" $((TP - 1)) ${HOST%.*}',
    "vllm serve m --host $(HOST) '--x=$(TP)' --y \"$(WORDS)\"",
    'vllm serve m --json \'{"a": [1, 2]}\' --address "tcp://*:1" --rank ${LWS_WORKER_INDEX:-0}',
    f'false && export A=1; export B=1; {SERVE} --a "$A" --b $B',
    f'pip x; A=5 | cat; nohup {SERVE} "$A" x',
    "torchrun --nproc_per_node $TP train.py $ARGS",
    f"env A=1 B=$TP C=$HOST {SERVE} --x=$A",
    f"exec timeout --kill-after=9 600s nice -n 5 env {SERVE}",
    f"exec 2>&1; sleep 0;\n\n{SERVE} &&\n echo end",
]

UNDETERMINED = {
    f"if true; then {SERVE}; fi": "if",
    f"for i in 0 1; do {SERVE} & done": "for",
    f"while true; do {SERVE}; done": "while",
    f"case $A in\nx) {SERVE};; esac": "case",
    f"[ -f x ] && {SERVE}": "[",
    f"test -f x || {SERVE}": "test",
    f"pip x || {SERVE}": "||",
    f"source env.sh && {SERVE}": "source",
    f". ./env.sh\n{SERVE}": ".",
    f'eval "{SERVE}"': "eval",
    f"start() {{ {SERVE}; }}; start": "(",
    f"({SERVE})": "(",
    f"cat <<EOF > x\nEOF\n{SERVE}": "<<",
    "`which vllm` serve m": "`",
    f"exec > >(tee log) 2>&1; {SERVE}": ">",
    f"$START; {SERVE}": "$START",
    f"set -a; A=1; {SERVE}": "set",
    f"IFS=,; {SERVE}": "IFS",
    f"env -i A=1 {SERVE}": "env",
    f"nsys profile {SERVE}": "nsys",
    f"read A; {SERVE}": "read",
    f"{SERVE} &\n{SERVE}": "two programs",
    f"{SERVE} &\nif true; then {SERVE}; fi": "if",
    f"exec {SERVE} & exec {SERVE}": "two programs",
    f"exit 0; {SERVE}": "exit",
    "vllm serve 'unclosed": "'",
    "vllm serve --model <model-path>": "<",
    'vllm serve "$@"': '"',
}


def started(script: str, *shell: str, **more: Any) -> Program | Reason | None:
    env: list[dict[str, Any]] = [{"name": key, "value": value} for key, value in VALUES.items()]
    env += [{"name": key, "valueFrom": {}} for key in SECRET]
    shell = shell or ("bash", "-c")
    return program({"image": "mine", "command": [*shell], "args": [script], "env": env, **more})


def read(script: str, *shell: str, **more: Any) -> Program:
    read = started(script, *shell, **more)
    assert isinstance(read, Program), read
    return read


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with programs that write their words and variables, and some that do nothing."""
    folder = tmp_path_factory.mktemp("programs")
    writing = 'printf "%s\\0" "${0##*/}" "$@" > "$OUT/words"; env -0 > "$OUT/env.new"\n'
    writing += 'mv "$OUT/env.new" "$OUT/env"'
    for name in ("vllm", "torchrun", "pip", "ray"):
        (folder / name).write_text(
            f"#!/bin/sh\n{writing if name in ('vllm', 'torchrun') else ''}\n"
        )
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize("script", READ)
def test_the_real_shell_starts_what_is_read(script: str, programs: Path, tmp_path: Path) -> None:
    judged = read(script)
    container = {**VALUES, **SECRET}
    # The kubelet replaces $(NAME) before the shell sees it.
    given = re.sub(r"\$\((\w+)\)", lambda name: container.get(name[1], name[0]), script)
    env = {**container, "PATH": f"{programs}:{os.defpath}", "OUT": str(tmp_path)}
    done = subprocess.run(["bash", "-c", given], env=env, cwd=tmp_path, capture_output=True)
    if not (tmp_path / "env").exists():  # in the background
        pytest.fail(done.stderr.decode())
    real = (tmp_path / "words").read_text()
    pattern = rf"{judged.name}\0(serve\0)?"
    for word in judged.arguments:
        # An argument whose value is not known is two words here.
        pattern += r"(?<=.)[^\0]*\0" if word.text is None else rf"{re.escape(word.text)}[=\0]"
    assert re.fullmatch(pattern, real), (real, judged.arguments)
    variables = dict(
        text.split("=", 1) for text in (tmp_path / "env").read_text().split("\0") if text
    )
    assert variables.keys() - env.keys() - {"_", "PWD", "OLDPWD", "SHLVL"} <= judged.env.keys()
    for name, value in judged.env.items():
        assert value in (None, variables.get(name)), name


@pytest.mark.parametrize(("script", "syntax"), UNDETERMINED.items())
def test_what_is_not_certain_is_named(script: str, syntax: str) -> None:
    reason = started(script)
    assert isinstance(reason, Reason)
    assert (reason.cause, reason.value, reason.path) == (Cause.UNREADABLE_SCRIPT, syntax, "args[0]")


def test_the_sentence_names_the_syntax() -> None:
    reason = started(f"source env.sh; {SERVE}")
    assert isinstance(reason, Reason)
    assert reason.sentences("the command") == (
        "the command is a script with source, which is not read",
        "Write a script without it, or use command and args",
    )


@pytest.mark.parametrize(
    "words",
    [
        "uv run vllm",
        "uv run --no-sync -- vllm",
        "/usr/bin/tini -s -- vllm",
        "dumb-init vllm",
        "numactl -N 0 vllm",
        "env A=b vllm",
        "numactl --cpunodebind=0 -m 0 /opt/bin/vllm",
        "timeout 9h nohup nice vllm",
        "python3 -u -m vllm.entrypoints.cli.main",
        "tini -- env A=b python3 -m vllm.entrypoints.cli.main",
    ],
)
def test_programs_that_only_start_another_one_are_skipped(words: str) -> None:
    image = "vllm/vllm-openai:v0.19.1"
    judged = program({"image": image, "command": words.split(), "args": ["serve", "m"]})
    assert isinstance(judged, Program)
    assert judged.arguments == (Word("m", "args[1]"),)
    assert judged.env == ({"A": "b"} if "A=b" in words else {})
    # A project of uv may have another release.
    assert judged.release == (None if words.startswith("uv") else (0, 19, 1))


def test_a_script_after_such_a_program() -> None:
    command = ["/tini", "--", "env", "TP=4", "bash", "-c", "vllm serve m -tp $TP"]
    judged = program({"image": "mine", "command": command})
    assert isinstance(judged, Program)
    assert judged.arguments[-1] == Word("4", "command[6]")


def test_a_program_that_is_not_known_to_start_only_another_one_is_named() -> None:
    reason = program({"image": "mine", "command": ["nsys", "profile", "vllm", "serve", "m"]})
    assert isinstance(reason, Reason)
    assert reason.sentences()[0] == "nsys may start a server, whose arguments are not read"


@pytest.mark.parametrize("script", ["sleep infinity", "if x; then y; fi", "python a.py", "$X", ""])
def test_scripts_of_other_programs_are_not_judged(script: str) -> None:
    assert started(script) is None


@pytest.mark.parametrize(
    "shell",
    [
        ("sh", "-c"),
        ("/bin/bash", "-lc", "--"),
        ("bash", "-euxo", "pipefail", "-c"),
        ("bash", "--login", "-c", "--"),
        ("dash", "-ec"),
        ("bash", "-c", "-e"),
    ],
)
def test_the_options_of_a_shell(shell: tuple[str, ...]) -> None:
    assert [word.text for word in read(SERVE, *shell).arguments] == ["m", "-tp", "8"]
    assert isinstance(started(SERVE, *shell[:1], "start.sh", "-c"), Reason)


def test_only_an_argument_whose_value_is_not_known_is_unknown() -> None:
    script = (
        "vllm serve m --host $HOST --x=$WORDS --nnodes ${LWS_GROUP_SIZE:-2} --y ${Y:-1} $(cat x)"
    )
    words = [word.text for word in read(script).arguments]
    assert words == ["m", "--host", None, "--x", None, "--nnodes", None, "--y", "1", None]
    # With envFrom, any variable may be set.
    words = [word.text for word in read(script, envFrom=[{}]).arguments]
    assert words[-3:] == ["--y", None, None]


def test_words_that_may_be_several_end_what_is_known() -> None:
    container = {"image": "mine", "command": ["sh", "-c"]}
    script = "vllm serve m --served-model-name a $WORDS"
    reason = read_container({**container, "args": [script]})
    assert isinstance(reason, Reason)
    assert reason.cause is Cause.UNKNOWN_ARGUMENT


def test_what_ran_before_may_have_installed_another_release_or_started_ray() -> None:
    container = {"image": "vllm/vllm-openai:v0.19.1", "command": ["bash", "-c"]}
    before = {
        "": ((0, 19, 1), False),
        "cd /; echo x; ": ((0, 19, 1), False),
        "pip install x && ": (None, False),
        "ray start --head; ": (None, None),
        "bash multi-node-serving.sh leader; ": (None, None),
    }
    for script, (release, has_ray) in before.items():
        serving = read_container({**container, "args": [script + SERVE]})
        assert isinstance(serving, Serving)
        assert (serving.release, serving.has_ray, serving.tensor) == (release, has_ray, 8)


def test_forms_of_a_script_start_the_same() -> None:
    steps = ["set -e", "export A=1", "B=2", "mkdir -p x", "echo 'a;b' && true", "export D=$B"]
    words = ["vllm", "serve", "a b", "--x", '{"k": "$v"}', "it's", "-tp", "8"]
    expected = read("; ".join([*steps, shlex.join(words)]))
    quoted = {
        word: [
            shlex.quote(word),
            "".join(f"\\{c}" for c in word),
            '"' + re.sub(r'(["$])', r"\\\1", word) + '"',
        ]
        for word in words
    }
    rng = random.Random(1)
    for _ in range(200):
        script = "".join(
            step + rng.choice(["; ", "\n", " && ", " ;\n\n", " &&\n  "]) for step in steps
        )
        script += rng.choice(["", "exec ", "nohup "])
        script += rng.choice([" ", "  ", " \\\n  "]).join(
            rng.choice(quoted[word]) for word in words
        )
        script += rng.choice(["", "\n", " 2>&1", " | tee x", " & wait", " # end", "; exit 1"])
        assert read(script) == expected, script
