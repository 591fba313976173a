"""Variables of kernels in files: a kernel writes them (`guest/saved/`), the host keeps them, a new kernel reads them."""
