"""The operator as users run it: a process of its own, started, killed and read by its endpoints."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
READY_SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class OperatorProcess:
    """One operator against one cluster. ``environment`` changes its settings, ``code`` runs
    before it starts (to change what must be noticed)."""

    def __init__(
        self, kubeconfig: Path, log: Path, environment: Mapping[str, str], code: str = ""
    ) -> None:
        self._port = free_port()
        self._log = log
        start = "import sys\nfrom cascade_operator import __main__\nsys.exit(__main__.main())"
        self._command = ["-c", f"{code}\n{start}"] if code else ["-m", "cascade_operator"]
        self._environment = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "PYTHONPATH": ":".join(str(ROOT / part) for part in ("operator", "solver", "router")),
            "CASCADE_HTTP_PORT": str(self._port),
            "CASCADE_POD_NAME": "operator-0",
            "CASCADE_ROUTER_IMAGE": "cascade-operator/router:test",
            **environment,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits until it leads and its caches are filled."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._command],
                env=self._environment,
                stdout=log,
                stderr=log,
                cwd=self._log.parent,
            )
        deadline = time.monotonic() + READY_SECONDS
        while not self._answers("/readyz"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the operator did not start:\n{self.tail()}")
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL: nothing is released, nothing is said."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        return self._end(signal.SIGTERM)

    def wait(self, seconds: float) -> int:
        """The exit code, once it has ended by itself."""
        assert self._process is not None
        return self._process.wait(timeout=seconds)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def metric(self, name: str) -> float:
        """Sum over all label values of one metric."""
        with urllib.request.urlopen(self._url("/metrics"), timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        found = [x.rsplit(" ", 1) for x in lines if x.split("{")[0].split(" ")[0] == name]
        return sum(float(value) for _, value in found)

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def _end(self, number: int) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(timeout=30)

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._port}{path}"

    def _answers(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(self._url(path), timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
