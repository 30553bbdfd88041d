"""Store the table of the PTX parser in `tessera/data`, for the version of Lark that is installed.

python tools/store_parser.py
"""

from tessera.frontend.ptx.grammar import build_parser
from tessera.frontend.ptx.stored_parser import FILE, store_parser
from tessera.frontend.text.grammar import grammar_text

if __name__ == "__main__":
    store_parser(grammar_text("ptx"), build_parser()[0])
    print(f"{FILE.name}: {FILE.stat().st_size} bytes")
