"""What streams page by page: what of it kernels read, and the lines that read matrices."""

from __future__ import annotations

import math

from ...nest.ir import Let, Line
from ...nest.values import Term, V, runtime, tl
from ...passes.paged import Paged, Pages
from ..stream import Stream
from .places import Places


def are_streamed(pages: Pages, stream: Stream) -> bool:
    """Whether all that lies in pages is streamed, as matrices or as per-position values, by tables that scores
    determine, and no matrix that does not.

    Scores are NaN by the rows of pages that do not exist, and so is all that is made of them.
    """
    tables = {one.table: one.pages for score in stream.scores if (one := pages.of(score.right.name))}
    names = {load.name for load in stream.matrices}
    inside = {*stream.batch, *stream.heads, stream.streamed}
    return not any(load.name in names for load in pages.along) and all(
        tables.get(one.table) == one.pages and (one.load.name in names or {*pages.joined_axes(one.load.axes)} <= inside)
        for one in pages.inputs
    )


def head(places: Places, paged: Paged) -> Line:
    """The line that points to a table of the page indices."""
    return Let(f"{paged.table}_head", places.head(places.of_input(paged.table)).value)


def page_indices(places: Places, pages: Pages, paged: Paged, start: Term, first: Term, last: Term) -> Line:
    """The line that looks up pages of the block from `start` on, where a tile needs them: from `first` to `last`."""
    stride = places.taken_stride(places.of_input(paged.table), pages.page)
    sizes = stride, places.size_name(pages.slot), V.BLOCK_N, V.INDEX
    found = runtime.page_numbers(f"{paged.table}_head", start, first, last, *sizes)
    return Let(f"{paged.table}_ahead", found)


def positions(places: Places, paged: Paged, first: Term, last: Term) -> Line:
    """The line that tells the page of each position of a block."""
    n_pages = places.size_name(paged.pages)
    return Let(f"{paged.table}_at", runtime.pages_at(f"{paged.table}_ahead", V.block, first, last, n_pages))


def matrix(places: Places, pages: Pages, paged: Paged) -> list[Line]:
    """The lines that load a block of a matrix."""
    tensor, width = places.of_input(paged.load.name), places.stream.width(paged.load)
    strides = (places.taken_stride(tensor, axis) for axis in (paged.pages, pages.slot, width))
    rows = f"{paged.table}_at", V.block % places.size_name(pages.slot)
    read = runtime.load_rows_at(f"{tensor.name}_head", *rows, *strides, f"size_{width.lower()}")
    return [Let(tensor.name, read), *places.converted(paged.load)]


def missing(paged: Paged, score: str) -> Line:
    """The line by which scores are NaN where there is no page."""
    return Let(score, tl.where(V[f"{paged.table}_at"][None, :] >= 0, score, math.nan))
