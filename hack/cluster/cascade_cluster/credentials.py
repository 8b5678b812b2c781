"""Keys, certificates and tokens of one cluster, made with openssl."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cascade_cluster.commands import run

REMEDY = "Install openssl (Debian package `openssl`)."

# The users that Kubernetes' own bootstrap roles are bound to, and a first administrator.
USERS: dict[str, tuple[str, str]] = {
    "admin": ("cascade-admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kube-proxy": ("system:kube-proxy", ""),
    "coredns": ("cascade-coredns", ""),
    "kwok": ("cascade-kwok", "system:masters"),
}


@dataclass(frozen=True)
class Credentials:
    """Files of the control plane's identity, all in one folder that only we can read."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def ca_key(self) -> Path:
        return self.folder / "ca.key"

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    @property
    def tokens(self) -> Path:
        return self.folder / "tokens.csv"

    def token(self, user: str) -> str:
        return (self.folder / f"{user}.token").read_text()

    def kubeconfig(self, user: str) -> Path:
        return self.folder / f"{user}.kubeconfig"


def _openssl(*words: str | Path) -> None:
    run(["openssl", *words], timeout_seconds=30, remedy=REMEDY)


def _key(path: Path) -> None:
    # Elliptic curves: an RSA key takes up to a second each to make.
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)


def _signed(credentials: Credentials, name: str, subject: str, extensions: str) -> None:
    key, request = credentials.key(name), credentials.folder / f"{name}.csr"
    settings = credentials.folder / f"{name}.ext"
    settings.write_text(extensions)
    _key(key)
    _openssl("req", "-new", "-key", key, "-subj", subject, "-out", request)
    _openssl(
        "x509", "-req", "-in", request, "-CA", credentials.ca, "-CAkey", credentials.ca_key,
        "-CAcreateserial", "-days", "3650", "-sha256", "-extfile", settings,
        "-out", credentials.certificate(name),
    )  # fmt: skip


def create(folder: Path, addresses: Sequence[str], nodes: Sequence[str]) -> Credentials:
    """Make the identity of a control plane that answers at the given addresses."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = Credentials(folder)
    _key(made.ca_key)
    _openssl(
        "req", "-x509", "-new", "-key", made.ca_key, "-subj", "/CN=cascade-cluster-ca", "-days",
        "3650", "-sha256", "-addext", "keyUsage=critical,digitalSignature,keyCertSign,cRLSign",
        "-out", made.ca,
    )  # fmt: skip
    names = [f"IP:{address}" for address in addresses]
    names += [
        f"DNS:{name}"
        for name in (
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        )
    ]
    _signed(
        made,
        "kube-apiserver",
        "/CN=kube-apiserver",
        f"extendedKeyUsage=serverAuth\nsubjectAltName={','.join(names)}\n",
    )
    # With this one the API server asks the kubelets for logs and for `exec`.
    _signed(
        made,
        "kubelet-client",
        "/O=system:masters/CN=kube-apiserver-kubelet-client",
        "extendedKeyUsage=clientAuth\n",
    )
    _key(made.key("service-accounts"))
    _openssl(
        "ec",
        "-in",
        made.key("service-accounts"),
        "-pubout",
        "-out",
        folder / "service-accounts.pub",
    )
    users = dict(USERS)
    users |= {name: (f"system:node:{name}", "system:nodes") for name in nodes}
    lines = []
    for uid, (user, (login, groups)) in enumerate(users.items()):
        token = secrets.token_urlsafe(24)
        (folder / f"{user}.token").write_text(token)
        lines.append(f'{token},{login},{uid},"{groups}"\n')
    made.tokens.write_text("".join(lines))
    return made


def write_kubeconfig(credentials: Credentials, user: str, url: str, path: Path) -> None:
    """A kubeconfig in JSON, which is YAML, with everything inside, so that it can be copied."""
    authority = base64.b64encode(credentials.ca.read_bytes()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "cascade",
        "clusters": [
            {"name": "cascade", "cluster": {"server": url, "certificate-authority-data": authority}}
        ],
        "users": [{"name": user, "user": {"token": credentials.token(user)}}],
        "contexts": [{"name": "cascade", "context": {"cluster": "cascade", "user": user}}],
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, indent=1))
