"""The build backend of pyproject.toml (PEP 517). It compiles Pando and packs the wheel.

The wheel has the package pando_train, with libpando_worker.so and the program pando beside its modules.
auditwheel adds the libraries that both link. Each gets a hash in its name, so that the loader never takes
another copy in the same process for it. If PANDO_BUILD_DIR names a build folder, nothing is compiled.
"""
import base64
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

try:
    import tomllib
except ImportError:  # before Python 3.11
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PLATFORM = "manylinux_2_36_x86_64"  # the glibc of Debian 12
TARGETS = ("cli/pando", "embed/libpando_worker.so")
COMPILE = """source tools/lib.sh
command -v meson >/dev/null || die "meson is missing: run tools/setup.sh build"
configure build-wheel --buildtype=release
compile build-wheel "$@" """
EARLIEST = "315532800"  # 1980: the first second that a zip file can hold


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Returns the name of the wheel that it has written to `wheel_directory`."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", EARLIEST)  # for auditwheel: equal files make equal wheels
    with tempfile.TemporaryDirectory() as folder:
        plain = pack(Path(folder), *compile_targets())
        subprocess.run([sys.executable, "-m", "auditwheel", "repair", "--plat", PLATFORM, "--only-plat", "--strip",
                        "--wheel-dir", wheel_directory, plain], check=True)
    return plain.name.replace("linux_x86_64", PLATFORM)


def build_sdist(sdist_directory, config_settings=None):
    """Archives the last commit. Returns the archive's name."""
    project = read_project()
    name = f"pando_train-{project['version']}"
    subprocess.run(["git", "archive", f"--prefix={name}/", f"--add-virtual-file={name}/PKG-INFO:{metadata(project)}",
                    "--output", Path(sdist_directory).resolve() / f"{name}.tar.gz", "HEAD"], cwd=ROOT, check=True)
    return f"{name}.tar.gz"


def read_project():
    """Returns the table `project` of pyproject.toml, with the version of meson.build."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    build = (ROOT / "meson.build").read_text(encoding="utf-8")
    return {**project, "version": re.search(r"^  version: '(.+)'", build, re.MULTILINE).group(1)}


def compile_targets():
    """Returns the paths of the program and the library."""
    folder = os.environ.get("PANDO_BUILD_DIR")
    if folder is None:
        folder = ROOT / "build-wheel"
        # With pip's PYTHONPATH, Debian's Meson would not find its modules.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run(["bash", "-euo", "pipefail", "-c", COMPILE, "bash", *TARGETS], cwd=ROOT, env=environment,
                       check=True)
    return [Path(folder) / target for target in TARGETS]


def pack(folder, program, library):
    """Writes the wheel without the libraries of other projects to `folder`. Returns its path."""
    project = read_project()
    name = f"pando_train-{project['version']}"
    info = f"{name}.dist-info"
    sources = [*sorted((ROOT / "python/pando_train").glob("*.py")), program, library]
    files = {f"pando_train/{path.name}": path.read_bytes() for path in sources}
    notices = {"LICENSE": (ROOT / "LICENSE").read_bytes(), **find_notices(program, library)}
    files.update({f"{info}/licenses/{notice}": text for notice, text in notices.items()})
    scripts = "".join(f"{script} = {function}\n" for script, function in project["scripts"].items())
    files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{scripts}".encode()
    files[f"{info}/METADATA"] = metadata(project, notices).encode()
    files[f"{info}/WHEEL"] = (b"Wheel-Version: 1.0\nGenerator: pando\nRoot-Is-Purelib: false\n"
                              b"Tag: py3-none-linux_x86_64\n")
    record = "".join(f"{file},sha256={digest(content)},{len(content)}\n" for file, content in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    wheel = folder / f"{name}-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file, content in files.items():
            entry = zipfile.ZipInfo(file)  # dated 1980
            entry.external_attr = (0o100755 if file == "pando_train/pando" else 0o100644) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return wheel


def metadata(project, notices=()):
    """Returns the text of METADATA and PKG-INFO."""
    return "".join(f"{field}: {value}\n" for field, value in [
        ("Metadata-Version", "2.4"), ("Name", project["name"]), ("Version", project["version"]),
        ("Summary", project["description"]), ("License-Expression", project["license"]),
        *(("License-File", notice) for notice in notices), ("Requires-Python", project["requires-python"]),
        *(("Requires-Dist", dependency) for dependency in project["dependencies"])])


def digest(content):
    """Returns the SHA-256, in RECORD's form."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def find_notices(*paths):
    """Returns the copyright files of the Debian packages whose libraries these files link, by name in the wheel."""
    linked = subprocess.run(["ldd", *paths], stdout=subprocess.PIPE, text=True, check=True).stdout
    libraries = {Path(path).resolve() for path in re.findall(r"=> (/\S+)", linked)}
    names = [name for path in sorted(libraries) for name in (path, str(path).removeprefix("/usr"))]  # dpkg has either
    owners = subprocess.run(["dpkg-query", "--search", *names], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            text=True, check=False).stdout
    packages = sorted(set(re.findall(r"^([^:]+):", owners, re.MULTILINE)))
    return {f"{package}.txt": Path(f"/usr/share/doc/{package}/copyright").read_bytes() for package in packages}
