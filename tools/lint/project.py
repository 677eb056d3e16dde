"""The files of the repository, as the checks see them."""
import subprocess
from functools import cached_property, lru_cache
from pathlib import Path

from cpp_shapes import Shapes
from cpp_source import CppSource

CPP_SUFFIXES = {".cc", ".h", ".cu", ".cuh"}


class Project:
    """A folder with source files. Paths are relative to it, with forward slashes."""

    def __init__(self, root):
        self.root = Path(root).resolve()

    @cached_property
    def files(self):
        """Returns tracked files and new ones that git does not ignore. Without git: all files."""
        try:
            listed = self.git("ls-files", "--cached", "--others", "--exclude-standard").splitlines()
        except (OSError, subprocess.CalledProcessError):
            listed = [str(path.relative_to(self.root)) for path in self.root.rglob("*")]
        return sorted({path for path in listed if (self.root / path).is_file()})

    def git(self, *arguments):
        command = ["git", "-C", str(self.root), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    @cached_property
    def cpp_files(self):
        return [path for path in self.files if Path(path).suffix in CPP_SUFFIXES]

    @cached_property
    def product_cpp_files(self):
        return [path for path in self.cpp_files if not path.startswith("tests/")]

    def files_with(self, *suffixes):
        return [path for path in self.files if path.endswith(suffixes)]

    @lru_cache(maxsize=None)
    def text(self, path):
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    @lru_cache(maxsize=None)
    def cpp(self, path):
        return CppSource(self.text(path))

    @lru_cache(maxsize=None)
    def shapes(self, path):
        return Shapes(self.cpp(path))
