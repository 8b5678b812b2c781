#!/usr/bin/env bash
# Makes the project's environment: hack/bootstrap.sh .venv. Installs what the machine lacks for it.
set -euo pipefail
venv=$1
python=${PYTHON:-python3}

say() { printf '[setup] %s\n' "$*" >&2; }

if ! command -v "$python" >/dev/null; then
  say "no '$python' on PATH: install Python 3.11 or newer, or set PYTHON=/path/to/python"
  exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  say "$("$python" --version) is too old: Python 3.11 or newer is needed (set PYTHON=...)"
  exit 1
fi
# Debian splits venv off the interpreter; without ensurepip no environment can be made.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  package="python3-venv"
  if [ "${INSTALL:-1}" = 0 ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    say "Python's venv module is missing; install it with: apt-get install $package"
    exit 1
  fi
  say "installing $package"
  apt-get update -qq >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null
fi

start=$SECONDS
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
say "installing the project's Python packages into $venv (about a minute the first time)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
  --constraint constraints.txt --editable '.[dev]'
touch "$venv/.ready"
say "environment ready after $((SECONDS - start)) s"
