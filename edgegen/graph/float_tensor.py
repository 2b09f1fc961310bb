"""Arrays of floats as constants of a graph that is made when it is loaded."""

from typing import TYPE_CHECKING

from edgegen.graph.protobuf import field, integer_field

if TYPE_CHECKING:  # help and lists do without
    import numpy as np
    from numpy.typing import NDArray

_DIMS, _TYPE, _NAME, _RAW = 1, 2, 8, 9
_FLOAT = 1


def float_tensor(name: str, array: "NDArray[np.float32]") -> bytes:
    """A ``TensorProto``, for a graph's initializers."""
    dims = b"".join(integer_field(_DIMS, size) for size in array.shape)
    raw = array.astype("<f4").tobytes()
    return dims + integer_field(_TYPE, _FLOAT) + field(_NAME, name.encode()) + field(_RAW, raw)
