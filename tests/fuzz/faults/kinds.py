"""Every kind of fault by name."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from tests.fuzz.faults import module, opcodes, operands
from tests.fuzz.faults.templates import TEMPLATES, template
from tests.fuzz.faults.text import Edit, Text

Kind = Callable[[Text, random.Random], Edit | None]

IN_OPCODES = """misspelt_opcode unknown_opcode unknown_modifier misspelt_modifier foreign_modifier
saturated_memory lost_modifier repeated_modifier modifier_order wrong_type wrong_width
logic_type odd_type wrong_case other_opcode""".split()  # noqa: SIM905
IN_OPERANDS = """
register_of_other_width register_of_other_class predicate_for_value guard_no_predicate
guard_no_register undefined_register undefined_special special_misused undefined_label
label_of_other_function undefined_symbol lost_operand extra_operand immediate_destination
immediate_operand address_for_value bad_address register_of_address vector_length
vector_modifier vector_of_mixed element_of_scalar swapped_operands""".split()  # noqa: SIM905
IN_MODULE = """
version_too_old target_too_old target_without_letter bad_target bad_version bad_address_size
header_order wrong_call duplicate_register duplicate_label duplicate_local
bad_declaration_in_body store_to_parameter missing_semicolon missing_comma
unbalanced_bracket stray_text lost_dot""".split()  # noqa: SIM905

KINDS: dict[str, Kind] = {
    **{name: getattr(opcodes, name) for name in IN_OPCODES},
    **{name: getattr(operands, name) for name in IN_OPERANDS},
    **{name: getattr(module, name) for name in IN_MODULE},
    **{name: partial(template, name) for name in TEMPLATES},
    **{name: partial(module.declared, name) for name in module.DECLARED},
    **{name: partial(module.paired, name) for name in module.PAIRS},
}
