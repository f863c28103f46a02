"""Finds lines in a user's file: of a call, or in a traceback."""

import os
import sys
import traceback
from itertools import islice
from pathlib import Path
from types import FrameType

from moldau.core.pipelines.graph import Spot
from moldau.spark.runtime.task_errors import is_users_file

_OWN = f"{Path(__file__).parents[1]}{os.sep}"


def caller() -> Spot:
    """The line of the user's call: the last one outside this package."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_OWN) and frame.f_back is not None:
        frame = frame.f_back
    return Spot(frame.f_code.co_filename, frame.f_lineno, _column(frame))


def _column(frame: FrameType) -> int:
    # Two bytes for each instruction.
    position = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
    return 1 if position is None or position[2] is None else position[2] + 1


def last_in(file: str, error: BaseException) -> Spot | None:
    """The last line of this file in an error's traceback."""
    wanted = Path(file).resolve()
    found = None
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.lineno is not None and Path(frame.filename).resolve() == wanted:
            found = Spot(file, frame.lineno, (frame.colno or 0) + 1)
    return found


def last_of_users(error: BaseException) -> Spot | None:
    """The last line in an error's traceback that is not in a library."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if frame.lineno is not None and is_users_file(frame.filename):
            return Spot(frame.filename, frame.lineno, (frame.colno or 0) + 1)
    return None
