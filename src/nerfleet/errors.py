"""The one error class that users meet: a single line that names the file, the frame or key, and the remedy."""


class NerfleetError(Exception):
    """Bad input or a bad request. The command line prints the message on one line and exits with code 2.

    Args of the constructor are joined by ``": "``: what (file, frame, key), what is wrong, what to do.
    """

    def __init__(self, *parts: str) -> None:
        super().__init__(": ".join(" ".join(str(part).split()) for part in parts))
