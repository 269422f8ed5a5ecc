"""What GSan puts into Triton and PyTorch."""
