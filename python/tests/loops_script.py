"""Trains a script of loops/ under `pando run`: loops_script.py NAME LOADER_WORKERS."""
import sys

from support import pando  # noqa: F401

from loops import build
from loops.script import BATCH, COUNT, EPOCHS

name, loader_workers = sys.argv[1], int(sys.argv[2])
build(name, True, EPOCHS * COUNT // BATCH).train_with_pando(EPOCHS, BATCH, loader_workers=loader_workers)
