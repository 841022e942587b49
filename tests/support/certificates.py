"""A throw-away certificate authority, made with the openssl command line."""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

_DAYS = "30"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate, its private key, and the authority that signed it (all PEM files)."""

    ca_file: Path
    cert_file: Path
    key_file: Path

    def context(self) -> ssl.SSLContext:
        """What a client that trusts the authority shows with it."""
        context = ssl.create_default_context(cafile=self.ca_file)
        context.load_cert_chain(self.cert_file, self.key_file)
        return context

    def toml(self, section: str) -> str:
        """The table of a settings file that names the three files, such as grpc.tls."""
        files = {"ca": self.ca_file, "cert": self.cert_file, "key": self.key_file}
        lines = (f'{name}_file = "{file}"' for name, file in files.items())
        return "\n".join((f"[{section}]", *lines, ""))


class Authority:
    """Signs certificates for servers (by address) and clients (by name) below one folder."""

    def __init__(self, folder: Path, name: str = "Test CA") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca_file = folder / "ca.pem"
        self._key_file = folder / "ca.key"
        _openssl(
            *("req", "-x509", *_new_key(self._key_file), "-subj", f"/CN={name}"),
            *("-days", _DAYS, "-out", str(self.ca_file)),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),  # Python 3.13 asks for it
        )

    def server(self, *names: str, days: str = _DAYS) -> Certificate:
        """A server's certificate for these host names and IP addresses; it has expired if `days`
        < 0."""
        return self._sign("server", names[0], _alternatives(names), "serverAuth", days)

    def peer(self, *names: str) -> Certificate:
        """A certificate with which a process both serves under these names and calls others."""
        return self._sign("peer", names[0], _alternatives(names), "serverAuth,clientAuth")

    def client(self, name: str, days: str = _DAYS, common_name: str | None = None) -> Certificate:
        """A client's certificate whose common name is `name`, unless another is given; it has
        expired if `days` < 0."""
        shown = name if common_name is None else common_name.replace("/", r"\/")
        return self._sign(f"client-{name}", shown, f"DNS:{name}", "clientAuth", days)

    def _sign(
        self, stem: str, common_name: str, alternatives: str, usage: str, days: str = _DAYS
    ) -> Certificate:
        cert_file, key_file = self.folder / f"{stem}.pem", self.folder / f"{stem}.key"
        request, extensions = self.folder / f"{stem}.csr", self.folder / f"{stem}.ext"
        extensions.write_text(
            f"subjectAltName={alternatives}\nextendedKeyUsage={usage}\n"
            "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        )
        _openssl("req", *_new_key(key_file), "-subj", f"/CN={common_name}", "-out", str(request))
        _openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.ca_file)),
            *("-CAkey", str(self._key_file), "-CAcreateserial", "-days", days),
            *("-extfile", str(extensions), "-out", str(cert_file)),
        )
        return Certificate(self.ca_file, cert_file, key_file)


def _new_key(path: Path) -> tuple[str, ...]:
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    return (*curve, "-nodes", "-keyout", str(path))


def _alternatives(names: tuple[str, ...]) -> str:
    return ",".join(
        f"{'IP' if name[0].isdigit() or ':' in name else 'DNS'}:{name}" for name in names
    )


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, text=True)
