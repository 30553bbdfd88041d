"""`tessc cache`: show or clear what is kept of files that were read and analysed."""

from __future__ import annotations

import json

import click

from tessera.cli.console import Messages, write_text
from tessera.cli.options import json_option
from tessera.diagnostics import ExitCode, error
from tessera.report.diagnostics import safe
from tessera.settings import read_settings


@click.command(short_help="Show or clear the cache.")
@click.option("--clear", is_flag=True, help="Remove every file of it.")
@json_option
@click.pass_obj
def cache(messages: Messages, clear: bool, as_json: bool) -> int:
    """Show where parsed modules and what is known of their kernels are kept, and how much.

    The cache only makes commands faster: no result depends on it. TESSERA_CACHE_DIR says where it
    is, TESSERA_NO_CACHE=1 leaves it alone.

    \b
    Examples:
      tessc cache
      tessc cache --clear
    """
    from tessera.frontend.cache.private_files import (
        MAX_COMPILED_BYTES,
        MAX_FOLDER_BYTES,
        clear_cache,
        kept,
    )
    from tessera.frontend.machine.quantities import format_bytes

    settings = read_settings()
    folder = settings.cache_dir
    files = {} if folder is None else kept(folder)
    most = MAX_FOLDER_BYTES + MAX_COMPILED_BYTES
    removed, problem = (0, "") if folder is None or not clear else clear_cache(folder)
    if problem:
        hint = "remove the folder yourself, or give it to this user alone"
        messages.show([error("TSR1911", f"cannot clear `{folder}`: {problem}", hint=hint)])
        return ExitCode.ERRORS
    if as_json:
        value = {
            "schema": "tessera-cache/1",
            "folder": None if folder is None else str(folder),
            "used": settings.use_cache and folder is not None,
            "files": {kind: {"count": n, "bytes": size} for kind, (n, size) in files.items()},
            "most_bytes": most,
            "removed": removed,
        }
        text = json.dumps(value, indent=2) + "\n"
    elif folder is None:
        text = "no cache: there is no home folder to put it in; set TESSERA_CACHE_DIR\n"
    else:
        off = "" if settings.use_cache else ", not used: TESSERA_NO_CACHE is set"
        lines = [f"{safe(str(folder))}{off}"]
        lines += [
            f"  {n} files of {kind}, {format_bytes(size)}" for kind, (n, size) in files.items()
        ]
        lines.append(f"removed {removed} files" if clear else _room(files, most))
        text = "\n".join(lines) + "\n"
    write_text(text)
    return 0


def _room(files: dict[str, tuple[int, int]], most: int) -> str:
    from tessera.frontend.machine.quantities import format_bytes

    used = sum(size for _, size in files.values())
    return f"  {format_bytes(used)} of at most {format_bytes(most)}"
