"""The table of diagnostic codes, and the pages that explain them.

A code never changes its meaning: 1xxx syntax and files, 2xxx analysis, 3xxx planning, 4xxx
lowering, 5xxx running, 6xxx capture, 9xxx a fault of Tessera's own. Every code has a page
`explain/<code>.md` with the sections What it means, Why it matters, Example, What to do; the
tests hold the table, the pages and the code that reports them against each other.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from tessera.diagnostics import Severity

_PAGES = Path(__file__).parent / "explain"


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding: its code, what it says in general, and how bad it is by default."""

    code: str
    title: str
    severity: Severity = Severity.ERROR


_WARNING = Severity.WARNING

CODES: tuple[Code, ...] = (
    Code("TSR1001", "something else is expected here"),
    Code("TSR1002", "the module does not say what it is"),
    Code("TSR1003", "the text ends too early"),
    Code("TSR1004", "a comment is never closed"),
    Code("TSR1005", "a string is never closed"),
    Code("TSR1006", "a character does not belong here"),
    Code("TSR1007", "this is not a number that PTX knows"),
    Code("TSR1008", "nested too deeply"),
    Code("TSR1009", "the value is not allowed here"),
    Code("TSR1010", "the declaration has no type of a variable"),
    Code("TSR1011", "the PTX version is not known"),
    Code("TSR1012", "the target is not known, or not in this PTX version"),
    Code("TSR1013", "the declaration breaks a rule"),
    Code("TSR1020", "the name is not declared"),
    Code("TSR1021", "the name is declared twice"),
    Code("TSR1023", "the label is declared twice"),
    Code("TSR1024", "the operands are not those of the opcode"),
    Code("TSR1025", "the opcode is not known"),
    Code("TSR1026", "the directive is not known"),
    Code("TSR1027", "the opcode does not have these modifiers and types"),
    Code("TSR1028", "the operand has another type than the opcode wants"),
    Code("TSR1029", "the instruction needs a later PTX version or target"),
    Code("TSR1100", "the trace has no version"),
    Code("TSR1101", "the trace has an unknown version"),
    Code("TSR1102", "a record has an unknown kind"),
    Code("TSR1103", "a record is not well formed"),
    Code("TSR1104", "a record has an unknown key"),
    Code("TSR1105", "a key is given twice"),
    Code("TSR1106", "a record lacks a key"),
    Code("TSR1107", "a record does not start its line"),
    Code("TSR1108", "text belongs to no module"),
    Code("TSR1109", "a record is out of order"),
    Code("TSR1110", "a name is declared twice"),
    Code("TSR1111", "a buffer is unknown"),
    Code("TSR1112", "a module is unknown"),
    Code("TSR1113", "a kernel is unknown"),
    Code("TSR1114", "a name is used before it is declared"),
    Code("TSR1115", "a record is not UTF-8"),
    Code("TSR1116", "an integer is out of range"),
    Code("TSR1117", "a module has no PTX"),
    Code("TSR1121", "size, shape and type of a buffer do not agree"),
    Code("TSR1122", "a type is unknown"),
    Code("TSR1123", "a role is unknown"),
    Code("TSR1125", "a block has too many threads"),
    Code("TSR1126", "a cluster does not fit its grid"),
    Code("TSR1127", "a block does not fit its kernel"),
    Code("TSR1130", "a launch has the wrong number of arguments"),
    Code("TSR1131", "an argument does not fit its parameter"),
    Code("TSR1132", "a value is not one of its type"),
    Code("TSR1133", "a struct argument is not well formed"),
    Code("TSR1134", "a pointer in a struct is out of place"),
    Code("TSR1135", "a number is passed for a pointer", _WARNING),
    Code("TSR1136", "an address is outside its buffer"),
    Code("TSR1137", "a range reaches outside its buffer"),
    Code("TSR1138", "the element size of a memset is wrong"),
    Code("TSR1139", "a copy overlaps itself"),
    Code("TSR1140", "a pointer is outside its table"),
    Code("TSR1141", "a pointer is not aligned"),
    Code("TSR1142", "a pointer is given twice"),
    Code("TSR1143", "a weight is written"),
    Code("TSR1150", "variants of a module disagree on kernels"),
    Code("TSR1151", "variants of a module disagree on variables"),
    Code("TSR1152", "a launch has a variant for code that is not there"),
    Code("TSR1153", "a module's architecture is not its target"),
    Code("TSR1154", "an architecture is not well formed"),
    Code("TSR1155", "a launch has two variants for one architecture"),
    Code("TSR1160", "an operand is outside its buffer"),
    Code("TSR1161", "shape and strides of an operand do not agree"),
    Code("TSR1162", "an attribute cannot be used"),
    Code("TSR1163", "an operator is unknown"),
    Code("TSR1164", "a call does not fit its operator"),
    Code("TSR1170", "an event is waited for but never recorded"),
    Code("TSR1180", "the file of contents has no plain name"),
    Code("TSR1181", "the file of contents cannot be read"),
    Code("TSR1182", "the file of contents is not a plain file"),
    Code("TSR1183", "the file of contents is damaged"),
    Code("TSR1184", "an array of contents has a type that is not bytes"),
    Code("TSR1185", "an array of contents has the wrong size"),
    Code("TSR1186", "an array of contents belongs to no buffer"),
    Code("TSR1187", "a checkpoint does not fit the weights of a trace"),
    Code("TSR1188", "a folder is no checkpoint"),
    Code("TSR1900", "the file does not exist"),
    Code("TSR1901", "a folder was given in place of a file"),
    Code("TSR1902", "the file cannot be read"),
    Code("TSR1903", "the file is empty"),
    Code("TSR1904", "the file is too large"),
    Code("TSR1905", "the file is GPU machine code, not PTX"),
    Code("TSR1906", "the file is a host binary or a fat binary, not PTX"),
    Code("TSR1907", "the file is compressed"),
    Code("TSR1908", "the text is UTF-16 or UTF-32"),
    Code("TSR1909", "the file holds binary data"),
    Code("TSR1910", "the text is another language, not PTX"),
    Code("TSR1911", "the output cannot be written"),
    Code("TSR1912", "the kernel graph was not written", _WARNING),
    Code("TSR1913", "arrivals are in no format that is known"),
    Code("TSR1914", "a line of arrivals cannot be used"),
    Code("TSR1915", "a rate of arrivals cannot be used"),
    Code("TSR1916", "a report cannot be made of the file"),
    Code("TSR1917", "the files of a report do not belong together"),
    Code("TSR1918", "an optional package is missing"),
    Code("TSR2001", "a launch may touch any buffer", _WARNING),
    Code("TSR2002", "a launch may overwrite pointers", _WARNING),
    Code("TSR2003", "a launch may write a weight"),
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
    Code("TSR3002", "the list of GPUs is not well formed"),
    Code("TSR3003", "a link cannot be used"),
    Code("TSR3004", "an override of a price or a memory cannot be used"),
    Code("TSR3005", "a machine file cannot be used"),
    Code("TSR3006", "the part of a trace in a mix is no number"),
    Code("TSR3007", "a kernel graph leads to no trace"),
    Code("TSR3008", "a kernel graph is not what the analysis finds", _WARNING),
    Code("TSR3009", "the traces of a mix do not fit together"),
    Code("TSR3010", "the model does not fit in memory"),
    Code("TSR3011", "no GPU can run a step"),
    Code("TSR3012", "no link joins the GPUs that are needed"),
    Code("TSR3013", "there is nothing to plan"),
    Code("TSR3014", "durations are not measured", _WARNING),
    Code("TSR3015", "a profile cannot be used"),
    Code("TSR3016", "a pin names nothing"),
    Code("TSR3017", "a placement cannot be used"),
    Code("TSR3018", "a plan was given up", _WARNING),
    Code("TSR3019", "the search was ended early", _WARNING),
    Code("TSR3020", "a plan file cannot be read"),
    Code("TSR3021", "slices of a GPU do not pay", _WARNING),
    Code("TSR3022", "a table of kernel times cannot be used"),
    Code("TSR3023", "hints on the work of launches are not used", _WARNING),
    Code("TSR3024", "the comparisons of a plan were left out", _WARNING),
    Code("TSR3025", "these GPUs are no fleet"),
    Code("TSR3026", "the traces are not the steps of a language model"),
    Code("TSR3027", "no fleet serves this"),
    Code("TSR3028", "states that are placed alike cost something", _WARNING),
    Code("TSR4001", "a program names something that is not there"),
    Code("TSR4002", "an operation is missing or done twice"),
    Code("TSR4003", "a step is not where the plan puts it"),
    Code("TSR4004", "bytes are not current where they are used"),
    Code("TSR4005", "two operations are not ordered"),
    Code("TSR4006", "older bytes or none are put over others"),
    Code("TSR4007", "a result does not end where it belongs"),
    Code("TSR4008", "programs wait for each other"),
    Code("TSR4009", "memory of a plan does not fit"),
    Code("TSR4010", "a pinned step is split from what it touches"),
    Code("TSR4011", "addresses are moved between devices"),
    Code("TSR4012", "memory is used after it is freed"),
    Code("TSR4013", "the parts of a plan do not agree"),
    Code("TSR4014", "a transfer carries bytes that nobody needs"),
    Code("TSR4015", "a plan is too large to be proved"),
    Code("TSR4016", "memory is taken before it is freed"),
    Code("TSR4017", "a landing is not used in turns"),
    Code("TSR5001", "the CPU backend cannot run this instruction"),
    Code("TSR5002", "an access is outside every allocation"),
    Code("TSR5003", "an access is not aligned"),
    Code("TSR5004", "an address belongs to another device"),
    Code("TSR5005", "an access is outside shared, local or parameter memory"),
    Code("TSR5006", "the number of arguments is wrong"),
    Code("TSR5007", "an argument does not fit its parameter"),
    Code("TSR5008", "the launch has impossible sizes"),
    Code("TSR5009", "the launch needs too much shared memory"),
    Code("TSR5010", "the kernel did not end"),
    Code("TSR5011", "every thread waits"),
    Code("TSR5012", "the kernel ran into a trap"),
    Code("TSR5013", "an assertion of the kernel failed"),
    Code("TSR5014", "the kernel is not in the module"),
    Code("TSR5015", "memory that nothing has written is read"),
    Code("TSR5016", "two threads race"),
    Code("TSR5017", "memory that cannot be written is written"),
    Code("TSR5018", "a module variable cannot be set up"),
    Code("TSR5019", "the module has 32-bit addresses"),
    Code("TSR5020", "the device is out of memory"),
    Code("TSR5021", "a call cannot be made"),
    Code("TSR5022", "a backend cannot run a library operator"),
    Code("TSR5023", "an instruction is used against its rules"),
    Code("TSR5024", "a call of the library is given something else"),
    Code("TSR5040", "there is nothing to run"),
    Code("TSR5041", "no variant is for that architecture"),
    Code("TSR5050", "the runtime has been closed"),
    Code("TSR5051", "a worker process has ended"),
    Code("TSR5052", "a request does not get on"),
    Code("TSR5053", "a request cannot be used"),
    Code("TSR5054", "a run differs from one device"),
    Code("TSR5055", "a device for the plan is missing"),
    Code("TSR5056", "a run was interrupted"),
    Code("TSR5057", "a plan and what it was made from have come apart"),
    Code("TSR5058", "a plan for GPUs runs on the CPU", _WARNING),
    Code("TSR5059", "inputs of a run are not given", _WARNING),
    Code("TSR5060", "a plan cannot be simulated"),
    Code("TSR5061", "a self-test needs two devices"),
    Code("TSR5062", "a self-test cannot go on with a file"),
    Code("TSR5063", "a plan has no steps that generate text"),
    Code("TSR5064", "a prompt cannot be answered"),
    Code("TSR5065", "too many prompts are waiting"),
    Code("TSR5066", "a server cannot start"),
    Code("TSR5067", "steps take other times than planned", _WARNING),
    Code("TSR5070", "a file of hosts cannot be used"),
    Code("TSR5071", "a host cannot take part in a run"),
    Code("TSR5072", "a host, or the way to it, is lost"),
    Code("TSR5073", "requests that were lost with a host were replayed", Severity.WARNING),
    Code("TSR5074", "a host of a file is not used", _WARNING),
    Code("TSR5100", "CUDA cannot be used here"),
    Code("TSR5101", "a GPU of the plan is not there"),
    Code("TSR5102", "a GPU has too little memory"),
    Code("TSR5103", "the PTX is newer than the driver"),
    Code("TSR5104", "the driver refuses a module"),
    Code("TSR5105", "a GPU cannot be cut into these slices"),
    Code("TSR5106", "a kernel failed on a GPU"),
    Code("TSR5107", "the CUDA driver failed"),
    Code("TSR5108", "the driver refuses a launch"),
    Code("TSR5109", "a kernel wrote outside its buffers"),
    Code("TSR6000", "tracing needs a GPU and PyTorch"),
    Code("TSR6001", "the driver refuses to show the graph"),
    Code("TSR6002", "the model does something that a trace cannot hold"),
    Code("TSR6003", "the call cannot be captured"),
    Code("TSR6004", "a kernel has no PTX"),
    Code("TSR6005", "an address belongs to no tensor"),
    Code("TSR6006", "a kernel cannot be compiled for another GPU", _WARNING),
    Code("TSR6007", "the model is not named well"),
    Code("TSR6008", "the model's own code failed"),
    Code("TSR6009", "there is no such GPU to measure on"),
    Code("TSR6010", "the model does not compile as one graph"),
    Code("TSR6011", "the GPU has too little memory for the model"),
    Code("TSR6012", "an input of the model is on the host", _WARNING),
    Code("TSR6013", "an operator is not in the table", _WARNING),
    Code("TSR6014", "this PyTorch cannot stand in for a GPU"),
    Code("TSR6015", "the config file makes no model"),
    Code("TSR6016", "a part of the config file is left out", _WARNING),
    Code("TSR6017", "a version of PyTorch or Triton was not tried without a GPU", _WARNING),
    Code("TSR6018", "a call returns nothing that a trace keeps", _WARNING),
    Code("TSR9000", "an internal error of Tessera"),
)

_BY_CODE = {entry.code: entry for entry in CODES}


def find_code(text: str) -> Code | None:
    """The entry for a code as a user may type it: `TSR1900`, `tsr1900` or `1900`."""
    return _BY_CODE.get(_canonical(text))


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
    """The page of a code, in Markdown."""
    return (_PAGES / f"{entry.code}.md").read_text(encoding="utf-8")


def _canonical(text: str) -> str:
    stripped = text.strip().upper()
    return f"TSR{stripped}" if stripped.isascii() and stripped.isdigit() else stripped
