"""Types of arrays, by the kind and bits of their numbers."""

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
U8 = NDArray[np.uint8]
U16 = NDArray[np.uint16]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Records = NDArray[np.void]
