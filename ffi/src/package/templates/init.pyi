__version__: str

def synchronize() -> None:
    """Waits for all GPUs that operators were called on. Raises the oldest error of a kernel that was not raised yet."""
