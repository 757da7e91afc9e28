"""The NVIDIA GPU Operator."""
