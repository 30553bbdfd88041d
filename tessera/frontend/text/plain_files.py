"""Opens the files that a trace or a plan names, which must be plain files.

In: a path made of a folder that the user named and a name that a file gave. Out: a descriptor of a
regular file. Links are not followed, pipes and devices are not waited for. If the user names a
folder, `root`, links are followed if they lead to a file below it: the caches of model hubs have
names that link to blobs. The target of a link is resolved first and then opened folder by folder,
none of them a link, so that nobody can change it in between.
"""

from __future__ import annotations

import hashlib
import os
import stat

from tessera.diagnostics import Diagnostic, TesseraError, error

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # opening a pipe must not wait for a writer
_FLAGS = os.O_RDONLY | _NO_FOLLOW | _NO_WAIT | getattr(os, "O_BINARY", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0)


def open_plain(name: str, hint: str | None = None, root: str | None = None) -> int:
    """A descriptor of a regular file; a link is followed only if it leads below `root`."""
    try:
        if not os.path.islink(name):
            descriptor = os.open(name, _FLAGS)
        elif root is None:
            raise TesseraError(_not_plain(name, "a link"))
        else:
            descriptor = _open_below(name, os.path.realpath(root), root)
    except FileNotFoundError:
        missing = error("TSR1181", f"the file of contents does not exist: `{name}`", hint=hint)
        raise TesseraError(missing) from None
    except (OSError, ValueError) as problem:
        reason = str(getattr(problem, "strerror", None) or problem).lower()
        message = f"the file of contents cannot be read: `{name}`: {reason}"
        raise TesseraError.of("TSR1181", message) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise TesseraError(_not_plain(name, "not a regular file"))
    return descriptor


MOST_DIGESTED_BYTES = 1 << 28


def file_digest(name: str, root: str | None = None) -> str | None:
    """The SHA-256 of a file that may be opened, or None; reading the file reports the error.

    None for a large file as well: reading all of it would take longer than using it.
    """
    try:
        descriptor = open_plain(name, root=root)
    except TesseraError:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        if os.fstat(stream.fileno()).st_size > MOST_DIGESTED_BYTES:
            return None
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_plain(name: str, root: str | None = None) -> bool:
    """Whether a file exists and may be opened."""
    try:
        os.close(open_plain(name, root=root))
    except TesseraError:
        return False
    return True


def _open_below(name: str, base: str, root: str) -> int:
    """Open the target of a link, if it is below a folder."""
    target = os.path.realpath(name)
    if not os.path.isdir(base):
        raise TesseraError.of("TSR1181", f"the folder for contents is no folder: `{root}`")
    if os.path.commonpath([base, target]) != base or target == base:
        raise TesseraError.of(
            "TSR1181",
            f"the file of contents is a link that leads out of `{root}`: `{name}`",
            hint="name a folder with `--data-root` that holds what the link leads to",
        )
    if os.open not in os.supports_dir_fd:
        return os.open(target, _FLAGS)
    *folders, last = os.path.relpath(target, base).split(os.sep)
    here = os.open(base, os.O_RDONLY | _FOLDER)
    try:
        for folder in folders:
            inner = os.open(folder, os.O_RDONLY | _FOLDER | _NO_FOLLOW, dir_fd=here)
            os.close(here)
            here = inner
        return os.open(last, _FLAGS, dir_fd=here)
    finally:
        os.close(here)


def _not_plain(name: str, what: str) -> Diagnostic:
    more = ", or follow links below a folder with `--data-root FOLDER`" if what == "a link" else ""
    return error(
        "TSR1181",
        f"the file of contents is {what}: `{name}`",
        notes=("a trace may only name a plain file in its own folder",),
        hint=f"copy the file itself beside the trace{more}",
    )
