"""The limits of what is exchanged with VS Code."""

from __future__ import annotations

import msgspec


class EditorLimits(msgspec.Struct, frozen=True):
    """The limits of what is exchanged with VS Code, with the reason for each.

    Attributes:
        image_bytes: The largest generated image that is saved.
        image_folder_bytes: The size of the folder beyond which the oldest images are deleted.
        embedded_characters: Of all images that are embedded in an answer. VS Code cuts a text after 100,000
            characters.
        preview_sides: The longest sides of previews, in pixels. The first that fits is used.
        preview_bits: The bits of each colour that are tried for each size of a preview.
        previewed_bytes: The largest image of which a preview is made, without compression. It takes a few
            seconds.
        id_characters: Of the ids in which VS Code says what a request belongs to: they are stored.
    """

    image_bytes: int = 20_000_000
    image_folder_bytes: int = 200_000_000
    embedded_characters: int = 60_000
    preview_sides: tuple[int, ...] = (512, 384, 256, 192, 128, 64)
    preview_bits: tuple[int, ...] = (8, 5)
    previewed_bytes: int = 8_000_000
    id_characters: int = 200


LIMITS = EditorLimits()
