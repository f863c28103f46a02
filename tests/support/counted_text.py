"""Text that counts how often it is compared, so that a test can tell linear from quadratic work."""


class CountedText(str):
    """Its items after a split count, too."""

    __slots__ = ()

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountedText.comparisons += 1
        return super().__eq__(other)

    __hash__ = str.__hash__

    def split(self, *args: str, **options: int) -> list[str]:  # type: ignore[override]
        return [CountedText(item) for item in super().split(*args, **options)]  # type: ignore[arg-type]

    def strip(self, _characters: str | None = None) -> "CountedText":
        return self
