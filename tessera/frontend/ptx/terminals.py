"""Spellings of the PTX grammar's terminals, for regular expressions that combine several.

They agree with `grammars/ptx.lark` except for two limits: `BLANK` is whitespace without comments,
and integers are short enough to fit in 64 bits whatever their digits. Longer integers, like
everything else that these do not match, are read token by token.
"""

NAME = r"(?:[A-Za-z][A-Za-z0-9_$]*+|[_$%][A-Za-z0-9_$]++)"
MODIFIER = r"\.[A-Za-z0-9_]++(?:::[A-Za-z0-9_]++(?::[0-9]++)?)*+"
INTEGER = r"(?:0[xX][0-9a-fA-F]{1,16}+U?|0[0-7]{0,20}+U?|[1-9][0-9]{0,18}+U?)(?![A-Za-z0-9_$.(])"
HEX_FLOAT = r"(?:0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16})(?![A-Za-z0-9_$.])"
DECIMAL = r"[0-9]++\.[0-9]++(?:[eE][+-]?[0-9]++)?(?![A-Za-z0-9_$.])"
NUMBER = rf"(?:{HEX_FLOAT}|-?(?:{INTEGER}|{DECIMAL}))"

BLANK = r"[ \t\r\n]*+"
GAP = BLANK + r"(?:/(?:/[^\n]*+|\*(?:[^*]|\*(?!/))*+\*/)" + BLANK + r")*+"


def listed(element: str, closers: str) -> str:
    """One or more elements separated by commas, up to one of the closing characters.

    `element(, element)*` would hold the element twice, and lists of lists four times; compiling
    such an expression takes longer than reading a small file.
    """
    return rf"(?:{element}{BLANK}(?:,{BLANK}(?![{closers}])|(?=[{closers}])))++"


NUMBER_LIST = rf"\{{{BLANK}{listed(NUMBER, '}')}\}}"
