"""Start the copy of Tollbridge inside the extension.

This file must also be valid in old versions of Python, so that they can print the error below.
"""

import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036
    sys.stderr.write("Python 3.11 or newer is required; this is Python %d.%d\n" % sys.version_info[:2])  # noqa: UP031
    sys.exit(3)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "libs"))

from tollbridge.frontends.stdio import main

sys.exit(main())
