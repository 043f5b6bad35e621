"""Images that a model generates: saved as files, and shown in the chat by a link to the file.

VS Code's chat shows no image parts of an answer, but it shows images of local files in its text.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from urllib.parse import quote

from tollbridge.transport.files import make_folder, replace_file
from tollbridge.types.media import detect_mime
from tollbridge.types.messages import DataPart, Part

# The formats that are saved, with their suffixes. SVG is not among them: it can contain scripts.
SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
# The largest image that is saved, and the size of a folder beyond which the oldest images are deleted.
MAX_BYTES, MAX_FOLDER_BYTES = 20_000_000, 200_000_000

_START = "![Image](file://"
# The path has no parentheses: `write_image_link` quotes them.
_LINK = re.compile(r"!\[Image\]\(file://[^()!\s]*/([0-9a-f]{32}\.(?:png|jpg|gif|webp))\)")


def is_image(part: Part) -> bool:
    return isinstance(part, DataPart) and part.mime in SUFFIXES


def save_image(folder: Path, data: bytes) -> Path | None:
    """Save an image and return its path; `None` if it is too large or has another format.

    The name depends only on the content, and the format is detected from it.

    Raises:
        OSError: The file cannot be written.
    """
    suffix = SUFFIXES.get(detect_mime(data, ""))
    if suffix is None or len(data) > MAX_BYTES:
        return None
    path = folder / f"{hashlib.sha256(data).hexdigest()[:32]}.{suffix}"
    if not path.exists():
        make_folder(folder)
        replace_file(path, data)
        _delete_oldest(folder, path)
    return path


def write_image_link(path: Path) -> str:
    """Return a text that shows an image in VS Code's chat, in a paragraph of its own."""
    return f"\n\n![Image](file://{quote('/' + path.as_posix().removeprefix('/'))})\n\n"


def shorten_image_links(text: str) -> str:
    """Remove the folder from the links to saved images: it is of no use to a model."""
    return _LINK.sub(r"![Image](\1)", text) if _START in text else text


def _delete_oldest(folder: Path, latest: Path) -> None:
    images = [path for path in folder.iterdir() if path.suffix[1:] in SUFFIXES.values() and path != latest]
    sizes = {path: path.stat() for path in images}
    total = latest.stat().st_size + sum(status.st_size for status in sizes.values())
    for path in sorted(images, key=lambda image: sizes[image].st_mtime):
        if total <= MAX_FOLDER_BYTES:
            break
        path.unlink(missing_ok=True)
        total -= sizes[path].st_size
