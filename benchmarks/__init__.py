"""Benchmarks of gemmkit beside numpy, onnxruntime and torch; see README.md."""
