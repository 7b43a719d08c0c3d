"""Heads that share what streams past them, as those of a group do in grouped-query attention."""

from __future__ import annotations

from dataclasses import replace

from ...spec.types import BATCH
from ..stream import Stream
from .blocks import Blocks


def grouped(stream: Stream, blocks: Blocks) -> Stream:
    """The stream whose last axis of the batch that no streamed matrix has is not of the batch, but of a group of heads.

    Rows of all heads of a group may lie in one tile, so that none of its bounds is of one head alone.
    """
    streamed = [load for load in stream.matrices if stream.streamed in load.axes]
    bounds = [*blocks.values, *(load for load, _ in blocks.compared)]
    axes = [axis for axis in stream.batch if axis != BATCH and not any(axis in load.axes for load in streamed)]
    axes = [axis for axis in axes if not any(axis in node.axes for node in bounds)]
    if not axes:
        return stream
    return replace(stream, batch=tuple(axis for axis in stream.batch if axis != axes[-1]), group=axes[-1])
