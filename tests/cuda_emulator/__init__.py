"""CUDA sources run on the CPU: a stand-in for `strongticket.ops.nvrtc` where there is no GPU."""
