"""The table of diagnostic codes, and the pages that explain them.

A code never changes its meaning: 1xxx syntax and files, 2xxx analysis, 3xxx planning, 4xxx
lowering, 5xxx running, 6xxx capture, 9xxx a fault of Tessera's own. Every code has a page
`explain/<code>.md` with the sections What it means, Why it matters, Example, What to do; the
tests compare the table, the pages and the code that reports them.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from tessera.diagnostics import Severity

_PAGES = Path(__file__).parent / "explain"


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding: its code, its title, and its default severity."""

    code: str
    title: str
    severity: Severity = Severity.ERROR


_WARNING = Severity.WARNING

CODES: tuple[Code, ...] = (
    Code("TSR1001", "something else is expected here"),
    Code("TSR1002", "the module does not say what it is"),
    Code("TSR1003", "the text ends too early"),
    Code("TSR1004", "a comment or a string is never closed"),
    Code("TSR1007", "this is not a number that PTX knows"),
    Code("TSR1008", "nested too deeply"),
    Code("TSR1009", "the value is not allowed here"),
    Code("TSR1012", "the PTX version or the target is not known"),
    Code("TSR1013", "the declaration breaks a rule"),
    Code("TSR1020", "the name is not declared"),
    Code("TSR1021", "the name or the label is declared twice"),
    Code("TSR1024", "the operands are not those of the opcode"),
    Code("TSR1025", "the opcode or the directive is not known"),
    Code("TSR1027", "the opcode does not have these modifiers and types"),
    Code("TSR1028", "the operand has another type than the opcode wants"),
    Code("TSR1029", "the instruction needs a later PTX version or target"),
    Code("TSR1100", "the trace has no version that is known"),
    Code("TSR1103", "a record is not well formed"),
    Code("TSR1104", "the keys of a record are not those of its kind"),
    Code("TSR1109", "a record or a text is out of order"),
    Code("TSR1110", "a name is declared twice"),
    Code("TSR1111", "a name is not declared"),
    Code("TSR1116", "a value is not one that its key takes"),
    Code("TSR1117", "a module has no PTX"),
    Code("TSR1121", "size, shape, strides and type do not agree"),
    Code("TSR1125", "the block or the clusters of a launch do not fit"),
    Code("TSR1131", "an argument does not fit its parameter"),
    Code("TSR1135", "a number is passed for a pointer", _WARNING),
    Code("TSR1136", "an address or a range is outside its buffer"),
    Code("TSR1139", "a copy overlaps itself"),
    Code("TSR1140", "a pointer of a table cannot stand there"),
    Code("TSR1150", "variants of a module disagree"),
    Code("TSR1152", "variants of a launch are not those of its module"),
    Code("TSR1153", "an architecture is not well formed, or not the target"),
    Code("TSR1164", "a call does not fit the table of operators"),
    Code("TSR1181", "a file of contents cannot be opened"),
    Code("TSR1183", "a file of contents is damaged, or holds no bytes"),
    Code("TSR1185", "an array of contents does not fit its buffer"),
    Code("TSR1187", "a checkpoint cannot be used for a trace"),
    Code("TSR1900", "the file does not exist or cannot be read"),
    Code("TSR1903", "the file is empty"),
    Code("TSR1904", "the file is too large"),
    Code("TSR1905", "the file is machine code, not PTX"),
    Code("TSR1909", "the file is binary, compressed, or in UTF-16 or UTF-32"),
    Code("TSR1910", "the text is another language, not PTX"),
    Code("TSR1911", "an output cannot be written"),
    Code("TSR1914", "arrivals cannot be used"),
    Code("TSR1916", "a report cannot be made of these files"),
    Code("TSR1918", "an optional package is missing"),
    Code("TSR2001", "a launch may touch any buffer", _WARNING),
    Code("TSR2002", "a launch may overwrite pointers", _WARNING),
    Code("TSR2003", "a weight is written"),
    Code("TSR2004", "a launch reaches outside a buffer", _WARNING),
    Code("TSR2005", "a launch uses a null pointer", _WARNING),
    Code("TSR2006", "a launch has too many threads that differ", _WARNING),
    Code("TSR2007", "a temp is read before it is written", _WARNING),
    Code("TSR2008", "two steps race", _WARNING),
    Code("TSR2009", "the machine decides a result", _WARNING),
    Code("TSR2010", "a launch waits for other threads", _WARNING),
    Code("TSR2011", "a launch needs CTAs that run together", Severity.NOTE),
    Code("TSR2012", "a kernel prints", Severity.NOTE),
    Code("TSR2013", "contents decide which bytes are touched", Severity.NOTE),
    Code("TSR2014", "a weight differs from the one analysed"),
    Code("TSR2015", "a launch stores an address as data", _WARNING),
    Code("TSR2016", "a kernel depends on the layout of fragments", _WARNING),
    Code("TSR3001", "a GPU is unknown"),
    Code("TSR3002", "GPUs, links or prices are not well formed"),
    Code("TSR3005", "a file of a machine or of hosts cannot be used"),
    Code("TSR3007", "a kernel graph leads to no trace"),
    Code("TSR3008", "a kernel graph is not what the analysis finds", _WARNING),
    Code("TSR3009", "the traces of a mix do not fit together"),
    Code("TSR3010", "the model does not fit in memory"),
    Code("TSR3011", "no GPU can run a step, or no link joins those that can"),
    Code("TSR3013", "there is nothing to plan or to run"),
    Code("TSR3014", "durations are not measured", _WARNING),
    Code("TSR3015", "a profile or a table of kernel times cannot be used"),
    Code("TSR3017", "a pin or a placement cannot be used"),
    Code("TSR3018", "a plan was given up", _WARNING),
    Code("TSR3019", "the search, or what follows it, was ended early", _WARNING),
    Code("TSR3020", "a plan file cannot be read"),
    Code("TSR3021", "slices of a GPU do not pay", _WARNING),
    Code("TSR3025", "these GPUs are no fleet"),
    Code("TSR3026", "the steps are not those of a language model"),
    Code("TSR3027", "no fleet serves this"),
    Code("TSR3028", "states that are placed alike cost something", _WARNING),
    Code("TSR3029", "a step cannot be divided so"),
    Code("TSR3030", "a fleet cannot be started so"),
    Code("TSR3031", "no plan keeps a limit"),
    Code("TSR4001", "a program names something that is not there"),
    Code("TSR4002", "an operation is missing, done twice or done elsewhere"),
    Code("TSR4004", "bytes are not current where they are used"),
    Code("TSR4005", "two operations are not ordered"),
    Code("TSR4006", "older bytes or none are put over others"),
    Code("TSR4007", "a result does not end where it belongs"),
    Code("TSR4008", "programs wait for each other"),
    Code("TSR4009", "memory of a plan does not fit"),
    Code("TSR4010", "a pinned step is split from what it touches"),
    Code("TSR4011", "addresses are moved between devices"),
    Code("TSR4012", "memory is used after it is freed, or taken before"),
    Code("TSR4013", "the parts of a plan do not agree"),
    Code("TSR4014", "a transfer carries bytes that nobody needs"),
    Code("TSR4015", "a plan is too large to be proved"),
    Code("TSR4017", "a landing is not used in turns"),
    Code("TSR4018", "parts or twins are not the step that they stand for"),
    Code("TSR4019", "parts of a step depend on each other, or twins on where they run"),
    Code("TSR4020", "a sequence cannot be handed over"),
    Code("TSR5001", "a backend cannot run this"),
    Code("TSR5002", "an access is outside the memory that it may reach"),
    Code("TSR5003", "an access is not aligned"),
    Code("TSR5007", "the arguments do not fit the parameters"),
    Code("TSR5008", "the launch has impossible sizes"),
    Code("TSR5010", "the kernel did not end"),
    Code("TSR5012", "the kernel ended by a trap or an assertion"),
    Code("TSR5014", "the kernel is not in the module, or not for that GPU"),
    Code("TSR5015", "memory that nothing has written is read"),
    Code("TSR5016", "two threads race"),
    Code("TSR5017", "memory that cannot be written is written"),
    Code("TSR5018", "a module variable cannot be set up"),
    Code("TSR5020", "the device is out of memory"),
    Code("TSR5023", "an instruction is used against its rules"),
    Code("TSR5024", "a call of the library is given something else"),
    Code("TSR5050", "the runtime has been closed"),
    Code("TSR5051", "a worker process has ended"),
    Code("TSR5052", "a request does not get on"),
    Code("TSR5053", "a request cannot be used"),
    Code("TSR5054", "a run differs from one device"),
    Code("TSR5055", "a device is missing"),
    Code("TSR5056", "a run was interrupted"),
    Code("TSR5057", "a plan and what it was made from have come apart"),
    Code("TSR5058", "a plan for GPUs runs on the CPU", _WARNING),
    Code("TSR5059", "inputs of a run are not given", _WARNING),
    Code("TSR5060", "a plan cannot be simulated"),
    Code("TSR5062", "a self-test cannot go on with a file"),
    Code("TSR5064", "a prompt cannot be answered"),
    Code("TSR5065", "too many prompts are waiting"),
    Code("TSR5066", "a server cannot start"),
    Code("TSR5067", "steps take other times than planned", _WARNING),
    Code("TSR5071", "a host cannot take part in a run"),
    Code("TSR5072", "a host, or the way to it, is lost"),
    Code("TSR5073", "requests that were lost with a host were replayed", Severity.WARNING),
    Code("TSR5074", "a host of a file is not used", _WARNING),
    Code("TSR5100", "CUDA cannot be used here"),
    Code("TSR5102", "a GPU has too little memory"),
    Code("TSR5104", "the driver refuses a module or a launch"),
    Code("TSR5105", "a GPU cannot be cut into these slices"),
    Code("TSR5106", "a kernel failed on a GPU"),
    Code("TSR5107", "the CUDA driver failed"),
    Code("TSR6000", "tracing needs a GPU and PyTorch"),
    Code("TSR6002", "the model does something that a trace cannot hold"),
    Code("TSR6003", "the call cannot be captured"),
    Code("TSR6004", "a kernel has no PTX"),
    Code("TSR6005", "an address belongs to no tensor"),
    Code("TSR6006", "a kernel cannot be compiled for another GPU", _WARNING),
    Code("TSR6007", "the model is not named well"),
    Code("TSR6008", "the model's own code failed"),
    Code("TSR6010", "the model does not compile as one graph"),
    Code("TSR6012", "an input of the model is on the host", _WARNING),
    Code("TSR6013", "an operator is not in the table", _WARNING),
    Code("TSR6014", "this PyTorch or Triton may not work without a GPU"),
    Code("TSR6015", "the config file makes no model"),
    Code("TSR6016", "a part of the config file is left out", _WARNING),
    Code("TSR6018", "a call returns nothing that a trace keeps", _WARNING),
    Code("TSR6019", "a model folder cannot be served"),
    Code("TSR9000", "an internal error of Tessera"),
)

# Codes of earlier versions, by the code that covers their cases now: `tessc explain` finds them.
FORMER_CODES: dict[str, tuple[str, ...]] = {
    "TSR1001": ("TSR1006",),
    "TSR1004": ("TSR1005",),
    "TSR1012": ("TSR1011",),
    "TSR1013": ("TSR1010",),
    "TSR1021": ("TSR1023",),
    "TSR1025": ("TSR1026",),
    "TSR1100": ("TSR1101",),
    "TSR1103": ("TSR1102", "TSR1107", "TSR1115"),
    "TSR1104": ("TSR1105", "TSR1106"),
    "TSR1109": ("TSR1108",),
    "TSR1111": ("TSR1112", "TSR1113", "TSR1114", "TSR1170"),
    "TSR1116": ("TSR1122", "TSR1123", "TSR1132", "TSR1138"),
    "TSR1121": ("TSR1161",),
    "TSR1125": ("TSR1126", "TSR1127"),
    "TSR1131": ("TSR1130", "TSR1133", "TSR1134"),
    "TSR1136": ("TSR1137", "TSR1160"),
    "TSR1140": ("TSR1141", "TSR1142"),
    "TSR1150": ("TSR1151",),
    "TSR1152": ("TSR1155",),
    "TSR1153": ("TSR1154",),
    "TSR1164": ("TSR1162", "TSR1163"),
    "TSR1181": ("TSR1180", "TSR1182"),
    "TSR1183": ("TSR1184",),
    "TSR1185": ("TSR1186",),
    "TSR1187": ("TSR1188",),
    "TSR1900": ("TSR1901", "TSR1902"),
    "TSR1905": ("TSR1906",),
    "TSR1909": ("TSR1907", "TSR1908"),
    "TSR1911": ("TSR1912",),
    "TSR1914": ("TSR1913", "TSR1915"),
    "TSR1916": ("TSR1917",),
    "TSR2003": ("TSR1143",),
    "TSR3002": ("TSR3003", "TSR3004"),
    "TSR3005": ("TSR5070",),
    "TSR3009": ("TSR3006",),
    "TSR3011": ("TSR3012",),
    "TSR3013": ("TSR5040",),
    "TSR3014": ("TSR3023",),
    "TSR3015": ("TSR3022",),
    "TSR3017": ("TSR3016",),
    "TSR3019": ("TSR3024",),
    "TSR3026": ("TSR5063",),
    "TSR4002": ("TSR4003",),
    "TSR4012": ("TSR4016",),
    "TSR5001": ("TSR5019", "TSR5022"),
    "TSR5002": ("TSR5004", "TSR5005", "TSR5109"),
    "TSR5007": ("TSR5006",),
    "TSR5008": ("TSR5009",),
    "TSR5010": ("TSR5011",),
    "TSR5012": ("TSR5013",),
    "TSR5014": ("TSR5041",),
    "TSR5023": ("TSR5021",),
    "TSR5055": ("TSR5061", "TSR5101", "TSR6009"),
    "TSR5102": ("TSR6011",),
    "TSR5104": ("TSR5103", "TSR5108"),
    "TSR6003": ("TSR6001",),
    "TSR6014": ("TSR6017",),
}

_BY_CODE = {entry.code: entry for entry in CODES}
_BY_FORMER = {old: _BY_CODE[new] for new, every in FORMER_CODES.items() for old in every}


def find_code(text: str) -> Code | None:
    """The entry for a code as a user may type it: `TSR1900`, `tsr1900` or `1900`."""
    wanted = _canonical(text)
    return _BY_CODE.get(wanted) or _BY_FORMER.get(wanted)


def near_codes(text: str) -> tuple[Code, ...]:
    """Up to three entries whose code or title is close to `text`, nearest first."""
    wanted = _canonical(text)
    by_code = difflib.get_close_matches(wanted, _BY_CODE, n=3, cutoff=0.7)
    if by_code:
        return tuple(_BY_CODE[code] for code in by_code)
    words = [word for word in text.lower().split() if len(word) > 2]
    hits = [entry for entry in CODES if any(word in entry.title.lower() for word in words)]
    return tuple(hits[:3])


def explain(entry: Code) -> str:
    """The page of a code, in Markdown, with the former codes of its cases."""
    page = (_PAGES / f"{entry.code}.md").read_text(encoding="utf-8")
    former = FORMER_CODES.get(entry.code, ())
    return page + (f"\nFormer codes of these cases: {', '.join(former)}.\n" if former else "")


def _canonical(text: str) -> str:
    stripped = text.strip().upper()
    return f"TSR{stripped}" if stripped.isascii() and stripped.isdigit() else stripped
