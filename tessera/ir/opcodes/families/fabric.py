"""Fabric instructions: memory of other GPUs by endpoint (PTX ISA 9.4, section 9.7.11).

`[remote]` names an endpoint, an offset in it and, for counted writes, the offset of a counter; its
space is "fabric". No pointer of this GPU reaches it.
"""

TABLE = """
# 9.7.11.5
fabric.try_get     | [d]=write/1/n [remote]=read/fabric/n n [mbar] policy        | copy
fabric.try_put     | [remote]=write/fabric/n [a]=read/1/n n [mbar] mask@cp_mask policy | copy
fabric.try_red     | [remote]=reduce/fabric/n [a]=read/1/n n [mbar] policy       | copy
fabric.try_pullred | [d]=write/1/n [remote]=read/fabric/n n [mbar] mask policy   | copy       | warp
fabric.try_atom    | [remote]=update/fabric/? [d]=update/1/? [a]=read/1/? [mbar] policy | copy
fabric.submit      |                                                             | async_copy | side
fabric.wait        |                                                             | async_copy | side

# 9.7.11.5.7 to 9.7.11.5.9: tensor map, endpoint, offset and coordinates
fabric.try_get.async.tensor | [d]=write/1/box [remote]=read/fabric/box [mbar] policy     | copy
fabric.try_put.async.tensor | [remote]=update/fabric/box [a]=read/1/box n [mbar] policy  | copy
fabric.try_red.async.tensor | [remote]=reduce/fabric/box [a]=read/1/box n? [mbar] policy | copy
"""

FORMS = """
fabric      | * |
"""
