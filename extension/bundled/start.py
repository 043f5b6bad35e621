"""Start the copy of Tollbridge inside the extension.

This file must also be valid in old versions of Python, so that they can print the error below.
"""

import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036
    sys.stderr.write("Python 3.11 or newer is required; this is Python %d.%d\n" % sys.version_info[:2])  # noqa: UP031
    sys.exit(3)

LIBS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libs")


def unpack(name):
    """Unpack a dependency at the first start, and make it importable.

    It is unpacked next to the others, or in the cache folder if the extension's folder cannot be written. The
    last step is a rename, because several windows can do this at the same time.
    """
    if os.path.isdir(os.path.join(LIBS, name)):
        return
    archive = os.path.join(LIBS, name + ".tar.xz")
    try:
        unpack_to(LIBS, archive, name)
    except OSError:
        from tollbridge.transport.files import cache_folder

        version = str(os.path.getsize(archive))
        folder = os.path.join(str(cache_folder()), "extension-" + version)
        if not os.path.isdir(os.path.join(folder, name)):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            unpack_to(folder, archive, name)
        sys.path.insert(1, folder)


def unpack_to(folder, archive, name):
    import shutil
    import tarfile
    import tempfile

    temporary = tempfile.mkdtemp(prefix=".unpacking-", dir=folder)
    try:
        with tarfile.open(archive) as packed:
            packed.extraction_filter = getattr(tarfile, "data_filter", None)  # new in Python 3.11.4
            packed.extractall(temporary)
        os.rename(os.path.join(temporary, name), os.path.join(folder, name))
    except OSError:
        if not os.path.isdir(os.path.join(folder, name)):  # it is there if another window was faster
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


sys.path.insert(0, LIBS)
unpack("splintr")

from tollbridge.frontends.stdio import main  # noqa: E402

sys.exit(main())
