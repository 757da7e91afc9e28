"""What a program of inference or training does with its GPUs: arguments, sizes and memory. Pure."""
