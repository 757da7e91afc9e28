#!/bin/sh
# Install the packages of a lock, and this package, into .venv: sh install.sh LOCK [PYTHON]
# uv does it in seconds: the one on PATH, or else the one of requirements.lock. Without it, pip does.
set -eu
lock=$1 python=${2:-python3} log=.venv/install.log started=$(date +%s)

main() {
  count=$(grep -c == "$lock")
  printf 'installing %s Python packages into .venv (once) … ' "$count"
  is_usable || make_environment
  rm -f .venv/.ready .venv/.ready-dev
  : >"$log"
  find_uv
  install --require-hashes -r "$lock" && install --no-deps --no-build-isolation -e . || explain
  echo "done in $(($(date +%s) - started)) s"
}

# An interrupted installation has left no stamp, and a removed Python a dead link.
is_usable() {
  [ -e .venv/.ready ] && is_new_enough .venv/bin/python
}

is_new_enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

make_environment() {
  [ "$python" != python3 ] || more="python3.13 python3.12 python3.11"
  for name in "$python" ${more:-} none; do
    ! is_new_enough "$name" || break
  done
  [ "$name" != none ] || fail \
    "$python is not Python 3.11 or newer. Install one, and name it: make PYTHON=python3.12"
  rm -rf .venv
  mkdir .venv
  ! uv venv -q --seed --allow-existing --python "$name" .venv >"$log" 2>&1 || return 0
  "$name" -c 'import ensurepip' 2>/dev/null || fail \
    "$name cannot make an environment. Install what it lacks: sudo apt install python3-venv"
  "$name" -m venv .venv >"$log" 2>&1 || explain
}

find_uv() {
  uv=$(command -v .venv/bin/uv || command -v uv) || true
  [ -z "$uv" ] || return 0
  awk '/^[^ #]/ { is_uv = /^uv==/ } is_uv' requirements.lock >.venv/uv.lock
  pip --require-hashes -r .venv/uv.lock || return 0
  uv=.venv/bin/uv
  # uv does not read pip's settings. Those of the environment apply, and are listed first.
  index=$(.venv/bin/python -m pip config list | sed -n "s/^[^ ]*\.index-url='\(.*\)'$/\1/p" | head -n 1)
  [ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
}

install() {
  if [ -n "$uv" ] && "$uv" pip install -q --python .venv/bin/python "$@" >>"$log" 2>&1; then
    return
  fi
  ! is_offline && pip "$@"
}

pip() {
  .venv/bin/python -m pip install -q --no-compile --retries 2 "$@" >>"$log" 2>&1
}

is_offline() {
  grep -qiE 'name resolution|name or service|dns error|refused|unreachable|timed out' "$log"
}

explain() {
  is_offline && fail "the Python package index cannot be reached. Check the network, or set PIP_INDEX_URL to the index of your network; then run it again"
  echo
  # An index may have a password, which pip and uv show if they cannot read its address.
  sed "s/[^ \"'\`]*:[^ \"'\`]*@/***@/g" "$log"
  fail "the Python packages cannot be installed; see above"
}

fail() {
  printf '\nerror: %s\n' "$1" >&2
  exit 1
}

main
