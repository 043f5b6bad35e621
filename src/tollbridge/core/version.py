"""Which Tollbridge this is; looking it up in the installed package takes longer than greeting an editor."""

VERSION = "0.1.0"
