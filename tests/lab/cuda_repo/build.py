#!/usr/bin/env python3
# Copyright: (c) 2026, gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build a CUDA *deb local repository* in the shape of NVIDIA's, for tests of the role cuda_toolkit.

The file has NVIDIA's names, paths, signature, pin and packages. Inside, the compiler is the real one (from NVIDIA's
wheels, see requirements-M.m.txt); the driver packages are empty stand-ins, there to show that no role drags them in.
Each repository is signed by a key of its own that is thrown away, as NVIDIA's are.

Writes DIR/cuda-repo-<distro>-<M-m>-local_<M.m.p>-<driver>-1_amd64.deb, the same name with .sha256, and
DIR/cuda-<distro>.pin. Run again with unchanged inputs, it does nothing.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOOLS = {"dpkg-deb": "dpkg", "gpg": "gnupg"}
PACKAGES = sorted(TOOLS.values())
DRIVERS = {"13.0.2": "580.95.05", "13.1.1": "590.48.01"}  # the driver that NVIDIA ships beside each release
TARGET = "targets/x86_64-linux"
# Left out of the wheels: what no test compiles with, because it would more than double the size.
LEFT_OUT = ("lib/libnvvm.so.", "lib/cmake/", "include/cccl/cub/", "include/cccl/cuda/", "include/cccl/thrust/")


@dataclass
class Package:
    """One Debian package: files and links are by absolute path, a file is (content, mode)."""

    name: str
    version: str
    depends: str = ""
    architecture: str = "amd64"
    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)
    conffiles: list[str] = field(default_factory=list)

    def control(self) -> str:
        depends = f"Depends: {self.depends}\n" if self.depends else ""
        return (
            f"Package: {self.name}\nVersion: {self.version}\nArchitecture: {self.architecture}\n"
            f"Maintainer: gpuops.cluster tests <root@localhost>\nSection: devel\nPriority: optional\n{depends}"
            f"Description: {self.name} of a simulated CUDA repository\n"
        )

    def build(self, directory: Path, compression: str) -> Path:
        """Write NAME_VERSION_ARCH.deb into directory."""
        deb = directory / f"{self.name}_{self.version}_{self.architecture}.deb"
        with tempfile.TemporaryDirectory() as temporary:
            root = Path(temporary, "root")
            for path, (content, mode) in self.files.items():
                write(root / path.lstrip("/"), content, mode)
            for path, target in self.links.items():
                link = root / path.lstrip("/")
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(target)
            write(root / "DEBIAN/control", self.control().encode())
            for name, text in self.scripts.items():
                write(root / "DEBIAN" / name, f"#!/bin/sh\nset -e\n{text}".encode(), 0o755)
            if self.conffiles:
                write(root / "DEBIAN/conffiles", "".join(f"{path}\n" for path in self.conffiles).encode())
            for directory_inside in (root, *(path for path in root.rglob("*") if path.is_dir())):
                directory_inside.chmod(0o755)
            run("dpkg-deb", f"-Z{compression}", "--root-owner-group", "--build", root, deb)
        return deb


def write(path: Path, content: bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def run(*command: str | Path, env: dict[str, str] | None = None) -> bytes:
    """Run a command and return its output; stop the program with the command's own words when it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, check=False, env=env)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr.decode().strip()}")
    return done.stdout


def require_tools() -> None:
    """Install what is missing, as root on a Debian family system; else name the command to type."""
    missing = sorted({package for tool, package in TOOLS.items() if not shutil.which(tool)})
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise SystemExit(f"missing tools; type: sudo apt-get install -y {' '.join(missing)}")
    run("apt-get", "update", "-qq")
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing)


def wheel_files(requirements: Path, cache: Path) -> dict[str, tuple[bytes, int]]:
    """Download NVIDIA's wheels (checked against the hashes in requirements) and return the CUDA tree in them."""
    cache.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    run(*pip, "--require-hashes", "--requirement", requirements, "--dest", cache)
    wanted = [line.split()[0].replace("-", "_").replace("==", "-") for line in requirements.open() if "==" in line]
    files = {}
    for name in wanted:
        (wheel,) = cache.glob(f"{name}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for item in archive.infolist():
                top, _, path = item.filename.partition("nvidia/cu13/")
                if path and not top and not item.is_dir() and not path.startswith((".", *LEFT_OUT)):
                    executable = path.startswith(("bin/", "nvvm/bin/")) and "." not in path
                    files[path] = (archive.read(item), 0o755 if executable else 0o644)
    return files


def cuda_packages(cuda: str, driver: str, distro: str, wheels: dict[str, tuple[bytes, int]]) -> list[Package]:
    """The packages of one CUDA release: names, dependencies and maintainer scripts are NVIDIA's."""
    major, minor, _ = cuda.split(".")
    mm, dot, version = f"{major}-{minor}", f"{major}.{minor}", f"{cuda}-1"
    prefix = f"/usr/local/cuda-{dot}"

    def tree(*starts: str) -> dict[str, tuple[bytes, int]]:
        """Take these parts of the wheels, moved to where the Debian packages have them."""
        taken = {}
        for path in [path for path in wheels if path.startswith(starts)]:
            place = f"{TARGET}/{path}" if path.startswith(("include/", "lib/")) else path
            taken[f"{prefix}/{place}"] = wheels.pop(path)
        return taken

    def library_path(name: str, base: str) -> dict[str, tuple[bytes, int]]:
        return {f"/etc/ld.so.conf.d/{name}.conf": (f"{base}/{TARGET}/lib\n".encode(), 0o644)}

    priority = int(major) * 10 + int(minor)
    alternatives = (("/usr/local/cuda", "cuda"), (f"/usr/local/cuda-{major}", f"cuda-{major}"))
    install = "".join(
        f"update-alternatives --install {link} {name} {prefix} {priority}\n" for link, name in alternatives
    )
    remove = "".join(f"  update-alternatives --remove {name} {prefix}\n" for _, name in alternatives)
    config = f"cuda-toolkit-{mm}-config-common"
    runtime_library = next(path for path in wheels if path.startswith("lib/libcudart.so."))
    driver_version = f"{driver}-1" if distro.startswith("debian") else f"{driver}-0ubuntu1"
    driver_package = "nvidia-driver" if distro.startswith("debian") else f"nvidia-driver-{driver.split('.', 1)[0]}"
    release = json.dumps({"cuda": {"name": "CUDA SDK", "version": cuda}}).encode()
    return [
        Package("cuda-toolkit-config-common", version, "", "all", library_path("000_cuda", "/usr/local/cuda")),
        Package(
            f"cuda-toolkit-{major}-config-common",
            version,
            "cuda-toolkit-config-common",
            "all",
            library_path(f"988_cuda-{major}", f"/usr/local/cuda-{major}"),
        ),
        Package(
            config,
            version,
            f"cuda-toolkit-{major}-config-common",
            "all",
            {f"{prefix}/version.json": (release, 0o644)},
            scripts={
                "postinst": f'if [ "$1" = configure ]; then\n{install}ldconfig\nfi\n',
                "prerm": f'if [ "$1" = remove ]; then\n{remove}fi\n',
            },
        ),
        Package(f"cuda-crt-{mm}", version, config, files=tree("include/crt/", "bin/crt/")),
        Package(f"libnvvm-{mm}", version, config, files=tree("nvvm/")),
        Package(f"cuda-nvcc-{mm}", version, f"cuda-crt-{mm}, libnvvm-{mm}", files=tree("bin/")),
        Package(f"cuda-cccl-{mm}", version, config, files=tree("include/nv/", "include/cccl/")),
        Package(
            f"cuda-cudart-{mm}",
            version,
            config,
            files=tree("lib/libcudart.so."),
            links={f"{prefix}/lib64": f"{TARGET}/lib"},
        ),
        Package(
            f"cuda-cudart-dev-{mm}",
            version,
            f"cuda-cudart-{mm}, cuda-cccl-{mm}",
            files=tree("include/", "lib/"),
            links={
                f"{prefix}/include": f"{TARGET}/include",
                f"{prefix}/{TARGET}/lib/libcudart.so": Path(runtime_library).name,
            },
        ),
        Package(f"cuda-toolkit-{mm}", version, f"cuda-nvcc-{mm}, cuda-cudart-dev-{mm}"),
        Package(f"cuda-toolkit-{major}", version, f"cuda-toolkit-{mm}"),
        Package("cuda-toolkit", version, f"cuda-toolkit-{major}"),
        Package(f"cuda-runtime-{mm}", version, f"cuda-cudart-{mm}, cuda-drivers (>= {driver})"),
        Package(f"cuda-{mm}", version, f"cuda-toolkit-{mm}, cuda-runtime-{mm}"),
        Package("cuda", version, f"cuda-{mm}"),
        Package("cuda-drivers", driver_version, f"{driver_package} (= {driver_version})"),
        Package(driver_package, driver_version),
    ]


def index(packages: list[Package], directory: Path) -> None:
    """Build the packages into directory and describe them in Packages, Packages.gz and Release."""
    stanzas = []
    for package in packages:
        deb = package.build(directory, "zstd")
        data = deb.read_bytes()
        stanzas.append(
            f"{package.control()}Filename: ./{deb.name}\nSize: {len(data)}\n"
            f"MD5sum: {hashlib.md5(data).hexdigest()}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
        )
    text = "\n".join(stanzas).encode()
    write(directory / "Packages", text)
    write(directory / "Packages.gz", gzip.compress(text, mtime=0))
    sums = ""
    for title, algorithm in (("MD5Sum", "md5"), ("SHA1", "sha1"), ("SHA256", "sha256")):
        sums += f"{title}:\n"
        for name in ("Packages", "Packages.gz"):
            data = (directory / name).read_bytes()
            sums += f" {hashlib.new(algorithm, data).hexdigest()} {len(data)} {name}\n"
    head = f"Origin: NVIDIA\nLabel: NVIDIA CUDA\nArchitecture: amd64\nDate: {formatdate(usegmt=True)}\n"
    write(directory / "Release", f"{head}{sums}".encode())


def sign(directory: Path) -> str:
    """Sign Release with a new key, leave its public part beside it, and return the key's last eight digits."""
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "GNUPGHOME": home}
        gpg = ("gpg", "--batch", "--quiet")
        try:
            new_key = ("--passphrase", "", "--quick-generate-key", "cudatools <cudatools@localhost>")
            run(*gpg, *new_key, "rsa3072", "sign", "never", env=env)
            listing = run(*gpg, "--list-keys", "--with-colons", env=env).decode().splitlines()
            fingerprint = next(line.split(":")[9] for line in listing if line.startswith("fpr:"))
            key = fingerprint[-8:]
            release = directory / "Release"
            write(directory / "InRelease", run(*gpg, "--clearsign", "--output", "-", release, env=env))
            write(directory / "Release.gpg", run(*gpg, "--armor", "--detach-sign", "--output", "-", release, env=env))
            write(directory / f"cuda-{key}-keyring.gpg", run(*gpg, "--export", fingerprint, env=env))
            write(directory / f"{key}.pub", run(*gpg, "--armor", "--export", fingerprint, env=env))
        finally:
            run("gpgconf", "--kill", "all", env=env)
    return key


def local_repository(name: str, version: str, distro: str, mm: str, packages: list[Package]) -> Package:
    """The package that carries the repository under /var, its source list, and the hint to install its key."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        index(packages, directory)
        key = sign(directory)
        files = {f"/var/{name}/{path.name}": (path.read_bytes(), 0o644) for path in directory.iterdir()}
    keyring = f"cuda-{key}-keyring.gpg"
    source = f"/etc/apt/sources.list.d/cuda-{distro}-{mm}-local.list"
    line = f"deb [signed-by=/usr/share/keyrings/{keyring}] file:///var/{name} /\n"
    hint = (
        f'if [ "$1" = configure ] && [ ! -e /usr/share/keyrings/{keyring} ]; then\n'
        f'  printf "\\nThe public {name} GPG key does not appear to be installed.\\n'
        f'To install the key, run this command:\\nsudo cp /var/{name}/{keyring} /usr/share/keyrings/\\n\\n"\nfi\n'
    )
    files[source] = (line.encode(), 0o644)
    return Package(name, version, files=files, scripts={"postinst": hint}, conffiles=[source])


def pin() -> str:
    """NVIDIA's pin file: what of these names comes from the distribution is refused, the rest preferred from CUDA."""
    refused = ("nsight-compute", "nsight-systems")
    text = "".join(f"Package: {name}\nPin: origin *ubuntu.com*\nPin-Priority: -1\n\n" for name in refused)
    return f"{text}Package: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 600\n"


def build(options: argparse.Namespace, distro: str) -> None:
    """Write one repository, its checksum and its pin, unless they are there from the same inputs."""
    driver: str = options.driver or DRIVERS[options.cuda]
    major, minor, _ = options.cuda.split(".")
    name, version = f"cuda-repo-{distro}-{major}-{minor}-local", f"{options.cuda}-{driver}-1"
    requirements = HERE / f"requirements-{major}.{minor}.txt"
    deb = options.out / f"{name}_{version}_amd64.deb"
    checksum, stamp, pin_file = Path(f"{deb}.sha256"), Path(f"{deb}.inputs"), options.out / f"cuda-{distro}.pin"
    inputs = hashlib.sha256(Path(__file__).read_bytes() + requirements.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == inputs and all(p.is_file() for p in (deb, checksum, pin_file)):
        print(f"{deb}: up to date")
        return
    require_tools()
    options.out.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    packages = cuda_packages(options.cuda, driver, distro, wheel_files(requirements, options.cache / "cuda-wheels"))
    with tempfile.TemporaryDirectory(dir=options.out) as temporary:
        repository = local_repository(name, version, distro, f"{major}-{minor}", packages)
        repository.build(Path(temporary), "none").replace(deb)
    write(checksum, f"{hashlib.sha256(deb.read_bytes()).hexdigest()}  {deb.name}\n".encode())
    write(pin_file, pin().encode())
    write(stamp, inputs.encode())
    print(f"{deb}: built, {deb.stat().st_size >> 20} MiB")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Build CUDA deb local repositories in the shape of NVIDIA's.")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the result goes")
    parser.add_argument("--cache", type=Path, required=True, metavar="DIR", help="where downloaded wheels are kept")
    parser.add_argument("--distro", action="append", metavar="NAME", help="default: debian12 and debian13")
    parser.add_argument("--cuda", default="13.0.2", choices=sorted(DRIVERS), help="default: %(default)s")
    parser.add_argument("--driver", metavar="VERSION", help="default: the one that belongs to --cuda")
    options = parser.parse_args(arguments)
    for distro in options.distro or ("debian12", "debian13"):
        build(options, distro)


if __name__ == "__main__":
    main()
