"""Whether all layers of a model are alike, from the model itself, made without memory.

In: a config file. Out: the number of its layers if they are alike, else 0; and the same config with
fewer of them. Layers are alike if their modules have the same classes, the same parameters and the
same plain values, but for the number of the layer; and if every list of the config with a value per
layer has one value. What a forward pass makes of the number of a layer is not seen here: traces of
a few layers are compared for that.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from tessera.frontend.capture.meta import hf

_COUNT = "num_hidden_layers"
_Plain = (int, float, str, bool, type(None))


def equal_layers(config: hf.HfConfig) -> int:
    """The number of layers if all are equal, else 0; to be called where tensors are fake."""
    count = config.values.get(_COUNT)
    if not isinstance(count, int) or isinstance(count, bool):
        return 0
    taken = hf.config_of(config)
    if taken.get_text_config() is not taken:
        return 0
    for value in taken.to_dict().values():
        is_per_layer = isinstance(value, list | tuple) and len(value) == count
        if is_per_layer and any(own != value[0] for own in value):
            return 0
    try:
        with hf.offline(), torch.device("cuda"):
            model = hf.model_of(taken)
    except Exception:  # whatever the library raises for odd sizes: the step itself will say it
        return 0
    lists = [
        module
        for module in model.modules()
        if isinstance(module, torch.nn.ModuleList) and len(module) == count
    ]
    return count if len(lists) == 1 and _are_alike(lists[0]) else 0


def with_layers(config: hf.HfConfig, count: int) -> hf.HfConfig:
    """The same config with fewer layers."""
    before = config.values[_COUNT]
    values = {
        name: value[:count] if isinstance(value, list) and len(value) == before else value
        for name, value in config.values.items()
    }
    return replace(config, values=values | {_COUNT: count})


def _are_alike(layers: torch.nn.ModuleList) -> bool:
    first = [_values(module) for module in layers[0].modules()]
    for number, layer in enumerate(layers):
        own = [_values(module) for module in layer.modules()]
        if len(own) != len(first):
            return False
        for (kind, shapes, plain), (other, others, values) in zip(own, first, strict=True):
            if kind is not other or shapes != others or plain.keys() != values.keys():
                return False
            if any(
                value != values[name] and (value, values[name]) != (number, 0)
                for name, value in plain.items()
            ):
                return False
    return True


def _values(
    module: torch.nn.Module,
) -> tuple[type[torch.nn.Module], list[tuple[str, object]], dict[str, object]]:
    """The class of a module, its own parameters and its plain values."""
    tensors = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    shapes = [(name, (tuple(tensor.shape), tensor.dtype)) for name, tensor in tensors]
    plain: dict[str, object] = {
        name: value for name, value in vars(module).items() if isinstance(value, _Plain)
    }
    return type(module), list[tuple[str, object]](shapes), plain
