"""Code that runs inside kernels: standard library and IPython only; never imported by the host."""
