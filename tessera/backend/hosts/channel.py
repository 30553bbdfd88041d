"""The control channel between the driver and the process of a device: records and bytes.

In: two descriptors (pipes, or both ends of a socket). Out: `send` and `receive`.

A frame is the lengths of a head and of its parts, the head as JSON, and the parts. Nothing is
pickled, so neither end can make the other run code. Whatever a login shell prints first is skipped.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Part = npt.NDArray[np.uint8]
Head = dict[str, Any]

_START = b"\x00tessera-channel/1\n"
_MOST_NOISE = 1 << 16
_LENGTHS = struct.Struct("<II")
_SIZE = struct.Struct("<Q")
_MOST_HEAD = 1 << 28
_MOST_PART = 1 << 46


class ChannelClosed(Exception):
    """The other end is gone, or does not speak this protocol."""


class ControlChannel:
    """One end. `send` may be called by any thread, `receive` by one."""

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._sending = threading.Lock()
        self.waits_since_s: float | None = None
        """Since when the other end has been waited for."""
        self.read_s = self.wrote_s = 0.0
        """When bytes last came, and when some were last taken: a record may take long."""

    def start(self) -> None:
        """Say where the frames begin."""
        with self._sending:
            self._write(memoryview(_START))

    def await_start(self) -> None:
        """Skip what comes before the frames of the other end."""
        seen = b""
        while not seen.endswith(_START):
            letter = os.read(self._source, 1)
            if not letter or len(seen) > _MOST_NOISE:
                raise ChannelClosed(seen[-400:].decode(errors="replace"))
            seen += letter

    def send(self, head: Head, parts: Sequence[Part] = ()) -> None:
        """Send a record with its bytes; raises `ChannelClosed` where nobody listens."""
        text = json.dumps(head).encode()
        sizes = b"".join(_SIZE.pack(part.nbytes) for part in parts)
        with self._sending:
            self._write(memoryview(_LENGTHS.pack(len(text), len(parts)) + sizes + text))
            for part in parts:
                self._write(np.ascontiguousarray(part).data)

    def receive(self) -> tuple[Head, list[Part]]:
        """The next record; raises `ChannelClosed` where none comes any more."""
        self.waits_since_s = time.monotonic()
        length, count = _LENGTHS.unpack(self._read(_LENGTHS.size))
        self.waits_since_s = None
        if length > _MOST_HEAD or count > _MOST_HEAD:
            raise ChannelClosed("a frame is too long")
        sizes = [_SIZE.unpack(self._read(_SIZE.size))[0] for _ in range(count)]
        if any(size > _MOST_PART for size in sizes):
            raise ChannelClosed("a frame is too long")
        try:
            head = json.loads(bytes(self._read(length)))
        except (ValueError, RecursionError):
            raise ChannelClosed("a frame is not JSON") from None
        if not isinstance(head, dict):
            raise ChannelClosed("a frame is no record")
        return head, [np.frombuffer(self._read(size), np.uint8) for size in sizes]

    def _write(self, content: memoryview) -> None:
        content = content.cast("B") if content.nbytes else content
        at = 0
        try:
            while at < content.nbytes:
                at += os.write(self._target, content[at : at + (1 << 20)])
                self.wrote_s = time.monotonic()
        except OSError as problem:
            raise ChannelClosed(str(problem)) from None

    def _read(self, size: int) -> bytearray:
        content = bytearray(size)
        view, at = memoryview(content), 0
        try:
            while at < size:
                count = os.readv(self._source, [view[at:]])
                if not count:
                    raise ChannelClosed("the other end is gone")
                at += count
                self.read_s = time.monotonic()
        except OSError as problem:
            raise ChannelClosed(str(problem)) from None
        return content
