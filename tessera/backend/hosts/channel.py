"""The control channel between the driver and the process of a device: records and bytes.

In: two descriptors (pipes, or a socket twice), and the messages that are accepted. Out: `send` and
`receive`.

A frame has the lengths of a message and of its parts, the message as JSON, and the parts. Nothing
is pickled, so neither end can make the other run code. An unexpected message is an error. Text that
a login shell prints first is skipped.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from tessera.backend.hosts.messages import Lost
from tessera.backend.processes.messages import Message
from tessera.backend.service import Bytes

Heard = TypeVar("Heard", bound=Message)

_START = b"\x00tessera-channel/1\n"
_MOST_NOISE = 1 << 16
_LENGTHS = struct.Struct("<II")
_SIZE = struct.Struct("<Q")
_MOST_HEAD = 1 << 28
_MOST_PART = 1 << 46


class ChannelClosed(Exception):
    """The other end is gone, or does not use this protocol."""


class BadMessage(ValueError):
    """The other end sent bytes that are not a message."""


class ControlChannel(Generic[Heard]):
    """One end of a channel. Any thread may call `send`; one thread calls `receive`."""

    def __init__(self, source: int, target: int, hears: msgspec.json.Decoder[Heard]) -> None:
        self._source, self._target = source, target
        self._hears = hears
        self._sending = threading.Lock()
        self.waits_since_s: float | None = None
        """When `receive` began to wait for the other end; None if it is not waiting."""
        self.read_s = self.wrote_s = 0.0
        """When bytes last arrived, and when bytes were last sent; a message may take long."""

    def start(self) -> None:
        """Send the mark before the first frame."""
        with self._sending:
            self._write(memoryview(_START))

    def await_start(self) -> None:
        """Skip bytes before the mark of the other end."""
        seen = b""
        while not seen.endswith(_START):
            letter = os.read(self._source, 1)
            if not letter or len(seen) > _MOST_NOISE:
                raise ChannelClosed(seen[-400:].decode(errors="replace"))
            seen += letter

    def send(self, message: Message, parts: Sequence[Bytes] = ()) -> None:
        """Send a message and its parts; raises `ChannelClosed` if the other end is gone."""
        text = msgspec.json.encode(message)
        sizes = b"".join(_SIZE.pack(part.nbytes) for part in parts)
        with self._sending:
            self._write(memoryview(_LENGTHS.pack(len(text), len(parts)) + sizes + text))
            for part in parts:
                self._write(np.ascontiguousarray(part).data)

    def receive(self) -> tuple[Heard, list[Bytes]]:
        """The next message; raises `ChannelClosed` if there will be none, or `BadMessage`."""
        self.waits_since_s = time.monotonic()
        length, count = _LENGTHS.unpack(self._read(_LENGTHS.size))
        self.waits_since_s = None
        if length > _MOST_HEAD or count > _MOST_HEAD:
            raise ChannelClosed("a frame is too long")
        sizes = [_SIZE.unpack(self._read(_SIZE.size))[0] for _ in range(count)]
        if any(size > _MOST_PART for size in sizes):
            raise ChannelClosed("a frame is too long")
        text = self._read(length)
        parts = [np.frombuffer(self._read(size), np.uint8) for size in sizes]
        try:
            return self._hears.decode(text), parts
        except (ValueError, RecursionError) as problem:
            raise BadMessage(str(problem)) from None

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


class DriverLine:
    """Sends messages of a device to its driver, from any thread; nothing once the run is over."""

    def __init__(self, channel: ControlChannel[Any], orphan: Callable[[], None]) -> None:
        """`orphan` ends the process; it is called if the driver is gone."""
        self._channel = channel
        self._orphan = orphan
        self._saying = threading.Lock()
        self._is_over = False

    def send(self, message: Message, parts: Sequence[Bytes] = ()) -> None:
        """Send a message."""
        try:
            with self._saying:
                if not self._is_over:
                    self._channel.send(message, parts)
        except ChannelClosed:
            self._orphan()
            raise

    def lose(self, peer: str, why: str, *, is_cut: bool = False) -> None:
        """Report that a peer cannot be reached."""
        self.send(Lost(peer, why, is_cut))

    def end(self) -> None:
        """Send nothing from now on."""
        with self._saying:
            self._is_over = True
