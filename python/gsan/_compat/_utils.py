"""`triton.experimental.gsan._utils`."""

from ..testing import uint8_cuda_tensor_from_ptr

__all__ = ["uint8_cuda_tensor_from_ptr"]
